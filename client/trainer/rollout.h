/* One rollout: T steps of N environments under one set of parameters, with everything the update
 * needs. The behaviour log-probabilities are those of the moment of acting, never recomputed. */
#ifndef GRADWEIR_TRAINER_ROLLOUT_H
#define GRADWEIR_TRAINER_ROLLOUT_H

#include "client/trainer/environment_batch.h"
#include "client/trainer/network.h"
#include "client/trainer/policy.h"
#include "client/trainer/statistics.h"

struct rollout {
    size_t steps;        /* T */
    size_t environments; /* N */
    size_t action_width; /* floats of an action */
    struct environment_batch batch;
    struct network_room room; /* for N */
    struct chance chance;     /* of the policy */

    float *observations; /* [T + 1, N, observation_dim]; the last row starts the next rollout */
    float *final_observations; /* [N, observation_dim] of one step */
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
};
bool rollout_init(struct rollout *rollout, const struct rollout_shape *shape,
                  const struct network *network);
void rollout_deinit(struct rollout *rollout);

/* Fills the arrays. Rewards are normalised if `normaliser` is not NULL. */
void rollout_collect(struct rollout *rollout, const struct network *network,
                     const float *parameters, struct reward_normaliser *normaliser);

#endif
