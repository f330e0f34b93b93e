/* What the trainer's engine needs beside kernels_learn.h and kernels_environment.h, as C calls like
 * those: samples picked out of a rollout, looked back at and linked, and the biases of the narrow
 * layers. Sums over rows are in a fixed order: the same bits every time, within rounding of the
 * CPU's, which adds the rows one by one. */
#ifndef GRADWEIR_GPU_KERNELS_ENGINE_H
#define GRADWEIR_GPU_KERNELS_ENGINE_H

#include "common/element_policy.h"
#include "gpu/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Samples order[0] to order[n - 1] of a rollout, side by side. */
enum { GPU_COLUMNS = 5 };
struct gpu_gather_work {
    const uint32_t *order;
    uint64_t n, observation_dim, action_width;
    const float *observations, *actions; /* of the rollout */
    const float *columns[GPU_COLUMNS];   /* likewise; NULL: left out */
    float *to_observations, *to_actions; /* of the minibatch */
    float *to_columns[GPU_COLUMNS];
};
int gpu_gather(gpu_stream stream, const struct gpu_gather_work *work);

/* log_now [n] of actions under their heads, and log_now - log_then. */
struct gpu_look_back_work {
    struct policy policy;
    uint64_t n;
    const float *head, *actions, *log_then;
    float *log_now, *log_ratios;
};
int gpu_look_back(gpu_stream stream, const struct gpu_look_back_work *work);

/* next_values [steps, environments] of steps that did not end an episode are the values of the row
 * below; 0 where it terminated; where it was cut they stay. */
struct gpu_link_work {
    uint64_t steps, environments;
    const uint8_t *terminated, *truncated;
    const float *values; /* [steps + 1, environments] */
    float *next_values;
};
int gpu_link_values(gpu_stream stream, const struct gpu_link_work *work);

/* y [rows, cols] += bias [cols]. */
int gpu_add_bias(gpu_stream stream, uint64_t rows, uint64_t cols, const float *bias, float *y);

/* sums [cols] of d [rows, cols]. */
struct gpu_columns_work {
    uint64_t rows, cols;
    const float *d;
    float *sums;
    void *scratch; /* gpu_columns_scratch bytes */
};
uint64_t gpu_columns_scratch(uint64_t rows, uint64_t cols);
int gpu_column_sums(gpu_stream stream, const struct gpu_columns_work *work);

/* Some kernel of the engine's, to ask the runtime whether it has code for a GPU. */
const void *gpu_engine_kernel(void);

#ifdef __cplusplus
}
#endif

#endif
