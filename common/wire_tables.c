/* The format: which fields each kind of message and record has, in which order. PROTOCOL.md
 * explains them; message.h and record.h are the structs. */
#include "common/wire_fields.h"

#include "common/arithmetic.h"
#include "common/message.h"

#include <assert.h>

#define AT(member)       (uint32_t) offsetof(STRUCT, member)
#define BYTES_OF(member) (uint32_t)sizeof(((STRUCT *)0)->member)
#define U32(member, high)                                                                          \
    {                                                                                              \
#member, FIELD_U32, AT(member), 4, 0, high, 0                                              \
    }
#define ENUM(member, low, high)                                                                    \
    {                                                                                              \
#member, FIELD_U32, AT(member), 4, 0, high, low                                            \
    }
#define U64(member)                                                                                \
    {                                                                                              \
#member, FIELD_U64, AT(member), 8, 0, UINT64_MAX, 0                                        \
    }
#define I32(member)                                                                                \
    {                                                                                              \
#member, FIELD_I32, AT(member), 4, 0, 0, 0                                                 \
    }
#define F32(member)                                                                                \
    {                                                                                              \
#member, FIELD_F32, AT(member), 4, 0, 0, 0                                                 \
    }
#define F64(member)                                                                                \
    {                                                                                              \
#member, FIELD_F64, AT(member), 8, 0, 0, 0                                                 \
    }
#define TEXT(member)                                                                               \
    {                                                                                              \
#member, FIELD_TEXT, AT(member), BYTES_OF(member), 0, 0, 0                                 \
    }
#define FIXED(member)                                                                              \
    {                                                                                              \
#member, FIELD_BYTES, AT(member), BYTES_OF(member), 0, 0, 0                                \
    }
#define BLOB(member, counted, high)                                                                \
    {                                                                                              \
#member, FIELD_BLOB, AT(member), BYTES_OF(member[0]), AT(counted), high, 0                 \
    }
#define NAME(member)                                                                               \
    U32(member.worker, WORKERS_MAX - 1), U64(member.incarnation), U64(member.sequence)
#define ANY UINT32_MAX
#define TABLE(rows)                                                                                \
    {                                                                                              \
        rows, sizeof rows / sizeof *rows                                                           \
    }

#define STRUCT struct message

static const struct field join[] = {U32(join.protocol_oldest, ANY),
                                    U32(join.protocol_newest, ANY),
                                    U64(join.job),
                                    TEXT(join.identity),
                                    FIXED(join.nonce),
                                    ENUM(join.role, ROLE_WORKER, ROLE_RANK),
                                    U64(join.layout_hash),
                                    U32(join.outstanding_max, ANY)};
static const struct field rank[] = {U32(rank.rank, RANKS_MAX - 1), ENUM(rank.ranks, 2, RANKS_MAX),
                                    U64(rank.incarnation), U64(rank.instance)};
static const struct field swap[] = {TEXT(swap.identity),
                                    U64(swap.meeting),
                                    U32(swap.round, ANY),
                                    U32(swap.rank, RANKS_MAX - 1),
                                    ENUM(swap.ranks, 1, RANKS_MAX),
                                    U32(swap.asked, (1 << RANKS_MAX) - 1),
                                    U64(swap.instance),
                                    U32(swap.patience_ms, SWAP_PATIENCE_MS_MAX),
                                    BLOB(swap.data, swap.bytes, SWAP_BYTES_MAX)};
static const struct field swapped[] = {I32(swapped.status),
                                       U64(swapped.meeting),
                                       U32(swapped.round, ANY),
                                       U64(swapped.instance),
                                       U32(swapped.asked, (1 << RANKS_MAX) - 1),
                                       U32(swapped.here, (1 << RANKS_MAX) - 1),
                                       U32(swapped.rank, RANKS_MAX - 1),
                                       BLOB(swapped.data, swapped.bytes, SWAP_BYTES_MAX)};
static const struct field called[] = {U32(called.waiting, (1 << RANKS_MAX) - 1)};
static const struct field joined[] = {U64(joined.job),
                                      U32(joined.worker, WORKERS_MAX - 1),
                                      U64(joined.incarnation),
                                      U64(joined.version),
                                      U32(joined.first, 1),
                                      U64(joined.layout_hash),
                                      U64(joined.last_sequence),
                                      U32(joined.outstanding_max, ANY),
                                      FIXED(joined.pass),
                                      U64(joined.chunk_bytes),
                                      U32(joined.gradient_dtype, ARITHMETIC_INT8),
                                      F64(joined.magnitude_max),
                                      BLOB(joined.members, joined.members_count, MEMBERS_MAX)};
static const struct field denied[] = {I32(denied.status), TEXT(denied.text)};
static const struct field want[] = {ENUM(want.content, CONTENT_LAYOUT, CONTENT_PARTS)};
static const struct field page[] = {
    ENUM(page.content, CONTENT_LAYOUT, CONTENT_PARTS),
    U32(page.page, ANY),
    U32(page.pages, ANY),
    U64(page.total),
    {"page.data", FIELD_DATA, AT(page.data), 1, AT(page.bytes), PAGE_BYTES_MAX, 0}};
static const struct field ask[] = {NAME(ask.name)};
static const struct field place[] = {NAME(place.name), U32(place.slot, SLOTS_MAX - 1),
                                     U64(place.generation)};
static const struct field describe[] = {
    NAME(describe.name),      U32(describe.slot, SLOTS_MAX - 1),
    U64(describe.generation), U32(describe.purpose, PURPOSE_FIRST),
    U64(describe.basis),      U64(describe.samples),
    F64(describe.norm),       U64(describe.layout_hash),
    U64(describe.digest)};
static const struct field receipt[] = {NAME(receipt.name),
                                       ENUM(receipt.verdict, VERDICT_ADMITTED, VERDICTS - 1),
                                       U64(receipt.index),
                                       U64(receipt.version),
                                       U64(receipt.staleness),
                                       F32(receipt.weight),
                                       U64(receipt.durable),
                                       U64(receipt.detail),
                                       U64(receipt.whole),
                                       U64(receipt.next_sequence),
                                       U32(receipt.next_slot, SLOTS_MAX - 1),
                                       U64(receipt.next_generation)};
static const struct field bye[] = {NAME(bye.name)};
static const struct field report[] = {NAME(report.name),
                                      BLOB(report.numbers, report.numbers_count, REPORT_MAX)};
static const struct field tune_ask[] = {TEXT(tune_ask.setting), TEXT(tune_ask.value)};
static const struct field tuned[] = {I32(tuned.status), U64(tuned.index), TEXT(tuned.text)};
static const struct field enlist[] = {U32(enlist.protocol_oldest, ANY),
                                      U32(enlist.protocol_newest, ANY),
                                      U64(enlist.job),
                                      U32(enlist.shard, MEMBERS_MAX - 1),
                                      FIXED(enlist.instance),
                                      TEXT(enlist.address),
                                      U32(enlist.cold, 1),
                                      U32(enlist.epoch, ANY),
                                      U64(enlist.index),
                                      U64(enlist.hash)};
static const struct field member[] = {U64(member.job),
                                      U32(member.shard, MEMBERS_MAX - 1),
                                      U32(member.members, MEMBERS_MAX),
                                      U64(member.first),
                                      U64(member.count),
                                      U32(member.moments, 1),
                                      U32(member.slots, SLOTS_MAX),
                                      U32(member.parameter_slots, 64),
                                      U32(member.ring, ANY),
                                      U64(member.layout_hash),
                                      U32(member.gradient_dtype, ARITHMETIC_INT8),
                                      FIXED(member.instance)};
static const struct field ready[] = {U32(ready.shard, MEMBERS_MAX - 1), U64(ready.layout_hash),
                                     U64(ready.bytes)};
static const struct field entry[] = {U32(entry.worker, WORKERS_MAX - 1), U64(entry.incarnation),
                                     FIXED(entry.pass)};
static const struct field logged[] = {U64(logged.index), U64(logged.hash)};
static const struct field landed[] = {U32(landed.slot, SLOTS_MAX - 1),
                                      U64(landed.generation),
                                      NAME(landed.name),
                                      U64(landed.digest),
                                      U32(landed.intact, 1),
                                      U64(landed.not_finite),
                                      F32(landed.magnitude),
                                      F64(landed.sum_squares)};
static const struct field close_[] = {U32(close.slot, SLOTS_MAX - 1), U64(close.generation),
                                      U64(close.after)};
static const struct field freed[] = {U32(freed.slot, SLOTS_MAX - 1), U64(freed.generation)};
static const struct field stepped[] = {U64(stepped.version)};
static const struct field sums[] = {
    U64(sums.version), U32(sums.round, 1),   U64(sums.first_block),
    U64(sums.blocks),  U64(sums.first_node), BLOB(sums.nodes, sums.nodes_count, SUM_NODES_MAX)};
static const struct field whole[] = {U64(whole.version)};
static const struct field pulse[] = {
    U64(pulse.beat),     U64(pulse.logged),    U64(pulse.applied),       U64(pulse.version),
    U64(pulse.bytes_in), U64(pulse.bytes_out), U32(pulse.sessions, ANY), U32(pulse.waiting, 2),
    U64(pulse.step_ns),  U64(pulse.dropped),   TEXT(pulse.transport)};

static const struct field seal[] = {FIXED(seal.instance)};
static const struct field sealed[] = {FIXED(sealed.instance), U64(sealed.index), U64(sealed.hash)};
static const struct field moved[] = {U32(moved.shard, MEMBERS_MAX - 1), TEXT(moved.address)};

static const struct field_table messages[] = {
    [MESSAGE_JOIN] = TABLE(join),
    [MESSAGE_RANK] = TABLE(rank),
    [MESSAGE_SWAP] = TABLE(swap),
    [MESSAGE_SWAPPED] = TABLE(swapped),
    [MESSAGE_CALLED] = TABLE(called),
    [MESSAGE_JOINED] = TABLE(joined),
    [MESSAGE_DENIED] = TABLE(denied),
    [MESSAGE_WANT] = TABLE(want),
    [MESSAGE_PAGE] = TABLE(page),
    [MESSAGE_ASK] = TABLE(ask),
    [MESSAGE_PLACE] = TABLE(place),
    [MESSAGE_DESCRIBE] = TABLE(describe),
    [MESSAGE_RECEIPT] = TABLE(receipt),
    [MESSAGE_BYE] = TABLE(bye),
    [MESSAGE_REJOIN] = {0},
    [MESSAGE_STOP] = {0},
    [MESSAGE_TUNE_ASK] = TABLE(tune_ask),
    [MESSAGE_TUNED] = TABLE(tuned),
    [MESSAGE_ENLIST] = TABLE(enlist),
    [MESSAGE_MEMBER] = TABLE(member),
    [MESSAGE_READY] = TABLE(ready),
    [MESSAGE_ENTRY] = TABLE(entry),
    [MESSAGE_RECORD] = {0},
    [MESSAGE_LOGGED] = TABLE(logged),
    [MESSAGE_LANDED] = TABLE(landed),
    [MESSAGE_CLOSE] = TABLE(close_),
    [MESSAGE_FREED] = TABLE(freed),
    [MESSAGE_STEPPED] = TABLE(stepped),
    [MESSAGE_SUMS] = TABLE(sums),
    [MESSAGE_WHOLE] = TABLE(whole),
    [MESSAGE_PULSE] = TABLE(pulse),
    [MESSAGE_SEAL] = TABLE(seal),
    [MESSAGE_SEALED] = TABLE(sealed),
    [MESSAGE_MOVED] = TABLE(moved),
    [MESSAGE_REPORT] = TABLE(report),
};

#undef STRUCT
#define STRUCT struct record

static const struct field record_first[] = {NAME(first.name), U32(first.slot, SLOTS_MAX - 1),
                                            U64(first.generation), U64(first.digest)};
static const struct field record_join[] = {U32(join.worker, WORKERS_MAX - 1),
                                           U64(join.incarnation),
                                           ENUM(join.role, ROLE_WORKER, ROLE_READER),
                                           FIXED(join.nonce),
                                           TEXT(join.identity),
                                           U32(join.outstanding_max, ANY)};
static const struct field record_leave[] = {U32(leave.worker, WORKERS_MAX - 1),
                                            U64(leave.incarnation),
                                            ENUM(leave.cause, LEAVE_BYE, LEAVE_ROUND)};
static const struct field record_admit[] = {
    NAME(admit.name),         U32(admit.slot, SLOTS_MAX - 1),
    U64(admit.generation),    U64(admit.digest),
    U64(admit.basis),         U64(admit.landed_version),
    U64(admit.samples),       F64(admit.norm),
    F64(admit.sample_weight), F64(admit.clip)};
static const struct field record_refuse[] = {
    NAME(refuse.name),      U32(refuse.slot, SLOTS_MAX - 1),
    U64(refuse.generation), ENUM(refuse.verdict, VERDICT_STALE, VERDICTS - 1),
    U64(refuse.basis),      U64(refuse.digest),
    U64(refuse.detail)};
static const struct field record_step[] = {U64(step.version),
                                           U64(step.t),
                                           ENUM(step.cause, STEP_DUE, STEP_DRAIN),
                                           U32(step.algorithm, STEP_STACKS),
                                           U32(step.rounds, 1),
                                           BLOB(step.groups, step.groups_count, GROUPS_MAX),
                                           BLOB(step.entries, step.entries_count, WINDOW_MAX),
                                           U64(step.stacks.position),
                                           U32(step.stacks.window, WINDOW_MAX),
                                           U32(step.stacks.fresh, ANY),
                                           U32(step.stacks.known, WINDOW_MAX),
                                           U32(step.stacks.rescale, ANY),
                                           F64(step.stacks.ratio),
                                           F64(step.stacks.anchor),
                                           BLOB(step.turns, step.stacks.turns_count, WINDOW_MAX)};
static const struct field record_summed[] = {U64(summed.version), U32(summed.round, 1),
                                             F64(summed.norm), U32(summed.factor, ANY),
                                             BLOB(summed.ratios, summed.ratios_count, RATIOS_MAX)};
static const struct field record_save[] = {U64(save.cut)};
static const struct field record_tune[] = {TEXT(tune.setting), TEXT(tune.value)};
static const struct field record_map[] = {BLOB(map.firsts, map.members, MEMBERS_MAX),
                                          BLOB(map.counts, map.members, MEMBERS_MAX),
                                          U64(map.layout_hash),
                                          U32(map.slots, SLOTS_MAX),
                                          U32(map.groups_count, GROUPS_MAX),
                                          TEXT(map.settings)};

static const struct field_table records[] = {
    [RECORD_FIRST] = TABLE(record_first),   [RECORD_JOIN] = TABLE(record_join),
    [RECORD_LEAVE] = TABLE(record_leave),   [RECORD_ADMIT] = TABLE(record_admit),
    [RECORD_REFUSE] = TABLE(record_refuse), [RECORD_STEP] = TABLE(record_step),
    [RECORD_SUMMED] = TABLE(record_summed), [RECORD_SAVE] = TABLE(record_save),
    [RECORD_DURABLE] = TABLE(record_save),  [RECORD_TUNE] = TABLE(record_tune),
    [RECORD_MAP] = TABLE(record_map),
};

struct field_table message_fields(uint32_t kind)
{
    return kind < sizeof messages / sizeof *messages ? messages[kind] : (struct field_table){0};
}

struct field_table record_fields(uint32_t kind)
{
    return kind < sizeof records / sizeof *records ? records[kind] : (struct field_table){0};
}

static_assert(sizeof(struct report_number) == 40 && sizeof(struct step_entry) == 8 &&
                  sizeof(struct step_turn) == 8 && sizeof(struct step_group) == 24 &&
                  sizeof(struct member) == ADDRESS_MAX + 16,
              "blobs are copied as they lie in memory");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");
