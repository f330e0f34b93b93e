/* What the trainer's engine does between matrix products: samples picked out of a rollout, looked
 * back at and linked, biases and their gradients. */
#include "gpu/kernels_engine.h"
#include "tests/gpu/check.h"

#include <stdlib.h>
#include <string.h>

enum { SEEN = 9 }; /* the widest observation that is tried */

static struct array order_new(struct random *random, size_t n, size_t samples)
{
    struct array order = array_new(n * sizeof(uint32_t), random_below(random, 4) * 4);
    for (size_t i = 0; i < n; i++) {
        const uint32_t at = (uint32_t)random_below(random, samples);
        memcpy(order.host + i * sizeof at, &at, sizeof at);
    }
    array_send(&order);
    return order;
}

/* Rows of `width` floats, as many as order has. */
static void expect_gathered(const struct array *from, struct array *to, const struct array *order,
                            size_t width)
{
    const size_t n = order->bytes / sizeof(uint32_t);
    for (size_t i = 0; i < n; i++) {
        uint32_t at;
        memcpy(&at, order->host + i * sizeof at, sizeof at);
        memcpy(here(to) + i * width, here(from) + at * width, width * sizeof(float));
    }
    expect_same(to, "gathered", width);
}

static void run_gather(struct random *random)
{
    const size_t samples = 1 + random_below(random, 3000), n = 1 + random_below(random, samples);
    const size_t widths[2 + GPU_COLUMNS] = {
        1 + random_below(random, SEEN), 1 + random_below(random, 3), 1, 1, 1, 1, 1};
    const size_t left_out = 2 + random_below(random, GPU_COLUMNS);
    struct array order = order_new(random, n, samples), from[2 + GPU_COLUMNS], to[2 + GPU_COLUMNS];
    for (size_t k = 0; k < 2 + GPU_COLUMNS; k++) {
        from[k] = floats_uniform(random, samples * widths[k], -3, 3);
        to[k] = floats_new(random, n * widths[k]);
    }
    struct gpu_gather_work work = {.order = (const uint32_t *)(const void *)order.device,
                                   .n = n,
                                   .observation_dim = widths[0],
                                   .action_width = widths[1],
                                   .observations = there(&from[0]),
                                   .actions = there(&from[1]),
                                   .to_observations = there(&to[0]),
                                   .to_actions = there(&to[1])};
    for (size_t k = 2; k < 2 + GPU_COLUMNS; k++) {
        work.columns[k - 2] = k == left_out ? NULL : there(&from[k]);
        work.to_columns[k - 2] = k == left_out ? NULL : there(&to[k]);
    }
    expect_ran(gpu_gather(memory_stream(), &work), "gather", n);
    for (size_t k = 0; k < 2 + GPU_COLUMNS; k++) {
        if (k == left_out)
            expect_same(&to[k], "a column that is left out", n);
        else
            expect_gathered(&from[k], &to[k], &order, widths[k]);
        expect_same(&from[k], "what gather reads", n);
        array_end(&from[k]);
        array_end(&to[k]);
    }
    array_end(&order);
}

static void run_look_back(struct random *random)
{
    const bool gaussian = random_below(random, 2) == 0;
    const size_t n = 1 + random_below(random, 3000), dim = 2 + random_below(random, 4);
    const size_t width = gaussian ? dim : 1;
    struct array head = floats_uniform(random, n * dim, -1, 1),
                 log_std = floats_uniform(random, dim, -1, 0),
                 actions = floats_uniform(random, n * width, -1, 1),
                 log_then = floats_uniform(random, n, -2, 0);
    struct array log_now = floats_new(random, n), log_ratios = floats_new(random, n);
    for (size_t i = 0; !gaussian && i < n; i++)
        here(&actions)[i] = (float)random_below(random, dim);
    array_send(&actions);
    const struct policy policy = {
        .gaussian = gaussian, .action_dim = dim, .log_std = here(&log_std)};
    const struct gpu_look_back_work work = {
        .policy = {.gaussian = gaussian, .action_dim = dim, .log_std = there(&log_std)},
        .n = n,
        .head = there(&head),
        .actions = there(&actions),
        .log_then = there(&log_then),
        .log_now = there(&log_now),
        .log_ratios = there(&log_ratios)};
    expect_ran(gpu_look_back(memory_stream(), &work), "looking back", n);
    for (size_t i = 0; i < n; i++) {
        float entropy = 0;
        here(&log_now)[i] = element_policy_log(&policy, here(&head) + i * dim,
                                               here(&actions) + i * width, &entropy);
        here(&log_ratios)[i] = element_log_ratio(here(&log_now)[i], here(&log_then)[i]);
    }
    expect_near(&log_now, 2e-5, "log-probabilities now", n);
    expect_near(&log_ratios, 2e-5, "log-ratios", n);
    struct array *const all[] = {&head, &log_std, &actions, &log_then, &log_now, &log_ratios};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        array_end(all[k]);
}

static void run_link(struct random *random)
{
    const size_t steps = 1 + random_below(random, 40), wide = 1 + random_below(random, 90);
    const size_t n = steps * wide;
    struct array values = floats_uniform(random, n + wide, -2, 2),
                 next = floats_uniform(random, n, 5, 6), terminated = flags_new(random, n, 6),
                 truncated = flags_new(random, n, 6);
    const struct gpu_link_work work = {.steps = steps,
                                       .environments = wide,
                                       .terminated = terminated.device,
                                       .truncated = truncated.device,
                                       .values = there(&values),
                                       .next_values = there(&next)};
    expect_ran(gpu_link_values(memory_stream(), &work), "linking", n);
    for (size_t i = 0; i < n; i++)
        if (terminated.host[i])
            here(&next)[i] = 0;
        else if (!truncated.host[i])
            here(&next)[i] = here(&values)[i + wide];
    expect_same(&next, "values that follow", n);
    expect_same(&values, "what linking reads", n);
    array_end(&values);
    array_end(&next);
    array_end(&terminated);
    array_end(&truncated);
}

static void run_add_bias(struct random *random)
{
    const size_t rows = 1 + random_below(random, 3000), cols = 1 + random_below(random, 9);
    struct array bias = floats_uniform(random, cols, -1, 1);
    struct array y = floats_uniform(random, rows * cols, -4, 4);
    expect_ran(gpu_add_bias(memory_stream(), rows, cols, there(&bias), there(&y)), "bias", cols);
    for (size_t i = 0; i < rows * cols; i++)
        here(&y)[i] += here(&bias)[i % cols];
    expect_same(&y, "bias", cols);
    array_end(&bias);
    array_end(&y);
}

static void run_column_sums(struct random *random)
{
    const size_t rows = 1 + random_below(random, 3000), cols = 1 + random_below(random, 70);
    struct array d = floats_uniform(random, rows * cols, -1, 1), sums = floats_new(random, cols),
                 scratch = array_new(gpu_columns_scratch(rows, cols), 0);
    const struct gpu_columns_work work = {.rows = rows,
                                          .cols = cols,
                                          .d = there(&d),
                                          .sums = there(&sums),
                                          .scratch = scratch.device};
    expect_ran(gpu_column_sums(memory_stream(), &work), "sums of columns", cols);
    for (size_t j = 0; j < cols; j++) {
        double sum = 0;
        for (size_t i = 0; i < rows; i++)
            sum += (double)here(&d)[i * cols + j];
        here(&sums)[j] = (float)sum;
    }
    expect_near(&sums, 2e-4, "sums of columns", rows);
    expect_same(&d, "what sums of columns read", rows);
    array_end(&d);
    array_end(&sums);
    array_end(&scratch);
}

/* Times: rollouts of CartPole, an eighth of the floats that are timed elsewhere. */
struct timed {
    size_t n;
    uint32_t *order;
    float *in, *out; /* 16 floats a sample */
    uint8_t *ends;   /* none */
};

static void call_gather(void *context)
{
    const struct timed *t = context;
    struct gpu_gather_work work = {.order = t->order,
                                   .n = t->n,
                                   .observation_dim = 4,
                                   .action_width = 1,
                                   .observations = t->in,
                                   .actions = t->in + 4 * t->n,
                                   .to_observations = t->out,
                                   .to_actions = t->out + 4 * t->n};
    for (size_t c = 0; c < GPU_COLUMNS; c++) {
        work.columns[c] = t->in + (5 + c) * t->n;
        work.to_columns[c] = t->out + (5 + c) * t->n;
    }
    (void)gpu_gather(memory_stream(), &work);
}

static void call_look_back(void *context)
{
    const struct timed *t = context;
    const struct gpu_look_back_work work = {.policy = {.action_dim = 2},
                                            .n = t->n,
                                            .head = t->in,
                                            .actions = t->in + 2 * t->n,
                                            .log_then = t->in + 3 * t->n,
                                            .log_now = t->out,
                                            .log_ratios = t->out + t->n};
    (void)gpu_look_back(memory_stream(), &work);
}

static void call_link(void *context)
{
    const struct timed *t = context;
    const struct gpu_link_work work = {.steps = t->n / 16,
                                       .environments = 16,
                                       .terminated = t->ends,
                                       .truncated = t->ends + t->n,
                                       .values = t->in,
                                       .next_values = t->out};
    (void)gpu_link_values(memory_stream(), &work);
}

static void call_add_bias(void *context)
{
    const struct timed *t = context;
    (void)gpu_add_bias(memory_stream(), 4 * t->n, 2, t->in, t->out);
}

static void call_column_sums(void *context)
{
    const struct timed *t = context;
    const struct gpu_columns_work work = {
        .rows = t->n, .cols = 8, .d = t->in, .sums = t->out, .scratch = t->out + 8};
    (void)gpu_column_sums(memory_stream(), &work);
}

/* each: floats that a sample must move. */
static double time_of(void (*call)(void *), double each, double *bytes)
{
    struct timed t = {.n = memory_timed() / 8};
    t.order = (uint32_t *)(void *)timed_floats(t.n);
    t.in = timed_floats(16 * t.n);
    t.out = timed_floats(16 * t.n);
    t.ends = memory_get(2 * t.n);
    uint8_t *none = calloc(t.n, 2 * sizeof *none);
    uint32_t *order = malloc(t.n * sizeof *order);
    if (none == NULL || order == NULL)
        abort();
    for (size_t i = 0; i < t.n; i++) /* an odd number is prime to a power of two: each once */
        order[i] = (uint32_t)(i * 0x9e3779b1u % t.n);
    memory_put(t.ends, none, 2 * t.n);
    memory_put(t.order, order, t.n * sizeof *order);
    const double seconds = memory_seconds(call, &t, 5);
    *bytes = each * (double)t.n * sizeof(float);
    free(none);
    free(order);
    memory_free(t.order);
    memory_free(t.in);
    memory_free(t.out);
    memory_free(t.ends);
    return seconds;
}

static double time_gather(double *bytes)
{
    return time_of(call_gather, 1 + 2 * (4 + 1 + GPU_COLUMNS), bytes);
}
static double time_look_back(double *bytes)
{
    return time_of(call_look_back, 2 + 1 + 1 + 2, bytes);
}
static double time_link(double *bytes)
{
    return time_of(call_link, 2.5, bytes);
}
static double time_add_bias(double *bytes)
{
    return time_of(call_add_bias, 16, bytes);
}
static double time_column_sums(double *bytes)
{
    return time_of(call_column_sums, 8, bytes);
}

const struct check checks_engine[] = {
    {"samples of a minibatch gathered", "bits", run_gather, time_gather, 0},
    {"log-probabilities of a rollout, looked back at", "2e-5", run_look_back, time_look_back, 0},
    {"values that follow, linked", "bits", run_link, time_link, 0},
    {"bias of a narrow layer", "bits", run_add_bias, time_add_bias, 0},
    {"gradient of a narrow layer's bias", "2e-4", run_column_sums, time_column_sums, 0},
    {NULL, NULL, NULL, NULL, 0},
};
