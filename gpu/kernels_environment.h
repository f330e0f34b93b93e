/* Environments on the GPU, thousands at once, as C calls like those of kernels.h. Episode e of
 * environment i of a seed starts alike wherever it runs: chance is drawn by place
 * (common/element_random.h), so nothing but the arrays here is state. The dynamics are
 * common/element_environment.h in double; sin and cos are the GPU's own, so a state is that of the
 * CPU within tolerance, step by step. */
#ifndef GRADWEIR_GPU_KERNELS_ENVIRONMENT_H
#define GRADWEIR_GPU_KERNELS_ENVIRONMENT_H

#include "common/element_episode.h"
#include "common/element_policy.h"
#include "gpu/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n episodes side by side; arrays are device memory. */
struct gpu_environments {
    enum element_environment environment;
    uint64_t n;
    uint64_t seed;
    uint64_t first;     /* number of the first one, where several sets share a seed */
    double *states;     /* [state_dim, n] */
    double *scores;     /* [n] undiscounted sum of the running episode's rewards */
    uint32_t *steps;    /* [n] taken in it */
    uint64_t *episodes; /* [n] its number */
};

/* What one step gives; as struct environment_outcome of the trainer. */
struct gpu_outcome {
    float *observations; /* [n, observation_dim], after the new start where an episode ended */
    float
        *final_observations; /* [n, observation_dim], before it; equal to observations elsewhere */
    float *rewards;          /* [n] */
    uint8_t *terminated;     /* [n] */
    uint8_t *truncated;      /* [n], may both be 1 */
    double *finished_scores; /* [n], written where an episode ended */
};

/* Starts episode 0 of all and writes what is seen. */
int gpu_environments_reset(gpu_stream stream, const struct gpu_environments *environments,
                           float *observations);

/* One step of all; what has ended starts anew. actions [n]: the number of a choice, or a continuous
 * action, which is clamped to its bounds. */
int gpu_environments_step(gpu_stream stream, const struct gpu_environments *environments,
                          const float *actions, const struct gpu_outcome *outcome);

/* Draws the actions of n environments from the policy's heads and writes their log-probabilities;
 * then *turn, in device memory, is one more. */
struct gpu_act_work {
    struct policy policy;
    uint64_t n, seed, first;
    const float *head; /* [n, action_dim] */
    uint64_t *turn;
    float *actions;           /* [n] numbers of choices, or [n, action_dim] */
    float *log_probabilities; /* [n] */
};
int gpu_act(gpu_stream stream, const struct gpu_act_work *work);

#ifdef __cplusplus
}
#endif

#endif
