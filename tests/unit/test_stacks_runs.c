/* The window by stacks where stripes are as long as in a large model, so that gradients are summed
 * in runs and eight at a time: beside a plain average in double, beside one element after the
 * other, beside 1 to 5 shards that end wherever, and in a step. */
#include "common/codec.h"
#include "common/law.h"
#include "common/random.h"
#include "tests/unit/element_set.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { DIM = 3 * LAW_STRIPE_MAX + 1001, WINDOW = 64, SLOTS = WINDOW + 1, FRONTS = WINDOW / 2 };

struct memory { /* of the whole model, or of pieces of it that somebody takes for shards */
    _Alignas(64) float back[DIM], fronts[FRONTS][DIM];
};

/* Slots begin at their own lines, as an arena's do. */
static struct {
    struct law law;
    struct law_step step;
    struct arithmetic_plan plan;
    enum arithmetic_codec codec;
    uint32_t stripe;
    struct random chance;
    float floats[SLOTS][DIM];
    _Alignas(64) unsigned char slots[SLOTS][DIM * sizeof(float)];
    struct memory whole, elements, pieces, stepped;
    _Alignas(64) float average[DIM], other[DIM], parameters[DIM], parameters_next[DIM];
} t;

static void start(uint32_t window, uint32_t stride, uint32_t stripe, enum arithmetic_codec codec)
{
    struct law_settings settings = law_classic();
    settings.window = window;
    settings.stride = stride;
    settings.decay = LAW_EXP;
    settings.decay_beta = 0.97;
    settings.algorithm = ARITHMETIC_SGD;
    settings.window_algorithm = LAW_STACKS;
    law_init(&t.law, &settings);
    random_split(&t.chance, window, "floats", stripe);
    t.stripe = stripe;
    t.codec = codec;
    memset(&t.whole, 0xff, sizeof t.whole); /* NaN: what was not written must not be read */
    memset(&t.elements, 0xff, sizeof t.elements);
    memset(&t.pieces, 0xff, sizeof t.pieces);
    memset(&t.stepped, 0xff, sizeof t.stepped);
}

static void admit(void)
{
    const struct law_arrival arrival = {
        .finite = true, .largest = 1.0f, .basis = t.law.version, .samples = 1, .norm = 1.0};
    struct law_entry entry = law_entry(&t.law, &arrival), gone;
    const uint32_t slot = entry.slot = (uint32_t)(t.law.next % SLOTS);
    for (uint32_t i = 0; i < DIM; i++)
        t.floats[slot][i] = (float)(2.0 * random_uniform(&t.chance) - 1.0);
    arithmetic_at(0)->encode(t.codec, 1.0f, t.floats[slot], DIM, t.slots[slot]);
    arithmetic_at(0)->decode(t.codec, t.slots[slot], DIM, t.floats[slot]);
    law_admit(&t.law, &entry);
    while (law_retired(&t.law, &gone))
        ;
}

static struct arithmetic_sources sources_of(struct memory *of, size_t first)
{
    return (struct arithmetic_sources){.base = &t.slots[0][codec_bytes(t.codec, first)],
                                       .stride_bytes = sizeof t.slots[0],
                                       .codec = t.codec,
                                       .back = &of->back[first],
                                       .fronts = &of->fronts[0][first],
                                       .front_stride = DIM,
                                       .first = first,
                                       .stripe = t.stripe};
}

static void average_into(struct memory *of, const struct arithmetic *set, size_t begin, size_t end,
                         float *out)
{
    const struct arithmetic_sources sources = sources_of(of, begin);
    set->average(&t.plan, &sources, 0, end - begin, out);
}

static void take(void)
{
    law_step(&t.law, LAW_DUE, &t.step);
    memset(&t.plan, 0, sizeof t.plan);
    law_plan(&t.law.settings, &t.step, &t.plan);
    law_apply(&t.law, &t.step);
    cr_assert(t.step.stacks.on);
}

/* 2 (W + 4) 2^-24 of the sum of magnitudes, as in common/arithmetic_stacks.h. */
static void check_in_double(void)
{
    for (uint32_t i = 0; i < DIM; i += (i % t.stripe == 0 || i + 2 > DIM) ? 1 : 13) {
        double exact = 0, sizes = 0;
        for (uint32_t k = 0; k < t.step.n; k++) {
            const double term =
                t.step.entries[k].weight_exact * (double)t.floats[t.step.entries[k].slot][i];
            exact += term;
            sizes += fabs(term);
        }
        cr_assert(fabs((double)t.average[i] - exact) <=
                      2.0 * (t.step.n + 4) * 0x1p-24 * 1.01 * sizes + 1e-30,
                  "window %u, element %u: %.9g instead of %.9g", t.law.settings.window, i,
                  (double)t.average[i], exact);
    }
}

/* Shards end wherever a model's blocks do; here at any element, so that no run begins at a line. */
static void check_pieces(const struct arithmetic *set, uint32_t shards)
{
    for (uint32_t i = 0; i < shards; i++) {
        const size_t begin = (size_t)DIM * i / shards, end = (size_t)DIM * (i + 1) / shards;
        average_into(&t.pieces, set, begin, end, t.other + begin);
    }
    cr_assert_eq(memcmp(t.other, t.average, sizeof t.other), 0, "%u shards give other bits",
                 shards);
}

/* SGD by 1 from 0: minus the average. */
static void check_step(const struct arithmetic *set)
{
    const struct arithmetic_range range = {.end = DIM};
    const struct arithmetic_work work = {.sources = sources_of(&t.stepped, 0),
                                         .parameters = t.parameters,
                                         .parameters_next = t.parameters_next,
                                         .ranges = &range,
                                         .ranges_n = 1,
                                         .streams = t.law.next % 2};
    arithmetic_plan_group(&t.plan, 0, &(struct arithmetic_group_numbers){.learning_rate = 1.0});
    const size_t half = DIM / 2;
    set->step(&t.plan, &work, 0, half);
    set->step(&t.plan, &work, half, DIM);
    for (uint32_t i = 0; i < DIM; i++)
        cr_assert_float_eq(t.parameters_next[i], -t.average[i], 0.0f, "element %u", i);
}

static void run(uint32_t window, uint32_t stride, uint32_t stripe, enum arithmetic_codec codec)
{
    start(window, stride, stripe, codec);
    const struct arithmetic elements = element_set(), *set = arithmetic_at(window % 3);
    set = set ? set : arithmetic_at(0);
    const uint32_t shards = 1 + (window + stripe) % 5;
    while (t.law.next < 2 * window + 20) {
        admit();
        if (!law_due(&t.law, LAW_DUE))
            continue;
        take();
        average_into(&t.whole, set, 0, DIM, t.average);
        check_in_double();
        check_pieces(arithmetic_at(0), shards);
        check_step(set);
        if (window > 16)
            continue;
        average_into(&t.elements, &elements, 0, DIM, t.other);
        cr_assert_eq(memcmp(t.other, t.average, sizeof t.other), 0, "one by one: other bits");
        cr_assert_eq(memcmp(&t.elements, &t.whole, sizeof t.whole), 0, "other fronts or backs");
    }
}

Test(stacks_runs, long_stripes_average_like_one_pass_in_double_and_like_any_shards)
{
    static const uint32_t windows[] = {8, 9, 10, 12, 15, 16, 33, 64};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        run(windows[i], 1, LAW_STRIPE_MAX, ARITHMETIC_F32);
        run(windows[i], 1 + i % 3, i % 2 ? 1024 : 2048, ARITHMETIC_F32);
    }
}

Test(stacks_runs, so_do_stripes_that_are_no_power_of_two)
{
    run(16, 1, 1000, ARITHMETIC_F32);
    run(11, 2, 97, ARITHMETIC_F32);
}

Test(stacks_runs, gradients_that_are_decoded_are_summed_a_chunk_at_a_time)
{
    run(9, 1, LAW_STRIPE_MAX, ARITHMETIC_BF16);
    run(16, 2, LAW_STRIPE_MAX, ARITHMETIC_F16);
}
