/* A shard's step on 1, 2, 3 and 7 threads, with every instruction set and sizes with odd tails,
 * gives the bits of the scalar definition on one: parameters, states, averages and all sums.
 * Without Criterion, so that the thread sanitizer can run it. */
#include "common/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 9, THETA = SLOTS, SPARE, M, V, AVERAGE, ARRAYS, SUMS = 16 };

static const size_t sizes[] = {1, 257, 65535, 65537, 3 * ARITHMETIC_BLOCK + 777};
static const uint32_t threads[] = {1, 2, 3, 7}, entries[] = {1, 3, 9};
static const enum arithmetic_algorithm algorithms[] = {ARITHMETIC_SGD, ARITHMETIC_ADAM,
                                                       ARITHMETIC_LAMB};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Arrays of n floats, and what was summed over them. */
struct outcome {
    float *base;
    double averages[SUMS], behind[SUMS];
    uint32_t largest_bits;
};

struct test {
    size_t n;
    struct arithmetic_plan plan;
    struct arithmetic_range ranges[2];
    const struct arithmetic *set;
    struct outcome *behind_of; /* whom `behind` tells */
};

static void fail_with(const char *what)
{
    fprintf(stderr, "threads_check: %s\n", what);
    exit(1);
}

static struct arithmetic_work work_of(const struct test *test, float *base)
{
    const size_t n = test->n;
    return (struct arithmetic_work){
        .sources = {.base = base, .stride_bytes = n * sizeof(float), .codec = ARITHMETIC_F32},
        .parameters = base + THETA * n,
        .parameters_next = base + SPARE * n,
        .state = {base + M * n, base + V * n},
        .state_next = {base + M * n, base + V * n},
        .ranges = test->ranges,
        .ranges_n = 1 + (n > 1),
        .streams = n % 2 == 1};
}

static void fill(float *x, size_t n)
{
    uint32_t seed = 11;
    for (size_t i = 0; i < ARRAYS * n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = element_float((seed & 0x80000000u) | 0x3e000000u | ((seed >> 8) & 0xffffffu));
        if (i / n == V)
            x[i] *= x[i];
    }
}

static void make(struct test *test, size_t n, enum arithmetic_algorithm algorithm, uint32_t k)
{
    *test = (struct test){.n = n};
    test->ranges[0] = (struct arithmetic_range){.end = n > 1 ? n / 2 + 1 : n};
    test->ranges[1] = (struct arithmetic_range){.begin = n / 2 + 1, .end = n};
    test->plan = (struct arithmetic_plan){.algorithm = algorithm,
                                          .phase = algorithm == ARITHMETIC_LAMB ? ARITHMETIC_MOMENTS
                                                                                : ARITHMETIC_WHOLE,
                                          .epsilon = 1e-8f,
                                          .scale = 1,
                                          .entries_n = k};
    for (uint32_t i = 0; i < k; i++)
        test->plan.entries[i] = (struct arithmetic_entry){i, 1.0f / (float)(i + k)};
    arithmetic_plan_group(&test->plan, 0,
                          &(struct arithmetic_group_numbers){.learning_rate = 0.1,
                                                             .weight_decay = 0.01,
                                                             .beta1 = 0.9,
                                                             .beta2 = 0.99,
                                                             .bias1 = 0.5,
                                                             .bias2 = 0.25});
}

static double squares(const struct arithmetic *set, const float *x, size_t n)
{
    struct arithmetic_measure measured;
    set->measure(ARITHMETIC_F32, x, n, &measured);
    return measured.sum_squares;
}

/* The second moments of a stretch, summed by whoever has stepped it. */
static void behind(void *context, uint64_t begin, uint64_t end)
{
    struct test *test = context;
    for (uint64_t at = begin; at < end; at += ARITHMETIC_BLOCK)
        test->behind_of->behind[at / ARITHMETIC_BLOCK] =
            squares(test->set, test->behind_of->base + V * test->n + at,
                    (size_t)(end - at < ARITHMETIC_BLOCK ? end - at : ARITHMETIC_BLOCK));
}

static void define(struct test *test, struct outcome *outcome)
{
    const size_t n = test->n;
    const struct arithmetic_work work = work_of(test, outcome->base);
    float *average = outcome->base + AVERAGE * n;
    test->set = &arithmetic_scalar;
    test->behind_of = outcome;
    test->set->average(&test->plan, &work.sources, 0, n, average);
    (void)arithmetic_measure_blocks(test->set, ARITHMETIC_F32, average, n, outcome->averages);
    test->set->step(&test->plan, &work, 0, n);
    behind(test, 0, n);
    double sums[SUMS];
    outcome->largest_bits =
        arithmetic_measure_blocks(test->set, ARITHMETIC_F32, work.parameters, n, sums);
}

static struct device_done finish(struct device_state *state)
{
    struct device_done done;
    while (device_cpu.poll(state, &done, 1) == 0)
        ;
    return done;
}

static void compute(struct test *test, const struct device_options *options,
                    struct outcome *outcome)
{
    const size_t n = test->n;
    struct device_state *state;
    const struct arithmetic_work work = work_of(test, outcome->base);
    double sums[SUMS];
    test->set = arithmetic_choose(options->simd);
    test->behind_of = outcome;
    if (device_cpu.open(options, &state) != GRADWEIR_OK)
        fail_with(fail_reason());
    const struct device_accumulate accumulate = {.plan = &test->plan,
                                                 .sources = work.sources,
                                                 .average = outcome->base + AVERAGE * n,
                                                 .end = n,
                                                 .sums = outcome->averages};
    const struct device_decode decode = {.from = work.parameters, .n = n, .sums = sums};
    const struct device_step step = {
        .plan = &test->plan, .work = &work, .end = n, .behind = {behind, test}};
    if (device_cpu.accumulate(state, 1, &accumulate) != GRADWEIR_OK ||
        device_cpu.decode(state, 2, &decode) != GRADWEIR_OK ||
        device_cpu.step(state, 3, &step) != GRADWEIR_OK)
        fail_with(fail_reason());
    finish(state);
    outcome->largest_bits = finish(state).largest_bits;
    finish(state);
    device_cpu.close(state);
}

static bool same(const struct test *test, const struct outcome *a, const struct outcome *b)
{
    const size_t sums = arithmetic_blocks(test->n) * sizeof(double);
    return memcmp(a->base, b->base, ARRAYS * test->n * sizeof(float)) == 0 &&
           memcmp(a->averages, b->averages, sums) == 0 && memcmp(a->behind, b->behind, sums) == 0 &&
           a->largest_bits == b->largest_bits;
}

/* One size and plan on every set and number of threads; returns how many differ. */
static int check(struct test *test)
{
    struct outcome defined = {.base = malloc(ARRAYS * test->n * sizeof(float))};
    struct outcome computed = {.base = malloc(ARRAYS * test->n * sizeof(float))};
    int wrong = 0;
    if (!defined.base || !computed.base)
        fail_with("no memory");
    fill(defined.base, test->n);
    define(test, &defined);
    for (size_t k = 0; arithmetic_at(k) != NULL; k++)
        for (size_t t = 0; t < COUNT(threads); t++) {
            const struct device_options options = {
                .simd = arithmetic_at(k)->name, .threads = threads[t], .crowded = t % 2 == 1};
            fill(computed.base, test->n);
            compute(test, &options, &computed);
            if (same(test, &defined, &computed))
                continue;
            wrong++;
            fprintf(stderr, "%zu elements, algorithm %d, %u gradients: %u threads of %s differ\n",
                    test->n, (int)test->plan.algorithm, test->plan.entries_n, threads[t],
                    options.simd);
        }
    free(defined.base);
    free(computed.base);
    return wrong;
}

int main(void)
{
    static struct test test;
    int wrong = 0, checks = 0;
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (size_t a = 0; a < COUNT(algorithms); a++)
            for (size_t e = 0; e < COUNT(entries); e++, checks++) {
                make(&test, sizes[s], algorithms[a], entries[e]);
                wrong += check(&test);
            }
    printf("%d cases, %d with other bits\n", checks, wrong);
    return wrong != 0;
}
