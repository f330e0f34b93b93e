/* The window law beyond the reference vectors: retirement, flush, recheck without entries,
 * lowering, damp, count, schedules, refused settings, and the sentences at start. */
#include "common/law.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <string.h>

static struct law law;
static struct law_step step;

static void start(uint32_t window, uint32_t stride)
{
    struct law_settings settings = law_classic();
    settings.window = window;
    settings.stride = stride;
    settings.algorithm = ARITHMETIC_SGD;
    settings.learning_rate = 1.0;
    law_init(&law, &settings);
}

static void admit(uint32_t slot, uint64_t basis, uint64_t samples)
{
    const struct law_arrival arrival = {
        .finite = true, .largest = 1.0f, .basis = basis, .samples = samples, .norm = 1.0};
    cr_assert_eq(law_judge(&law, &arrival), LAW_FINE);
    struct law_entry entry = law_entry(&law, &arrival);
    entry.slot = slot;
    entry.generation = 100 + slot;
    law_admit(&law, &entry);
}

static bool take(enum law_cause cause)
{
    if (!law_due(&law, cause))
        return false;
    law_step(&law, cause, &step);
    law_apply(&law, &step);
    return true;
}

static int retired_slot(void)
{
    struct law_entry entry;
    return law_retired(&law, &entry) ? (int)entry.slot : -1;
}

Test(law, a_sliding_window_retires_its_oldest_and_counts_uses)
{
    start(3, 1);
    for (uint32_t k = 0; k < 10; k++) {
        admit(k, k, 1);
        cr_expect_eq(retired_slot(), k < 3 ? -1 : (int)k - 3);
        cr_expect_eq(retired_slot(), -1);
        cr_expect(take(LAW_DUE));
        cr_expect_eq(step.n, k < 3 ? k + 1 : 3u);
        cr_expect_eq(step.version, k + 1);
        cr_expect_eq(step.entries[step.n - 1].slot, k);
        cr_expect_eq(step.entries[step.n - 1].generation, 100 + k);
    }
    cr_expect_eq(law_at(&law, 0)->uses, 3u);
    cr_expect_eq(law.unused, 0u);
}

Test(law, a_tumbling_window_is_emptied_by_its_step_and_a_flush_uses_fresh_entries_only)
{
    start(4, 4);
    for (uint32_t k = 0; k < 4; k++)
        admit(k, 0, 1);
    cr_expect(take(LAW_DUE));
    for (int k = 0; k < 4; k++)
        cr_expect_eq(retired_slot(), k);
    cr_expect_eq(retired_slot(), -1);
    cr_expect_not(law_due(&law, LAW_FLUSH));
    admit(5, 1, 1);
    admit(6, 1, 1);
    cr_expect_not(law_due(&law, LAW_DUE));
    cr_expect(take(LAW_FLUSH));
    cr_expect_eq(step.n, 2u);
    cr_expect_eq(step.entries[0].slot, 5u);
    cr_expect_eq(step.entries[0].weight, 0.5f);
    cr_expect_eq(step.cause, LAW_FLUSH);
    cr_expect_eq(law_size(&law), 0u);
}

Test(law, a_flush_waits_for_its_minimum_and_a_drain_does_not)
{
    start(8, 8);
    law.settings.flush_min = 2;
    cr_expect_not(law_due(&law, LAW_DRAIN));
    admit(0, 0, 1);
    cr_expect_not(law_due(&law, LAW_FLUSH));
    cr_expect(law_due(&law, LAW_DRAIN));
    admit(1, 0, 1);
    cr_expect(law_due(&law, LAW_FLUSH));
}

Test(law, gradients_that_fall_out_unread_are_counted)
{
    start(1, 3);
    for (uint32_t k = 0; k < 9; k++) {
        admit(k, 0, 1);
        take(LAW_DUE);
        while (retired_slot() >= 0)
            continue;
    }
    cr_expect_eq(law.version, 3u);
    cr_expect_eq(law.unused, 6u);
}

Test(law, the_first_rule_that_applies_gives_the_verdict)
{
    start(1, 1);
    law.settings.staleness_max = 2;
    law.version = 10;
    struct law_arrival arrival = {.finite = false, .largest = INFINITY, .basis = 11};
    cr_expect_eq(law_judge(&law, &arrival), LAW_NOT_FINITE);
    arrival = (struct law_arrival){.finite = true, .largest = 2e18f, .basis = 10};
    cr_expect_eq(law_judge(&law, &arrival), LAW_NOT_FINITE);
    arrival = (struct law_arrival){.finite = true, .largest = NAN, .basis = 10};
    cr_expect_eq(law_judge(&law, &arrival), LAW_NOT_FINITE);
    arrival = (struct law_arrival){.finite = true, .largest = 1.0f, .basis = 11};
    cr_expect_eq(law_judge(&law, &arrival), LAW_FUTURE);
    arrival.basis = 7;
    cr_expect_eq(law_judge(&law, &arrival), LAW_STALE);
    arrival.basis = 8;
    cr_expect_eq(law_judge(&law, &arrival), LAW_FINE);
    cr_expect_eq(law_judge_basis(&law, 7), LAW_STALE);
    cr_expect_eq(law_judge_basis(&law, 11), LAW_FUTURE);
}

Test(law, a_counted_average_cannot_be_carried_to_infinity_by_its_samples)
{
    start(1, 1);
    law.settings.normalise = LAW_COUNT;
    law.settings.magnitude_max = (double)(FLT_MAX / 4);
    struct law_arrival arrival = {.finite = true, .largest = 1e30f, .samples = 1000000000};
    cr_expect_eq(law_judge(&law, &arrival), LAW_NOT_FINITE);
    arrival.samples = 1000;
    cr_expect_eq(law_judge(&law, &arrival), LAW_FINE);
}

Test(law, recheck_that_leaves_nothing_makes_no_step_and_starts_the_count_again)
{
    start(2, 2);
    law.settings.recheck = true;
    law.settings.staleness_max = 1;
    admit(0, 0, 1);
    law.version = 5;
    admit(1, 5, 1);
    cr_expect(law_due(&law, LAW_DUE));
    law_step(&law, LAW_DUE, &step);
    cr_expect_eq(step.n, 1u);
    cr_expect_eq(step.entries[0].slot, 1u);
    law.version = 9; /* now both are too old */
    cr_expect_not(law_due(&law, LAW_DUE));
    cr_expect_not(law_due(&law, LAW_FLUSH));
    admit(2, 9, 1);
    cr_expect_eq(law.fresh, 1u);
    cr_expect_not(law_due(&law, LAW_DUE));
    admit(3, 9, 1);
    cr_expect(law_due(&law, LAW_DUE));
}

Test(law, lowering_the_window_retires_and_may_make_a_step_due)
{
    start(4, 4);
    for (uint32_t k = 0; k < 3; k++)
        admit(k, 0, 1);
    struct law_settings settings = law.settings;
    settings.window = settings.stride = 2;
    cr_expect_not(law_due(&law, LAW_DUE));
    law_tune(&law, &settings);
    cr_expect_eq(retired_slot(), 0);
    cr_expect(take(LAW_DUE));
    cr_expect_eq(step.n, 2u);
}

Test(law, weights_are_samples_times_decay_over_their_sum)
{
    start(3, 3);
    law.settings.decay = LAW_POLY;
    law.settings.decay_power = 1.0;
    law.settings.damp = LAW_DAMP_MEAN_WEIGHT;
    law.version = 3;
    admit(0, 3, 10);
    admit(1, 2, 10);
    admit(2, 0, 20);
    law_step(&law, LAW_DUE, &step);
    const double weights[] = {10.0, 5.0, 5.0};
    for (uint32_t i = 0; i < 3; i++)
        cr_expect(fabs(step.entries[i].weight_exact - weights[i] / 20.0) < 1e-15);
    cr_expect(fabs(step.damp - 0.5) < 1e-15);
    cr_expect(fabs(step.learning_rate - 0.5) < 1e-15);
    law.settings.normalise = LAW_COUNT;
    law_step(&law, LAW_DUE, &step);
    cr_expect(fabs(step.entries[0].weight_exact - 10.0 / 3.0) < 1e-15);
}

Test(law, very_old_gradients_still_have_a_mean)
{
    start(2, 2);
    law.settings.decay = LAW_EXP;
    law.settings.decay_beta = 0.5;
    law.version = 5000;
    admit(0, 0, 1);
    admit(1, 1, 1);
    law_step(&law, LAW_DUE, &step);
    cr_expect(fabs(step.entries[0].weight_exact - 1.0 / 3.0) < 1e-15);
    cr_expect(fabs(step.entries[1].weight_exact - 2.0 / 3.0) < 1e-15);
}

Test(law, a_clip_per_gradient_lowers_its_own_weight_only)
{
    start(2, 2);
    law.settings.clip = 1.0;
    struct law_arrival arrival = {.finite = true, .largest = 1.0f, .samples = 1, .norm = 1e6};
    struct law_entry entry = law_entry(&law, &arrival);
    law_admit(&law, &entry);
    entry.slot = 1;
    entry.clip = 1.0;
    law_admit(&law, &entry);
    law_step(&law, LAW_DUE, &step);
    cr_expect(fabs(step.entries[0].weight_exact - 0.5e-6) < 1e-12);
    cr_expect_eq(step.entries[1].weight_exact, 0.5);
}

Test(law, corrections_and_schedules_follow_the_step)
{
    start(1, 1);
    law.settings.algorithm = ARITHMETIC_ADAM;
    law.settings.schedule = LAW_LINEAR;
    law.settings.schedule_steps = 4;
    const double rates[] = {1.0, 0.75, 0.5, 0.25, 0.0, 0.0};
    for (uint32_t k = 0; k < 6; k++) {
        admit(k, k, 1);
        while (retired_slot() >= 0)
            continue;
        cr_assert(take(LAW_DUE));
        cr_expect_eq(step.optimizer_step, k + 1);
        cr_expect_eq(step.learning_rate, rates[k]);
        cr_expect_eq(step.bias1, 1.0 - arithmetic_power(0.9, k + 1));
    }
    start(1, 1);
    law.settings.warmup_steps = 4;
    law_step(&law, LAW_DRAIN, &step);
    cr_expect_eq(step.learning_rate, 0.25);
    cr_expect_eq(step.n, 0u);
}

Test(law, the_fold_of_records_equals_the_law_that_wrote_them)
{
    static struct law fold;
    start(5, 2);
    fold = law;
    for (uint32_t k = 0; k < 300; k++) {
        admit(k, law.version, 1 + k % 7);
        const struct law_entry *last = law_at(&law, law_size(&law) - 1);
        law_admit(&fold, last);
        if (take(LAW_DUE)) {
            uint32_t slots[LAW_WINDOW_MAX];
            for (uint32_t i = 0; i < step.n; i++)
                slots[i] = step.entries[i].slot;
            law_apply_record(&fold, step.version, slots, step.n, &step.stacks);
        }
        struct law_entry a, b;
        while (law_retired(&law, &a))
            cr_expect(law_retired(&fold, &b) && memcmp(&a, &b, sizeof a) == 0);
        cr_expect_not(law_retired(&fold, &b));
    }
    cr_expect_eq(memcmp(&law, &fold, sizeof law), 0);
    law_clear(&law, 7, 7);
    cr_expect_eq(law_size(&law), 0u);
    cr_expect_eq(law.version, 7u);
}

Test(law, a_step_that_is_not_the_next_is_our_own_mistake, .signal = SIGABRT)
{
    start(1, 1);
    const uint32_t slot = 0;
    admit(slot, 0, 1);
    law_apply_record(&law, 2, &slot, 1, &step.stacks);
}

static void refused(struct law_settings settings, const char *name)
{
    cr_expect_eq(law_settings_check(&settings), GRADWEIR_ERR_INVALID, "%s", name);
    cr_expect_not_null(strstr(fail_reason(), name), "%s", fail_reason());
}

Test(law, settings_that_make_no_sense_are_refused_by_name)
{
    const struct law_settings good = law_llm(8);
    struct law_settings s = good;
    cr_expect_eq(law_settings_check(&good), GRADWEIR_OK);
    refused((s = good, s.window = 0, s), "window");
    refused((s = good, s.window = LAW_WINDOW_MAX + 1, s), "window");
    refused((s = good, s.stride = 0, s), "stride");
    refused((s = good, s.staleness_max = -2, s), "staleness_max");
    refused((s = good, s.decay = LAW_EXP, s.decay_beta = 0.0, s), "decay_beta");
    refused((s = good, s.decay = LAW_POLY, s.decay_power = -1.0, s), "decay_power");
    refused((s = good, s.samples_exponent = NAN, s), "samples_exponent");
    refused((s = good, s.recheck = true, s.staleness_at = LAW_AT_ARRIVAL, s), "recheck");
    refused((s = good, s.clip = -1.0, s), "clip");
    refused((s = good, s.magnitude_max = 3e38, s), "magnitude_max");
    refused((s = good, s.learning_rate = INFINITY, s), "learning_rate");
    refused((s = good, s.beta2 = 1.0, s), "beta2");
    refused((s = good, s.flush_min = 0, s), "flush_min");
    refused((s = good, s.clip_average = 1.0, s.algorithm = ARITHMETIC_LAMB, s), "clip_average");
    refused((s = good, s.schedule = LAW_COSINE, s), "schedule_steps");
}

static bool says(struct law_settings settings, uint32_t workers, const char *words)
{
    char text[4096];
    law_explain(&settings, workers, text, sizeof text);
    return strstr(text, words) != NULL;
}

Test(law, the_sentences_at_start_tell_what_settings_mean_together)
{
    struct law_settings s = law_classic();
    cr_expect(says(s, 4, "mean of one gradient is that gradient"));
    cr_expect_not(says(s, 4, "momentum in disguise"));
    cr_expect(says(s, 64,
                   "With 64 equal workers, as many as may take part (workers_max), about 63 "
                   "versions pass between basis and use; with fewer, fewer."));
    s.window = 4;
    cr_expect(says(s, 4, "momentum in disguise"));
    cr_expect_not(says(s, 4, "cancels constant factors"));
    s.decay = LAW_EXP;
    s.decay_beta = 0.9;
    cr_expect(says(s, 4, "Adam cancels constant factors"));
    cr_expect(says(s, 4, "staleness weight cancels"));
    s.stride = 8;
    cr_expect(says(s, 4, "count as UNUSED"));
    cr_expect(says(s, 4, "exceeds the 4 workers"));
    cr_expect(says(s, 8, "sqrt(8)"));
    char small[32];
    const size_t used = law_explain(&s, 4, small, sizeof small);
    cr_expect(used == 31 && small[31] == '\0');
}
