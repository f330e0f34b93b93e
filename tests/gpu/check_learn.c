/* GAE, V-trace, statistics and the PPO loss against the CPU trainer's own. Sums are added in
 * another order on a GPU, and its expf and logf are others: within tolerance. */
#include "client/trainer/advantage.h"
#include "client/trainer/loss.h"
#include "client/trainer/statistics.h"
#include "gpu/kernels_learn.h"
#include "tests/gpu/check.h"

#include <math.h>
#include <string.h>

#define NEAR 2e-5

enum { TIMED_STEPS = 128 };

struct rollout {
    struct array rewards, values, next_values, terminated, truncated, log_ratios;
    struct array advantages, targets;
    size_t steps, environments;
};

static void rollout_open(struct rollout *r, struct random *random, size_t steps,
                         size_t environments)
{
    const size_t n = steps * environments;
    r->steps = steps;
    r->environments = environments;
    r->rewards = floats_uniform(random, n, -1, 1);
    r->values = floats_uniform(random, n, -2, 2);
    r->next_values = floats_uniform(random, n, -2, 2);
    r->log_ratios = floats_uniform(random, n, -1, 1);
    r->terminated = flags_new(random, n, 20);
    r->truncated = flags_new(random, n, 20);
    r->advantages = floats_new(random, n);
    r->targets = floats_new(random, n);
}

static void rollout_close(struct rollout *r)
{
    array_end(&r->rewards);
    array_end(&r->values);
    array_end(&r->next_values);
    array_end(&r->log_ratios);
    array_end(&r->terminated);
    array_end(&r->truncated);
    array_end(&r->advantages);
    array_end(&r->targets);
}

static struct advantage_input input_of(const struct rollout *r, bool device)
{
    float *(*const side)(const struct array *) = device ? there : here;
    return (struct advantage_input){.steps = r->steps,
                                    .environments = r->environments,
                                    .rewards = side(&r->rewards),
                                    .values = side(&r->values),
                                    .next_values = side(&r->next_values),
                                    .terminated =
                                        device ? r->terminated.device : r->terminated.host,
                                    .truncated = device ? r->truncated.device : r->truncated.host};
}

static struct element_estimates to_of(const struct rollout *r)
{
    return (struct element_estimates){there(&r->advantages), there(&r->targets)};
}

static void run_gae(struct random *random)
{
    struct rollout r;
    rollout_open(&r, random, 1 + random_below(random, 130), 1 + random_below(random, 300));
    const struct advantage_input on_gpu = input_of(&r, true), on_cpu = input_of(&r, false);
    const float lambda = random_below(random, 3) ? 0.95f : 1.0f;
    expect_ran(gpu_gae(memory_stream(), &on_gpu, 0.99f, lambda, to_of(&r)), "GAE", r.environments);
    advantage_gae(&on_cpu, 0.99f, lambda, here(&r.advantages), here(&r.targets));
    expect_same(&r.advantages, "GAE's advantages", r.environments);
    expect_same(&r.targets, "GAE's targets", r.environments);
    rollout_close(&r);
}

static void run_vtrace(struct random *random)
{
    const struct advantage_vtrace_settings settings = {
        .gamma = 0.99f, .rho_bar = 1.0f, .c_bar = 1.0f, .policy_rho_bar = 1.5f};
    struct rollout r;
    rollout_open(&r, random, 1 + random_below(random, 130), 1 + random_below(random, 300));
    const struct advantage_input on_gpu = input_of(&r, true), on_cpu = input_of(&r, false);
    expect_ran(gpu_vtrace(memory_stream(), &on_gpu, &settings, there(&r.log_ratios), to_of(&r)),
               "V-trace", r.environments);
    advantage_vtrace(&on_cpu, &settings, here(&r.log_ratios), here(&r.advantages),
                     here(&r.targets));
    expect_near(&r.advantages, NEAR, "V-trace's advantages", r.environments);
    expect_near(&r.targets, NEAR, "V-trace's targets", r.environments);
    rollout_close(&r);
}

/* Statistics of values, or of differences. */
static void run_statistics(struct random *random)
{
    const size_t n = 1 + random_below(random, 200000);
    const bool differences = random_below(random, 2) == 0;
    struct array values = floats_uniform(random, n, -1, 3);
    struct array minus = floats_uniform(random, n, -1, 1);
    struct array scratch = array_new(GPU_STATISTICS_SCRATCH, 0);
    struct array to = array_new(sizeof(struct statistics), 0);
    const struct gpu_statistics_work work = {.values = there(&values),
                                             .minus = differences ? there(&minus) : NULL,
                                             .n = n,
                                             .scratch = scratch.device,
                                             .to = (struct statistics *)(void *)to.device};
    expect_ran(gpu_statistics(memory_stream(), &work), "statistics", n);
    for (size_t i = 0; differences && i < n; i++)
        here(&values)[i] -= here(&minus)[i];
    const struct statistics expected = statistics_of(here(&values), n, 1);
    struct statistics got;
    memory_fetch(&got, to.device, sizeof got);
    expect(got.count == expected.count, "count", n);
    expect(fabs(got.mean - expected.mean) <= 1e-9 * (1 + fabs(expected.mean)), "mean", n);
    expect(fabs(got.m2 - expected.m2) <= 1e-9 * (1 + expected.m2), "m2", n);
    memcpy(to.host, &got, sizeof got);
    expect_same(&to, "guards of statistics", n);
    array_end(&values);
    array_end(&minus);
    array_end(&scratch);
    array_end(&to);
}

/* The PPO loss. */
enum { OUTS = 8, INS = 8 };

struct losses {
    struct loss_settings settings;
    size_t n;
    struct array in[INS];   /* in the order of struct loss_batch */
    struct array out[OUTS]; /* in the order of struct loss_arrays */
    struct array centre, scratch, sums, statistics, statistics_scratch;
};

static struct loss_batch batch_of(const struct losses *l, bool device)
{
    float *(*const side)(const struct array *) = device ? there : here;
    return (struct loss_batch){.n = l->n,
                               .actions = side(&l->in[0]),
                               .log_behaviour = side(&l->in[1]),
                               .log_proximal = l->settings.decoupled ? side(&l->in[2]) : NULL,
                               .advantages = side(&l->in[3]),
                               .targets = side(&l->in[4]),
                               .old_values = side(&l->in[5]),
                               .head = side(&l->in[6]),
                               .value = side(&l->in[7]),
                               .log_std = l->settings.gaussian ? side(&l->in[2]) + l->n : NULL};
}

static void draw_settings(struct loss_settings *s, struct random *random)
{
    *s = (struct loss_settings){.gaussian = random_below(random, 2) == 0,
                                .action_dim = 1 + random_below(random, 6),
                                .clip = 0.2f,
                                .clip_value = random_below(random, 2) == 0,
                                .value_clip = 0.2f,
                                .entropy_coefficient = 0.01f,
                                .value_coefficient = 0.5f,
                                .advantages = (enum loss_advantages)random_below(random, 3),
                                .advantage_mean = 0.1f,
                                .advantage_deviation = 1.3f,
                                .decoupled = random_below(random, 2) == 0,
                                .behaviour = (enum loss_behaviour)random_below(random, 3),
                                .behaviour_cap = 1.2f,
                                .dual_clip = random_below(random, 2) ? 3.0f : 0.0f};
    if (!s->gaussian)
        s->action_dim++;
}

static void losses_open(struct losses *l, struct random *random, size_t n)
{
    const size_t dim = l->settings.action_dim, actions = l->settings.gaussian ? n * dim : n;
    const size_t lengths[INS] = {actions, n, n + dim, n, n, n, n * dim, n};
    const size_t outs[OUTS] = {n * dim, n, dim, n, n, n, n, n};
    l->n = n;
    for (int k = 0; k < INS; k++)
        l->in[k] = floats_uniform(random, lengths[k], k == 1 || k == 2 ? -1.5f : -1.0f,
                                  k == 1 || k == 2 ? -0.5f : 1.0f);
    for (size_t i = 0; !l->settings.gaussian && i < n; i++)
        here(&l->in[0])[i] = (float)random_below(random, dim);
    array_send(&l->in[0]);
    for (int k = 0; k < OUTS; k++)
        l->out[k] = floats_new(random, outs[k]);
    l->centre = array_new(sizeof(struct loss_centre), 0);
    l->scratch = array_new(gpu_loss_scratch(&l->settings, n), 0);
    l->sums = array_new(sizeof(struct loss_sums), 0);
    l->statistics = array_new(sizeof(struct statistics), 0);
    l->statistics_scratch = array_new(GPU_STATISTICS_SCRATCH, 0);
}

static void losses_close(struct losses *l)
{
    for (int k = 0; k < INS; k++)
        array_end(&l->in[k]);
    for (int k = 0; k < OUTS; k++)
        array_end(&l->out[k]);
    array_end(&l->centre);
    array_end(&l->scratch);
    array_end(&l->sums);
    array_end(&l->statistics);
    array_end(&l->statistics_scratch);
}

static struct loss_arrays arrays_of(const struct losses *l, bool device)
{
    float *(*const side)(const struct array *) = device ? there : here;
    return (struct loss_arrays){.d_head = side(&l->out[0]),
                                .d_value = side(&l->out[1]),
                                .d_log_std = side(&l->out[2]),
                                .log_new = side(&l->out[3]),
                                .entropy = side(&l->out[4]),
                                .ratio = side(&l->out[5]),
                                .advantage = side(&l->out[6]),
                                .weight = side(&l->out[7])};
}

static struct gpu_loss_work loss_work_of(const struct losses *l)
{
    return (struct gpu_loss_work){.batch = batch_of(l, true),
                                  .arrays = arrays_of(l, true),
                                  .centre = (struct loss_centre *)(void *)l->centre.device,
                                  .scratch = l->scratch.device,
                                  .sums = (struct loss_sums *)(void *)l->sums.device};
}

static int start_loss(const struct losses *l)
{
    const struct gpu_statistics_work statistics = {
        .values = there(&l->in[3]),
        .n = l->n,
        .scratch = l->statistics_scratch.device,
        .to = (struct statistics *)(void *)l->statistics.device};
    struct loss_centre *centre = (struct loss_centre *)(void *)l->centre.device;
    const struct gpu_loss_work work = loss_work_of(l);
    int error = gpu_statistics(memory_stream(), &statistics);
    if (error == 0)
        error = gpu_loss_centre(memory_stream(), &l->settings, statistics.to, centre);
    return error == 0 ? gpu_loss(memory_stream(), &l->settings, &work) : error;
}

static void expect_totals(const struct losses *l, const struct loss_result *expected)
{
    struct loss_sums sums;
    struct loss_result got = {0};
    memory_fetch(&sums, l->sums.device, sizeof sums);
    loss_tell(&l->settings, &sums, l->n, &got);
    const double pairs[][2] = {{got.loss, expected->loss},
                               {got.policy_loss, expected->policy_loss},
                               {got.value_loss, expected->value_loss},
                               {got.entropy_mean, expected->entropy_mean},
                               {got.approx_kl, expected->approx_kl},
                               {got.old_approx_kl, expected->old_approx_kl},
                               {got.weight_mean, expected->weight_mean}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        expect(fabs(pairs[k][0] - pairs[k][1]) <= NEAR * (1 + fabs(pairs[k][1])),
               "a mean of the loss", k);
    /* A sample at the very border of the clip may fall on either side. */
    expect(fabs(got.clip_fraction - expected->clip_fraction) <= 2.0 / (double)l->n + 1e-9,
           "the fraction that is clipped", l->n);
}

static void run_loss(struct random *random)
{
    static const char *const names[OUTS] = {"d head",  "d value", "d log std", "log-probability",
                                            "entropy", "ratio",   "advantage", "weight"};
    struct losses l;
    draw_settings(&l.settings, random);
    losses_open(&l, random, 2 + random_below(random, 5000));
    const struct loss_batch batch = batch_of(&l, false);
    struct loss_result expected = {.arrays = arrays_of(&l, false)};
    expect_ran(start_loss(&l), "loss", l.n);
    loss_compute(&l.settings, &batch, &expected);
    for (int k = 0; k < OUTS; k++)
        expect_near(&l.out[k], k == 2 ? 1e-3 : NEAR, names[k], l.n);
    expect_totals(&l, &expected);
    losses_close(&l);
}

/* Times. */
struct timed_rollout {
    struct advantage_input input;
    struct element_estimates to;
    const float *log_ratios;
};

/* As many as make an eighth of what is timed elsewhere. */
static size_t timed_environments(void)
{
    return memory_timed() / 8 / TIMED_STEPS;
}

static void call_vtrace(void *context)
{
    const struct advantage_vtrace_settings settings = {
        .gamma = 0.99f, .rho_bar = 1.0f, .c_bar = 1.0f, .policy_rho_bar = 1.0f};
    const struct timed_rollout *t = context;
    (void)gpu_vtrace(memory_stream(), &t->input, &settings, t->log_ratios, t->to);
}

static void call_gae(void *context)
{
    const struct timed_rollout *t = context;
    (void)gpu_gae(memory_stream(), &t->input, 0.99f, 0.95f, t->to);
}

static double time_estimates(void (*call)(void *), size_t floats, double *bytes)
{
    struct rollout r;
    struct random random;
    random_init(&random, 1);
    rollout_open(&r, &random, TIMED_STEPS, timed_environments());
    struct timed_rollout t = {input_of(&r, true), to_of(&r), there(&r.log_ratios)};
    const double seconds = memory_seconds(call, &t, 20);
    *bytes = (double)(r.steps * r.environments) * (double)(floats * sizeof(float) + 2);
    rollout_close(&r);
    return seconds;
}

static double time_gae(double *bytes)
{
    return time_estimates(call_gae, 5, bytes);
}

static double time_vtrace(double *bytes)
{
    return time_estimates(call_vtrace, 6, bytes);
}

static void call_statistics(void *context)
{
    (void)gpu_statistics(memory_stream(), context);
}

static double time_statistics(double *bytes)
{
    float *values = timed_floats(memory_timed());
    struct gpu_statistics_work work = {.values = values,
                                       .n = memory_timed(),
                                       .scratch = memory_get(GPU_STATISTICS_SCRATCH),
                                       .to = memory_get(sizeof(struct statistics))};
    const double seconds = memory_seconds(call_statistics, &work, 5);
    *bytes = 2.0 * (double)memory_timed() * sizeof(float); /* two passes */
    memory_free(values);
    memory_free(work.scratch);
    memory_free(work.to);
    return seconds;
}

static void call_loss(void *context)
{
    const struct losses *l = context;
    const struct gpu_loss_work work = loss_work_of(l);
    (void)gpu_loss(memory_stream(), &l->settings, &work);
}

static double time_loss(double *bytes)
{
    struct losses l = {.settings = {.action_dim = 2,
                                    .clip = 0.2f,
                                    .entropy_coefficient = 0.01f,
                                    .value_coefficient = 0.5f,
                                    .advantages = LOSS_ADVANTAGES_BATCH}};
    struct random random;
    random_init(&random, 1);
    losses_open(&l, &random, TIMED_STEPS * timed_environments());
    expect_ran(start_loss(&l), "loss", l.n);
    const double seconds = memory_seconds(call_loss, &l, 20);
    /* In: five arrays and the head of two; out: d head, and six. */
    *bytes = (double)l.n * sizeof(float) * (5 + 2 + 2 + 6);
    losses_close(&l);
    return seconds;
}

const struct check checks_learn[] = {
    {"GAE", "bits", run_gae, time_gae, 0},
    {"V-trace", "2e-5", run_vtrace, time_vtrace, 0},
    {"mean and deviation", "1e-9", run_statistics, time_statistics, 0},
    {"PPO loss and derivatives", "2e-5", run_loss, time_loss, CHECK_GOAL},
    {NULL, NULL, NULL, NULL, 0},
};
