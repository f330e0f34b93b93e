/* What a worker computes on a GPU beside matrix products, as C calls: each starts work on a stream
 * and returns cudaGetLastError's number, 0 for success. Pointers within the structs are device
 * memory unless they say otherwise; the structs themselves are read during the call. Nothing is
 * allocated, nothing waited for, and every size is known at the call: a CUDA graph may hold them.
 *
 * What happens to one element is common/element_*.h, the same functions as the CPU trainer's. Sums
 * are taken in an order that depends on the sizes alone, never on who comes first: a repeated call
 * gives the same bits. Against the CPU, which adds in another order and has another expf, results
 * are within tolerance; bias + tanh, the encodings and the choice of the largest k are its bits. */
#ifndef GRADWEIR_GPU_KERNELS_LEARN_H
#define GRADWEIR_GPU_KERNELS_LEARN_H

#include "common/element_gradient.h"
#include "common/element_loss.h"
#include "gpu/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Advantages and targets [T, N] of a rollout: client/trainer/advantage.h. One thread for each
 * environment walks back in time; a row's reads lie side by side. */
int gpu_gae(gpu_stream stream, const struct advantage_input *input, float gamma, float lambda,
            struct element_estimates to);
int gpu_vtrace(gpu_stream stream, const struct advantage_input *input,
               const struct advantage_vtrace_settings *settings, const float *log_ratios,
               struct element_estimates to);

/* Count, mean and m2 of n numbers, or of values - minus; two passes, each in two stages. */
#define GPU_STATISTICS_SCRATCH 4096 /* bytes */
struct gpu_statistics_work {
    const float *values;
    const float *minus; /* NULL: nothing is taken away */
    uint64_t n;
    void *scratch;
    struct statistics *to;
};
int gpu_statistics(gpu_stream stream, const struct gpu_statistics_work *work);

/* What advantages are normalised by. batch: their statistics, read in LOSS_ADVANTAGES_BATCH only.
 */
int gpu_loss_centre(gpu_stream stream, const struct loss_settings *settings,
                    const struct statistics *batch, struct loss_centre *to);

/* The PPO loss and all its derivatives in one pass over the samples: normalises the advantages,
 * writes the arrays, then sums (not yet divided: element_loss_means) and d_log_std. */
struct gpu_loss_work {
    struct loss_batch batch;
    struct loss_arrays arrays;
    const struct loss_centre *centre;
    void *scratch; /* gpu_loss_scratch bytes */
    struct loss_sums *sums;
};
uint64_t gpu_loss_scratch(const struct loss_settings *settings, uint64_t n);
int gpu_loss(gpu_stream stream, const struct loss_settings *settings,
             const struct gpu_loss_work *work);

/* y [rows, cols] = tanh(y + bias), bias [cols], in place. */
int gpu_bias_tanh(gpu_stream stream, uint64_t rows, uint64_t cols, const float *bias, float *y);

/* d [rows, cols] *= 1 - h^2 in place, and sums [cols] = the column sums of the new d: the gradient
 * of the bias. */
struct gpu_tanh_work {
    uint64_t rows, cols;
    const float *h;
    float *d;
    float *sums;
    void *scratch; /* gpu_tanh_scratch bytes */
};
uint64_t gpu_tanh_scratch(uint64_t rows, uint64_t cols);
int gpu_tanh_backward(gpu_stream stream, const struct gpu_tanh_work *work);

/* factor = scale × min(1, limit / (scale × norm + 1e-6)), norm from gpu_measure's sums of blocks in
 * the order of the tree (arithmetic.h): what gpu_encode_clipped multiplies by. limit 0: scale. norm
 * (may be NULL) gets scale × norm. */
struct gpu_clip_work {
    const double *sums;
    uint64_t blocks;
    float scale;
    double limit;
    double *scratch; /* [blocks] */
    float *factor;
    double *norm;
};
int gpu_clip_factor(gpu_stream stream, const struct gpu_clip_work *work);

/* y += scale x: accumulation. */
int gpu_add_scaled(gpu_stream stream, uint64_t n, float scale, const float *x, float *y);

/* The k elements of the largest magnitude, among equals those of lower index; in the order of their
 * indices. 0 < k <= n < 2^32, or the call is refused. A NaN counts as larger than all. */
struct gpu_top_work {
    const float *from;
    uint64_t n, k;
    void *scratch;     /* gpu_top_scratch bytes */
    uint32_t *indices; /* [k] */
    float *values;     /* [k] */
};
uint64_t gpu_top_scratch(uint64_t n);
int gpu_top(gpu_stream stream, const struct gpu_top_work *work);

#ifdef __cplusplus
}
#endif

#endif
