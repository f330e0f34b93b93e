/* A shard's step against the CPU's: every optimizer, codec and phase, ranges of several groups, any
 * stretch. */
#include "common/codec.h"
#include "tests/gpu/check.h"
#include "tests/unit/step_case.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 5, N = 2 * ARITHMETIC_BLOCK + 1237 };

/* A shard about to take a step, on both sides. */
struct shard {
    struct arithmetic_plan plan;
    struct arithmetic_range ranges[STEP_CASE_TENSORS];
    float ratios[STEP_CASE_TENSORS];
    struct array slots, theta, next, average, place_ranges, place_ratios;
    struct array state[ARITHMETIC_STATES_MAX], state_next[ARITHMETIC_STATES_MAX];
    size_t states, stride;
    enum arithmetic_codec codec;
};

static void make_plan(struct shard *s, struct random *random, enum arithmetic_algorithm algorithm)
{
    static const uint32_t counts[] = {1, 2, 5, 70};
    s->plan = (struct arithmetic_plan){.algorithm = algorithm,
                                       .first = random_below(random, 4) == 0,
                                       .centered = random_below(random, 2) == 0,
                                       .momentum = random_below(random, 2) == 0,
                                       .epsilon = 1e-8f,
                                       .scale = random_below(random, 2) ? 1.0f : 0.7f,
                                       .entries_n = counts[random_below(random, 4)]};
    for (uint32_t k = 0; k < s->plan.entries_n; k++)
        s->plan.entries[k] = (struct arithmetic_entry){
            .slot = (uint32_t)random_below(random, SLOTS), .weight = 1.0f / ((float)k + 3.0f)};
    step_case_groups(&s->plan);
}

static void make_slots(struct shard *s, struct random *random)
{
    float *x = malloc(N * sizeof *x);
    if (x == NULL)
        abort();
    s->stride = (codec_bytes(s->codec, N) + 255) / 256 * 256;
    s->slots = array_new(SLOTS * s->stride, 0);
    for (size_t k = 0; k < SLOTS; k++) {
        fill_floats(random, x, N);
        arithmetic_choose(NULL)->encode(s->codec, 1.0f, x, N, s->slots.host + k * s->stride);
    }
    array_send(&s->slots);
    free(x);
}

static void shard_open(struct shard *s, struct random *random, enum arithmetic_algorithm algorithm)
{
    const uint64_t borders[STEP_CASE_TENSORS + 1] = {0, 1 + random_below(random, 5000),
                                                     3 * ARITHMETIC_BLOCK / 2, 100003, N};
    memset(s, 0, sizeof *s);
    s->codec = (enum arithmetic_codec)random_below(random, 4);
    make_plan(s, random, algorithm);
    make_slots(s, random);
    step_case_tensors(borders, s->ranges, s->ratios);
    s->place_ranges = array_of(s->ranges, sizeof s->ranges, 0);
    s->place_ratios = array_of(s->ratios, sizeof s->ratios, 0);
    s->theta = floats_drawn(random, N, false);
    s->average = floats_drawn(random, N, false);
    s->next = array_new(N * sizeof(float), random_below(random, 4) * sizeof(float));
    s->states = arithmetic_states_n(algorithm, s->plan.centered, s->plan.momentum);
    for (size_t k = 0; k < s->states; k++) {
        s->state[k] = floats_drawn(random, N, k > 0 || algorithm == ARITHMETIC_RMSPROP);
        s->state_next[k] = array_new(N * sizeof(float), 0);
    }
    /* What a centered RMSPROP divides by stays positive. */
    for (size_t i = 0; algorithm == ARITHMETIC_RMSPROP && i < N; i++)
        ((float *)(void *)s->state[0].host)[i] += 1e6f;
    if (algorithm == ARITHMETIC_RMSPROP)
        array_send(&s->state[0]);
}

static void shard_close(struct shard *s)
{
    array_end(&s->slots);
    array_end(&s->theta);
    array_end(&s->next);
    array_end(&s->average);
    array_end(&s->place_ranges);
    array_end(&s->place_ratios);
    for (size_t k = 0; k < s->states; k++) {
        array_end(&s->state[k]);
        array_end(&s->state_next[k]);
    }
}

static struct arithmetic_work work_of(const struct shard *s, bool device, bool averaged)
{
    struct arithmetic_work work = {
        .sources = {.base = device ? s->slots.device : s->slots.host,
                    .stride_bytes = s->stride,
                    .codec = s->codec},
        .average = averaged ? (device ? there : here)(&s->average) : NULL,
        .parameters = (device ? there : here)(&s->theta),
        .parameters_next = (device ? there : here)(&s->next),
        .ranges =
            device ? (const struct arithmetic_range *)(void *)s->place_ranges.device : s->ranges,
        .ranges_n = STEP_CASE_TENSORS,
        .ratios = device ? there(&s->place_ratios) : s->ratios};
    for (size_t k = 0; k < s->states; k++) {
        work.state[k] = (device ? there : here)(&s->state[k]);
        work.state_next[k] = (device ? there : here)(&s->state_next[k]);
    }
    return work;
}

/* One stretch on both sides; what lies outside it must stay poison. */
static void step_both(struct shard *s, enum arithmetic_phase phase, bool averaged, size_t begin,
                      size_t end)
{
    const struct arithmetic_work on_cpu = work_of(s, false, averaged),
                                 on_gpu = work_of(s, true, averaged);
    s->plan.phase = phase;
    arithmetic_choose(NULL)->step(&s->plan, &on_cpu, begin, end);
    expect_ran(gpu_step(memory_stream(), &s->plan, &on_gpu, begin, end), "step", s->plan.algorithm);
}

static void run_step(struct random *random)
{
    static struct shard s;
    for (int a = ARITHMETIC_SGD; a <= ARITHMETIC_LAMB; a++) {
        const uint64_t number = (uint64_t)a;
        const size_t begin = random_below(random, 2) ? 0 : random_below(random, N - 1);
        const size_t end =
            random_below(random, 2) ? N : begin + 1 + random_below(random, N - begin);
        const bool averaged = random_below(random, 2) == 0;
        shard_open(&s, random, (enum arithmetic_algorithm)a);
        if (a == ARITHMETIC_LAMB)
            step_both(&s, ARITHMETIC_MOMENTS, averaged, begin, end);
        step_both(&s, a == ARITHMETIC_LAMB ? ARITHMETIC_APPLY : ARITHMETIC_WHOLE, averaged, begin,
                  end);
        expect_same(&s.next, "parameters of algorithm", number);
        for (size_t k = 0; k < s.states; k++) {
            expect_same(&s.state_next[k], "state of algorithm", number);
            expect_same(&s.state[k], "state before, of algorithm", number);
        }
        expect_same(&s.theta, "parameters before, of algorithm", number);
        expect_same(&s.slots, "slots of algorithm", number);
        shard_close(&s);
    }
}

static void run_average(struct random *random)
{
    static struct shard s;
    const size_t begin = random_below(random, 2) * ARITHMETIC_BLOCK;
    const size_t end = begin + 1 + random_below(random, N - begin);
    shard_open(&s, random, ARITHMETIC_SGD);
    const struct arithmetic_work on_cpu = work_of(&s, false, false),
                                 on_gpu = work_of(&s, true, false);
    arithmetic_choose(NULL)->average(&s.plan, &on_cpu.sources, begin, end, here(&s.next) + begin);
    expect_ran(gpu_average(memory_stream(), &s.plan, &on_gpu.sources, begin, end, there(&s.next)),
               "average", s.plan.entries_n);
    expect_same(&s.next, "average", s.plan.entries_n);
    shard_close(&s);
}

/* Times. */
static struct arithmetic_plan timed_plan;
static struct arithmetic_work timed_work;

static void call_step(void *context)
{
    (void)context;
    (void)gpu_step(memory_stream(), &timed_plan, &timed_work, 0, memory_timed());
}

static double time_step(enum arithmetic_algorithm algorithm, uint32_t entries, double *bytes)
{
    const size_t n = memory_timed(), states = arithmetic_states_n(algorithm, false, false);
    const struct arithmetic_range range = {.begin = 0, .end = n};
    float *memory = timed_floats((entries + 2 + states) * n);
    struct array place = array_of(&range, sizeof range, 0);
    timed_plan = (struct arithmetic_plan){
        .algorithm = algorithm, .epsilon = 1e-8f, .scale = 1.0f, .entries_n = entries};
    for (uint32_t k = 0; k < entries; k++)
        timed_plan.entries[k] = (struct arithmetic_entry){.slot = k, .weight = 1.0f};
    arithmetic_plan_group(
        &timed_plan, 0,
        &(struct arithmetic_group_numbers){
            .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .bias1 = 0.5, .bias2 = 0.5});
    float *at = memory + entries * n;
    timed_work = (struct arithmetic_work){
        .sources = {.base = memory, .stride_bytes = n * sizeof(float), .codec = ARITHMETIC_F32},
        .parameters = at,
        .parameters_next = at + n,
        .ranges = (const struct arithmetic_range *)(void *)place.device,
        .ranges_n = 1};
    for (size_t k = 0; k < states; k++)
        timed_work.state[k] = timed_work.state_next[k] = at + (k + 2) * n;
    const double seconds = memory_seconds(call_step, NULL, 5);
    *bytes = (double)(entries + 2 + 2 * states) * (double)n * sizeof(float);
    memory_free(memory);
    array_end(&place);
    return seconds;
}

static double time_adam(double *bytes)
{
    return time_step(ARITHMETIC_ADAM, 1, bytes);
}

static double time_adam_window(double *bytes)
{
    return time_step(ARITHMETIC_ADAM, 8, bytes);
}

static double time_sgd(double *bytes)
{
    return time_step(ARITHMETIC_SGD, 1, bytes);
}

const struct check checks_step[] = {
    {"step: all optimizers, codecs (times: Adam, W = 1)", "bits", run_step, time_adam, CHECK_GOAL},
    {"step (times: Adam, W = 8)", "-", NULL, time_adam_window, CHECK_GOAL},
    {"window average (times: SGD step, W = 1)", "bits", run_average, time_sgd, CHECK_GOAL},
    {NULL, NULL, NULL, NULL, 0},
};
