/* Between the matrix products: bias and tanh, and tanh's derivative with the gradient of the bias.
 * A block takes a strip of 64 columns, WIDTH of them by one load where rows are aligned to it. */
#include "common/element_network.h"
#include "gpu/kernels_learn.h"

namespace
{

constexpr int THREADS = 256;
constexpr int COLUMNS = 64;
constexpr int EACH = 4;            /* rows that a thread has under way */
constexpr int BACKWARD_ROWS = 256; /* rows of a block */
constexpr unsigned GRID_ROWS_MAX = 65535;

template <int WIDTH> __device__ void load(const float *from, float to[WIDTH])
{
    if (WIDTH == 4) {
        const float4 four = *reinterpret_cast<const float4 *>(from);
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else {
        to[0] = *from;
    }
}

template <int WIDTH> __device__ void store(float *to, const float from[WIDTH])
{
    if (WIDTH == 4)
        __stcg(reinterpret_cast<float4 *>(to), make_float4(from[0], from[1], from[2], from[3]));
    else
        *to = from[0];
}

template <int WIDTH>
__global__ void __launch_bounds__(THREADS)
    bias_tanh_kernel(uint64_t rows, uint64_t cols, const float *bias, float *y)
{
    constexpr int ACROSS = COLUMNS / WIDTH, DOWN = THREADS / ACROSS;
    const uint64_t column =
        static_cast<uint64_t>(blockIdx.x) * COLUMNS + threadIdx.x % ACROSS * WIDTH;
    const uint64_t stride = static_cast<uint64_t>(gridDim.y) * DOWN * EACH;
    float b[WIDTH], x[EACH][WIDTH];
    if (column >= cols)
        return;
    load<WIDTH>(bias + column, b);
    for (uint64_t first = static_cast<uint64_t>(blockIdx.y) * DOWN * EACH + threadIdx.x / ACROSS;
         first < rows; first += stride) {
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (first + k * DOWN < rows)
                load<WIDTH>(y + (first + k * DOWN) * cols + column, x[k]);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (first + k * DOWN >= rows)
                break;
            for (int j = 0; j < WIDTH; j++)
                x[k][j] = element_bias_tanh(x[k][j], b[j]);
            store<WIDTH>(y + (first + k * DOWN) * cols + column, x[k]);
        }
    }
}

/* Column sums of a block's rows: each thread's in the order of its rows, then a tree. */
template <int WIDTH>
__device__ void fold_columns(const float sum[WIDTH], uint64_t cols, uint64_t column, float *to)
{
    constexpr int ACROSS = COLUMNS / WIDTH, DOWN = THREADS / ACROSS;
    __shared__ float shared[DOWN][COLUMNS];
    const int down = static_cast<int>(threadIdx.x) / ACROSS;
    const int across = static_cast<int>(threadIdx.x) % ACROSS * WIDTH;
    for (int j = 0; j < WIDTH; j++)
        shared[down][across + j] = sum[j];
    for (int width = DOWN / 2; width > 0; width /= 2) {
        __syncthreads();
        for (int j = 0; j < WIDTH && down < width; j++)
            shared[down][across + j] =
                element_add(shared[down][across + j], shared[down + width][across + j]);
    }
    if (down == 0 && column < cols)
        store<WIDTH>(to + static_cast<uint64_t>(blockIdx.y) * cols + column, &shared[0][across]);
}

template <int WIDTH>
__global__ void __launch_bounds__(THREADS)
    tanh_backward_kernel(const __grid_constant__ gpu_tanh_work work, float *parts)
{
    constexpr int ACROSS = COLUMNS / WIDTH, DOWN = THREADS / ACROSS;
    const uint64_t column =
        static_cast<uint64_t>(blockIdx.x) * COLUMNS + threadIdx.x % ACROSS * WIDTH;
    const uint64_t begin = static_cast<uint64_t>(blockIdx.y) * BACKWARD_ROWS;
    const uint64_t end = begin + BACKWARD_ROWS < work.rows ? begin + BACKWARD_ROWS : work.rows;
    float sum[WIDTH], h[WIDTH], d[WIDTH];
    for (int j = 0; j < WIDTH; j++)
        sum[j] = 0;
    for (uint64_t row = begin + threadIdx.x / ACROSS; row < end && column < work.cols;
         row += DOWN) {
        load<WIDTH>(work.h + row * work.cols + column, h);
        load<WIDTH>(work.d + row * work.cols + column, d);
        for (int j = 0; j < WIDTH; j++) {
            d[j] = element_tanh_backward(d[j], h[j]);
            sum[j] = element_add(sum[j], d[j]);
        }
        store<WIDTH>(work.d + row * work.cols + column, d);
    }
    fold_columns<WIDTH>(sum, work.cols, column, parts);
}

__global__ void __launch_bounds__(THREADS)
    columns_kernel(uint64_t parts_n, uint64_t cols, const float *parts, float *sums)
{
    const uint64_t column = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x;
    float sum = 0;
    if (column >= cols)
        return;
    for (uint64_t p = 0; p < parts_n; p++)
        sum = element_add(sum, parts[p * cols + column]);
    sums[column] = sum;
}

bool aligned(const void *a, const void *b, uint64_t cols)
{
    return cols % 4 == 0 &&
           (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % sizeof(float4) == 0;
}

unsigned strips_of(uint64_t cols)
{
    return static_cast<unsigned>((cols + COLUMNS - 1) / COLUMNS);
}

} // namespace

extern "C" int gpu_bias_tanh(gpu_stream stream, uint64_t rows, uint64_t cols, const float *bias,
                             float *y)
{
    const bool wide = aligned(bias, y, cols);
    const uint64_t each = static_cast<uint64_t>(THREADS / (COLUMNS / (wide ? 4 : 1))) * EACH;
    const uint64_t wanted = (rows + each - 1) / each;
    const dim3 grid(strips_of(cols),
                    static_cast<unsigned>(wanted < GRID_ROWS_MAX ? wanted : GRID_ROWS_MAX));
    if (rows == 0 || cols == 0)
        return 0;
    if (wide)
        bias_tanh_kernel<4><<<grid, THREADS, 0, stream>>>(rows, cols, bias, y);
    else
        bias_tanh_kernel<1><<<grid, THREADS, 0, stream>>>(rows, cols, bias, y);
    return cudaGetLastError();
}

extern "C" uint64_t gpu_tanh_scratch(uint64_t rows, uint64_t cols)
{
    return (rows + BACKWARD_ROWS - 1) / BACKWARD_ROWS * cols * sizeof(float);
}

extern "C" int gpu_tanh_backward(gpu_stream stream, const struct gpu_tanh_work *work)
{
    const uint64_t parts_n = (work->rows + BACKWARD_ROWS - 1) / BACKWARD_ROWS;
    const dim3 grid(strips_of(work->cols), static_cast<unsigned>(parts_n));
    float *parts = static_cast<float *>(work->scratch);
    if (parts_n > GRID_ROWS_MAX)
        return cudaErrorInvalidValue;
    if (work->cols == 0)
        return 0;
    if (parts_n > 0 && aligned(work->h, work->d, work->cols) && aligned(parts, parts, work->cols))
        tanh_backward_kernel<4><<<grid, THREADS, 0, stream>>>(*work, parts);
    else if (parts_n > 0)
        tanh_backward_kernel<1><<<grid, THREADS, 0, stream>>>(*work, parts);
    columns_kernel<<<static_cast<unsigned>((work->cols + THREADS - 1) / THREADS), THREADS, 0,
                     stream>>>(parts_n, work->cols, parts, work->sums);
    return cudaGetLastError();
}
