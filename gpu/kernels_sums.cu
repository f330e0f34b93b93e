/* Sums of squares by pieces of any length, in the order of arithmetic.measure: element i of a piece
 * goes to lane i mod 16 in double, then the lanes are added in a binary tree. The blocks of an
 * average, and for LAMB the parameters and updates of each tensor within a block. */
#include "common/element_gradient.h"
#include "common/element_step.h"
#include "gpu/kernels_sums.h"

namespace
{

constexpr int THREADS = 256;
constexpr int WARP = 32;
constexpr int LANES = ARITHMETIC_LANES;
constexpr int STRIP = 2048; /* elements of a piece that are in shared memory at a time */

/* One or two series over the same piece at once; the lanes of each are threads of one warp. */
template <int SERIES> struct summing {
    float strip[SERIES][STRIP];
    double lanes[SERIES][LANES];
};

template <int SERIES> __device__ void begin_sums(summing<SERIES> &shared)
{
    if (threadIdx.x < SERIES * LANES)
        shared.lanes[threadIdx.x / LANES][threadIdx.x % LANES] = 0.0;
}

/* Each lane adds its elements of the strip in their order. */
template <int SERIES> __device__ void add_strip(summing<SERIES> &shared, int n)
{
    const int series = static_cast<int>(threadIdx.x) / WARP;
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    __syncthreads();
    if (series < SERIES && lane < LANES) {
        double sum = shared.lanes[series][lane];
        for (int i = lane; i < n; i += LANES)
            sum = element_square_add(sum, shared.strip[series][i]);
        shared.lanes[series][lane] = sum;
    }
    __syncthreads();
}

template <int SERIES> __device__ double end_sum(summing<SERIES> &shared, int series)
{
    double *lanes = shared.lanes[series];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lanes[j] = element_add_double(lanes[j], lanes[j + width]);
    return lanes[0];
}

/* One thread block for each block of n elements. */
__global__ void __launch_bounds__(THREADS)
    block_sums_kernel(const float *x, uint64_t n, uint64_t block, double *sums)
{
    __shared__ summing<1> shared;
    const uint64_t begin = blockIdx.x * block, end = begin + block < n ? begin + block : n;
    begin_sums(shared);
    for (uint64_t at = begin; at < end; at += STRIP) {
        const int some = static_cast<int>(end - at < STRIP ? end - at : STRIP);
        for (int i = static_cast<int>(threadIdx.x); i < some; i += THREADS)
            shared.strip[0][i] = x[at + i];
        add_strip(shared, some);
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = end_sum(shared, 0);
}

/* What LAMB's sums need of plan and work, in constant memory. */
struct lamb_task {
    element_law law;
    arithmetic_group groups[ARITHMETIC_GROUPS_MAX];
    const float *parameters, *m, *v;
    const arithmetic_range *pieces;
    double *theta_sums, *update_sums;
};

/* One thread block for each piece. */
__global__ void __launch_bounds__(THREADS) lamb_sums_kernel(const __grid_constant__ lamb_task task)
{
    __shared__ summing<2> shared;
    const arithmetic_range piece = task.pieces[blockIdx.x];
    const arithmetic_group &group = task.groups[piece.group];
    begin_sums(shared);
    for (uint64_t at = piece.begin; at < piece.end; at += STRIP) {
        const int some = static_cast<int>(piece.end - at < STRIP ? piece.end - at : STRIP);
        for (int i = static_cast<int>(threadIdx.x); i < some; i += THREADS) {
            const element_item item = {task.parameters[at + i],
                                       {task.m[at + i], task.v[at + i], 0}};
            shared.strip[0][i] = item.theta;
            shared.strip[1][i] = element_lamb_update(&task.law, &group, &item);
        }
        add_strip(shared, some);
    }
    if (threadIdx.x == 0)
        task.theta_sums[blockIdx.x] = end_sum(shared, 0);
    if (threadIdx.x == WARP)
        task.update_sums[blockIdx.x] = end_sum(shared, 1);
}

} // namespace

extern "C" int gpu_block_sums(gpu_stream stream, const float *x, uint64_t n, uint64_t block,
                              double *sums)
{
    if (n == 0)
        return 0;
    const unsigned blocks = static_cast<unsigned>((n + block - 1) / block);
    block_sums_kernel<<<blocks, THREADS, 0, stream>>>(x, n, block, sums);
    return cudaGetLastError();
}

extern "C" int gpu_lamb_sums(gpu_stream stream, const struct arithmetic_plan *plan,
                             const struct arithmetic_work *work, const struct gpu_pieces *pieces)
{
    lamb_task task = {element_law_of(plan), {},
                      work->parameters,     work->state_next[0],
                      work->state_next[1],  pieces->pieces,
                      pieces->theta_sums,   pieces->update_sums};
    if (pieces->n == 0)
        return 0;
    memcpy(task.groups, plan->groups, sizeof task.groups);
    lamb_sums_kernel<<<pieces->n, THREADS, 0, stream>>>(task);
    return cudaGetLastError();
}
