/* The shard's step and the average of a window, by stacks: kernels_step.cu's kernels with the other
 * window, in a file of their own so that two compilers can work at once. */
#include "gpu/kernels_stacks.h"

#include "gpu/step_kernel.cuh"

extern "C" int gpu_step_stacks(gpu_stream stream, const struct arithmetic_plan *plan,
                               const struct arithmetic_work *work, uint64_t begin, uint64_t end)
{
    const task task = task_of(*plan, *work, begin, end);
    const unsigned grid = grid_of(begin, end);
    if (plan->phase == ARITHMETIC_MOMENTS)
        codec_dispatch(work->sources.codec, [&](auto codec) {
            step_kernel<ARITHMETIC_LAMB, codec, ARITHMETIC_MOMENTS, true>
                <<<grid, THREADS, 0, stream>>>(task);
        });
    else
        step_dispatch(task, [&](auto algorithm, auto codec) {
            step_kernel<algorithm, codec, ARITHMETIC_WHOLE, true>
                <<<grid, THREADS, 0, stream>>>(task);
        });
    return cudaGetLastError();
}

extern "C" int gpu_average_stacks(gpu_stream stream, const struct arithmetic_plan *plan,
                                  const struct arithmetic_sources *sources, uint64_t begin,
                                  uint64_t end, float *average)
{
    const window_task task = window_task_of(*plan, *sources, begin, end, average);
    codec_dispatch(sources->codec, [&](auto codec) {
        average_kernel<codec, true><<<grid_of(begin, end), THREADS, 0, stream>>>(task);
    });
    return cudaGetLastError();
}
