#include "client/trainer/blas.h"
#include "client/trainer/overseer.h"
#include "client/trainer/rollout.h"
#include "client/trainer/train_device.h"
#include "client/trainer/train_loop.h"
#include "client/trainer/train_summary.h"
#include "client/trainer/update.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Reads a command line given as strings. */
static gradweir_status parse(struct train_settings *settings, struct train_reason *reason, int argc,
                             ...)
{
    char *argv[16] = {NULL};
    va_list words;
    va_start(words, argc);
    for (int i = 0; i < argc; i++)
        argv[i + 1] = va_arg(words, char *);
    va_end(words);
    return train_settings_parse(settings, argc + 1, argv, reason);
}

Test(train_settings, an_unknown_option_is_named_with_the_nearest_one)
{
    struct train_settings s;
    struct train_reason reason;
    cr_expect_eq(parse(&s, &reason, 2, "--gama", "0.9"), GRADWEIR_ERR_INVALID);
    cr_expect_str_eq(reason.text, "--gama: unknown option; the nearest is --gamma");
    cr_assert_eq(parse(&s, &reason, 4, "--max_steps", "7", "--adam-eps", "0.5"), GRADWEIR_OK);
    cr_expect(s.max_steps == 7 && s.adam_eps == 0.5, "- and _ are one");
    cr_expect_eq(parse(&s, &reason, 2, "--env", "CartPole-v0"), GRADWEIR_ERR_INVALID);
    cr_expect_str_eq(reason.text,
                     "--env CartPole-v0: unknown environment; the nearest is CartPole-v1");
}

Test(train_settings, a_value_out_of_range_is_named_with_the_range)
{
    struct train_settings s;
    struct train_reason reason;
    static const char *const bad[] = {"1.5", "-1", "nan", "", "x", "0.5x"};
    for (size_t i = 0; i < 6; i++) {
        cr_expect_eq(parse(&s, &reason, 2, "--gamma", bad[i]), GRADWEIR_ERR_INVALID, "%s", bad[i]);
        cr_expect_not_null(strstr(reason.text, "must be a number from 0 to 1"), "%s", reason.text);
    }
    cr_expect_eq(parse(&s, &reason, 2, "--epochs", "1.5"), GRADWEIR_ERR_INVALID);
    cr_expect_eq(parse(&s, &reason, 1, "--seed"), GRADWEIR_ERR_INVALID);
    cr_expect_eq(parse(&s, &reason, 2, "--minibatches", "513"), GRADWEIR_ERR_INVALID);
    cr_expect_eq(parse(&s, &reason, 3, "--local", "--workers", "2"), GRADWEIR_ERR_INVALID);
}

Test(train_settings, a_slow_worker_needs_a_pace_to_stretch)
{
    struct train_settings s;
    struct train_reason reason;
    cr_expect_eq(parse(&s, &reason, 3, "--slow-worker", "0", "10"), GRADWEIR_ERR_INVALID);
    cr_expect_eq(parse(&s, &reason, 5, "--slow-worker", "0", "10", "--pace", "5"), GRADWEIR_OK);
    cr_expect(s.slow_worker.given);
    cr_expect_eq(s.slow_worker.value, 10);
}

Test(train_settings, mode_sync_steps_once_per_gradient_of_each_and_has_room_for_them)
{
    struct train_settings s;
    struct train_reason reason;
    cr_expect_eq(parse(&s, &reason, 2, "--mode", "synch"), GRADWEIR_ERR_INVALID);
    cr_expect_str_eq(reason.text, "--mode synch: must be async or sync");
    cr_assert_eq(parse(&s, &reason, 4, "--workers", "20", "--mode", "sync"), GRADWEIR_OK);
    cr_expect(train_is_sync(&s) && s.window == 20 && s.stride == 20 && s.queue == 22);
    cr_assert_eq(parse(&s, &reason, 2, "--workers", "20"), GRADWEIR_OK);
    cr_expect(!train_is_sync(&s) && s.window == 20 && s.stride == 1 && s.queue == 16);
}

Test(train_settings, the_command_line_goes_over_the_preset_in_any_order)
{
    struct train_settings s;
    struct train_reason reason;
    cr_assert_eq(parse(&s, &reason, 4, "--gamma", "0.5", "--env", "Pendulum-v1"), GRADWEIR_OK);
    cr_expect_eq(s.gamma, 0.5);
    cr_expect_eq(s.lr, 1e-3);
    cr_expect_eq(s.environment, &environment_pendulum);
}

/* Adds up what is pushed; hands out fixed parameters. */
struct learner_fixed {
    struct learner learner;
    const float *parameters;
    size_t n;
    double sum[16384]; /* gradient times samples */
    uint64_t samples;
};

static gradweir_status fixed_pull(struct learner *learner, float *parameters)
{
    const struct learner_fixed *fixed = (const struct learner_fixed *)learner;
    memcpy(parameters, fixed->parameters, fixed->n * sizeof(float));
    return GRADWEIR_OK;
}

static gradweir_status fixed_push(struct learner *learner, const float *gradient, uint64_t samples)
{
    struct learner_fixed *fixed = (struct learner_fixed *)learner;
    learner->counts.pushes++;
    fixed->samples += samples;
    for (size_t i = 0; i < fixed->n; i++)
        fixed->sum[i] += (double)gradient[i] * (double)samples;
    return GRADWEIR_OK;
}

static gradweir_status refuse_push(struct learner *learner, const float *gradient, uint64_t samples)
{
    (void)gradient;
    (void)samples;
    learner->counts.pushes++;
    learner->counts.not_finite_in_row++;
    return GRADWEIR_OK;
}

static gradweir_status fixed_share(struct learner *learner, enum learner_shared name,
                                   const struct statistics *increment, struct statistics *total)
{
    (void)learner;
    (void)name;
    *total = *increment; /* as if nothing had been shared before */
    return GRADWEIR_OK;
}

static void fixed_report(struct learner *learner, double mean_return, double kl)
{
    (void)learner;
    (void)mean_return;
    (void)kl;
}

static gradweir_status fixed_flush(struct learner *learner)
{
    (void)learner;
    return GRADWEIR_OK;
}

static void fixed_close(struct learner *learner)
{
    (void)learner;
}

/* The mean gradient of one rollout, cut into so many minibatches that are accumulated into one
 * push. */
static void one_rollout(struct learner_fixed *fixed, uint64_t minibatches, const float *parameters)
{
    struct train_settings s;
    struct network network;
    struct rollout rollout;
    struct update update;
    train_settings_init(&s);
    s.environment = environment_find(s.env);
    s.epochs = 1;
    s.minibatches = s.accumulate = minibatches;
    s.raw_advantages = true;
    train_network(&s, &network);
    *fixed = (struct learner_fixed){
        .learner = {.pull = fixed_pull,
                    .push = fixed_push,
                    .share = fixed_share,
                    .report = fixed_report,
                    .flush = fixed_flush,
                    .close = fixed_close},
        .parameters = parameters,
        .n = network.n_parameters,
    };
    const struct rollout_shape shape = {s.environment, s.rollout, s.envs, s.seed, 0, 1};
    struct engine_options options;
    struct engine_reason reason;
    struct engine_running running = {train_engine(&s, &network, 0, &options, &reason), NULL};
    cr_assert_eq(running.engine->open(&options, &running.state, &reason), GRADWEIR_OK);
    cr_assert(rollout_init(&rollout, &shape) && update_init(&update, &s, &network, 0, running));
    cr_assert_eq(update_pull(&update, &fixed->learner), GRADWEIR_OK);
    cr_assert_eq(running.engine->collect(running.state, &rollout), GRADWEIR_OK);
    cr_assert_eq(update_run(&update, &rollout, &fixed->learner), GRADWEIR_OK);
    update_deinit(&update);
    rollout_deinit(&rollout);
    running.engine->close(running.state);
}

Test(update, four_accumulated_gradients_are_the_gradient_of_the_whole_batch)
{
    static struct learner_fixed whole, parts;
    static const uint64_t cuts[] = {4, 7};
    struct train_settings s;
    struct network network;
    static float parameters[16384];
    train_settings_init(&s);
    s.environment = environment_find(s.env);
    train_network(&s, &network);
    train_first_parameters(&s, &network, parameters);
    one_rollout(&whole, 1, parameters);
    for (size_t c = 0; c < 2; c++) {
        double largest = 0, worst = 0;
        one_rollout(&parts, cuts[c], parameters);
        cr_expect_eq(parts.learner.counts.pushes, 1);
        cr_expect_eq(parts.samples, 512);
        for (size_t i = 0; i < whole.n; i++) {
            largest = fmax(largest, fabs(whole.sum[i]));
            worst = fmax(worst, fabs(whole.sum[i] - parts.sum[i]));
        }
        cr_expect_gt(largest, 0);
        cr_expect_lt(worst, 1e-6 * largest, "%g of %g", worst, largest);
    }
}

/* The digest of the parameters after some rollouts. */
static uint64_t digest_after(struct train_settings *s, uint64_t steps)
{
    struct network network;
    struct overseer_local overseer;
    struct train_outcome outcome = {.end = TRAIN_NOT_FINITE};
    train_network(s, &network);
    float *parameters = calloc(network.n_parameters, sizeof(float));
    train_first_parameters(s, &network, parameters);
    struct learner *learner = learner_local_open(s, &network, parameters);
    overseer_local_init(&overseer, 1e9, steps);
    cr_assert_eq(train_loop(s, 0, learner, &overseer.overseer, &outcome), GRADWEIR_OK);
    cr_assert_eq(outcome.end, TRAIN_OVER);
    cr_assert_eq(learner->pull(learner, parameters), GRADWEIR_OK);
    const uint64_t digest = train_summary_digest(parameters, network.n_parameters);
    for (size_t i = 0; i < network.n_parameters; i++)
        cr_assert(isfinite(parameters[i]));
    learner->close(learner);
    free(parameters);
    return digest;
}

Test(train_loop, a_seed_gives_the_same_parameters_every_time)
{
    for (size_t e = 0; environment_at(e) != NULL; e++) {
        struct train_settings s;
        train_settings_init(&s);
        s.environment = environment_at(e);
        const uint64_t first = digest_after(&s, 2048);
        cr_expect_eq(first, digest_after(&s, 2048));
        s.seed = 2;
        cr_expect_neq(first, digest_after(&s, 2048));
    }
}

Test(train_loop, every_variant_of_the_algorithm_runs)
{
    for (int variant = 0; variant < 5; variant++) {
        struct train_settings s;
        train_settings_init(&s);
        s.environment = &environment_pendulum;
        s.decoupled = variant == 0;
        s.behaviour_cap = variant == 0 ? 2 : 0;
        s.vtrace = variant == 1;
        s.shared_trunk = variant == 2;
        s.stable = variant == 3;
        s.accumulate = variant == 4 ? 3 : 1;
        digest_after(&s, 2048);
    }
}

Test(train_loop, stable_ends_after_so_many_gradients_in_a_row_that_are_not_finite)
{
    static struct learner_fixed fixed;
    static float parameters[16384];
    struct train_settings s;
    struct network network;
    struct overseer_local overseer;
    struct train_outcome outcome;
    train_settings_init(&s);
    s.environment = environment_find(s.env);
    s.stable = true;
    s.not_finite_max = 20;
    train_network(&s, &network);
    train_first_parameters(&s, &network, parameters);
    fixed = (struct learner_fixed){
        .learner = {.pull = fixed_pull,
                    .push = refuse_push,
                    .share = fixed_share,
                    .report = fixed_report,
                    .flush = fixed_flush,
                    .close = fixed_close},
        .parameters = parameters,
        .n = network.n_parameters,
    };
    overseer_local_init(&overseer, 475, 100000);
    cr_expect_eq(train_loop(&s, 0, &fixed.learner, &overseer.overseer, &outcome), GRADWEIR_OK);
    cr_expect_eq(outcome.end, TRAIN_NOT_FINITE);
    cr_expect_lt(fixed.learner.counts.pushes, 64,
                 "it ends with the rollout in which the limit is reached");
}

Test(learner_local, a_gradient_that_is_not_finite_changes_nothing_and_is_counted)
{
    static float parameters[16384], gradient[16384], after[16384];
    struct train_settings s;
    struct network network;
    train_settings_init(&s);
    s.environment = environment_find(s.env);
    train_network(&s, &network);
    train_first_parameters(&s, &network, parameters);
    struct learner *learner = learner_local_open(&s, &network, parameters);
    gradient[5] = NAN;
    cr_assert_eq(learner->pull(learner, after), GRADWEIR_OK);
    cr_assert_eq(learner->push(learner, gradient, 128), GRADWEIR_OK);
    cr_assert_eq(learner->pull(learner, after), GRADWEIR_OK);
    cr_expect_arr_eq(parameters, after, network.n_parameters * sizeof(float));
    cr_expect_eq(learner->counts.not_finite_in_row, 1);
    cr_expect_eq(learner->version, 0);
    gradient[5] = 1;
    cr_assert_eq(learner->push(learner, gradient, 128), GRADWEIR_OK);
    cr_assert_eq(learner->pull(learner, after), GRADWEIR_OK);
    cr_expect_eq(learner->counts.not_finite_in_row, 0);
    cr_expect_eq(learner->version, 1);
    cr_expect_lt(after[5], parameters[5]);
    learner->close(learner);
}

Test(learner_local, the_learning_rate_falls_to_0_over_the_annealing_steps)
{
    struct train_settings s;
    train_settings_init(&s);
    const uint64_t versions = 500000 / 512 * 16;
    cr_expect_float_eq(learner_rate(&s, 0), 2.5e-4, 1e-12);
    cr_expect_float_eq(learner_rate(&s, versions / 2), 1.25e-4, 1e-6);
    cr_expect_lt(learner_rate(&s, versions), 1e-6);
    cr_expect_eq(learner_rate(&s, 2 * versions), 0);
}

static double trial_result;
static double trial(void *context, const float *parameters)
{
    (void)parameters;
    ++*(int *)context;
    return trial_result;
}

Test(overseer, training_is_over_when_100_returns_and_then_a_trial_reach_the_goal)
{
    int trials = 0;
    const double good = 480;
    struct overseer_local o;
    const struct overseer_news news = {.returns = &good, .n_returns = 1, .environment_steps = 1};
    overseer_local_init(&o, 475, 1000);
    o.confirm = trial;
    o.context = &trials;
    trial_result = 400;
    for (int i = 0; i < 99; i++)
        cr_assert_not(o.overseer.hear(&o.overseer, &news));
    cr_expect_eq(trials, 0);
    for (int i = 0; i < 25; i++)
        cr_assert_not(o.overseer.hear(&o.overseer, &news));
    cr_expect_eq(trials, 1);
    trial_result = 500;
    cr_expect(o.overseer.hear(&o.overseer, &news));
    cr_expect_eq(trials, 2);
    cr_expect(o.solved);
}

Test(overseer, training_is_over_when_the_steps_are_used_up)
{
    struct overseer_local o;
    const struct overseer_news news = {.environment_steps = 500};
    overseer_local_init(&o, 475, 1000);
    cr_expect_not(o.overseer.hear(&o.overseer, &news));
    cr_expect(o.overseer.hear(&o.overseer, &news));
    cr_expect_not(o.solved);
}
