/* Heads and bodies from anybody into a shard's core, between what a coordinator says and what a
 * transport tells: the input is a list of such events, each a byte that says which, and bytes that
 * spoil it. Whatever comes, every body offered is taken or refused exactly once, nothing is taken
 * or handed out beyond its place, and a process that is killed between two events goes on. */
#include "common/checksum.h"
#include "server/shard/shard_internal.h"
#include "server/shard/shard_local.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { ELEMENTS = 600, MOMENTS = 2, CHUNK = 1024, SLOTS = 4, PEERS = 4, RANKS = 2, PARTS_MAX = 64 };

static struct model *model;
static struct law_settings law;
static struct shard_options options;
static struct shard_local *local;
static struct shard *shard;
static void *fresh; /* the arena as it is before each input */

static struct {
    const uint8_t *bytes;
    size_t count;
} input;

static struct ledger ledger; /* the coordinator's */
static uint32_t sessions[PEERS + 1];
static struct shard_action takes[PARTS_MAX], replies[PARTS_MAX];
static uint32_t takes_count, replies_count;
static uint64_t takers[PARTS_MAX];
static uint8_t fills[PARTS_MAX], filling; /* what a body is made of: one byte, again and again */
static int64_t now_ns;

static uint8_t next(void)
{
    if (input.count == 0)
        return 0;
    input.count--;
    return *input.bytes++;
}

/* Within one slot, or one parameter slot. */
static void must_lie_in(uint64_t base, uint64_t stride, uint64_t n,
                        const struct shard_action *action)
{
    ASSERT(action->offset >= base && action->length <= shard->body_bytes);
    const uint64_t at = (action->offset - base) % stride;
    ASSERT((action->offset - base) / stride < n && at + action->length <= shard->body_bytes);
}

static void note(const struct shard_action *action, uint64_t peer)
{
    if (action->kind == SHARD_TAKE) {
        must_lie_in(shard->at.slots, shard->slot_stride, SLOTS, action);
        ASSERT(action->length > 0 && takes_count < PARTS_MAX);
        takers[takes_count] = peer;
        fills[takes_count] = filling;
        takes[takes_count++] = *action;
    }
    if (action->kind == SHARD_REPLY && action->token) {
        must_lie_in(shard->at.parameters, shard->parameter_stride, options.member.parameter_slots,
                    action);
        ASSERT(replies_count < PARTS_MAX);
        replies[replies_count++] = *action;
    }
    if (action->kind == SHARD_REPLY && action->head.kind == HEAD_WELCOME && action->peer <= PEERS)
        sessions[action->peer] = action->head.session;
}

/* One event; how many of its actions said what becomes of the offer. */
static uint32_t step(struct shard_event given)
{
    uint32_t answers = 0;
    given.now_ns = now_ns;
    shard_local_event(local, &given);
    for (uint32_t i = 0; i < local->outbox_count; i++) {
        const struct shard_action *action = &local->outbox[i];
        answers += action->kind == SHARD_TAKE || action->kind == SHARD_REFUSE;
        note(action, given.peer);
    }
    return answers;
}

static void tell_core(struct message message)
{
    message.epoch = message.timeline = 1;
    step((struct shard_event){.kind = SHARD_MESSAGE, .message = &message});
}

static bool record(struct record made)
{
    struct law_entry entry;
    static struct ledger before;
    before = ledger;
    ledger_seal(&ledger, &made);
    if (ledger_apply(&ledger, &made) != GRADWEIR_OK) {
        ledger = before;
        return false;
    }
    while (ledger_retired(&ledger, &entry))
        ;
    struct message message = {.kind = MESSAGE_RECORD};
    message.record = made;
    tell_core(message);
    ASSERT(shard_ledger(shard)->index == ledger.index);
    return true;
}

/* Heads. */

static void hello(struct head_any *any, bool ranks)
{
    struct head_hello head = {.kind = HEAD_HELLO,
                              .level = PROTOCOL_VERSION,
                              .worker = ranks,
                              .epoch = 1,
                              .timeline = 1,
                              .job = 9,
                              .incarnation = 1,
                              .rank = ranks ? next() % RANKS : 0,
                              .ranks = ranks ? RANKS : 0};
    memset(head.pass, ranks + 1, sizeof head.pass);
    memcpy(any, &head, sizeof *any);
}

static void chunk(struct head_any *any, uint64_t peer, bool part)
{
    static uint8_t body[CHUNK];
    struct head_chunk head = {
        .kind = part ? HEAD_PART : HEAD_CHUNK, .session = sessions[peer], .epoch = 1};
    head.offset = part ? 8 * (uint64_t)(next() % 200) : next() % 3 * (uint64_t)CHUNK;
    head.flags = next() & 1; /* SEALED, LAST */
    head.digest = part || (head.flags & CHUNK_SEALED) ? 7 : 0;
    head.slot = next() % SLOTS;
    head.generation = 1 + next() % 3;
    head.sequence = 1 + next() % 3;
    head.basis = part ? 8 * (uint64_t)next() : 0;
    const uint64_t rest = shard->body_bytes - head.offset;
    head.length = part ? 8 * (uint32_t)(next() % 100) : (uint32_t)(rest < CHUNK ? rest : CHUNK);
    memset(body, filling = next() % 4, sizeof body);
    head.crc = checksum_crc32c(0, body, head.length);
    memcpy(any, &head, sizeof *any);
}

static void pull(struct head_any *any, uint64_t peer)
{
    struct head_pull head = {
        .kind = HEAD_PULL, .session = sessions[peer], .epoch = 1, .timeline = 1};
    head.flags = next() % 3;
    head.after = head.flags & PULL_AFTER ? 1 + next() % 3 : 0;
    head.ticket = next();
    head.version = next() % 4;
    head.offset = 4 * (uint64_t)next();
    head.length = next() & 1 ? UINT64_MAX : 4 * (uint64_t)next();
    memcpy(any, &head, sizeof *any);
}

static void offer(void)
{
    struct head_any head = {.kind = 0};
    const uint64_t peer = 1 + next() % PEERS;
    switch (next() % 5) {
    case 0: hello(&head, false); break;
    case 1: hello(&head, true); break;
    case 2: chunk(&head, peer, false); break;
    case 3: chunk(&head, peer, true); break;
    default: pull(&head, peer); break;
    }
    struct head_chunk like;
    memcpy(&like, &head, sizeof like);
    uint64_t length = head.kind == HEAD_CHUNK || head.kind == HEAD_PART ? like.length : 0;
    for (uint32_t spoils = next() % 8; spoils > 5; spoils--) { /* seldom, up to two bytes */
        const uint8_t at = next();
        ((uint8_t *)&head)[at % sizeof head] = next();
    }
    if (next() % 16 == 15)
        length = next() * 8;
    if (takes_count == PARTS_MAX || replies_count + 8 > PARTS_MAX)
        return;
    const uint32_t answers = step((struct shard_event){
        .kind = SHARD_OFFERED, .peer = peer, .head = &head, .offer = 5, .length = length});
    ASSERT(answers == (length > 0));
}

/* What a transport tells. */

/* 6: with other bytes than its head says; 7: it fails. */
static void land_as(uint32_t i, uint8_t how)
{
    const struct shard_action take = takes[i];
    const uint64_t peer = takers[i];
    const uint8_t fill = how % 8 == 6 ? fills[i] + 1 : fills[i];
    char *place = shard_address(shard, take.offset);
    const bool fails = how % 8 == 7;
    takes[i] = takes[--takes_count];
    takers[i] = takers[takes_count];
    fills[i] = fills[takes_count];
    if (!fails)
        memset(place, fill, take.length);
    step((struct shard_event){.kind = SHARD_LANDED,
                              .peer = peer,
                              .token = take.token,
                              .length = fails ? 0 : take.length,
                              .status = fails ? GRADWEIR_ERR_LOST : GRADWEIR_OK,
                              .crc = checksum_crc32c(0, place, take.length)});
}

static void land(uint32_t i)
{
    land_as(i, next());
}

static void sent(uint32_t i, gradweir_status status)
{
    const uint64_t token = replies[i].token;
    replies[i] = replies[--replies_count];
    step((struct shard_event){.kind = SHARD_SENT, .token = token, .status = status});
}

static void lose(uint64_t peer)
{
    for (uint32_t i = takes_count; i-- > 0;)
        if (takers[i] == peer)
            land_as(i, 7);
    for (uint32_t i = replies_count; i-- > 0;)
        if (i < replies_count && replies[i].peer == peer)
            sent(i, GRADWEIR_ERR_LOST);
    step((struct shard_event){.kind = SHARD_PEER_LOST, .peer = peer, .status = GRADWEIR_ERR_LOST});
    sessions[peer] = 0;
}

/* What a coordinator says. */

static void admit(void)
{
    const uint32_t index = next() % SLOTS;
    const struct slot *slot = &shard->slots[index];
    if (!slot->told || slot->bad || slot->closing || slot->landed.not_finite != UINT64_MAX)
        return;
    if (!ledger.first) {
        record((struct record){.kind = RECORD_FIRST,
                               .first = {.name = slot->name,
                                         .slot = index,
                                         .generation = slot->generation,
                                         .digest = slot->digest}});
        return;
    }
    const bool done = record((struct record){.kind = RECORD_ADMIT,
                                             .admit = {.name = slot->name,
                                                       .slot = index,
                                                       .generation = slot->generation,
                                                       .digest = slot->digest,
                                                       .samples = 1,
                                                       .sample_weight = 1,
                                                       .clip = 1}});
    if (!done)
        return;
    struct record step = {.kind = RECORD_STEP};
    const float weight = 1;
    step.step = (struct record_step){.version = ledger.law.version + 1,
                                     .t = ledger.law.version + 1,
                                     .cause = STEP_DUE,
                                     .groups_count = 1,
                                     .entries_count = 1};
    step.step.groups[0] =
        (struct step_group){.learning_rate = 1, .bias_correction1 = 1, .bias_correction2 = 1};
    step.step.entries[0].slot = index;
    memcpy(&step.step.entries[0].weight, &weight, sizeof weight);
    record(step);
}

static void die(void)
{
    char text[256];
    shard->head.kills = 0;
    const gradweir_status status =
        shard_resume(shard, shard->bytes, &law, &options, text, sizeof text);
    ASSERT(status == GRADWEIR_OK);
    takes_count = replies_count = 0;
    memset(sessions, 0, sizeof sessions);
}

static void do_one(void)
{
    struct message message = {.kind = 0};
    switch (next() % 12) {
    default: offer(); break;
    case 4:
    case 5:
    case 6:
        if (takes_count > 0)
            land(next() % takes_count);
        break;
    case 7:
        if (replies_count > 0)
            sent(next() % replies_count, GRADWEIR_OK);
        break;
    case 8: lose(1 + next() % PEERS); break;
    case 9:
        message.kind = next() & 1 ? MESSAGE_CLOSE : MESSAGE_WHOLE;
        if (message.kind == MESSAGE_CLOSE) {
            message.close.after = ledger.index;
            message.close.slot = next() % SLOTS;
            message.close.generation = 1 + next() % 3;
        } else
            message.whole.version = shard->version;
        tell_core(message);
        break;
    case 10: admit(); break;
    case 11:
        now_ns += (int64_t)next() * 20000000;
        if (next() % 4 == 3)
            die();
        step((struct shard_event){.kind = SHARD_TICK});
        break;
    }
}

/* Once: a core with two workers, the second a group of ranks. */

static void must(gradweir_status status)
{
    ASSERT(status == GRADWEIR_OK);
}

static void let_in(uint32_t worker)
{
    struct record join = {.kind = RECORD_JOIN};
    join.join = (struct record_join){
        .worker = worker, .incarnation = 1, .role = ROLE_WORKER, .outstanding_max = 4};
    join.join.identity[0] = (char)('a' + worker);
    record(join);
    struct message entry = {.kind = MESSAGE_ENTRY, .entry = {.worker = worker, .incarnation = 1}};
    memset(entry.entry.pass, (int)worker + 1, sizeof entry.entry.pass);
    tell_core(entry);
}

static void begin(void)
{
    const struct model_tensor tensors[2] = {
        {.name = "w", .dimensions = 1, .shape = {ELEMENTS}},
        {.name = "m", .kind = MODEL_MOMENTS, .dimensions = 1, .shape = {MOMENTS}}};
    law = law_classic();
    must(model_new(2, &model));
    for (int i = 0; i < 2; i++)
        must(model_add(model, &tensors[i]));
    must(model_seal(model));
    options = (struct shard_options){.member = {.job = 9,
                                                .members = 1,
                                                .count = ELEMENTS,
                                                .moments = 1,
                                                .slots = SLOTS,
                                                .parameter_slots = 3,
                                                .ring = 16,
                                                .layout_hash = model->hash},
                                     .optimizer = {.epsilon = 1e-8},
                                     .sessions_max = 3,
                                     .pulls_max = 6,
                                     .chunk_bytes = CHUNK,
                                     .tile_elements = 256,
                                     .pull_patience_ns = 1000000000,
                                     .warm = true,
                                     .digest = true};
    must(shard_local_open(model, &law, &options, "scalar", &local));
    shard = local->shard;
    ledger_init(&ledger);
    struct record map = {.kind = RECORD_MAP};
    map.map = (struct record_map){.members = 1,
                                  .counts = {ELEMENTS},
                                  .layout_hash = model->hash,
                                  .slots = SLOTS,
                                  .groups_count = 1};
    must(
        ledger_settings_write(&law, &options.optimizer, map.map.settings, sizeof map.map.settings));
    record(map);
    let_in(0);
    let_in(1);
    fresh = malloc(shard->bytes + sizeof ledger);
    ASSERT(fresh);
    memcpy(fresh, shard, shard->bytes);
    memcpy((char *)fresh + shard->bytes, &ledger, sizeof ledger);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    now_ns = 1000000000;
    if (!fresh)
        begin();
    memcpy(&ledger, (char *)fresh + shard->bytes, sizeof ledger);
    memcpy(shard, fresh, shard->bytes);
    takes_count = replies_count = 0;
    memset(sessions, 0, sizeof sessions);
    input.bytes = bytes;
    input.count = count;
    while (input.count > 0)
        do_one();
    return 0;
}
