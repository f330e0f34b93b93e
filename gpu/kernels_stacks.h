/* The window by stacks, for gpu_step and gpu_average (kernels.h), which choose by the plan. */
#ifndef GRADWEIR_GPU_KERNELS_STACKS_H
#define GRADWEIR_GPU_KERNELS_STACKS_H

#include "gpu/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As gpu_step and gpu_average, of a plan with stacks that averages; begin < end. Back and fronts of
 * the sources are device memory, read and written. */
int gpu_step_stacks(gpu_stream stream, const struct arithmetic_plan *plan,
                    const struct arithmetic_work *work, uint64_t begin, uint64_t end);
int gpu_average_stacks(gpu_stream stream, const struct arithmetic_plan *plan,
                       const struct arithmetic_sources *sources, uint64_t begin, uint64_t end,
                       float *average);

#ifdef __cplusplus
}
#endif

#endif
