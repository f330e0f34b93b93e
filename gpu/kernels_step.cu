/* The shard's step and the average of a window, by the direct window; what is by stacks is
 * kernels_stacks.cu's. */
#include "gpu/kernels_stacks.h"
#include "gpu/step_kernel.cuh"

namespace
{

template <int PHASE> void start_lamb(gpu_stream stream, const task &task)
{
    codec_dispatch(task.work.sources.codec, [&](auto codec) {
        step_kernel<ARITHMETIC_LAMB, codec, PHASE, false>
            <<<grid_of(task.begin, task.end), THREADS, 0, stream>>>(task);
    });
}

void start(gpu_stream stream, const task &task)
{
    if (task.plan.phase == ARITHMETIC_MOMENTS)
        start_lamb<ARITHMETIC_MOMENTS>(stream, task);
    else if (task.plan.phase == ARITHMETIC_APPLY)
        start_lamb<ARITHMETIC_APPLY>(stream, task);
    else
        step_dispatch(task, [&](auto algorithm, auto codec) {
            step_kernel<algorithm, codec, ARITHMETIC_WHOLE, false>
                <<<grid_of(task.begin, task.end), THREADS, 0, stream>>>(task);
        });
}

} // namespace

extern "C" int gpu_step(gpu_stream stream, const struct arithmetic_plan *plan,
                        const struct arithmetic_work *work, uint64_t begin, uint64_t end)
{
    const bool averages = work->average == nullptr && plan->phase != ARITHMETIC_APPLY;
    if (begin >= end)
        return 0;
    if (plan->stacks.window > 0 && averages)
        return gpu_step_stacks(stream, plan, work, begin, end);
    start(stream, task_of(*plan, *work, begin, end));
    return cudaGetLastError();
}

extern "C" int gpu_average(gpu_stream stream, const struct arithmetic_plan *plan,
                           const struct arithmetic_sources *sources, uint64_t begin, uint64_t end,
                           float *average)
{
    const window_task task = window_task_of(*plan, *sources, begin, end, average);
    if (begin >= end)
        return 0;
    if (plan->stacks.window > 0)
        return gpu_average_stacks(stream, plan, sources, begin, end, average);
    codec_dispatch(sources->codec, [&](auto codec) {
        average_kernel<codec, false><<<grid_of(begin, end), THREADS, 0, stream>>>(task);
    });
    return cudaGetLastError();
}
