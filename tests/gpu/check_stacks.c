/* A window by stacks against the CPU's: a shard's steps one after the other, as the law plans them,
 * with random windows, strides, decays, flushes and changed settings. Averages, fronts and backs
 * must have the same bits after each. */
#include "common/codec.h"
#include "common/law.h"
#include "tests/gpu/check.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMENTS_MAX = 3000, WINDOW = 70, SLOTS = WINDOW + 1, TIMED_WINDOW = 64 };

struct rig {
    struct law law;
    struct law_step step;
    struct arithmetic_plan plan;
    struct random *random;
    enum arithmetic_codec codec;
    size_t n, stride, front_stride;
    uint64_t first;
    uint32_t stripe, events;
    struct array slots, back, fronts, average, theta, next, ranges;
    enum arithmetic_algorithm algorithm; /* momentum, or LAMB's first phase */
    size_t states;
    struct array state[2], state_next[2];
    struct arithmetic_range range;
};

static uint32_t pick(struct rig *rig, uint32_t low, uint32_t high)
{
    return low + (uint32_t)random_below(rig->random, high - low + 1);
}

static struct law_settings settings_of(struct rig *rig)
{
    struct law_settings settings = law_classic();
    settings.window = pick(rig, 0, 5) ? pick(rig, 3, 16) : pick(rig, 60, WINDOW);
    settings.stride = pick(rig, 0, 2) ? 1 : pick(rig, 1, settings.window - 1);
    settings.window_algorithm = LAW_STACKS;
    settings.decay = pick(rig, 0, 2) ? LAW_EXP : LAW_UNIFORM;
    settings.decay_beta = 0.7 + 0.3 * random_uniform(rig->random);
    settings.normalise = pick(rig, 0, 2) ? LAW_MEAN : LAW_COUNT;
    return settings;
}

static struct array floats_at(struct rig *rig, size_t n, bool filled)
{
    struct array array = array_new(n * sizeof(float), random_below(rig->random, 4) * sizeof(float));
    if (filled)
        fill_floats(rig->random, here(&array), n);
    array_send(&array);
    return array;
}

static void rig_open(struct rig *rig, struct random *random)
{
    memset(rig, 0, sizeof *rig);
    rig->random = random;
    const struct law_settings settings = settings_of(rig);
    law_init(&rig->law, &settings);
    rig->codec = (enum arithmetic_codec)pick(rig, 0, 3);
    rig->n = pick(rig, 1, ELEMENTS_MAX);
    rig->stride = (codec_bytes(rig->codec, rig->n) + 63) / 64 * 64;
    rig->front_stride = (rig->n + 15) / 16 * 16 + pick(rig, 0, 1);
    rig->first = (uint64_t)pick(rig, 0, 9) * 256;
    rig->stripe = 1u << pick(rig, 0, 13);
    rig->slots = array_new(SLOTS * rig->stride, 0);
    const size_t fronts = law_stacks_fronts(rig->law.stacks.room) * rig->front_stride;
    const bool aligned = pick(rig, 0, 2) > 0;
    rig->back = aligned ? array_new(rig->n * sizeof(float), 0) : floats_at(rig, rig->n, false);
    rig->fronts = aligned ? array_new(fronts * sizeof(float), 0) : floats_at(rig, fronts, false);
    rig->average = floats_at(rig, rig->n, false);
    rig->theta = floats_at(rig, rig->n, true);
    rig->next = floats_at(rig, rig->n, false);
    rig->algorithm = pick(rig, 0, 1) ? ARITHMETIC_LAMB : ARITHMETIC_MOMENTUM;
    rig->states = rig->algorithm == ARITHMETIC_LAMB ? 2 : 1;
    for (size_t k = 0; k < rig->states; k++) {
        rig->state[k] = floats_at(rig, rig->n, true);
        rig->state_next[k] = floats_at(rig, rig->n, false);
    }
    rig->range = (struct arithmetic_range){.begin = 0, .end = rig->n};
    rig->ranges = array_of(&rig->range, sizeof rig->range, 0);
}

static void rig_close(struct rig *rig)
{
    array_end(&rig->slots);
    array_end(&rig->back);
    array_end(&rig->fronts);
    array_end(&rig->average);
    array_end(&rig->theta);
    array_end(&rig->next);
    array_end(&rig->ranges);
    for (size_t k = 0; k < rig->states; k++) {
        array_end(&rig->state[k]);
        array_end(&rig->state_next[k]);
    }
}

static void admit(struct rig *rig)
{
    static float x[ELEMENTS_MAX];
    const uint64_t old = pick(rig, 0, 3);
    const struct law_arrival arrival = {.finite = true,
                                        .largest = 1.0f,
                                        .basis =
                                            rig->law.version > old ? rig->law.version - old : 0,
                                        .samples = pick(rig, 1, 64),
                                        .norm = 1.0};
    struct law_entry entry = law_entry(&rig->law, &arrival), gone;
    entry.slot = (uint32_t)(rig->law.next % SLOTS);
    unsigned char *slot = rig->slots.host + entry.slot * rig->stride;
    fill_floats(rig->random, x, rig->n);
    arithmetic_choose(NULL)->encode(rig->codec, 1.0f, x, rig->n, slot);
    memory_put(rig->slots.device + entry.slot * rig->stride, slot, rig->stride);
    law_admit(&rig->law, &entry);
    while (law_retired(&rig->law, &gone))
        ;
}

static struct arithmetic_sources sources_of(const struct rig *rig, bool device)
{
    return (struct arithmetic_sources){.base = device ? rig->slots.device : rig->slots.host,
                                       .stride_bytes = rig->stride,
                                       .codec = rig->codec,
                                       .back = (device ? there : here)(&rig->back),
                                       .fronts = (device ? there : here)(&rig->fronts),
                                       .front_stride = rig->front_stride,
                                       .first = rig->first,
                                       .stripe = rig->stripe};
}

static struct arithmetic_work work_of(const struct rig *rig, bool device)
{
    float *(*side)(const struct array *) = device ? there : here;
    const bool two = rig->states == 2;
    return (struct arithmetic_work){
        .sources = sources_of(rig, device),
        .parameters = side(&rig->theta),
        .parameters_next = side(&rig->next),
        .state = {side(&rig->state[0]), two ? side(&rig->state[1]) : NULL},
        .state_next = {side(&rig->state_next[0]), two ? side(&rig->state_next[1]) : NULL},
        .ranges =
            device ? (const struct arithmetic_range *)(void *)rig->ranges.device : &rig->range,
        .ranges_n = 1};
}

/* A stretch on both sides: the average by itself, or within a step. */
static void both(struct rig *rig, bool steps, size_t begin, size_t end)
{
    const struct arithmetic *cpu = arithmetic_choose(NULL);
    const struct arithmetic_work on_cpu = work_of(rig, false), on_gpu = work_of(rig, true);
    if (begin == end)
        return;
    if (steps) {
        cpu->step(&rig->plan, &on_cpu, begin, end);
        expect_ran(gpu_step(memory_stream(), &rig->plan, &on_gpu, begin, end), "step by stacks",
                   rig->events);
        return;
    }
    cpu->average(&rig->plan, &on_cpu.sources, begin, end, here(&rig->average) + begin);
    expect_ran(
        gpu_average(memory_stream(), &rig->plan, &on_gpu.sources, begin, end, there(&rig->average)),
        "average by stacks", rig->events);
}

static void plan_step(struct rig *rig, enum law_cause cause)
{
    law_step(&rig->law, cause, &rig->step);
    memset(&rig->plan, 0, sizeof rig->plan);
    law_plan(&rig->law.settings, &rig->step, &rig->plan);
    law_apply(&rig->law, &rig->step);
    rig->plan.algorithm = rig->algorithm;
    rig->plan.phase = rig->states == 2 ? ARITHMETIC_MOMENTS : ARITHMETIC_WHOLE;
    rig->plan.groups_n = 0;
    arithmetic_plan_group(
        &rig->plan, 0,
        &(struct arithmetic_group_numbers){
            .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .bias1 = 1, .bias2 = 1});
}

static void take(struct rig *rig, enum law_cause cause)
{
    const bool steps = pick(rig, 0, 1);
    const size_t cut = pick(rig, 0, (uint32_t)rig->n);
    plan_step(rig, cause);
    both(rig, steps, 0, cut);
    both(rig, steps, cut, rig->n);
    expect_same(&rig->average, "average by stacks", rig->events);
    expect_same(&rig->back, "backs", rig->events);
    expect_same(&rig->fronts, "fronts", rig->events);
    expect_same(&rig->next, "parameters by stacks", rig->events);
    for (size_t k = 0; k < rig->states; k++)
        expect_same(&rig->state_next[k], "state by stacks", rig->events);
}

static void change_settings(struct rig *rig)
{
    struct law_settings settings = rig->law.settings;
    struct law_entry gone;
    if (pick(rig, 0, 1)) /* a window of two has no stacks */
        settings.window =
            pick(rig, settings.stride > 1 ? settings.stride + 1 : 3, rig->law.stacks.room);
    else
        settings.decay_beta = 0.7 + 0.3 * random_uniform(rig->random);
    law_tune(&rig->law, &settings);
    while (law_retired(&rig->law, &gone))
        ;
}

static void run_stacks(struct random *random)
{
    static struct rig rig;
    uint32_t taken = 0;
    rig_open(&rig, random);
    for (rig.events = 0; rig.events < 2 * rig.law.settings.window + 12; rig.events++) {
        if (pick(&rig, 0, 30) == 0)
            change_settings(&rig);
        admit(&rig);
        const bool due = law_due(&rig.law, LAW_DUE);
        if (!due && pick(&rig, 0, 9) > 0)
            continue;
        take(&rig, due ? LAW_DUE : LAW_FLUSH);
        taken += rig.step.stacks.on;
    }
    expect(taken > 0, "no step was by stacks", 0);
    rig_close(&rig);
}

/* Times. */

static struct arithmetic_plan timed_plan;
static struct arithmetic_sources timed_sources;
static float *timed_average;

static size_t timed_n(void)
{
    return memory_timed() / 16;
}

static void call_average(void *context)
{
    (void)context;
    (void)gpu_average(memory_stream(), &timed_plan, &timed_sources, 0, timed_n(), timed_average);
}

/* The plan of a step that nothing has disturbed for two windows. */
static void plan_timed(void)
{
    static struct law law;
    static struct law_step step;
    struct law_settings settings = law_classic();
    settings.window = TIMED_WINDOW;
    settings.stride = 1;
    settings.window_algorithm = LAW_STACKS;
    law_init(&law, &settings);
    for (uint32_t i = 0; i < 2 * TIMED_WINDOW + 1; i++) {
        const struct law_arrival arrival = {.finite = true, .largest = 1.0f, .samples = 1};
        struct law_entry entry = law_entry(&law, &arrival), gone;
        entry.slot = i % TIMED_WINDOW;
        law_admit(&law, &entry);
        while (law_retired(&law, &gone))
            ;
        law_step(&law, LAW_DUE, &step);
        memset(&timed_plan, 0, sizeof timed_plan);
        law_plan(&settings, &step, &timed_plan);
        law_apply(&law, &step);
    }
}

/* What it must move: the newest gradient, the back twice, a front, half a gradient, the average;
 * and of each stripe that turns a window of gradients and half as many fronts. */
static double time_stacks(double *bytes)
{
    const size_t n = timed_n(), fronts = TIMED_WINDOW / LAW_FRONT_EVERY;
    float *memory = timed_floats((TIMED_WINDOW + fronts + 2) * n);
    plan_timed();
    float *at = memory + TIMED_WINDOW * n;
    timed_sources = (struct arithmetic_sources){.base = memory,
                                                .stride_bytes = n * sizeof(float),
                                                .codec = ARITHMETIC_F32,
                                                .back = at,
                                                .fronts = at + 2 * n,
                                                .front_stride = n,
                                                .stripe = LAW_STRIPE_MAX};
    timed_average = at + n;
    const double seconds = memory_seconds(call_average, NULL, 5);
    *bytes = (1 + 2 + 1 + 0.5 + 1 + 1.5) * (double)n * sizeof(float);
    memory_free(memory);
    return seconds;
}

const struct check checks_stacks[] = {
    {"window by stacks (times: average, W = 64)", "bits", run_stacks, time_stacks, 0},
    {NULL, NULL, NULL, NULL, 0},
};
