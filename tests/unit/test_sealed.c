#include "common/sealed.h"

#include "common/random.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct ledger ledger, back;
static uint8_t bytes[LEDGER_BYTES_MAX], again[LEDGER_BYTES_MAX];

static void append(struct record *record)
{
    struct law_entry entry;
    ledger_seal(&ledger, record);
    cr_assert_eq(ledger_apply(&ledger, record), GRADWEIR_OK, "%s", fail_reason());
    while (ledger_retired(&ledger, &entry))
        ;
}

static void map(void)
{
    struct law_settings law = law_classic();
    const struct optimizer_options optimizer = {.epsilon = 1e-8, .weight_decay = 0.25};
    struct record record = {.kind = RECORD_MAP};
    law.window = 8;
    law.stride = 3;
    record.map = (struct record_map){
        .members = 2, .firsts = {0, 10}, .counts = {10, 7}, .slots = 20, .groups_count = 1};
    cr_assert_eq(
        ledger_settings_write(&law, &optimizer, record.map.settings, sizeof record.map.settings),
        GRADWEIR_OK);
    ledger_init(&ledger);
    append(&record);
}

static void join(uint32_t worker, uint64_t incarnation)
{
    struct record record = {.kind = RECORD_JOIN};
    record.join = (struct record_join){.worker = worker,
                                       .incarnation = incarnation,
                                       .role = ROLE_WORKER,
                                       .nonce = {(uint8_t)incarnation, 9},
                                       .identity = {(char)('a' + worker)},
                                       .outstanding_max = 8};
    append(&record);
}

static void leave(uint32_t worker, uint64_t incarnation, uint32_t cause)
{
    struct record record = {.kind = RECORD_LEAVE};
    record.leave = (struct record_leave){worker, incarnation, cause};
    append(&record);
}

/* A ledger with some of everything. */
static void grow(uint32_t gradients)
{
    map();
    join(0, 1);
    join(1, 1);
    struct record record = {.kind = RECORD_FIRST};
    record.first = (struct record_first){.name = {0, 1, 1}, .generation = 1, .digest = 4};
    append(&record);
    for (uint32_t i = 0; i < gradients; i++) {
        const bool refused = i % 5 == 4;
        record = (struct record){.kind = refused ? RECORD_REFUSE : RECORD_ADMIT};
        const struct name name = {.worker = 1, .incarnation = 1, .sequence = i + 1};
        if (refused)
            record.refuse = (struct record_refuse){.name = name, .slot = 19, .verdict = 4};
        else
            record.admit = (struct record_admit){.name = name,
                                                 .slot = i % 15,
                                                 .generation = 2 + i,
                                                 .digest = i,
                                                 .samples = 3,
                                                 .norm = 0.5,
                                                 .sample_weight = 3,
                                                 .clip = 1};
        append(&record);
    }
    leave(0, 1, LEAVE_REPLACED);
    join(0, 2);
}

static size_t written(void)
{
    size_t used = 0;
    cr_assert_eq(ledger_write(&ledger, bytes, sizeof bytes, &used), GRADWEIR_OK);
    return used;
}

Test(sealed, a_ledger_comes_back_from_its_bytes_to_the_byte)
{
    for (uint32_t n = 0; n < 40; n += 3) {
        grow(n);
        const size_t count = written();
        cr_assert_eq(ledger_read(bytes, count, &back), GRADWEIR_OK, "%s", fail_reason());
        cr_assert_eq(memcmp(&back, &ledger, sizeof back), 0, "after %u gradients", n);
    }
    ledger_init(&ledger);
    cr_assert_eq(ledger_read(bytes, written(), &back), GRADWEIR_OK);
    cr_assert_eq(memcmp(&back, &ledger, sizeof back), 0, "an empty one too");
}

Test(sealed, the_largest_ledger_fits_its_bound)
{
    ledger_init(&ledger);
    ledger.workers_count = WORKERS_MAX;
    cr_assert(written() > 0);
    size_t used;
    cr_assert_eq(ledger_write(&ledger, bytes, 100, &used), GRADWEIR_ERR_FULL);
}

Test(sealed, altered_bytes_give_a_refusal_or_a_ledger_that_writes_the_same_bytes)
{
    struct random random;
    uint32_t refused = 0;
    grow(20);
    const size_t count = written();
    random_split(&random, 1, "sealed", 0);
    for (uint32_t i = 0; i < 4000; i++) {
        size_t used = 0;
        const size_t at = random_below(&random, i % 2 ? count : 600);
        const uint8_t before = bytes[at];
        bytes[at] ^= (uint8_t)(1u << random_below(&random, 8));
        if (ledger_read(bytes, count, &back) != GRADWEIR_OK) {
            refused++;
        } else {
            cr_assert_eq(ledger_write(&back, again, sizeof again, &used), GRADWEIR_OK);
            cr_assert(used == count && memcmp(again, bytes, count) == 0);
        }
        bytes[at] = before;
    }
    cr_assert_gt(refused, 100);
    for (size_t cut = 0; cut < count; cut += 1 + count / 200)
        cr_assert_eq(ledger_read(bytes, cut, &back), GRADWEIR_ERR_PROTOCOL);
}

Test(sealed, replaced_nonces_are_remembered_in_the_ledger_and_in_its_bytes)
{
    grow(0);
    const uint8_t old[16] = {1, 9}, now[16] = {2, 9}, other[16] = {7, 9};
    cr_assert(ledger_fenced(&ledger, old));
    cr_assert(!ledger_fenced(&ledger, now) && !ledger_fenced(&ledger, other));
    leave(0, 2, LEAVE_LEASE);
    cr_assert(!ledger_fenced(&ledger, now), "who lost its lease may come again");
    cr_assert_eq(ledger_read(bytes, written(), &back), GRADWEIR_OK);
    cr_assert(ledger_fenced(&back, old));
}

Test(sealed, contents_that_are_torn_or_hold_other_messages_are_refused)
{
    const struct message_member member = {.job = 3, .shard = 1, .members = 2};
    const uint8_t layout[10] = {1, 2, 3};
    struct sealed_writer writer = {.room = sealed_bytes_max(sizeof layout, 2, 1)};
    struct sealed_reader reader;
    struct wire_decoder *decoder;
    struct message message;
    grow(3);
    writer.bytes = malloc(writer.room);
    cr_assert(writer.bytes);
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    sealed_begin(&writer, &member, &ledger, layout, sizeof layout);
    sealed_add(&writer, &(struct message){.kind = MESSAGE_LANDED, .landed = {.slot = 5}});
    sealed_add(&writer, &(struct message){.kind = MESSAGE_STOP});
    const size_t count = sealed_end(&writer);
    cr_assert_eq(sealed_read(writer.bytes, count, &reader), GRADWEIR_OK);
    cr_assert(reader.job == 3 && reader.shard == 1 && reader.layout_bytes == sizeof layout);
    cr_assert_eq(memcmp(reader.layout, layout, sizeof layout), 0);
    cr_assert_eq(sealed_next(&reader, decoder, &message), GRADWEIR_OK);
    cr_assert(message.kind == MESSAGE_LANDED && message.landed.slot == 5);
    cr_assert_eq(sealed_next(&reader, decoder, &message), GRADWEIR_ERR_PROTOCOL);
    for (size_t cut = 0; cut < count; cut += 1 + count / 500)
        cr_assert_eq(sealed_read(writer.bytes, cut, &reader), GRADWEIR_ERR_PROTOCOL);
    wire_decoder_free(decoder);
    free(writer.bytes);
}
