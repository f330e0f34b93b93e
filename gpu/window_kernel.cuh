/* The average of a window by a kernel: some elements at once by one thread, directly or by stacks.
 * For the files that compile it (kernels_step.cu, kernels_stacks.cu) and for step_kernel.cuh. */
#ifndef GRADWEIR_GPU_WINDOW_KERNEL_CUH
#define GRADWEIR_GPU_WINDOW_KERNEL_CUH

#include "common/element_stacks.h"
#include "gpu/codec_dispatch.cuh"
#include "gpu/kernels.h"

namespace
{

constexpr int THREADS = 256;
/* At once on a multiprocessor, at least: 64 registers a thread, or 80, so that none is spilled. */
constexpr int blocks_at_once(bool stacks)
{
    return stacks ? 3 : 4;
}
constexpr int WIDTH = 4; /* elements of one thread: a load of 16 bytes for each float32 array */

/* n elements of the shard from `at` on. */
struct elements {
    uint64_t at;
    int n;
};

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
        sum[i] = running[i].sum;
}

/* The window by stacks: common/element_stacks.h, of some elements of one stripe at once. */

template <int CODEC, bool WHOLE>
__device__ void add_entry(const arithmetic_plan &plan, const arithmetic_sources &sources,
                          uint32_t k, elements of, float sum[WIDTH])
{
    float x[WIDTH];
    load_gradient<CODEC, WHOLE>(element_slot(&plan, &sources, k), of.at, of.n, x);
    for (int i = 0; i < WIDTH; i++)
        sum[i] = element_term(sum[i], plan.entries[k].weight, x[i]);
}

template <int CODEC, bool WHOLE>
__device__ void turn(const arithmetic_plan &plan, const arithmetic_sources &sources,
                     const element_stripe &stripe, elements of, float sum[WIDTH])
{
    for (int i = 0; i < WIDTH; i++)
        sum[i] = 0.0f;
    for (uint32_t k = plan.entries_n; k-- > 0;) {
        add_entry<CODEC, WHOLE>(plan, sources, k, of, sum);
        if (element_turn_keeps(&plan, &stripe, k))
            store<WHOLE>(element_front(&plan, &sources, stripe.first + k) + of.at, of.n, sum);
    }
}

/* The back with its new entries, and as it is kept. */
template <int CODEC, bool WHOLE>
__device__ void go_on(const arithmetic_plan &plan, const arithmetic_sources &sources,
                      const element_stripe &stripe, elements of, float sum[WIDTH])
{
    float x[WIDTH], back[WIDTH] = {0, 0, 0, 0};
    uint32_t k = plan.entries_n - plan.stacks.fresh;
    load_gradient<CODEC, WHOLE>(element_slot(&plan, &sources, k), of.at, of.n, x);
    if (!stripe.begins)
        load<WHOLE>(sources.back + of.at, of.n, back);
    for (int i = 0; i < WIDTH; i++)
        sum[i] =
            element_back(back[i], stripe.begins, plan.stacks.rescale, plan.entries[k].weight, x[i]);
    for (k++; k < plan.entries_n; k++)
        add_entry<CODEC, WHOLE>(plan, sources, k, of, sum);
    store<WHOLE>(sources.back + of.at, of.n, sum);
}

template <int CODEC, bool WHOLE>
__device__ void slide(const arithmetic_plan &plan, const arithmetic_sources &sources,
                      const element_stripe &stripe, elements of, float sum[WIDTH])
{
    go_on<CODEC, WHOLE>(plan, sources, stripe, of, sum);
    if (stripe.front < stripe.turned) {
        float front[WIDTH];
        load<WHOLE>(element_front(&plan, &sources, stripe.front) + of.at, of.n, front);
        for (int i = 0; i < WIDTH; i++)
            sum[i] = element_term(sum[i], stripe.weight, front[i]);
    }
    for (uint32_t k = 0; element_slide_adds(&stripe, k); k++)
        add_entry<CODEC, WHOLE>(plan, sources, k, of, sum);
}

template <int CODEC, bool WHOLE>
__device__ void average_directly(const arithmetic_plan &plan, const arithmetic_sources &sources,
                                 elements of, float sum[WIDTH])
{
    if (plan.entries_n >= ARITHMETIC_COMPENSATED_MIN)
        add_entries<CODEC, WHOLE, true>(plan, sources, of.at, of.n, sum);
    else
        add_entries<CODEC, WHOLE, false>(plan, sources, of.at, of.n, sum);
}

template <int CODEC, bool WHOLE, bool STACKS>
__device__ void average_of(const arithmetic_plan &plan, const arithmetic_sources &sources,
                           elements of, float sum[WIDTH])
{
    if constexpr (STACKS) {
        const element_stripe stripe = element_stripe_of(&plan, &sources, of.at);
        if (stripe.way == ELEMENT_TURN)
            turn<CODEC, WHOLE>(plan, sources, stripe, of, sum);
        else if (stripe.way == ELEMENT_SLIDE)
            slide<CODEC, WHOLE>(plan, sources, stripe, of, sum);
        else
            average_directly<CODEC, WHOLE>(plan, sources, of, sum);
    } else {
        average_directly<CODEC, WHOLE>(plan, sources, of, sum);
    }
    for (int i = 0; i < WIDTH; i++)
        sum[i] = element_scaled(sum[i], plan.scale);
}

/* Whether WIDTH elements from `at` on go one way together. */
template <bool STACKS> __device__ bool goes_together(const arithmetic_sources &sources, uint64_t at)
{
    return !STACKS || element_stripe_rest(&sources, at) >= WIDTH;
}

/* What the kernel of an average gets by value, in constant memory. */
struct window_task {
    arithmetic_plan plan;
    arithmetic_sources sources;
    uint64_t begin, end;
    float *average;
    bool wide; /* every array is aligned to WIDTH elements */
};

template <int CODEC, bool STACKS>
__global__ void __launch_bounds__(THREADS, blocks_at_once(STACKS))
    average_kernel(const __grid_constant__ window_task task)
{
    const uint64_t at =
        task.begin + (static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
    float sum[WIDTH];
    if (at >= task.end)
        return;
    if (task.wide && at + WIDTH <= task.end && goes_together<STACKS>(task.sources, at)) {
        average_of<CODEC, true, STACKS>(task.plan, task.sources, {at, WIDTH}, sum);
        store<true>(task.average + at, WIDTH, sum);
        return;
    }
    for (uint64_t i = at; i < at + WIDTH && i < task.end; i++) {
        average_of<CODEC, false, STACKS>(task.plan, task.sources, {i, 1}, sum);
        store<false>(task.average + i, 1, sum);
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
    return is_aligned(sources.base, bytes) && sources.stride_bytes % bytes == 0 &&
           is_aligned(sources.back, 16) && is_aligned(sources.fronts, 16) &&
           sources.front_stride % WIDTH == 0;
}

window_task window_task_of(const arithmetic_plan &plan, const arithmetic_sources &sources,
                           uint64_t begin, uint64_t end, float *average)
{
    return {plan,    sources,
            begin,   end,
            average, begin % WIDTH == 0 && is_aligned(average, 16) && sources_are_wide(sources)};
}

} // namespace

#endif
