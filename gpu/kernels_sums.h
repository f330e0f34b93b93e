/* Sums of squares of float32 by pieces, as kernels.h has its calls: the same bits as
 * arithmetic.measure and arithmetic.lamb_sum, which define their order. */
#ifndef GRADWEIR_GPU_KERNELS_SUMS_H
#define GRADWEIR_GPU_KERNELS_SUMS_H

#include "gpu/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sums[b] of each block of `block` elements of x; the last may be short. */
int gpu_block_sums(gpu_stream stream, const float *x, uint64_t n, uint64_t block, double *sums);

/* Pieces of a shard, each of one tensor, in device memory; theta_sums and update_sums have room for
 * n. */
struct gpu_pieces {
    const struct arithmetic_range *pieces;
    uint32_t n;
    double *theta_sums, *update_sums;
};

/* Behind LAMB's MOMENTS: of the parameters before the step, and of the update from the moments in
 * state_next. */
int gpu_lamb_sums(gpu_stream stream, const struct arithmetic_plan *plan,
                  const struct arithmetic_work *work, const struct gpu_pieces *pieces);

#ifdef __cplusplus
}
#endif

#endif
