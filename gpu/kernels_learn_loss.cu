/* The PPO loss with its derivatives: one thread for each sample, sums over the samples in two
 * stages. */
#include "gpu/block_fold.cuh"
#include "gpu/kernels_learn.h"

namespace
{

constexpr int THREADS = 128;

/* What the first stage leaves for the second: a row for each block. */
struct parts {
    loss_sums *sums; /* [blocks] */
    double *log_std; /* [action_dim, blocks], only if gaussian */
};

/* The samples' terms of d_log_std, one dimension after the other. */
__device__ void fold_log_std(const loss_settings &settings, const gpu_loss_work &work, uint64_t i,
                             const policy_slope &slope, double *to)
{
    __shared__ double shared[THREADS];
    for (size_t j = 0; j < settings.action_dim; j++) {
        shared[threadIdx.x] =
            i < work.batch.n
                ? static_cast<double>(element_log_std_slope(&settings, &work.batch, i, j, &slope))
                : 0.0;
        const double sum = block_fold<THREADS>(shared);
        if (threadIdx.x == 0)
            to[j * gridDim.x + blockIdx.x] = sum;
        __syncthreads();
    }
}

template <bool GAUSSIAN>
__global__ void __launch_bounds__(THREADS)
    loss_kernel(const __grid_constant__ loss_settings given,
                const __grid_constant__ gpu_loss_work work, parts parts)
{
    __shared__ loss_sums shared[THREADS];
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x;
    loss_settings settings = given;
    loss_sums sums = {0, 0, 0, 0, 0, 0, 0};
    policy_slope slope = {0, 0, 0};
    settings.gaussian = GAUSSIAN;
    if (i < work.batch.n) {
        work.arrays.advantage[i] = element_advantage_used(work.batch.advantages[i],
                                                          work.centre->mean, work.centre->divisor);
        slope = element_loss_sample(&settings, &work.batch, i, &work.arrays, &sums);
    }
    shared[threadIdx.x] = sums;
    const loss_sums all = block_fold<THREADS>(shared);
    if (threadIdx.x == 0)
        parts.sums[blockIdx.x] = all;
    if (GAUSSIAN)
        fold_log_std(settings, work, i, slope, parts.log_std);
}

/* Rows [n] of the first stage: each thread adds those of its number, then the tree. */
template <typename T> __device__ T fold_rows(T *shared, const T *rows, unsigned n, T zero)
{
    T sum = zero;
    for (unsigned b = threadIdx.x; b < n; b += THREADS)
        sum = joined(sum, rows[b]);
    shared[threadIdx.x] = sum;
    sum = block_fold<THREADS>(shared);
    __syncthreads();
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    sums_kernel(const __grid_constant__ loss_settings settings,
                const __grid_constant__ gpu_loss_work work, parts parts, unsigned n)
{
    __shared__ loss_sums shared[THREADS];
    __shared__ double shared_double[THREADS];
    const loss_sums zero = {0, 0, 0, 0, 0, 0, 0};
    const loss_sums sums = fold_rows(shared, parts.sums, n, zero);
    if (threadIdx.x == 0)
        *work.sums = sums;
    for (size_t j = 0; settings.gaussian && j < settings.action_dim; j++) {
        const double sum =
            fold_rows(shared_double, static_cast<const double *>(parts.log_std + j * n), n, 0.0);
        if (threadIdx.x == 0)
            work.arrays.d_log_std[j] = static_cast<float>(sum);
    }
}

uint64_t blocks_of(uint64_t n)
{
    return n == 0 ? 1 : (n + THREADS - 1) / THREADS;
}

} // namespace

extern "C" uint64_t gpu_loss_scratch(const struct loss_settings *settings, uint64_t n)
{
    const uint64_t log_std = settings->gaussian ? settings->action_dim * sizeof(double) : 0;
    return blocks_of(n) * (sizeof(loss_sums) + log_std);
}

extern "C" int gpu_loss(gpu_stream stream, const struct loss_settings *settings,
                        const struct gpu_loss_work *work)
{
    const unsigned grid = static_cast<unsigned>(blocks_of(work->batch.n));
    parts parts = {static_cast<loss_sums *>(work->scratch), nullptr};
    parts.log_std = reinterpret_cast<double *>(parts.sums + grid);
    if (settings->gaussian)
        loss_kernel<true><<<grid, THREADS, 0, stream>>>(*settings, *work, parts);
    else
        loss_kernel<false><<<grid, THREADS, 0, stream>>>(*settings, *work, parts);
    sums_kernel<<<1, THREADS, 0, stream>>>(*settings, *work, parts, grid);
    return cudaGetLastError();
}
