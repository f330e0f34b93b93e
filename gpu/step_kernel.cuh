/* The kernel of a shard's step: decode, average, optimizer, new parameters, each float read once.
 * One per algorithm and codec, so that what does not change within one is a constant. For the files
 * that compile it: kernels_step.cu with the direct window, kernels_stacks.cu with stacks. */
#ifndef GRADWEIR_GPU_STEP_KERNEL_CUH
#define GRADWEIR_GPU_STEP_KERNEL_CUH

#include "gpu/window_kernel.cuh"

namespace
{

/* What a kernel gets by value, in constant memory. */
struct task {
    arithmetic_plan plan;
    arithmetic_work work;
    uint64_t begin, end;
    bool wide; /* every array is aligned to WIDTH elements */
};

/* The index of the range that holds `at`. */
__device__ uint64_t range_at(const arithmetic_work &work, uint64_t at)
{
    uint64_t low = 0, high = work.ranges_n;
    while (low + 1 < high) {
        const uint64_t middle = (low + high) / 2;
        if (work.ranges[middle].begin <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

__device__ constexpr int states_of(int algorithm)
{
    return algorithm == ARITHMETIC_SGD                                            ? 0
           : algorithm == ARITHMETIC_MOMENTUM || algorithm == ARITHMETIC_NESTEROV ? 1
           : algorithm == ARITHMETIC_RMSPROP || algorithm == ARITHMETIC_AMSGRAD   ? 3
                                                                                  : 2;
}

/* The gradient of these elements: averaged here, or finished before (clip of the average). */
template <int CODEC, bool WHOLE, bool STACKS>
__device__ void gradient_of(const task &task, uint64_t at, int n, float g[WIDTH])
{
    if (task.work.average == nullptr) {
        average_of<CODEC, WHOLE, STACKS>(task.plan, task.work.sources, {at, n}, g);
        return;
    }
    load<WHOLE>(task.work.average + at, n, g);
    for (int i = 0; i < WIDTH; i++)
        g[i] = element_scaled(g[i], task.plan.scale);
}

template <int ALGORITHM, int CODEC, int PHASE, bool STACKS, bool WHOLE>
__device__ void step_some(const task &task, uint64_t at, int n, const arithmetic_range &range)
{
    constexpr int STATES = states_of(ALGORITHM);
    const arithmetic_group &group = task.plan.groups[range.group];
    element_law law = element_law_of(&task.plan);
    law.algorithm = static_cast<arithmetic_algorithm>(ALGORITHM);
    float theta[WIDTH], g[WIDTH] = {0, 0, 0, 0}, states[STATES ? STATES : 1][WIDTH];
    load<WHOLE>(task.work.parameters + at, n, theta);
    for (int k = 0; k < STATES; k++) /* LAMB's second pass reads what its first one has written */
        if (task.work.state[k] != nullptr)
            load<WHOLE>((PHASE == ARITHMETIC_APPLY ? task.work.state_next : task.work.state)[k] +
                            at,
                        n, states[k]);
    if (!group.frozen) {
        if (PHASE != ARITHMETIC_APPLY)
            gradient_of<CODEC, WHOLE, STACKS>(task, at, n, g);
        for (int i = 0; i < WIDTH; i++) {
            element_item item = {theta[i], {0, 0, 0}};
            for (int k = 0; k < STATES; k++)
                item.state[k] = states[k][i];
            if (PHASE == ARITHMETIC_APPLY)
                element_lamb_apply(&law, &group, task.work.ratios[range.tensor], &item);
            else
                element_step(&law, &group, g[i], &item);
            theta[i] = item.theta;
            for (int k = 0; k < STATES; k++)
                states[k][i] = item.state[k];
        }
    }
    if (PHASE != ARITHMETIC_MOMENTS)
        store<WHOLE>(task.work.parameters_next + at, n, theta);
    for (int k = 0; k < STATES && PHASE != ARITHMETIC_APPLY; k++)
        if (task.work.state[k] != nullptr)
            store<WHOLE>(task.work.state_next[k] + at, n, states[k]);
}

/* Whole vectors where all of one lie in one range; element by element at borders and tails. */
template <int ALGORITHM, int CODEC, int PHASE, bool STACKS>
__global__ void __launch_bounds__(THREADS, blocks_at_once(STACKS))
    step_kernel(const __grid_constant__ task task)
{
    const uint64_t first = task.begin / WIDTH * WIDTH;
    const uint64_t at = first + (static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
    if (at >= task.end)
        return;
    uint64_t r = range_at(task.work, at < task.begin ? task.begin : at);
    if (task.wide && at >= task.begin && at + WIDTH <= task.end &&
        at + WIDTH <= task.work.ranges[r].end && goes_together<STACKS>(task.work.sources, at)) {
        step_some<ALGORITHM, CODEC, PHASE, STACKS, true>(task, at, WIDTH, task.work.ranges[r]);
        return;
    }
    for (uint64_t i = at < task.begin ? task.begin : at; i < at + WIDTH && i < task.end; i++) {
        while (task.work.ranges[r].end <= i)
            r++;
        step_some<ALGORITHM, CODEC, PHASE, STACKS, false>(task, i, 1, task.work.ranges[r]);
    }
}

bool is_wide(const arithmetic_work &work)
{
    bool wide =
        is_aligned(work.parameters, 16) && is_aligned(work.parameters_next, 16) &&
        (work.average != nullptr ? is_aligned(work.average, 16) : sources_are_wide(work.sources));
    for (int k = 0; k < ARITHMETIC_STATES_MAX; k++)
        wide = wide && is_aligned(work.state[k], 16) && is_aligned(work.state_next[k], 16);
    return wide;
}

task task_of(const arithmetic_plan &plan, const arithmetic_work &work, uint64_t begin, uint64_t end)
{
    return {plan, work, begin, end, is_wide(work)};
}

template <int NUMBER> using number = std::integral_constant<int, NUMBER>;

/* Calls start(algorithm, codec), both being usable as template arguments: all that step in one
 * phase. LAMB's two are its callers'. */
template <typename Start> void step_dispatch(const task &task, const Start &start)
{
    codec_dispatch(task.work.sources.codec, [&](auto codec) {
        switch (task.plan.algorithm) {
        case ARITHMETIC_SGD: start(number<ARITHMETIC_SGD>{}, codec); return;
        case ARITHMETIC_MOMENTUM: start(number<ARITHMETIC_MOMENTUM>{}, codec); return;
        case ARITHMETIC_NESTEROV: start(number<ARITHMETIC_NESTEROV>{}, codec); return;
        case ARITHMETIC_RMSPROP: start(number<ARITHMETIC_RMSPROP>{}, codec); return;
        case ARITHMETIC_ADAM: start(number<ARITHMETIC_ADAM>{}, codec); return;
        case ARITHMETIC_AMSGRAD: start(number<ARITHMETIC_AMSGRAD>{}, codec); return;
        case ARITHMETIC_ADAMW: start(number<ARITHMETIC_ADAMW>{}, codec); return;
        case ARITHMETIC_LAMB: return;
        }
    });
}

} // namespace

#endif
