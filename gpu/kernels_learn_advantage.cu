/* Advantages: the recursions back in time, and what they are normalised by. */
#include "gpu/block_fold.cuh"
#include "gpu/kernels_learn.h"

namespace
{

constexpr int THREADS = 256;
constexpr int SCAN_THREADS =
    64; /* a block each for few environments, so that more of the GPU works */
constexpr unsigned PARTS_MAX = THREADS;

static_assert(GPU_STATISTICS_SCRATCH == 2 * PARTS_MAX * sizeof(double), "two rows of parts");

__global__ void __launch_bounds__(SCAN_THREADS)
    gae_kernel(advantage_input input, float gamma, float lambda, element_estimates to)
{
    const size_t n = input.environments;
    const size_t column = static_cast<size_t>(blockIdx.x) * SCAN_THREADS + threadIdx.x;
    float later = 0;
    if (column >= n)
        return;
    for (size_t t = input.steps; t-- > 0;) {
        const size_t i = t * n + column;
        const element_estimate e =
            element_gae(&input, i, gamma, lambda, t + 1 == input.steps ? nullptr : &later);
        to.advantages[i] = later = e.advantage;
        to.targets[i] = e.target;
    }
}

__global__ void __launch_bounds__(SCAN_THREADS)
    vtrace_kernel(advantage_input input, advantage_vtrace_settings settings,
                  const float *log_ratios, element_estimates to)
{
    const size_t n = input.environments;
    const size_t column = static_cast<size_t>(blockIdx.x) * SCAN_THREADS + threadIdx.x;
    float later = 0;
    if (column >= n)
        return;
    for (size_t t = input.steps; t-- > 0;) {
        const size_t i = t * n + column;
        const element_estimate e = element_vtrace(&input, i, &settings, log_ratios[i],
                                                  t + 1 == input.steps ? nullptr : &later);
        to.advantages[i] = e.advantage;
        to.targets[i] = later = e.target;
    }
}

__device__ double number_at(const gpu_statistics_work &work, uint64_t i)
{
    return static_cast<double>(work.minus == nullptr
                                   ? work.values[i]
                                   : element_value_error(work.values[i], work.minus[i]));
}

/* The sum of the parts that a first stage left, the same at all blocks. */
__device__ double fold_parts(double *shared, const double *parts, unsigned n)
{
    shared[threadIdx.x] = threadIdx.x < n ? parts[threadIdx.x] : 0.0;
    const double sum = block_fold<THREADS>(shared);
    __syncthreads();
    return sum;
}

__global__ void __launch_bounds__(THREADS) mean_kernel(gpu_statistics_work work, double *parts)
{
    __shared__ double shared[THREADS];
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * THREADS;
    double mean = 0;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x; i < work.n;
         i += stride)
        mean = element_mean_add(mean, number_at(work, i), static_cast<double>(work.n));
    shared[threadIdx.x] = mean;
    const double sum = block_fold<THREADS>(shared);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    m2_kernel(gpu_statistics_work work, const double *means, double *parts)
{
    __shared__ double shared[THREADS];
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * THREADS;
    const double mean = fold_parts(shared, means, gridDim.x);
    double m2 = 0;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x; i < work.n;
         i += stride)
        m2 = element_m2_add(m2, number_at(work, i), mean);
    shared[threadIdx.x] = m2;
    const double sum = block_fold<THREADS>(shared);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    statistics_kernel(gpu_statistics_work work, const double *means, const double *m2s, unsigned n)
{
    __shared__ double shared[THREADS];
    const double mean = fold_parts(shared, means, n), m2 = fold_parts(shared, m2s, n);
    if (threadIdx.x != 0)
        return;
    work.to->count = static_cast<double>(work.n);
    work.to->mean = mean;
    work.to->m2 = m2;
}

__global__ void centre_kernel(loss_settings settings, const statistics *batch, loss_centre *to)
{
    const statistics none = {0, 0, 0};
    *to = element_loss_centre(
        &settings,
        settings.advantages == LOSS_ADVANTAGES_BATCH && batch != nullptr ? *batch : none);
}

unsigned scan_blocks(const advantage_input *input)
{
    return static_cast<unsigned>((input->environments + SCAN_THREADS - 1) / SCAN_THREADS);
}

} // namespace

extern "C" int gpu_gae(gpu_stream stream, const struct advantage_input *input, float gamma,
                       float lambda, struct element_estimates to)
{
    if (input->steps == 0 || input->environments == 0)
        return 0;
    gae_kernel<<<scan_blocks(input), SCAN_THREADS, 0, stream>>>(*input, gamma, lambda, to);
    return cudaGetLastError();
}

extern "C" int gpu_vtrace(gpu_stream stream, const struct advantage_input *input,
                          const struct advantage_vtrace_settings *settings, const float *log_ratios,
                          struct element_estimates to)
{
    if (input->steps == 0 || input->environments == 0)
        return 0;
    vtrace_kernel<<<scan_blocks(input), SCAN_THREADS, 0, stream>>>(*input, *settings, log_ratios,
                                                                   to);
    return cudaGetLastError();
}

extern "C" int gpu_statistics(gpu_stream stream, const struct gpu_statistics_work *work)
{
    const uint64_t wanted = (work->n + THREADS - 1) / THREADS;
    const unsigned grid =
        static_cast<unsigned>(wanted < 1 ? 1 : (wanted < PARTS_MAX ? wanted : PARTS_MAX));
    double *means = static_cast<double *>(work->scratch), *m2s = means + PARTS_MAX;
    mean_kernel<<<grid, THREADS, 0, stream>>>(*work, means);
    m2_kernel<<<grid, THREADS, 0, stream>>>(*work, means, m2s);
    statistics_kernel<<<1, THREADS, 0, stream>>>(*work, means, m2s, grid);
    return cudaGetLastError();
}

extern "C" int gpu_loss_centre(gpu_stream stream, const struct loss_settings *settings,
                               const struct statistics *batch, struct loss_centre *to)
{
    centre_kernel<<<1, 1, 0, stream>>>(*settings, batch, to);
    return cudaGetLastError();
}
