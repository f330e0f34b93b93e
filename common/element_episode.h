/* Episodes side by side: what one of them does in a step of all, whichever environment it is, with
 * its new start once it has ended. Starts are drawn by place (element_random.h): episode e of
 * environment i of a seed starts alike wherever and whenever it runs. */
#ifndef GRADWEIR_COMMON_ELEMENT_EPISODE_H
#define GRADWEIR_COMMON_ELEMENT_EPISODE_H

#include "common/element_environment.h"

enum element_environment {
    ELEMENT_CARTPOLE,
    ELEMENT_PENDULUM,
    ELEMENT_MOUNTAIN_CAR,
    ELEMENT_ACROBOT,
};

#define ELEMENT_STATE_MAX       4
#define ELEMENT_OBSERVATION_MAX 6

/* As struct environment of client/trainer/environment.h says it of the same ones. */
struct element_shape {
    uint32_t state_dim, observation_dim, action_dim, time_limit;
    bool discrete;
    double action_low, action_high; /* bounds of a continuous action */
};

ELEMENT struct element_shape element_shape_of(enum element_environment environment)
{
    const struct element_shape cartpole = {4, 4, 2, 500, true, 0, 0};
    const struct element_shape pendulum = {2, 3, 1, 200, false, -2, 2};
    const struct element_shape mountain_car = {2, 2, 1, 999, false, -1, 1};
    const struct element_shape acrobot = {4, 6, 3, 500, true, 0, 0};
    switch (environment) {
    case ELEMENT_CARTPOLE: return cartpole;
    case ELEMENT_PENDULUM: return pendulum;
    case ELEMENT_MOUNTAIN_CAR: return mountain_car;
    case ELEMENT_ACROBOT: break;
    }
    return acrobot;
}

ELEMENT bool element_environment_step(enum element_environment environment, double *state,
                                      double action, double *reward)
{
    switch (environment) {
    case ELEMENT_CARTPOLE: return element_cartpole_step(state, action, reward);
    case ELEMENT_PENDULUM: return element_pendulum_step(state, action, reward);
    case ELEMENT_MOUNTAIN_CAR: return element_mountain_car_step(state, action, reward);
    case ELEMENT_ACROBOT: break;
    }
    return element_acrobot_step(state, action, reward);
}

ELEMENT void element_environment_observe(enum element_environment environment, const double *state,
                                         float *observation)
{
    switch (environment) {
    case ELEMENT_CARTPOLE: element_cartpole_observe(state, observation); return;
    case ELEMENT_PENDULUM: element_pendulum_observe(state, observation); return;
    case ELEMENT_MOUNTAIN_CAR: element_mountain_car_observe(state, observation); return;
    case ELEMENT_ACROBOT: element_acrobot_observe(state, observation); return;
    }
}

/* From four uniforms of [0, 1), of which an environment uses what it needs. */
ELEMENT void element_environment_reset(enum element_environment environment, double *state,
                                       const double *units)
{
    switch (environment) {
    case ELEMENT_CARTPOLE: element_cartpole_reset(state, units); return;
    case ELEMENT_PENDULUM: element_pendulum_reset(state, units); return;
    case ELEMENT_MOUNTAIN_CAR: element_mountain_car_reset(state, units); return;
    case ELEMENT_ACROBOT: element_acrobot_reset(state, units); return;
    }
}

/* The start of episode `episode` in environment `number`. */
ELEMENT void element_episode_start(enum element_environment environment, uint64_t seed,
                                   uint64_t number, uint64_t episode, double *state)
{
    double units[ELEMENT_STATE_MAX];
    for (int half = 0; half < 2; half++) {
        const struct element_words words = element_random(
            seed, element_stream(ELEMENT_FOR_STARTS, number), 2 * episode + (uint64_t)half);
        units[2 * half] = element_unit_of(&words, 0);
        units[2 * half + 1] = element_unit_of(&words, 1);
    }
    element_environment_reset(environment, state, units);
}

/* One running episode. */
struct element_episode {
    double state[ELEMENT_STATE_MAX];
    double score;     /* undiscounted sum of its rewards */
    uint32_t steps;   /* taken in it */
    uint64_t episode; /* its number */
};

struct element_outcome {
    double reward;
    bool terminated, truncated; /* may both be */
};

/* One step, the action being a choice's number or a continuous one, which is clamped to its bounds.
 * An ended episode stays as it is: element_episode_next. */
ELEMENT struct element_outcome element_episode_step(enum element_environment environment,
                                                    struct element_episode *episode, double action)
{
    const struct element_shape shape = element_shape_of(environment);
    struct element_outcome outcome;
    outcome.reward = 0;
    if (!shape.discrete)
        action = element_clamp(action, shape.action_low, shape.action_high);
    outcome.terminated =
        element_environment_step(environment, episode->state, action, &outcome.reward);
    outcome.truncated = ++episode->steps >= shape.time_limit;
    episode->score += outcome.reward;
    return outcome;
}

ELEMENT void element_episode_next(enum element_environment environment, uint64_t seed,
                                  uint64_t number, struct element_episode *episode)
{
    episode->episode++;
    episode->steps = 0;
    episode->score = 0;
    element_episode_start(environment, seed, number, episode->episode, episode->state);
}

#endif
