#include "common/ledger.h"

#include "common/message.h"

#include <criterion/criterion.h>
#include <string.h>

static struct ledger ledger, copy;
static struct record record;

static struct record *fresh(uint32_t kind)
{
    memset(&record, 0, sizeof record);
    record.kind = kind;
    return &record;
}

static gradweir_status append(void)
{
    ledger_seal(&ledger, &record);
    return ledger_apply(&ledger, &record);
}

static void map(uint32_t window, uint32_t stride)
{
    struct law_settings law = law_classic();
    struct optimizer_options optimizer = {.epsilon = 1e-8};
    law.window = window;
    law.stride = stride;
    ledger_init(&ledger);
    struct record_map *m = &fresh(RECORD_MAP)->map;
    *m = (struct record_map){.members = 2,
                             .firsts = {0, 10},
                             .counts = {10, 7},
                             .layout_hash = 5,
                             .slots = 20,
                             .groups_count = 1};
    cr_assert_eq(ledger_settings_write(&law, &optimizer, m->settings, sizeof m->settings), 0);
    cr_assert_eq(append(), GRADWEIR_OK, "%s", fail_reason());
}

static gradweir_status join(uint32_t worker, uint64_t incarnation, uint32_t outstanding_max)
{
    struct record_join *j = &fresh(RECORD_JOIN)->join;
    *j = (struct record_join){.worker = worker,
                              .incarnation = incarnation,
                              .role = ROLE_WORKER,
                              .outstanding_max = outstanding_max};
    j->identity[0] = (char)('a' + worker);
    return append();
}

static gradweir_status leave(uint32_t worker)
{
    fresh(RECORD_LEAVE)->leave = (struct record_leave){worker, 1, LEAVE_LEASE};
    return append();
}

static gradweir_status first(void)
{
    fresh(RECORD_FIRST)->first =
        (struct record_first){.name = {0, 1, 1}, .slot = 0, .generation = 1, .digest = 77};
    return append();
}

static gradweir_status admit(uint32_t worker, uint64_t sequence, uint32_t slot)
{
    fresh(RECORD_ADMIT)->admit = (struct record_admit){.name = {worker, 1, sequence},
                                                       .slot = slot,
                                                       .generation = 10 + slot,
                                                       .digest = 100 + slot,
                                                       .samples = 4,
                                                       .sample_weight = 4,
                                                       .clip = 1};
    return append();
}

static gradweir_status step(uint64_t version, const uint32_t *slots, uint32_t n)
{
    struct record_step *s = &fresh(RECORD_STEP)->step;
    *s = (struct record_step){
        .version = version, .t = version, .cause = STEP_DUE, .groups_count = 1, .entries_count = n};
    for (uint32_t i = 0; i < n; i++)
        s->entries[i] = (struct step_entry){.slot = slots[i], .weight = 0x3f000000u};
    return append();
}

Test(ledger, settings_read_back_to_the_same_bits_and_nothing_may_miss)
{
    struct law_settings law = law_llm(9), read;
    struct optimizer_options optimizer = {.epsilon = 0.1, .centered = true}, back;
    char text[SETTINGS_TEXT_MAX];
    law.learning_rate = 0.1 / 3.0;
    law.decay = LAW_POLY;
    cr_assert_eq(ledger_settings_write(&law, &optimizer, text, sizeof text), GRADWEIR_OK);
    cr_assert_eq(ledger_settings_read(text, &read, &back), GRADWEIR_OK, "%s", fail_reason());
    cr_assert(read.learning_rate == law.learning_rate && read.decay == LAW_POLY);
    cr_assert(read.staleness_max == 8 && read.window == 4 && back.centered);
    cr_assert(back.epsilon == optimizer.epsilon);
    text[strlen(text) - 1] = 0;
    cr_assert_eq(ledger_settings_read(text, &read, &back), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(ledger_settings_read("window = 1\n", &read, &back), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(ledger_settings_read("colour = red\n", &read, &back), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(ledger_settings_write(&law, &optimizer, text, 40), GRADWEIR_ERR_FULL);
}

Test(ledger, tunes_live_settings_only)
{
    struct law_settings law = law_classic();
    cr_assert_eq(ledger_settings_tune(&law, "learning_rate", "1e-2"), GRADWEIR_OK);
    cr_assert(law.learning_rate == 1e-2);
    cr_assert_eq(ledger_settings_tune(&law, "staleness_max", "off"), GRADWEIR_OK);
    cr_assert_eq(ledger_settings_tune(&law, "optimizer", "sgd"), GRADWEIR_ERR_INVALID);
    cr_assert_eq(ledger_settings_tune(&law, "learning_rate", "nan"), GRADWEIR_ERR_INVALID);
    cr_assert_eq(ledger_settings_tune(&law, "learning_rate", "-1"), GRADWEIR_ERR_INVALID);
    cr_assert_eq(ledger_settings_tune(&law, "window", "1000"), GRADWEIR_ERR_INVALID);
    cr_assert(law.learning_rate == 1e-2 && law.window == 1);
}

Test(ledger, admits_a_name_exactly_once_and_gives_its_receipt)
{
    map(2, 2);
    cr_assert_eq(join(0, 1, 8), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(admit(0, 1, 3), GRADWEIR_ERR_PROTOCOL, "before the first parameters");
    cr_assert_eq(first(), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(admit(0, 2, 3), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(admit(0, 2, 4), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(admit(0, 4, 4), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(admit(0, 3, 3), GRADWEIR_ERR_PROTOCOL, "a slot is in the window once");
    const struct ledger_receipt *receipt = ledger_receipt(&ledger, &(struct name){0, 1, 2});
    cr_assert(receipt && receipt->verdict == VERDICT_ADMITTED && receipt->digest == 103);
    cr_assert(receipt->weight == 4.0f && receipt->index == ledger.index);
    cr_assert_null(ledger_receipt(&ledger, &(struct name){0, 2, 2}));
    cr_assert_null(ledger_receipt(&ledger, &(struct name){0, 1, 3}));
}

Test(ledger, a_record_that_does_not_follow_changes_nothing)
{
    map(2, 2);
    cr_assert_eq(join(0, 1, 8), GRADWEIR_OK);
    cr_assert_eq(first(), GRADWEIR_OK);
    memcpy(&copy, &ledger, sizeof copy);
    fresh(RECORD_LEAVE)->leave = (struct record_leave){0, 1, LEAVE_BYE};
    for (int wrong = 0; wrong < 7; wrong++) {
        ledger_seal(&ledger, &record);
        record.epoch -= wrong == 0;
        record.timeline += wrong == 1;
        record.index += wrong == 2;
        record.index -= wrong == 3;
        record.previous ^= wrong == 4;
        record.leave.cause = wrong == 5 ? 9 : LEAVE_BYE;
        record.leave.incarnation = wrong == 6 ? 2 : 1;
        cr_assert_eq(ledger_apply(&ledger, &record), GRADWEIR_ERR_PROTOCOL, "%d", wrong);
        cr_assert_eq(memcmp(&copy, &ledger, sizeof copy), 0);
    }
}

Test(ledger, two_folds_of_one_log_are_equal_by_bytes)
{
    map(2, 2);
    ledger_init(&copy);
    cr_assert_eq(ledger_apply(&copy, &record), GRADWEIR_OK);
    cr_assert_eq(join(0, 1, 8), GRADWEIR_OK);
    cr_assert_eq(ledger_apply(&copy, &record), GRADWEIR_OK);
    cr_assert_eq(first(), GRADWEIR_OK);
    cr_assert_eq(ledger_apply(&copy, &record), GRADWEIR_OK);
    for (uint64_t i = 0; i < 2; i++) {
        cr_assert_eq(admit(0, 2 + i, (uint32_t)i), GRADWEIR_OK);
        cr_assert_eq(ledger_apply(&copy, &record), GRADWEIR_OK);
    }
    cr_assert_eq(step(1, (uint32_t[]){0, 1}, 2), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(ledger_apply(&copy, &record), GRADWEIR_OK);
    cr_assert_eq(memcmp(&copy, &ledger, sizeof copy), 0);
}

Test(ledger, steps_are_the_next_version_over_the_window_in_log_order)
{
    map(2, 2);
    join(0, 1, 8);
    first();
    admit(0, 2, 5);
    admit(0, 3, 4);
    cr_assert_eq(step(2, (uint32_t[]){5, 4}, 2), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(step(1, (uint32_t[]){4, 5}, 2), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(step(1, (uint32_t[]){5, 5}, 2), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(step(1, (uint32_t[]){5, 6}, 2), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(step(1, (uint32_t[]){5, 4}, 2), GRADWEIR_OK, "%s", fail_reason());
    struct law_entry entry;
    cr_assert(ledger_retired(&ledger, &entry) && entry.slot == 5);
    cr_assert(ledger_retired(&ledger, &entry) && entry.slot == 4);
    cr_assert(!ledger_retired(&ledger, &entry) && ledger_version(&ledger) == 1);
}

Test(ledger, a_step_with_a_round_waits_for_its_sum)
{
    map(1, 1);
    join(0, 1, 8);
    first();
    admit(0, 2, 5);
    struct record_step *s = &fresh(RECORD_STEP)->step;
    *s = (struct record_step){.version = 1,
                              .t = 1,
                              .cause = STEP_DUE,
                              .rounds = 1,
                              .groups_count = 1,
                              .entries_count = 1,
                              .entries = {{5, 0x3f800000u}}};
    cr_assert_eq(append(), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(admit(0, 3, 6), GRADWEIR_OK);
    cr_assert_eq(step(2, (uint32_t[]){6}, 1), GRADWEIR_ERR_PROTOCOL);
    fresh(RECORD_SUMMED)->summed = (struct record_summed){.version = 1, .factor = 0x3f800001u};
    cr_assert_eq(append(), GRADWEIR_ERR_PROTOCOL);
    record.summed.factor = 0x3f000000u;
    cr_assert_eq(append(), GRADWEIR_OK);
    cr_assert_eq(step(2, (uint32_t[]){6}, 1), GRADWEIR_OK, "%s", fail_reason());
}

Test(ledger, the_stride_is_lowered_to_what_live_workers_can_have_in_flight)
{
    map(4, 4);
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(join(i, 1, 1), GRADWEIR_OK);
        cr_assert_eq(ledger.law.settings.stride, i + 1);
        cr_assert_eq(ledger.law.settings.window, i + 1);
    }
    first();
    for (uint32_t i = 1; i < 4; i++)
        cr_assert_eq(admit(i, 1, i), GRADWEIR_OK);
    leave(3);
    leave(2);
    cr_assert_eq(ledger.law.settings.stride, 3, "what is fresh is not thrown away");
    cr_assert(law_due(&ledger.law, LAW_DUE));
    cr_assert_eq(step(1, (uint32_t[]){1, 2, 3}, 3), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(ledger.law.settings.stride, 2);
    cr_assert_eq(ledger.settings.stride, 4);
}

Test(ledger, a_worker_comes_back_under_its_number_with_the_next_incarnation)
{
    map(1, 1);
    join(0, 1, 8);
    first();
    cr_assert_eq(join(0, 2, 8), GRADWEIR_ERR_PROTOCOL, "it lives");
    leave(0);
    cr_assert_eq(ledger_find(&ledger, "a"), WORKERS_MAX);
    cr_assert_eq(admit(0, 2, 3), GRADWEIR_ERR_PROTOCOL, "the dead do not push");
    cr_assert_eq(join(0, 3, 8), GRADWEIR_ERR_PROTOCOL);
    cr_assert_eq(join(0, 2, 8), GRADWEIR_OK);
    cr_assert_eq(ledger_find(&ledger, "a"), 0);
    cr_assert_eq(ledger.workers[0].last_sequence, 0);
    cr_assert_eq(ledger.workers[0].verdicts[VERDICT_ADMITTED], 1, "counters add up");
}

static gradweir_status join_named(uint32_t worker, uint64_t incarnation, char identity)
{
    struct record_join *j = &fresh(RECORD_JOIN)->join;
    *j = (struct record_join){
        .worker = worker, .incarnation = incarnation, .role = ROLE_WORKER, .outstanding_max = 1};
    j->identity[0] = identity;
    return append();
}

Test(ledger, a_number_goes_to_another_identity_when_its_worker_left_and_names_stay_apart)
{
    map(1, 1);
    join(0, 1, 8);
    join(1, 1, 8);
    first();
    cr_assert_eq(join_named(1, 2, 'z'), GRADWEIR_ERR_PROTOCOL, "it lives");
    cr_assert_eq(admit(1, 1, 3), GRADWEIR_OK);
    leave(1);
    cr_assert_eq(join_named(1, 1, 'z'), GRADWEIR_ERR_PROTOCOL, "its incarnation was another's");
    cr_assert_eq(join_named(1, 2, 'z'), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(ledger.workers_count, 2);
    cr_assert_eq(ledger.workers[1].verdicts[VERDICT_ADMITTED], 0, "those were another's");
    cr_assert_eq(ledger.departed[VERDICT_ADMITTED], 1, "and are not lost");
    cr_assert_eq(admit(1, 2, 4), GRADWEIR_ERR_PROTOCOL, "a late name of the one before");
    cr_assert_eq(step(1, (uint32_t[]){3}, 1), GRADWEIR_OK, "%s", fail_reason());
}
