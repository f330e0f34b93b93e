/* One rollout: T steps of N environments under one set of parameters, with everything the update
 * needs. The behaviour log-probabilities are those of the moment of acting, never recomputed.
 *
 * Environments come in groups that act by turns: while an engine elsewhere draws the actions of one
 * group, the other's environments are stepped here. */
#ifndef GRADWEIR_TRAINER_ROLLOUT_H
#define GRADWEIR_TRAINER_ROLLOUT_H

#include "client/trainer/engine.h"
#include "client/trainer/environment_batch.h"
#include "client/trainer/statistics.h"

struct rollout {
    size_t steps;        /* T */
    size_t environments; /* N */
    size_t action_width; /* floats of an action */
    size_t groups;
    struct environment_batch batch[ENGINE_GROUPS_MAX];
    bool kept; /* by the engine, but for rewards, terminated, truncated and returns: see engine.h */

    float *observations; /* [T + 1, N, observation_dim]; the last row starts the next rollout */
    float *final_observations; /* [N, observation_dim] of one step */
    float *final_values;       /* [N] of one step */
    float *actions;            /* [T, N, action_width] */
    float *log_behaviour;      /* [T, N] */
    float *rewards;            /* [T, N], normalised if so set */
    float *values;             /* [T, N] */
    float *next_values;        /* [T, N] */
    uint8_t *terminated;       /* [T, N] */
    uint8_t *truncated;        /* [T, N] */
    double *returns;           /* [T * N] returns of the episodes that ended, in order */
    double *finished;          /* [N] of one step */
    double *accumulators;      /* [N] discounted returns, for the reward statistics */
    double *normalised;        /* [N] of one step */
    size_t n_returns;
};

/* False when there is no memory. deinit accepts what a failed init left. */
struct rollout_shape {
    const struct environment *environment;
    size_t steps;
    size_t environments;
    uint64_t seed;
    uint64_t worker; /* workers of one seed draw from different streams */
    size_t groups;
};
bool rollout_init(struct rollout *rollout, const struct rollout_shape *shape);
void rollout_deinit(struct rollout *rollout);

/* Where group g's environments begin, of N; that of the group after the last is N. */
size_t rollout_group(const struct rollout *rollout, size_t group);

/* Fills the arrays: actions, log-probabilities and values are the engine's. A failure is its. */
gradweir_status rollout_collect(struct rollout *rollout, struct engine_running running);

/* Normalises the rewards of a rollout that has been collected, step by step. */
void rollout_normalise(struct rollout *rollout, struct reward_normaliser *normaliser);

#endif
