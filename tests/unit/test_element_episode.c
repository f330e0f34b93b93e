/* Episodes as the GPU runs them, against the trainer's environments. */
#include "client/trainer/environment.h"
#include "common/element_episode.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct environment *const twins[] = {
    [ELEMENT_CARTPOLE] = &environment_cartpole,
    [ELEMENT_PENDULUM] = &environment_pendulum,
    [ELEMENT_MOUNTAIN_CAR] = &environment_mountain_car,
    [ELEMENT_ACROBOT] = &environment_acrobot,
};
enum { KINDS = sizeof twins / sizeof *twins };

Test(element_episode, shapes_are_those_of_the_trainers_tables)
{
    for (int kind = 0; kind < KINDS; kind++) {
        const struct element_shape shape = element_shape_of((enum element_environment)kind);
        const struct environment *twin = twins[kind];
        cr_expect_eq(shape.state_dim, twin->state_dim, "%s", twin->name);
        cr_expect_eq(shape.observation_dim, twin->observation_dim, "%s", twin->name);
        cr_expect_eq(shape.action_dim, twin->action_dim, "%s", twin->name);
        cr_expect_eq(shape.time_limit, twin->time_limit, "%s", twin->name);
        cr_expect_eq(shape.discrete, twin->discrete, "%s", twin->name);
        cr_expect_eq(shape.action_low, twin->action_low, "%s", twin->name);
        cr_expect_eq(shape.action_high, twin->action_high, "%s", twin->name);
        cr_expect_leq(twin->observation_dim, ELEMENT_OBSERVATION_MAX);
    }
}

static double action_of(const struct environment *twin, uint64_t turn)
{
    const struct element_words words = element_random(5, 77, turn);
    return twin->discrete ? (double)(words.word[0] % (uint32_t)twin->action_dim)
                          : 6 * element_unit_of(&words, 0) - 3;
}

/* One environment for some thousand turns; returns how many episodes have ended. */
static unsigned follow(enum element_environment kind, uint64_t turns)
{
    const struct environment *twin = twins[kind];
    struct element_episode episode = {.episode = 0};
    double state[ENVIRONMENT_STATE_MAX], score = 0;
    unsigned ended = 0, steps = 0;
    element_episode_start(kind, 11, 3, 0, episode.state);
    memcpy(state, episode.state, sizeof state);
    for (uint64_t turn = 0; turn < turns; turn++) {
        double reward = 0, action = action_of(twin, turn);
        const struct element_outcome outcome = element_episode_step(kind, &episode, action);
        if (!twin->discrete)
            action = element_clamp(action, twin->action_low, twin->action_high);
        cr_assert_eq(twin->step(state, action, &reward), outcome.terminated, "%s", twin->name);
        cr_assert_eq(++steps >= twin->time_limit, outcome.truncated, "%s", twin->name);
        cr_assert_eq(reward, outcome.reward);
        cr_assert_eq(score += reward, episode.score);
        cr_assert_arr_eq(state, episode.state, twin->state_dim * sizeof *state);
        if (!outcome.terminated && !outcome.truncated)
            continue;
        element_episode_next(kind, 11, 3, &episode);
        cr_assert_eq(episode.episode, ++ended);
        memcpy(state, episode.state, sizeof state);
        score = steps = 0;
    }
    return ended;
}

Test(element_episode, steps_ends_and_scores_are_those_of_the_trainers_environments)
{
    for (int kind = 0; kind < KINDS; kind++)
        cr_expect_geq(follow((enum element_environment)kind, 2500), 2, "%s", twins[kind]->name);
}

Test(element_episode, an_episode_starts_alike_wherever_it_runs_and_unlike_all_others)
{
    for (int kind = 0; kind < KINDS; kind++) {
        double first[4] = {0}, again[4] = {0}, other[4] = {0};
        for (uint64_t number = 0; number < 50; number++) {
            element_episode_start((enum element_environment)kind, 1, number, number % 7, first);
            element_episode_start((enum element_environment)kind, 1, number, number % 7, again);
            cr_expect_arr_eq(first, again, sizeof first);
            element_episode_start((enum element_environment)kind, 1, number, number % 7 + 1, other);
            cr_expect_neq(first[0], other[0]);
            element_episode_start((enum element_environment)kind, 1, number + 1, number % 7, other);
            cr_expect_neq(first[0], other[0]);
            element_episode_start((enum element_environment)kind, 2, number, number % 7, other);
            cr_expect_neq(first[0], other[0]);
        }
    }
}
