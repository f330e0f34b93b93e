/* What stands around the matrix products, and what a gradient goes through before it leaves. */
#include "common/element_network.h"
#include "gpu/kernels_learn.h"
#include "tests/gpu/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TIMED_COLUMNS = 256 };

/* Half of them fit for four at once. */
static size_t draw_columns(struct random *random)
{
    return random_below(random, 2) ? 4 + 4 * random_below(random, 33)
                                   : 1 + random_below(random, 130);
}

static void run_bias_tanh(struct random *random)
{
    const size_t rows = 1 + random_below(random, 500), cols = draw_columns(random);
    struct array bias = floats_uniform(random, cols, -1, 1);
    struct array y = floats_uniform(random, rows * cols, -4, 4);
    expect_ran(gpu_bias_tanh(memory_stream(), rows, cols, there(&bias), there(&y)), "bias + tanh",
               cols);
    for (size_t i = 0; i < rows * cols; i++)
        here(&y)[i] = element_bias_tanh(here(&y)[i], here(&bias)[i % cols]);
    expect_same(&y, "bias + tanh", cols);
    array_end(&bias);
    array_end(&y);
}

static void run_tanh_backward(struct random *random)
{
    const size_t rows = 1 + random_below(random, 3000), cols = draw_columns(random);
    struct array h = floats_uniform(random, rows * cols, -1, 1);
    struct array d = floats_uniform(random, rows * cols, -1, 1);
    struct array sums = floats_new(random, cols);
    struct array scratch = array_new(gpu_tanh_scratch(rows, cols), 0);
    const struct gpu_tanh_work work = {.rows = rows,
                                       .cols = cols,
                                       .h = there(&h),
                                       .d = there(&d),
                                       .sums = there(&sums),
                                       .scratch = scratch.device};
    expect_ran(gpu_tanh_backward(memory_stream(), &work), "tanh backward", cols);
    for (size_t i = 0; i < rows * cols; i++)
        here(&d)[i] = element_tanh_backward(here(&d)[i], here(&h)[i]);
    for (size_t j = 0; j < cols; j++) {
        double sum = 0;
        for (size_t i = 0; i < rows; i++)
            sum += (double)here(&d)[i * cols + j];
        here(&sums)[j] = (float)sum;
    }
    expect_same(&d, "tanh backward", cols);
    expect_same(&h, "what tanh backward reads", cols);
    expect_near(&sums, 2e-4, "the bias's gradient", rows);
    array_end(&h);
    array_end(&d);
    array_end(&sums);
    array_end(&scratch);
}

static void run_add_scaled(struct random *random)
{
    const size_t n = 1 + random_below(random, 100000);
    struct array x = floats_uniform(random, n, -1, 1), y = floats_uniform(random, n, -1, 1);
    expect_ran(gpu_add_scaled(memory_stream(), n, 0.3f, there(&x), there(&y)), "accumulation", n);
    for (size_t i = 0; i < n; i++)
        here(&y)[i] = here(&y)[i] + 0.3f * here(&x)[i];
    expect_same(&y, "accumulation", n);
    array_end(&x);
    array_end(&y);
}

/* scale, clip by the norm, cast: the CPU's loops with the factor that the CPU finds. */
static void run_clipped(struct random *random)
{
    const size_t n = 1 + random_below(random, 3 * ARITHMETIC_BLOCK), blocks = arithmetic_blocks(n);
    const double limit = random_below(random, 3) ? 0.5 : 0.0;
    const float scale = random_below(random, 2) ? 1.0f : 0.25f;
    const struct arithmetic *set = arithmetic_choose(NULL);
    struct array x = floats_uniform(random, n, -1, 1), to = array_new(n * sizeof(uint16_t), 2);
    struct array sums = array_new(blocks * sizeof(double), 0), largest = array_new(blocks * 4, 0);
    struct array scratch = array_new(blocks * sizeof(double), 0),
                 factor = array_new(sizeof(float), 0);
    struct array norm = array_new(sizeof(double), 0);
    double *const there_sums = (double *)(void *)sums.device;
    uint32_t *const there_largest = (uint32_t *)(void *)largest.device;
    expect_ran(
        gpu_measure(memory_stream(), ARITHMETIC_F32, there(&x), n, there_sums, there_largest),
        "norm", n);
    const struct gpu_clip_work work = {.sums = there_sums,
                                       .blocks = blocks,
                                       .scale = scale,
                                       .limit = limit,
                                       .scratch = (double *)(void *)scratch.device,
                                       .factor = there(&factor),
                                       .norm = (double *)(void *)norm.device};
    expect_ran(gpu_clip_factor(memory_stream(), &work), "clip", n);
    expect_ran(gpu_encode_clipped(memory_stream(), ARITHMETIC_BF16, there(&x), n, there(&factor),
                                  to.device, there_sums, there_largest),
               "encode, clipped", n);
    float got_factor;
    double got_norm, expected_sums[8] = {0}, square = 0;
    memory_fetch(&got_factor, factor.device, sizeof got_factor);
    memory_fetch(&got_norm, norm.device, sizeof got_norm);
    (void)arithmetic_measure_blocks(set, ARITHMETIC_F32, x.host, n, expected_sums);
    for (size_t b = 0; b < blocks; b++)
        square += expected_sums[b];
    const double expected_norm = (double)scale * sqrt(square);
    const double expected =
        limit > 0 ? (double)scale * fmin(1.0, limit / (expected_norm + 1e-6)) : (double)scale;
    expect(fabs(got_norm - expected_norm) <= 1e-9 * expected_norm, "norm of a gradient", n);
    expect(fabs((double)got_factor - expected) <= 1e-6 * expected, "clip factor", n);
    set->encode(ARITHMETIC_BF16, got_factor, here(&x), n, to.host);
    expect_same(&to, "encode, clipped", n);
    array_end(&x);
    array_end(&to);
    array_end(&sums);
    array_end(&largest);
    array_end(&scratch);
    array_end(&factor);
    array_end(&norm);
}

/* The k largest, by sorting. */
struct ranked {
    uint32_t magnitude, index;
};

static int by_magnitude(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->magnitude != y->magnitude)
        return x->magnitude > y->magnitude ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int by_index(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void run_top(struct random *random)
{
    const size_t n = 1 + random_below(random, 60000), k = 1 + random_below(random, n);
    struct array x = floats_uniform(random, n, -1, 1), scratch = array_new(gpu_top_scratch(n), 0);
    struct array indices = array_new(k * sizeof(uint32_t), 0), values = floats_new(random, k);
    struct ranked *order = malloc(n * sizeof *order);
    if (order == NULL)
        abort();
    for (size_t i = 0; i < n; i++) /* many equals, among which it mostly ends */
        here(&x)[random_below(random, n)] = 0.5f;
    array_send(&x);
    const struct gpu_top_work work = {.from = there(&x),
                                      .n = n,
                                      .k = k,
                                      .scratch = scratch.device,
                                      .indices = (uint32_t *)(void *)indices.device,
                                      .values = there(&values)};
    expect_ran(gpu_top(memory_stream(), &work), "the largest k", k);
    for (size_t i = 0; i < n; i++)
        order[i] = (struct ranked){element_bits(here(&x)[i]) & 0x7fffffffu, (uint32_t)i};
    qsort(order, n, sizeof *order, by_magnitude);
    for (size_t i = 0; i < k; i++)
        ((uint32_t *)(void *)indices.host)[i] = order[i].index;
    qsort(indices.host, k, sizeof(uint32_t), by_index);
    for (size_t i = 0; i < k; i++)
        here(&values)[i] = here(&x)[((uint32_t *)(void *)indices.host)[i]];
    expect_same(&indices, "indices of the largest k", k);
    expect_same(&values, "values of the largest k", k);
    free(order);
    array_end(&x);
    array_end(&scratch);
    array_end(&indices);
    array_end(&values);
}

/* Times. */
struct timed {
    float *a, *b, *sums;
    void *scratch;
};

static size_t timed_rows(void)
{
    return memory_timed() / TIMED_COLUMNS;
}

static void call_bias_tanh(void *context)
{
    const struct timed *t = context;
    (void)gpu_bias_tanh(memory_stream(), timed_rows(), TIMED_COLUMNS, t->sums, t->a);
}

static void call_tanh_backward(void *context)
{
    const struct timed *t = context;
    const struct gpu_tanh_work work = {.rows = timed_rows(),
                                       .cols = TIMED_COLUMNS,
                                       .h = t->a,
                                       .d = t->b,
                                       .sums = t->sums,
                                       .scratch = t->scratch};
    (void)gpu_tanh_backward(memory_stream(), &work);
}

static void call_add_scaled(void *context)
{
    const struct timed *t = context;
    (void)gpu_add_scaled(memory_stream(), memory_timed(), 0.3f, t->a, t->b);
}

/* A gradient's way out: factor from the norm, then scaled, clipped, cast and measured. */
static void call_clipped(void *context)
{
    const struct timed *t = context;
    const uint64_t blocks = arithmetic_blocks(memory_timed());
    double *sums = t->scratch;
    const struct gpu_clip_work work = {.sums = sums,
                                       .blocks = blocks,
                                       .scale = 1.0f,
                                       .limit = 0.5,
                                       .scratch = sums + blocks,
                                       .factor = t->sums};
    (void)gpu_clip_factor(memory_stream(), &work);
    (void)gpu_encode_clipped(memory_stream(), ARITHMETIC_BF16, t->a, memory_timed(), t->sums, t->b,
                             sums, (uint32_t *)(void *)(sums + 2 * blocks));
}

/* One in a hundred. */
static void call_top(void *context)
{
    const struct timed *t = context;
    const struct gpu_top_work work = {.from = t->a,
                                      .n = memory_timed(),
                                      .k = memory_timed() / 100,
                                      .scratch = t->scratch,
                                      .indices = (uint32_t *)(void *)t->b,
                                      .values = t->b + memory_timed() / 100};
    (void)gpu_top(memory_stream(), &work);
}

static double time_of(void (*call)(void *), size_t scratch)
{
    struct timed t = {timed_floats(memory_timed()), timed_floats(memory_timed()),
                      timed_floats(TIMED_COLUMNS), timed_floats(scratch / sizeof(float) + 1)};
    const double seconds = memory_seconds(call, &t, 5);
    memory_free(t.a);
    memory_free(t.b);
    memory_free(t.sums);
    memory_free(t.scratch);
    return seconds;
}

static double time_bias_tanh(double *bytes)
{
    *bytes = 2.0 * (double)memory_timed() * sizeof(float);
    return time_of(call_bias_tanh, 0);
}

static double time_tanh_backward(double *bytes)
{
    *bytes = 3.0 * (double)memory_timed() * sizeof(float);
    return time_of(call_tanh_backward, gpu_tanh_scratch(timed_rows(), TIMED_COLUMNS));
}

static double time_add_scaled(double *bytes)
{
    *bytes = 3.0 * (double)memory_timed() * sizeof(float);
    return time_of(call_add_scaled, 0);
}

static double time_clipped(double *bytes)
{
    *bytes = (double)memory_timed() * (sizeof(float) + sizeof(uint16_t));
    return time_of(call_clipped, 3 * arithmetic_blocks(memory_timed()) * sizeof(double));
}

/* What it must read is once everything; it reads it once a digit, and to take it. */
static double time_top(double *bytes)
{
    *bytes = (double)memory_timed() * sizeof(float);
    return time_of(call_top, gpu_top_scratch(memory_timed()));
}

const struct check checks_layers[] = {
    {"bias + tanh", "bits", run_bias_tanh, time_bias_tanh, CHECK_GOAL},
    {"tanh backward, and the bias's gradient", "bits, 2e-4", run_tanh_backward, time_tanh_backward,
     CHECK_GOAL},
    {"accumulation", "bits", run_add_scaled, time_add_scaled, CHECK_GOAL},
    {"scale, clip by norm, cast", "bits, 1e-6", run_clipped, time_clipped, CHECK_GOAL},
    {"the largest k (times: 1 in 100)", "bits", run_top, time_top, 0},
    {NULL, NULL, NULL, NULL, 0},
};
