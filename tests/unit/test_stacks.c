/* The window by stacks beside a plain average in double: random sequences of admissions, steps,
 * flushes and changed settings, over every instruction set; what is infinite or huge leaves no
 * trace; the bits do not depend on how a model is cut; and no step does more than its share. */
#include "common/law.h"
#include "common/random.h"
#include "tests/unit/element_set.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <string.h>

enum { DIM = 96, SLOTS = LAW_WINDOW_MAX + 1, FRONTS = LAW_WINDOW_MAX / LAW_FRONT_EVERY };

struct memory { /* of the whole model, or of a piece of it that somebody takes for a shard */
    float back[DIM], fronts[FRONTS][DIM];
};

static struct law law;
static struct law_step step;
static struct arithmetic_plan plan;
static float slots[SLOTS][DIM], average[DIM];
static struct memory memory, pieces;
static struct random chance;
static uint32_t stripe;

static uint32_t pick(uint32_t low, uint32_t high)
{
    return low + (uint32_t)random_below(&chance, high - low + 1);
}

static struct law_settings settings_of(uint32_t window, uint32_t stride)
{
    struct law_settings settings = law_classic();
    settings.window = window;
    settings.stride = stride;
    settings.decay = LAW_EXP;
    settings.decay_beta = 0.9;
    settings.window_algorithm = LAW_STACKS;
    return settings;
}

static void start(const struct law_settings *settings, uint64_t seed)
{
    random_split(&chance, seed, "events", 0);
    law_init(&law, settings);
    stripe = 1u << pick(0, 2);
    memset(&memory, 0xff, sizeof memory); /* NaN: what was not written must not be read */
    memset(&pieces, 0xff, sizeof pieces);
}

static float some_number(void)
{
    const double size = pick(0, 40) == 0 ? 1e6 : pick(0, 5) == 0 ? 1e-4 : 1.0;
    return (float)(size * (2.0 * random_uniform(&chance) - 1.0));
}

static uint32_t admit(void)
{
    const uint64_t old = pick(0, 3);
    const struct law_arrival arrival = {.finite = true,
                                        .largest = 1.0f,
                                        .basis = law.version > old ? law.version - old : 0,
                                        .samples = pick(1, 64),
                                        .norm = 1.0 + random_uniform(&chance)};
    struct law_entry entry = law_entry(&law, &arrival), gone;
    entry.slot = (uint32_t)(law.next % SLOTS);
    for (uint32_t i = 0; i < DIM; i++)
        slots[entry.slot][i] = some_number();
    law_admit(&law, &entry);
    while (law_retired(&law, &gone))
        ;
    return entry.slot;
}

static void average_into(struct memory *of, const struct arithmetic *set, size_t begin, size_t end,
                         float *out)
{
    const struct arithmetic_sources sources = {.base = &slots[0][begin],
                                               .stride_bytes = sizeof slots[0],
                                               .back = &of->back[begin],
                                               .fronts = &of->fronts[0][begin],
                                               .front_stride = DIM,
                                               .first = begin,
                                               .stripe = stripe};
    set->average(&plan, &sources, 0, end - begin, out);
}

static void take(enum law_cause cause)
{
    law_step(&law, cause, &step);
    memset(&plan, 0, sizeof plan);
    law_plan(&law.settings, &step, &plan);
    law_apply(&law, &step);
}

/* 2 (W + 4) 2^-24 of the sum of magnitudes: common/arithmetic_stacks.h. */
static void check_average(uint64_t seed)
{
    const double bound = 2.0 * (step.n + 4) * 0x1p-24 * 1.01;
    for (uint32_t i = 0; i < DIM; i++) {
        double exact = 0, sizes = 0;
        for (uint32_t k = 0; k < step.n; k++) {
            const double term =
                step.entries[k].weight_exact * (double)slots[step.entries[k].slot][i];
            exact += term;
            sizes += fabs(term);
        }
        cr_assert(fabs((double)average[i] - exact) <= bound * sizes + 1e-30,
                  "seed %llu, version %llu, element %u: %.9g instead of %.9g",
                  (unsigned long long)seed, (unsigned long long)step.version, i, (double)average[i],
                  exact);
    }
}

static void check_pieces(const struct arithmetic *set)
{
    float other[DIM];
    for (size_t begin = 0, end; begin < DIM; begin = end) {
        end = begin + pick(1, DIM);
        end = end < DIM ? end : DIM;
        average_into(&pieces, set, begin, end, other + begin);
    }
    cr_assert_eq(memcmp(other, average, sizeof other), 0, "another set or cut gives other bits");
}

static void change_settings(void)
{
    struct law_settings settings = law.settings;
    const uint32_t room = law.stacks.room;
    switch (pick(0, 3)) {
    case 0: settings.window = pick(settings.stride + 1, room + 2); break;
    case 1: settings.decay_beta = 0.7 + 0.3 * random_uniform(&chance); break;
    case 2: settings.stride = pick(1, settings.window - 1); break;
    default: settings.decay = pick(0, 1) ? LAW_EXP : LAW_UNIFORM; break;
    }
    struct law_entry gone;
    law_tune(&law, &settings);
    while (law_retired(&law, &gone))
        ;
}

static struct law_settings any_settings(void)
{
    const uint32_t window = pick(2, pick(0, 4) ? 24 : 100);
    struct law_settings settings = settings_of(window, pick(1, pick(0, 1) ? 1 : window - 1));
    settings.decay = (enum law_decay)pick(0, 2);
    settings.staleness_at =
        settings.decay == LAW_POLY || pick(0, 3) == 0 ? LAW_AT_ARRIVAL : LAW_AT_STEP;
    settings.decay_power = 0.5;
    settings.decay_beta = 0.7 + 0.3 * random_uniform(&chance);
    settings.normalise = pick(0, 2) ? LAW_MEAN : LAW_COUNT;
    settings.clip = pick(0, 2) ? 0 : 1.5;
    return settings;
}

Test(stacks, any_sequence_averages_like_one_pass_in_double_whatever_the_cut)
{
    uint32_t by_stacks = 0, directly = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        random_split(&chance, seed, "settings", 0);
        const struct law_settings settings = any_settings();
        const struct arithmetic *set = arithmetic_at(seed % 3), *other = arithmetic_at(0);
        start(&settings, seed);
        for (uint32_t event = 0; event < 4 * settings.window + 40; event++) {
            if (pick(0, 60) == 0 && law.settings.decay != LAW_POLY)
                change_settings();
            admit();
            const bool due = law_due(&law, LAW_DUE);
            if (!due && pick(0, 9) > 0)
                continue;
            take(due ? LAW_DUE : LAW_FLUSH);
            average_into(&memory, set ? set : other, 0, DIM, average);
            check_average(seed);
            check_pieces(other);
            by_stacks += step.stacks.on;
            directly += !step.stacks.on;
        }
    }
    cr_expect_gt(by_stacks, 5000u);
    cr_expect_gt(directly, 50u, "windows beyond what there is room for are averaged directly");
}

/* What a GPU's threads do is this, one element after the other: the same averages, and the same
 * fronts and backs, where nothing was written too. */
Test(stacks, elements_one_by_one_give_the_bits_of_the_loops)
{
    const struct arithmetic elements = element_set();
    uint32_t by_stacks = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        float other[DIM];
        random_split(&chance, seed, "settings", 0);
        const struct law_settings settings = any_settings();
        start(&settings, seed);
        for (uint32_t event = 0; event < 3 * settings.window + 40; event++) {
            if (pick(0, 60) == 0 && law.settings.decay != LAW_POLY)
                change_settings();
            admit();
            const bool due = law_due(&law, LAW_DUE);
            if (!due && pick(0, 9) > 0)
                continue;
            take(due ? LAW_DUE : LAW_FLUSH);
            average_into(&memory, arithmetic_at(0), 0, DIM, average);
            average_into(&pieces, &elements, 0, DIM, other);
            cr_assert_eq(memcmp(other, average, sizeof other), 0, "seed %llu",
                         (unsigned long long)seed);
            cr_assert_eq(memcmp(&pieces, &memory, sizeof pieces), 0, "seed %llu: memory",
                         (unsigned long long)seed);
            by_stacks += step.stacks.on;
        }
    }
    cr_expect_gt(by_stacks, 3000u);
}

Test(stacks, what_is_infinite_is_gone_when_its_gradient_is)
{
    const struct law_settings settings = settings_of(8, 1);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        start(&settings, seed);
        uint64_t poisoned = UINT64_MAX;
        for (uint32_t event = 0; event < 60; event++) {
            const uint32_t slot = admit();
            if (event == 20 + seed) {
                slots[slot][5] = INFINITY;
                slots[slot][6] = NAN;
                poisoned = law.next - 1;
            }
            take(LAW_DUE);
            average_into(&memory, arithmetic_at(0), 0, DIM, average);
            cr_assert(step.stacks.on);
            const bool inside = poisoned < law.next && law.next - poisoned <= 8;
            for (uint32_t i = 0; i < DIM; i++)
                cr_assert_eq(isfinite(average[i]), !inside || (i != 5 && i != 6));
        }
    }
}

Test(stacks, a_spike_leaves_no_trace)
{
    const struct law_settings settings = settings_of(16, 1);
    float before[DIM];
    for (uint32_t spike = 0; spike < 2; spike++) {
        start(&settings, 7);
        for (uint32_t event = 0; event < 80; event++) {
            const uint32_t slot = admit();
            if (spike && event == 30)
                for (uint32_t i = 0; i < DIM; i++)
                    slots[slot][i] = 1e6f;
            take(LAW_DUE);
            average_into(&memory, arithmetic_at(0), 0, DIM, average);
        }
        if (spike)
            cr_expect_eq(memcmp(before, average, sizeof before), 0);
        memcpy(before, average, sizeof before);
    }
}

/* Elements that a step of a model of so many stripes reads or writes for its window. */
static uint64_t work_of(uint32_t stripes)
{
    const struct arithmetic_stacks *s = &plan.stacks;
    uint64_t work = 0;
    for (uint32_t i = 0; s->window > 0 && i < stripes; i++) {
        const uint64_t age = (s->position + s->window - i % s->window) % s->window;
        if (age < s->fresh)
            work += plan.entries_n + plan.entries_n / s->every;
        else if (s->ages[age].behind > 0)
            work += s->fresh + 3 +
                    (plan.entries_n > s->ages[age].behind &&
                     (s->position - plan.entries_n) % s->every != 0);
        else
            work += plan.entries_n;
    }
    return s->window > 0 ? work : (uint64_t)plan.entries_n * stripes;
}

Test(stacks, no_step_does_more_than_twice_the_work_of_the_others)
{
    static const uint32_t windows[] = {8, 9, 16, 64, 100, 256};
    enum { STRIPES = 4096, STEPS = 1100 };
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (uint32_t stride = 1; 3 * stride + 4 < windows[w]; stride += 1 + stride / 2) {
            const struct law_settings settings = settings_of(windows[w], stride);
            uint64_t sum = 0, most = 0, steps = 0;
            start(&settings, 1);
            while (law.version < STEPS) {
                admit();
                if (!law_due(&law, LAW_DUE))
                    continue;
                take(LAW_DUE);
                if (law.next < 2 * windows[w] + stride) /* until every stripe has turned */
                    continue;
                const uint64_t work = work_of(STRIPES);
                cr_assert(step.stacks.on);
                sum += work;
                steps++;
                most = work > most ? work : most;
            }
            cr_expect_leq(most * steps, 2 * sum, "W %u S %u: %llu at most, %llu in the mean",
                          windows[w], stride, (unsigned long long)most,
                          (unsigned long long)(sum / steps));
            cr_expect_leq(sum / steps, (uint64_t)(3 * stride + 5) * STRIPES, "W %u S %u: %llu",
                          windows[w], stride, (unsigned long long)(sum / steps / STRIPES));
        }
}

Test(stacks, auto_takes_them_for_windows_much_longer_than_the_stride)
{
    struct law_settings settings = settings_of(64, 1);
    settings.window_algorithm = LAW_AUTO;
    cr_expect_eq(law_stacks_room(&settings), 64u);
    settings.recheck = true;
    settings.staleness_max = 4;
    cr_expect_eq(law_stacks_room(&settings), 0u, "what is left out cannot be taken out of a sum");
    settings.recheck = false;
    settings.decay = LAW_POLY;
    cr_expect_eq(law_stacks_room(&settings), 0u);
    settings.staleness_at = LAW_AT_ARRIVAL;
    cr_expect_eq(law_stacks_room(&settings), 64u);
    settings.window = 4;
    cr_expect_eq(law_stacks_room(&settings), 0u);
    settings.window = settings.stride = 64;
    cr_expect_eq(law_stacks_room(&settings), 0u, "a tumbling window has nothing to keep");
    settings = settings_of(2, 1);
    cr_expect_eq(law_stacks_room(&settings), 0u, "nor has a window of two, whatever is asked for");
}

Test(stacks, factors_that_would_leave_float32_are_not_taken)
{
    struct law_settings settings = settings_of(16, 1);
    settings.decay_beta = 1e-6;
    start(&settings, 3);
    uint32_t directly = 0;
    for (uint32_t event = 0; event < 100; event++) {
        admit();
        take(LAW_DUE);
        average_into(&memory, arithmetic_at(0), 0, DIM, average);
        check_average(3);
        directly += !step.stacks.on;
    }
    cr_expect_gt(directly, 10u);
}
