/* Environments where the engine computes: their rollouts are those that the functions of an element
 * give step by step, with chance drawn by place. Rounding differs between engines, and an episode
 * that has drawn another action goes another way: so environments are compared as far as they
 * agree. */
#include "client/trainer/advantage.h"
#include "common/element_episode.h"
#include "tests/unit/engine_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All episodes of a reference; environment i of worker w is number w 2^32 + i. */
struct crowd {
    enum element_environment kind;
    uint64_t first, turn;
    struct element_episode episodes[RIG_ENVIRONMENTS];
};

static void start(struct crowd *crowd, const struct engine_rig *rig, struct rollout *r)
{
    static const char *const names[] = {"CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0",
                                        "Acrobot-v1"};
    const size_t seen = rig->network.shape.observation_dim;
    *crowd = (struct crowd){.first = rig->options.worker << 32};
    for (size_t k = 0; k < 4; k++)
        if (strcmp(names[k], rig->options.environment->name) == 0)
            crowd->kind = (enum element_environment)k;
    for (size_t i = 0; i < RIG_ENVIRONMENTS; i++) {
        element_episode_start(crowd->kind, rig->options.seed, crowd->first + i, 0,
                              crowd->episodes[i].state);
        element_environment_observe(crowd->kind, crowd->episodes[i].state,
                                    r->observations + (RIG_SAMPLES + i) * seen);
    }
}

static void step(struct crowd *crowd, const struct engine_rig *rig, struct rollout *r, size_t at)
{
    const size_t seen = rig->network.shape.observation_dim;
    for (size_t i = 0; i < RIG_ENVIRONMENTS; i++) {
        struct element_episode *episode = &crowd->episodes[i];
        const struct element_outcome outcome =
            element_episode_step(crowd->kind, episode, (double)r->actions[at + i]);
        r->rewards[at + i] = (float)outcome.reward;
        r->terminated[at + i] = outcome.terminated;
        r->truncated[at + i] = outcome.truncated;
        element_environment_observe(crowd->kind, episode->state, r->final_observations + i * seen);
        if (outcome.terminated || outcome.truncated) {
            r->returns[r->n_returns++] = episode->score;
            element_episode_next(crowd->kind, rig->options.seed, crowd->first + i, episode);
        }
        element_environment_observe(crowd->kind, episode->state,
                                    r->observations + (at + RIG_ENVIRONMENTS + i) * seen);
    }
}

static void act(struct crowd *crowd, struct engine_rig *rig, struct rollout *r, size_t at)
{
    const struct policy policy = engine_policy(rig);
    const size_t seen = rig->network.shape.observation_dim;
    network_forward(&rig->network, rig->parameters, r->observations + at * seen, RIG_ENVIRONMENTS,
                    &rig->room);
    for (size_t i = 0; i < RIG_ENVIRONMENTS; i++) {
        const uint64_t number_and_turn[2] = {crowd->first + i, crowd->turn};
        r->values[at + i] = rig->room.value[i];
        r->log_behaviour[at + i] =
            element_policy_draw(&policy, rig->room.head + i * policy.action_dim, rig->options.seed,
                                number_and_turn, r->actions + at + i);
    }
    crowd->turn++;
}

/* A whole rollout of the reference. */
static void go_on(struct crowd *crowd, struct engine_rig *rig, struct rollout *r)
{
    const size_t row = RIG_ENVIRONMENTS * rig->network.shape.observation_dim;
    memcpy(r->observations, r->observations + RIG_STEPS * row, row * sizeof(float));
    r->n_returns = 0;
    for (size_t at = 0; at < RIG_SAMPLES; at += RIG_ENVIRONMENTS) {
        act(crowd, rig, r, at);
        step(crowd, rig, r, at);
        network_forward_value(&rig->network, rig->parameters, r->final_observations,
                              RIG_ENVIRONMENTS, &rig->room);
        memcpy(r->next_values + at, rig->room.value, RIG_ENVIRONMENTS * sizeof(float));
    }
    network_forward_value(&rig->network, rig->parameters, r->observations + RIG_STEPS * row,
                          RIG_ENVIRONMENTS, &rig->room);
    memcpy(r->values + RIG_SAMPLES, rig->room.value, RIG_ENVIRONMENTS * sizeof(float));
    for (size_t i = 0; i < RIG_SAMPLES; i++)
        if (r->terminated[i] || !r->truncated[i])
            r->next_values[i] = r->terminated[i] ? 0 : r->values[i + RIG_ENVIRONMENTS];
}

/* In how many environments both went the same way, for so many steps. */
static size_t agreeing(const struct rollout *a, const struct rollout *b, size_t steps)
{
    size_t agree = RIG_ENVIRONMENTS;
    for (size_t i = 0; i < RIG_ENVIRONMENTS; i++)
        for (size_t at = i; at < steps * RIG_ENVIRONMENTS; at += RIG_ENVIRONMENTS)
            if (a->terminated[at] != b->terminated[at] || a->truncated[at] != b->truncated[at] ||
                fabsf(a->rewards[at] - b->rewards[at]) > 1e-3f * (1 + fabsf(b->rewards[at]))) {
                agree--;
                break;
            }
    return agree;
}

static void compare_learning(struct engine_rig *rig, const struct rollout *here,
                             const struct rollout *right)
{
    float *advantages = engine_floats(RIG_SAMPLES), *expected = engine_floats(RIG_SAMPLES);
    float *targets = engine_floats(RIG_SAMPLES);
    const struct advantage_input input = {.steps = RIG_STEPS,
                                          .environments = RIG_ENVIRONMENTS,
                                          .rewards = right->rewards,
                                          .values = right->values,
                                          .next_values = right->next_values,
                                          .terminated = right->terminated,
                                          .truncated = right->truncated};
    cr_assert_eq(rig->engine->estimate(rig->state, here, advantages), GRADWEIR_OK);
    advantage_gae(&input, rig->options.gamma, rig->options.lambda, expected, targets);
    cr_expect_lt(engine_worst(advantages, expected, RIG_SAMPLES), 1e-3, "%s: %g", rig->what,
                 engine_worst(advantages, expected, RIG_SAMPLES));
    free(targets);
    free(expected);
    free(advantages);
}

static void check(struct engine_rig *rig)
{
    struct rollout here = engine_start_rollout(rig), right = engine_start_rollout(rig);
    struct crowd *crowd = calloc(1, sizeof *crowd);
    bool same_way = true;
    start(crowd, rig, &right);
    for (int round = 0; round < 4; round++) { /* as it is, captured, replayed */
        cr_assert_eq(rig->engine->collect(rig->state, &here), GRADWEIR_OK, "%s",
                     rig->engine->reason(rig->state));
        cr_expect(here.kept, "%s", rig->what);
        go_on(crowd, rig, &right);
        if (round == 0)
            cr_expect_geq(agreeing(&here, &right, RIG_STEPS), RIG_ENVIRONMENTS * 9 / 10, "%s",
                          rig->what);
        same_way = same_way && agreeing(&here, &right, RIG_STEPS) == RIG_ENVIRONMENTS;
        if (same_way) {
            cr_assert_eq(here.n_returns, right.n_returns);
            for (size_t i = 0; i < right.n_returns; i++)
                cr_expect_float_eq(here.returns[i], right.returns[i],
                                   1e-3 * (1 + fabs(right.returns[i])));
            compare_learning(rig, &here, &right);
        }
    }
    if (!same_way)
        fprintf(stderr, "%s: environments went other ways than the cpu's after a while\n",
                rig->what);
    free(crowd);
    rollout_deinit(&right);
    rollout_deinit(&here);
}

Test(engine_here, environments_of_an_engines_own_go_the_way_that_chance_by_place_says)
{
    for (size_t e = 1; engine_at(e) != NULL; e++)
        for (size_t v = 0; v < 5; v += 2) {
            struct engine_rig rig;
            struct engine_reason reason;
            engine_build(&rig, engine_at(e), v);
            rig.options.own_environments = true;
            rig.options.decoupled = rig.options.vtrace = false;
            const gradweir_status status = rig.engine->open(&rig.options, &rig.state, &reason);
            if (status == GRADWEIR_OK) {
                cr_assert_eq(rig.engine->load(rig.state, rig.parameters), GRADWEIR_OK);
                check(&rig);
            } else {
                fprintf(stderr, "SKIPPED: engine %s: %s\n", rig.engine->name, reason.text);
                cr_assert_eq(status, GRADWEIR_ERR_UNSUPPORTED);
                v = 5;
            }
            engine_take_down(&rig);
        }
}
