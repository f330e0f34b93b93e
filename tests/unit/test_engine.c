/* What every engine promises of acting and of rollouts. Learning is test_engine_learn.c. */
#include "tests/unit/engine_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fill(struct chance *chance, float *to, size_t n, double size)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (float)(size * chance_normal(chance));
}

/* One act of one group, of random observations. */
static void check_one_act(struct engine_rig *rig, size_t group, bool values_only, bool with_finals)
{
    static float observations[RIG_ENVIRONMENTS * RIG_SEEN], finals[RIG_ENVIRONMENTS * RIG_SEEN];
    static float actions[RIG_ENVIRONMENTS], logs[RIG_ENVIRONMENTS], values[RIG_ENVIRONMENTS];
    static float final_values[RIG_ENVIRONMENTS], right_logs[RIG_ENVIRONMENTS],
        right_values[RIG_ENVIRONMENTS];
    float *right[2] = {right_logs, right_values};
    struct engine_info info;
    struct chance chance;
    rig->engine->info(rig->state, &info);
    const size_t n =
        (group + 1) * RIG_ENVIRONMENTS / info.groups - group * RIG_ENVIRONMENTS / info.groups;
    const size_t seen = rig->network.shape.observation_dim;
    chance_init(&chance, group, values_only + 2 * with_finals);
    fill(&chance, observations, n * seen, 1);
    fill(&chance, finals, n * seen, 1);
    memset(actions, 0, sizeof(actions));
    const struct engine_act act = {.group = group,
                                   .observations = observations,
                                   .actions = values_only ? NULL : actions,
                                   .log_probabilities = logs,
                                   .values = values,
                                   .finals = with_finals ? finals : NULL,
                                   .final_values = final_values};
    cr_assert_eq(rig->engine->act(rig->state, &act), GRADWEIR_OK);
    cr_assert_eq(rig->engine->wait(rig->state, group), GRADWEIR_OK);
    engine_refer(rig, observations, actions, n, right);
    expect_alike(rig, values, right_values, n);
    if (!values_only)
        expect_alike(rig, logs, right_logs, n);
    engine_refer(rig, finals, actions, n, right);
    if (with_finals)
        expect_alike(rig, final_values, right_values, n);
}

/* Three times each: as it is, captured, and replayed; under other parameters each time. */
static void check_acts(struct engine_rig *rig)
{
    struct engine_info info;
    rig->engine->info(rig->state, &info);
    cr_assert(info.groups >= 1 && info.groups <= ENGINE_GROUPS_MAX && info.text[0] != '\0');
    cr_assert(rig->options.groups == 0 || info.groups == rig->options.groups);
    for (int kind = 0; kind < 12; kind++)
        for (size_t g = info.groups; g-- > 0;) {
            rig->parameters[kind] += 0.1f;
            cr_assert_eq(rig->engine->load(rig->state, rig->parameters), GRADWEIR_OK);
            check_one_act(rig, g, kind % 2 == 1, kind / 2 % 2 == 1);
        }
}

Test(engine, acts_with_the_probabilities_and_values_of_the_network)
{
    engine_on_each(check_acts);
}

/* The groups act on the same observations at the same turn. */
static void check_apart(struct engine_rig *rig)
{
    static float observations[RIG_ENVIRONMENTS * RIG_SEEN];
    static float actions[2][RIG_ENVIRONMENTS], unread[2][RIG_ENVIRONMENTS];
    struct engine_info info;
    size_t same = 0, n = RIG_ENVIRONMENTS / 2;
    rig->engine->info(rig->state, &info);
    for (int turn = 0; info.groups == 2 && turn < 8; turn++) {
        for (size_t g = 0; g < 2; g++) {
            const struct engine_act act = {.group = g,
                                           .observations = observations,
                                           .actions = actions[g],
                                           .log_probabilities = unread[0],
                                           .values = unread[1]};
            cr_assert_eq(rig->engine->act(rig->state, &act), GRADWEIR_OK);
            cr_assert_eq(rig->engine->wait(rig->state, g), GRADWEIR_OK);
        }
        for (size_t i = 0; i < n; i++)
            same += actions[0][i] == actions[1][i];
    }
    cr_expect_lt(same, 8 * n, "%s: %zu of %zu actions are the same", rig->what, same, 8 * n);
}

Test(engine, environments_of_the_two_groups_draw_apart)
{
    engine_on_each(check_apart);
}

/* What T steps must be, whoever made them: probabilities and values as the definition has them,
 * next values linked, and returns told once an episode. */
static void check_rollout(struct engine_rig *rig, const struct rollout *r)
{
    static float logs[RIG_SAMPLES], values[RIG_SAMPLES];
    float *right[2] = {logs, values};
    size_t ends = 0;
    cr_assert_not(r->kept, "%s", rig->what);
    engine_refer(rig, r->observations, r->actions, RIG_SAMPLES, right);
    cr_expect_leq(engine_worst(r->log_behaviour, logs, RIG_SAMPLES), rig->tolerance + 1e-5, "%s",
                  rig->what);
    cr_expect_leq(engine_worst(r->values, values, RIG_SAMPLES), rig->tolerance + 1e-5, "%s",
                  rig->what);
    for (size_t i = 0; i < RIG_SAMPLES; i++) {
        ends += r->terminated[i] || r->truncated[i];
        if (r->terminated[i])
            cr_assert_eq(r->next_values[i], 0);
        else if (!r->truncated[i])
            cr_assert_eq(r->next_values[i], r->values[i + RIG_ENVIRONMENTS]);
        else
            cr_assert_neq(r->next_values[i], r->values[i + RIG_ENVIRONMENTS]);
    }
    cr_expect_eq(r->n_returns, ends, "%s", rig->what);
}

/* CartPole's observation is its state: the next one follows from it. */
static void check_dynamics(const struct engine_rig *rig, const struct rollout *r)
{
    const size_t seen = rig->network.shape.observation_dim;
    for (size_t i = 0; i < RIG_SAMPLES; i++) {
        const float *now = r->observations + i * seen, *next = now + RIG_ENVIRONMENTS * seen;
        double state[ENVIRONMENT_STATE_MAX] = {0}, reward = 0;
        for (size_t j = 0; j < seen; j++)
            state[j] = (double)now[j];
        rig->options.environment->step(state, (double)r->actions[i], &reward);
        for (size_t j = 0; j < seen && !r->terminated[i] && !r->truncated[i]; j++)
            cr_assert_float_eq(next[j], (float)state[j], 1e-5, "%s: sample %zu", rig->what, i);
    }
}

static void check_rollouts(struct engine_rig *rig)
{
    struct rollout rollout = engine_start_rollout(rig);
    const size_t row = RIG_ENVIRONMENTS * rig->network.shape.observation_dim;
    for (int i = 0; i < 3; i++) {
        float last[RIG_ENVIRONMENTS * RIG_SEEN];
        memcpy(last, rollout.observations + RIG_STEPS * row, row * sizeof(float));
        cr_assert_eq(rig->engine->collect(rig->state, &rollout), GRADWEIR_OK, "%s",
                     rig->engine->reason(rig->state));
        cr_expect_arr_eq(rollout.observations, last, row * sizeof(float));
        check_rollout(rig, &rollout);
        if (rig->options.environment == environment_find("CartPole-v1"))
            check_dynamics(rig, &rollout);
    }
    rollout_deinit(&rollout);
}

Test(engine, collects_rollouts_that_go_on_from_each_other_in_one_group_or_two)
{
    engine_on_each(check_rollouts);
}

/* The share of choice 0 against its probability, over all samples of a rollout: five deviations. */
static void check_frequencies(struct engine_rig *rig)
{
    struct rollout rollout = engine_start_rollout(rig);
    double expected = 0, variance = 0, seen = 0;
    cr_assert_eq(rig->engine->collect(rig->state, &rollout), GRADWEIR_OK);
    network_forward(&rig->network, rig->parameters, rollout.observations, RIG_SAMPLES, &rig->room);
    for (size_t i = 0; i < RIG_SAMPLES; i++) {
        const struct policy policy = engine_policy(rig);
        const float zero = 0, *head = rig->room.head + i * policy.action_dim;
        float entropy = 0;
        if (policy.gaussian) {
            const double deviation = exp((double)policy.log_std[0]);
            seen += ((double)rollout.actions[i] - (double)head[0]) / deviation;
            variance += 1;
        } else {
            const double p = exp((double)policy_log_probability(&policy, head, &zero, &entropy));
            expected += p;
            variance += p * (1 - p);
            seen += rollout.actions[i] == 0;
        }
    }
    cr_expect_lt(fabs(seen - expected), 5 * sqrt(variance), "%s: %g instead of %g +- %g", rig->what,
                 seen, expected, sqrt(variance));
    rollout_deinit(&rollout);
}

Test(engine, draws_actions_as_often_as_the_policy_says)
{
    engine_on_each(check_frequencies);
}
