/* N episodes of one environment side by side. An episode that ends is started anew within the same
 * step; what was seen last of the old one is handed out apart, because its value is needed to
 * bootstrap a truncated episode. */
#ifndef GRADWEIR_TRAINER_ENVIRONMENT_BATCH_H
#define GRADWEIR_TRAINER_ENVIRONMENT_BATCH_H

#include "client/trainer/environment.h"

struct environment_batch {
    const struct environment *environment;
    size_t n;
    struct chance chance;
    double *states;  /* [n, state_dim] */
    uint32_t *steps; /* [n], of the running episode */
    double *returns; /* [n], undiscounted sum of the running episode's rewards */
};

/* What one step gives; the arrays are the caller's. */
struct environment_outcome {
    float *observations; /* [n, observation_dim], after the reset where an episode ended */
    float
        *final_observations;  /* [n, observation_dim], before it; equal to observations elsewhere */
    float *rewards;           /* [n] */
    uint8_t *terminated;      /* [n] */
    uint8_t *truncated;       /* [n], may both be 1 */
    double *finished_returns; /* [n], valid where an episode ended */
};

/* False when there is no memory. deinit accepts what a failed init left. */
bool environment_batch_init(struct environment_batch *batch, const struct environment *environment,
                            size_t n, const struct chance *chance);
void environment_batch_deinit(struct environment_batch *batch);

/* Starts all episodes and writes what is seen, [n, observation_dim]. */
void environment_batch_reset(struct environment_batch *batch, float *observations);

/* One step of all episodes. actions [n]: the number of a discrete action, or a continuous one,
 * which is clamped to the bounds here. */
void environment_batch_step(struct environment_batch *batch, const float *actions,
                            const struct environment_outcome *outcome);

#endif
