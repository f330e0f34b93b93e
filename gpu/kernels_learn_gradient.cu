/* A finished gradient: the factor of its clip, accumulation, and the choice of its largest k. */
#include "common/arithmetic.h"
#include "gpu/kernels_learn.h"

namespace
{

constexpr int THREADS = 256;
constexpr int EACH = 16;             /* elements of a thread when a place is looked for */
constexpr int TILE = THREADS * EACH; /* elements of a block then */
constexpr unsigned GRID_MAX = 2048;

/* What the choice of the largest k needs beside the gradient. */
struct search {
    element_top top;
    uint32_t counts[ELEMENT_TOP_ROUNDS][ELEMENT_TOP_DIGITS];
};

/* Of one tile, first its own counts, then those of all tiles before it. */
struct tile {
    uint32_t larger, equal;
};

__global__ void __launch_bounds__(THREADS) clip_kernel(const __grid_constant__ gpu_clip_work work)
{
    /* Level by level of the tree; a block without a sibling stands for its parent. What a level
     * writes lies before all that it has not read yet. */
    const double *from = work.sums;
    for (uint64_t n = work.blocks; n > 1; n = (n + 1) / 2) {
        for (uint64_t begin = 0; begin < (n + 1) / 2; begin += THREADS) {
            const uint64_t i = begin + threadIdx.x;
            double sum = 0;
            if (2 * i + 1 < n)
                sum = element_add_double(from[2 * i], from[2 * i + 1]);
            else if (2 * i < n)
                sum = from[2 * i];
            __syncthreads();
            if (2 * i < n)
                work.scratch[i] = sum;
            __syncthreads();
        }
        from = work.scratch;
    }
    if (threadIdx.x != 0)
        return;
    const double norm = element_norm(work.blocks > 0 ? from[0] : 0.0, work.scale);
    *work.factor = element_clipped_scale(work.scale, norm, work.limit);
    if (work.norm != nullptr)
        *work.norm = norm;
}

__global__ void __launch_bounds__(THREADS)
    add_scaled_kernel(uint64_t n, float scale, const float *x, float *y)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * THREADS;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += stride)
        y[i] = element_plus(y[i], scale, x[i]);
}

__global__ void __launch_bounds__(THREADS) start_kernel(search *search, uint64_t k)
{
    for (int i = static_cast<int>(threadIdx.x); i < ELEMENT_TOP_ROUNDS * ELEMENT_TOP_DIGITS;
         i += THREADS)
        search->counts[i / ELEMENT_TOP_DIGITS][i % ELEMENT_TOP_DIGITS] = 0;
    if (threadIdx.x == 0)
        search->top = {0, k};
}

/* How often each digit of this round occurs: a block's own counts first, then all blocks'. */
__global__ void __launch_bounds__(THREADS)
    count_kernel(const float *from, uint64_t n, int round, search *search)
{
    __shared__ uint32_t counts[ELEMENT_TOP_DIGITS];
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * THREADS;
    const element_top top = search->top;
    for (int i = static_cast<int>(threadIdx.x); i < ELEMENT_TOP_DIGITS; i += THREADS)
        counts[i] = 0;
    __syncthreads();
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x; i < n;
         i += stride) {
        const int digit = element_top_digit(&top, round, element_magnitude(from[i]));
        if (digit >= 0)
            atomicAdd(&counts[digit], 1u);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < ELEMENT_TOP_DIGITS; i += THREADS)
        if (counts[i] != 0)
            atomicAdd(&search->counts[round][i], counts[i]);
}

__global__ void __launch_bounds__(THREADS) descend_kernel(search *search, int round)
{
    __shared__ uint32_t counts[ELEMENT_TOP_DIGITS];
    for (int i = static_cast<int>(threadIdx.x); i < ELEMENT_TOP_DIGITS; i += THREADS)
        counts[i] = search->counts[round][i];
    __syncthreads();
    if (threadIdx.x == 0)
        search->top = element_top_descend(search->top, round, counts);
}

/* The elements of one thread lie in a row. */
__device__ tile count_own(const element_top &top, const float *from, uint64_t begin, uint64_t end)
{
    tile own = {0, 0};
    for (uint64_t i = begin; i < end; i++) {
        const uint32_t magnitude = element_magnitude(from[i]);
        own.larger += magnitude > top.threshold;
        own.equal += magnitude == top.threshold;
    }
    return own;
}

/* Becomes, of each thread's counts in shared memory, the sum of those before it; returns the sum of
 * all. */
__device__ tile scan_block(tile *shared)
{
    const unsigned at = threadIdx.x;
    const tile own = shared[at];
    for (unsigned step = 1; step < THREADS; step *= 2) {
        __syncthreads();
        const tile other = at >= step ? shared[at - step] : tile{0, 0};
        __syncthreads();
        shared[at].larger += other.larger;
        shared[at].equal += other.equal;
    }
    __syncthreads();
    const tile all = shared[THREADS - 1];
    __syncthreads();
    shared[at].larger -= own.larger;
    shared[at].equal -= own.equal;
    __syncthreads();
    return all;
}

__device__ void own_range(uint64_t n, uint64_t *begin, uint64_t *end)
{
    const uint64_t first =
        static_cast<uint64_t>(blockIdx.x) * TILE + static_cast<uint64_t>(threadIdx.x) * EACH;
    *begin = first < n ? first : n;
    *end = first + EACH < n ? first + EACH : n;
}

__global__ void __launch_bounds__(THREADS)
    tile_kernel(const float *from, uint64_t n, const search *search, tile *tiles)
{
    __shared__ tile shared[THREADS];
    uint64_t begin, end;
    own_range(n, &begin, &end);
    shared[threadIdx.x] = count_own(search->top, from, begin, end);
    const tile all = scan_block(shared);
    if (threadIdx.x == 0)
        tiles[blockIdx.x] = all;
}

/* One block: of each tile's counts, the sums of those before it. */
__global__ void __launch_bounds__(THREADS) before_kernel(tile *tiles, uint64_t n)
{
    __shared__ tile shared[THREADS];
    tile before = {0, 0};
    for (uint64_t begin = 0; begin < n; begin += THREADS) {
        const uint64_t i = begin + threadIdx.x;
        shared[threadIdx.x] = i < n ? tiles[i] : tile{0, 0};
        const tile all = scan_block(shared);
        if (i < n)
            tiles[i] = {before.larger + shared[threadIdx.x].larger,
                        before.equal + shared[threadIdx.x].equal};
        before.larger += all.larger;
        before.equal += all.equal;
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS)
    take_kernel(const __grid_constant__ gpu_top_work work, const search *search, const tile *tiles)
{
    __shared__ tile shared[THREADS];
    const element_top top = search->top;
    uint64_t begin, end;
    own_range(work.n, &begin, &end);
    shared[threadIdx.x] = count_own(top, work.from, begin, end);
    scan_block(shared);
    uint64_t larger = tiles[blockIdx.x].larger + shared[threadIdx.x].larger;
    uint64_t equal = tiles[blockIdx.x].equal + shared[threadIdx.x].equal;
    for (uint64_t i = begin; i < end; i++) {
        const uint32_t magnitude = element_magnitude(work.from[i]);
        if (element_top_takes(&top, magnitude, equal)) {
            const uint64_t place = larger + (equal < top.left ? equal : top.left);
            work.indices[place] = static_cast<uint32_t>(i);
            work.values[place] = work.from[i];
        }
        larger += magnitude > top.threshold;
        equal += magnitude == top.threshold;
    }
}

unsigned grid_of(uint64_t n)
{
    const uint64_t wanted = (n + THREADS - 1) / THREADS;
    return static_cast<unsigned>(wanted < GRID_MAX ? wanted : GRID_MAX);
}

uint64_t tiles_of(uint64_t n)
{
    return (n + TILE - 1) / TILE;
}

} // namespace

extern "C" int gpu_clip_factor(gpu_stream stream, const struct gpu_clip_work *work)
{
    clip_kernel<<<1, THREADS, 0, stream>>>(*work);
    return cudaGetLastError();
}

extern "C" int gpu_add_scaled(gpu_stream stream, uint64_t n, float scale, const float *x, float *y)
{
    if (n == 0)
        return 0;
    add_scaled_kernel<<<grid_of(n), THREADS, 0, stream>>>(n, scale, x, y);
    return cudaGetLastError();
}

extern "C" uint64_t gpu_top_scratch(uint64_t n)
{
    return sizeof(search) + tiles_of(n) * sizeof(tile);
}

extern "C" int gpu_top(gpu_stream stream, const struct gpu_top_work *work)
{
    search *found = static_cast<search *>(work->scratch);
    tile *tiles = reinterpret_cast<tile *>(found + 1);
    const uint64_t n = work->n;
    if (work->k == 0 || work->k > n || n > UINT32_MAX)
        return cudaErrorInvalidValue;
    const unsigned tiles_n = static_cast<unsigned>(tiles_of(n));
    start_kernel<<<1, THREADS, 0, stream>>>(found, work->k);
    for (int round = 0; round < ELEMENT_TOP_ROUNDS; round++) {
        count_kernel<<<grid_of(n), THREADS, 0, stream>>>(work->from, n, round, found);
        descend_kernel<<<1, THREADS, 0, stream>>>(found, round);
    }
    tile_kernel<<<tiles_n, THREADS, 0, stream>>>(work->from, n, found, tiles);
    before_kernel<<<1, THREADS, 0, stream>>>(tiles, tiles_n);
    take_kernel<<<tiles_n, THREADS, 0, stream>>>(*work, found, tiles);
    return cudaGetLastError();
}
