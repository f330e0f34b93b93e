/* Sums over the threads of a block in a fixed binary tree, so that they have the same bits each
 * time. */
#ifndef GRADWEIR_GPU_BLOCK_FOLD_CUH
#define GRADWEIR_GPU_BLOCK_FOLD_CUH

#include "common/element_loss.h"

static __device__ __forceinline__ double joined(double a, double b)
{
    return element_add_double(a, b);
}

static __device__ __forceinline__ loss_sums joined(loss_sums a, loss_sums b)
{
    return element_loss_add(a, b);
}

/* values [N] in shared memory, one written by each thread: the first becomes the sum of all, which
 * is returned to every thread. */
template <int N, typename T> __device__ T block_fold(T *values)
{
    for (int width = N / 2; width > 0; width /= 2) {
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < width)
            values[threadIdx.x] = joined(values[threadIdx.x], values[threadIdx.x + width]);
    }
    __syncthreads();
    return values[0];
}

#endif
