/* See kernels_engine.h: copies of what the CPU's engine copies, loops around element_policy.h, and
 * sums over rows in three stages: a thread adds every eighth row of its part, eight threads are
 * added in a binary tree, and the parts in order. */
#include "common/element_policy.h"
#include "gpu/kernels_engine.h"

namespace
{

constexpr int THREADS = 256;
constexpr int COLUMNS = 32;    /* of a block of the sums */
constexpr int LANES = 8;       /* its rows at a time */
constexpr uint64_t PART = 512; /* rows of a part */

unsigned grid_of(uint64_t n)
{
    const uint64_t blocks = (n + THREADS - 1) / THREADS;
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks < 65535 ? blocks : 65535);
}

__device__ uint64_t first_of()
{
    return static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x;
}

__device__ uint64_t stride_of()
{
    return static_cast<uint64_t>(gridDim.x) * THREADS;
}

__global__ void __launch_bounds__(THREADS)
    gather_kernel(const __grid_constant__ gpu_gather_work work)
{
    for (uint64_t i = first_of(); i < work.n; i += stride_of()) {
        const uint64_t from = work.order[i];
        for (uint64_t j = 0; j < work.observation_dim; j++)
            work.to_observations[i * work.observation_dim + j] =
                work.observations[from * work.observation_dim + j];
        for (uint64_t j = 0; j < work.action_width; j++)
            work.to_actions[i * work.action_width + j] = work.actions[from * work.action_width + j];
        for (int c = 0; c < GPU_COLUMNS; c++)
            if (work.columns[c] != nullptr)
                work.to_columns[c][i] = work.columns[c][from];
    }
}

__global__ void __launch_bounds__(THREADS)
    look_back_kernel(const __grid_constant__ gpu_look_back_work work)
{
    const policy policy = work.policy;
    const uint64_t width = policy.gaussian ? policy.action_dim : 1;
    for (uint64_t i = first_of(); i < work.n; i += stride_of()) {
        float entropy = 0;
        const float now = element_policy_log(&policy, work.head + i * policy.action_dim,
                                             work.actions + i * width, &entropy);
        work.log_now[i] = now;
        work.log_ratios[i] = element_log_ratio(now, work.log_then[i]);
    }
}

__global__ void __launch_bounds__(THREADS) link_kernel(const __grid_constant__ gpu_link_work work)
{
    const uint64_t n = work.steps * work.environments;
    for (uint64_t i = first_of(); i < n; i += stride_of())
        if (!work.terminated[i] && !work.truncated[i])
            work.next_values[i] = work.values[i + work.environments];
        else if (work.terminated[i])
            work.next_values[i] = 0;
}

__global__ void __launch_bounds__(THREADS)
    bias_kernel(uint64_t n, uint64_t cols, const float *bias, float *y)
{
    for (uint64_t i = first_of(); i < n; i += stride_of())
        y[i] = element_add(y[i], bias[i % cols]);
}

__global__ void __launch_bounds__(COLUMNS *LANES)
    parts_kernel(const __grid_constant__ gpu_columns_work work)
{
    __shared__ float lanes[LANES][COLUMNS];
    const uint64_t column = static_cast<uint64_t>(blockIdx.x) * COLUMNS + threadIdx.x;
    const uint64_t first = static_cast<uint64_t>(blockIdx.y) * PART;
    const uint64_t end = first + PART < work.rows ? first + PART : work.rows;
    float sum = 0;
    for (uint64_t row = first + threadIdx.y; row < end && column < work.cols; row += LANES)
        sum = element_add(sum, work.d[row * work.cols + column]);
    lanes[threadIdx.y][threadIdx.x] = sum;
    for (unsigned width = LANES / 2; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.y < width)
            lanes[threadIdx.y][threadIdx.x] = element_add(lanes[threadIdx.y][threadIdx.x],
                                                          lanes[threadIdx.y + width][threadIdx.x]);
    }
    if (threadIdx.y == 0 && column < work.cols)
        static_cast<float *>(work.scratch)[blockIdx.y * work.cols + column] = lanes[0][threadIdx.x];
}

__global__ void __launch_bounds__(THREADS)
    add_parts_kernel(const __grid_constant__ gpu_columns_work work, uint64_t parts)
{
    const float *partial = static_cast<const float *>(work.scratch);
    for (uint64_t column = first_of(); column < work.cols; column += stride_of()) {
        float sum = 0;
        for (uint64_t p = 0; p < parts; p++)
            sum = element_add(sum, partial[p * work.cols + column]);
        work.sums[column] = sum;
    }
}

uint64_t parts_of(uint64_t rows)
{
    return (rows + PART - 1) / PART;
}

} // namespace

extern "C" int gpu_gather(gpu_stream stream, const struct gpu_gather_work *work)
{
    gather_kernel<<<grid_of(work->n), THREADS, 0, stream>>>(*work);
    return cudaGetLastError();
}

extern "C" int gpu_look_back(gpu_stream stream, const struct gpu_look_back_work *work)
{
    look_back_kernel<<<grid_of(work->n), THREADS, 0, stream>>>(*work);
    return cudaGetLastError();
}

extern "C" int gpu_link_values(gpu_stream stream, const struct gpu_link_work *work)
{
    link_kernel<<<grid_of(work->steps * work->environments), THREADS, 0, stream>>>(*work);
    return cudaGetLastError();
}

extern "C" int gpu_add_bias(gpu_stream stream, uint64_t rows, uint64_t cols, const float *bias,
                            float *y)
{
    bias_kernel<<<grid_of(rows * cols), THREADS, 0, stream>>>(rows * cols, cols, bias, y);
    return cudaGetLastError();
}

extern "C" uint64_t gpu_columns_scratch(uint64_t rows, uint64_t cols)
{
    return parts_of(rows) * cols * sizeof(float);
}

extern "C" int gpu_column_sums(gpu_stream stream, const struct gpu_columns_work *work)
{
    const uint64_t parts = parts_of(work->rows);
    const dim3 grid(static_cast<unsigned>((work->cols + COLUMNS - 1) / COLUMNS),
                    static_cast<unsigned>(parts));
    if (parts > 65535)
        return cudaErrorInvalidValue;
    if (parts > 0)
        parts_kernel<<<grid, dim3(COLUMNS, LANES), 0, stream>>>(*work);
    add_parts_kernel<<<grid_of(work->cols), THREADS, 0, stream>>>(*work, parts);
    return cudaGetLastError();
}

extern "C" const void *gpu_engine_kernel(void)
{
    return reinterpret_cast<const void *>(gather_kernel);
}
