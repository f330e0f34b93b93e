/* The shard's step: decode, average, optimizer, new parameters, each float read once. One kernel
 * per algorithm and codec, so that what does not change within one is a constant. */
#include "common/element_step.h"
#include "gpu/codec_dispatch.cuh"
#include "gpu/kernels.h"

namespace
{

constexpr int THREADS = 256;
constexpr int BLOCKS =
    4; /* at once on a multiprocessor, at least: 64 registers a thread, so that none is spilled */
constexpr int WIDTH = 4; /* elements of one thread: a load of 16 bytes for each float32 array */

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

/* WIDTH floats, by one load where they are aligned. */
template <bool WHOLE> __device__ void load(const float *from, int n, float to[WIDTH])
{
    if (WHOLE) {
        const float4 four = __ldcs(reinterpret_cast<const float4 *>(from));
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else {
        for (int i = 0; i < WIDTH; i++)
            to[i] = i < n ? from[i] : 0.0f;
    }
}

template <bool WHOLE> __device__ void store(float *to, int n, const float from[WIDTH])
{
    if (WHOLE) {
        __stcs(reinterpret_cast<float4 *>(to), make_float4(from[0], from[1], from[2], from[3]));
    } else {
        for (int i = 0; i < WIDTH; i++)
            if (i < n)
                to[i] = from[i];
    }
}

/* WIDTH elements of a gradient from a multiple of WIDTH on, decoded. */
template <int CODEC, bool WHOLE>
__device__ void load_gradient(const void *slot, uint64_t at, int n, float to[WIDTH])
{
    if (CODEC == ARITHMETIC_F32) {
        load<WHOLE>(static_cast<const float *>(slot) + at, n, to);
    } else if (CODEC == ARITHMETIC_INT8) {
        const unsigned char *block = static_cast<const unsigned char *>(slot) +
                                     at / ELEMENT_INT8_BLOCK * (sizeof(float) + ELEMENT_INT8_BLOCK);
        const float scale = *reinterpret_cast<const float *>(block);
        const char4 four =
            WHOLE ? *reinterpret_cast<const char4 *>(block + sizeof scale + at % ELEMENT_INT8_BLOCK)
                  : make_char4(0, 0, 0, 0);
        const signed char bytes[WIDTH] = {four.x, four.y, four.z, four.w};
        for (int i = 0; i < WIDTH; i++)
            to[i] = WHOLE ? element_from_int8(bytes[i], scale)
                          : (i < n ? element_decode(ARITHMETIC_INT8, slot, at + i) : 0.0f);
    } else {
        const ushort4 four =
            WHOLE ? *reinterpret_cast<const ushort4 *>(static_cast<const uint16_t *>(slot) + at)
                  : make_ushort4(0, 0, 0, 0);
        const uint16_t halves[WIDTH] = {four.x, four.y, four.z, four.w};
        for (int i = 0; i < WIDTH; i++) {
            const uint16_t half =
                WHOLE ? halves[i] : (i < n ? static_cast<const uint16_t *>(slot)[at + i] : 0);
            to[i] = CODEC == ARITHMETIC_BF16 ? element_from_bf16(half) : element_from_f16(half);
        }
    }
}

/* COMPENSATED is known before the loop, which then carries no terms that it does not need. */
template <int CODEC, bool WHOLE, bool COMPENSATED>
__device__ void add_entries(const arithmetic_plan &plan, const arithmetic_sources &sources,
                            uint64_t at, int n, float sum[WIDTH])
{
    element_sum running[WIDTH] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
    float x[WIDTH];
    for (uint32_t k = 0; k < plan.entries_n; k++) {
        load_gradient<CODEC, WHOLE>(element_slot(&plan, &sources, k), at, n, x);
        const float weight = plan.entries[k].weight;
        for (int i = 0; i < WIDTH; i++)
            running[i] = element_average_add(running[i], COMPENSATED, weight, x[i]);
    }
    for (int i = 0; i < WIDTH; i++)
        sum[i] = element_scaled(running[i].sum, plan.scale);
}

template <int CODEC, bool WHOLE>
__device__ void average_of(const arithmetic_plan &plan, const arithmetic_sources &sources,
                           uint64_t at, int n, float sum[WIDTH])
{
    if (plan.entries_n >= ARITHMETIC_COMPENSATED_MIN)
        add_entries<CODEC, WHOLE, true>(plan, sources, at, n, sum);
    else
        add_entries<CODEC, WHOLE, false>(plan, sources, at, n, sum);
}

/* The gradient of these elements: averaged here, or finished before (clip of the average). */
template <int CODEC, bool WHOLE>
__device__ void gradient_of(const task &task, uint64_t at, int n, float g[WIDTH])
{
    if (task.work.average == nullptr) {
        average_of<CODEC, WHOLE>(task.plan, task.work.sources, at, n, g);
        return;
    }
    load<WHOLE>(task.work.average + at, n, g);
    for (int i = 0; i < WIDTH; i++)
        g[i] = element_scaled(g[i], task.plan.scale);
}

template <int ALGORITHM, int CODEC, int PHASE, bool WHOLE>
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
            gradient_of<CODEC, WHOLE>(task, at, n, g);
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
template <int ALGORITHM, int CODEC, int PHASE>
__global__ void __launch_bounds__(THREADS, BLOCKS) step_kernel(const __grid_constant__ task task)
{
    const uint64_t first = task.begin / WIDTH * WIDTH;
    const uint64_t at = first + (static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
    if (at >= task.end)
        return;
    uint64_t r = range_at(task.work, at < task.begin ? task.begin : at);
    if (task.wide && at >= task.begin && at + WIDTH <= task.end &&
        at + WIDTH <= task.work.ranges[r].end) {
        step_some<ALGORITHM, CODEC, PHASE, true>(task, at, WIDTH, task.work.ranges[r]);
        return;
    }
    for (uint64_t i = at < task.begin ? task.begin : at; i < at + WIDTH && i < task.end; i++) {
        while (task.work.ranges[r].end <= i)
            r++;
        step_some<ALGORITHM, CODEC, PHASE, false>(task, i, 1, task.work.ranges[r]);
    }
}

template <int CODEC>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    average_kernel(const __grid_constant__ task task, float *average)
{
    const uint64_t at =
        task.begin + (static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
    float sum[WIDTH];
    if (at >= task.end)
        return;
    if (task.wide && at + WIDTH <= task.end) {
        average_of<CODEC, true>(task.plan, task.work.sources, at, WIDTH, sum);
        store<true>(average + at, WIDTH, sum);
    } else {
        const int n = static_cast<int>(task.end - at < WIDTH ? task.end - at : WIDTH);
        average_of<CODEC, false>(task.plan, task.work.sources, at, n, sum);
        store<false>(average + at, n, sum);
    }
}

unsigned grid_of(uint64_t begin, uint64_t end)
{
    const uint64_t each = static_cast<uint64_t>(THREADS) * WIDTH;
    return static_cast<unsigned>((end - begin / WIDTH * WIDTH + each - 1) / each);
}

/* Whether addresses and strides allow loads of WIDTH elements. */
bool is_aligned(const void *array, uint64_t bytes)
{
    return reinterpret_cast<uintptr_t>(array) % bytes == 0;
}

bool sources_are_wide(const arithmetic_sources &sources)
{
    const uint64_t bytes =
        sources.codec == ARITHMETIC_F32 ? 16 : (sources.codec == ARITHMETIC_INT8 ? 4 : 8);
    return is_aligned(sources.base, bytes) && sources.stride_bytes % bytes == 0;
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

template <int ALGORITHM, int PHASE> void start(gpu_stream stream, const task &task)
{
    const unsigned grid = grid_of(task.begin, task.end);
    codec_dispatch(task.work.sources.codec, [&](auto codec) {
        step_kernel<ALGORITHM, codec, PHASE><<<grid, THREADS, 0, stream>>>(task);
    });
}

} // namespace

extern "C" int gpu_step(gpu_stream stream, const struct arithmetic_plan *plan,
                        const struct arithmetic_work *work, uint64_t begin, uint64_t end)
{
    const task task = {*plan, *work, begin, end, is_wide(*work)};
    if (begin >= end)
        return 0;
    switch (plan->algorithm) {
    case ARITHMETIC_SGD: start<ARITHMETIC_SGD, ARITHMETIC_WHOLE>(stream, task); break;
    case ARITHMETIC_MOMENTUM: start<ARITHMETIC_MOMENTUM, ARITHMETIC_WHOLE>(stream, task); break;
    case ARITHMETIC_NESTEROV: start<ARITHMETIC_NESTEROV, ARITHMETIC_WHOLE>(stream, task); break;
    case ARITHMETIC_RMSPROP: start<ARITHMETIC_RMSPROP, ARITHMETIC_WHOLE>(stream, task); break;
    case ARITHMETIC_ADAM: start<ARITHMETIC_ADAM, ARITHMETIC_WHOLE>(stream, task); break;
    case ARITHMETIC_AMSGRAD: start<ARITHMETIC_AMSGRAD, ARITHMETIC_WHOLE>(stream, task); break;
    case ARITHMETIC_ADAMW: start<ARITHMETIC_ADAMW, ARITHMETIC_WHOLE>(stream, task); break;
    case ARITHMETIC_LAMB:
        if (plan->phase == ARITHMETIC_MOMENTS)
            start<ARITHMETIC_LAMB, ARITHMETIC_MOMENTS>(stream, task);
        else
            start<ARITHMETIC_LAMB, ARITHMETIC_APPLY>(stream, task);
        break;
    }
    return cudaGetLastError();
}

extern "C" int gpu_average(gpu_stream stream, const struct arithmetic_plan *plan,
                           const struct arithmetic_sources *sources, uint64_t begin, uint64_t end,
                           float *average)
{
    task task = {*plan, {}, begin, end, false};
    task.work.sources = *sources;
    task.wide = begin % WIDTH == 0 && is_aligned(average, 16) && sources_are_wide(*sources);
    if (begin >= end)
        return 0;
    const unsigned grid = grid_of(begin, end);
    codec_dispatch(sources->codec, [&](auto codec) {
        average_kernel<codec><<<grid, THREADS, 0, stream>>>(task, average);
    });
    return cudaGetLastError();
}
