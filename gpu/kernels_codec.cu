/* Gradients into wire bytes and back, and what is measured on the way. Sums keep the order of the
 * definition (arithmetic.h, measure): element i of a block goes to lane i mod 16 in double, then
 * the lanes are added in a binary tree; blocks of int8 are summed as integers and added one after
 * the other. Arrays are read four elements at a time where they are aligned to that. */
#include "common/element_gradient.h"
#include "gpu/codec_dispatch.cuh"
#include "gpu/codec_vectors.cuh"
#include "gpu/kernels.h"

namespace
{

constexpr int THREADS = CODEC_THREADS;
constexpr int WARP = 32;
constexpr int LANES = ARITHMETIC_LANES;
constexpr int STRIP = 4096; /* elements of a block that are in shared memory at a time */
constexpr int STRIP_BLOCKS = STRIP / ELEMENT_INT8_BLOCK;
constexpr int OWN = ELEMENT_INT8_BLOCK / WARP; /* elements of an int8 block that are a thread's */

/* What a block's measure needs while its elements pass by, a strip at a time. */
struct measuring {
    alignas(16) float strip[STRIP]; /* what was said, as floats; not of int8 */
    double lanes[LANES];
    int32_t squares[STRIP_BLOCKS]; /* of int8 */
    float scales[STRIP_BLOCKS];
    uint32_t largest;
};

/* Each lane adds its elements of the strip in their order; the lanes are the first 16 threads. Of
 * int8 there is one lane. */
template <int CODEC> __device__ void add_strip(measuring &shared, int n)
{
    __syncthreads();
    if (CODEC == ARITHMETIC_INT8 && threadIdx.x == 0) {
        double sum = shared.lanes[0];
        for (int block = 0; block * ELEMENT_INT8_BLOCK < n; block++)
            sum = element_int8_square_add(sum, shared.squares[block], shared.scales[block]);
        shared.lanes[0] = sum;
    } else if (CODEC != ARITHMETIC_INT8 && threadIdx.x < LANES) {
        double sum = shared.lanes[threadIdx.x];
        for (int i = static_cast<int>(threadIdx.x); i < n; i += LANES)
            sum = element_square_add(sum, shared.strip[i]);
        shared.lanes[threadIdx.x] = sum;
    }
    __syncthreads();
}

__device__ void begin_measure(measuring &shared)
{
    if (threadIdx.x < LANES)
        shared.lanes[threadIdx.x] = 0.0;
    if (threadIdx.x == 0)
        shared.largest = 0;
    __syncthreads();
}

__device__ void end_measure(measuring &shared, uint32_t largest, double *sums, uint32_t *largests)
{
    atomicMax(&shared.largest, largest); /* of integers: any order gives the same */
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            shared.lanes[j] = element_add_double(shared.lanes[j], shared.lanes[j + width]);
    sums[blockIdx.x] = shared.lanes[0];
    largests[blockIdx.x] = shared.largest;
}

/* WIDTH elements into the strip. */
template <int WIDTH> __device__ uint32_t keep(float *strip, const float x[WIDTH], uint32_t largest)
{
    if constexpr (WIDTH == 4)
        *reinterpret_cast<float4 *>(strip) = make_float4(x[0], x[1], x[2], x[3]);
    else
        *strip = x[0];
    for (int j = 0; j < WIDTH; j++)
        largest = element_larger_magnitude(largest, x[j]);
    return largest;
}

/* What is encoded: floats times a factor, or with what is owed of them. */
struct source {
    const float *from; /* NULL: what is there already is read */
    float factor;
    float *rest; /* NULL: nothing is owed */
};

/* WIDTH floats of it, and what was owed before. */
template <int WIDTH, bool REST>
__device__ void read_source(const source &source, uint64_t at, float x[WIDTH], float owed[WIDTH])
{
    codec_read<ARITHMETIC_F32, WIDTH>(source.from, at, x);
    if constexpr (REST)
        codec_read<ARITHMETIC_F32, WIDTH>(source.rest, at, owed);
    for (int j = 0; j < WIDTH; j++)
        x[j] = REST ? element_owing(x[j], owed[j]) : element_scaled(x[j], source.factor);
}

template <int WIDTH>
__device__ void write_owed(const source &source, uint64_t at, const float sum[WIDTH],
                           const float said[WIDTH], float owed[WIDTH])
{
    for (int j = 0; j < WIDTH; j++)
        owed[j] = element_owed(sum[j], said[j], owed[j]);
    codec_write<ARITHMETIC_F32, WIDTH>(source.rest, at, owed);
}

/* A strip of floats or halves; returns this thread's largest magnitude. */
template <int CODEC, int WIDTH, bool REST>
__device__ uint32_t pass_strip(measuring &shared, const source &source, void *to, uint64_t at,
                               int n)
{
    uint32_t largest = 0;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x) * WIDTH; i < n; i += THREADS * WIDTH) {
        float x[WIDTH], sum[WIDTH], owed[WIDTH];
        if (source.from == nullptr) {
            codec_read<CODEC, WIDTH>(to, at + i, x);
        } else {
            read_source<WIDTH, REST>(source, at + i, x, owed);
            for (int j = 0; j < WIDTH; j++)
                sum[j] = x[j];
            codec_write<CODEC, WIDTH>(to, at + i, x);
            if constexpr (REST)
                write_owed<WIDTH>(source, at + i, sum, x, owed);
        }
        largest = keep<WIDTH>(&shared.strip[i], x, largest);
    }
    return largest;
}

/* This thread's elements of an int8 block, of which there are n: element of j is WIDTH in a row. */
template <int WIDTH> __device__ int element_of(int j)
{
    return static_cast<int>(threadIdx.x) % WARP * WIDTH + j / WIDTH * WARP * WIDTH + j % WIDTH;
}

template <int WIDTH> __device__ void read_bytes(const unsigned char *from, int n, int8_t q[OWN])
{
#pragma unroll
    for (int j = 0; j < OWN; j += WIDTH) {
        const int i = element_of<WIDTH>(j);
        if constexpr (WIDTH == 4) {
            const char4 four =
                i < n ? *reinterpret_cast<const char4 *>(from + i) : make_char4(0, 0, 0, 0);
            q[j] = four.x, q[j + 1] = four.y, q[j + 2] = four.z, q[j + 3] = four.w;
        } else {
            q[j] = i < n ? static_cast<int8_t>(from[i]) : 0;
        }
    }
}

/* A block from floats into bytes: its largest magnitude, its scale, its bytes, what they leave out.
 */
template <int WIDTH, bool REST>
__device__ float send_block(const source &source, uint64_t at, int n, unsigned char *to,
                            int8_t q[OWN])
{
    float x[OWN], owed[REST ? OWN : WIDTH];
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < OWN; j += WIDTH) {
        const int i = element_of<WIDTH>(j);
        for (int k = 0; k < WIDTH; k++)
            x[j + k] = 0;
        if (i < n)
            read_source<WIDTH, REST>(source, at + i, &x[j], REST ? &owed[j] : owed);
        for (int k = 0; k < WIDTH; k++)
            largest = element_larger_magnitude(largest, x[j + k]);
    }
    largest = __reduce_max_sync(0xffffffffu, largest);
    const float scale = element_int8_scale(largest), inverse = element_int8_inverse(scale);
    if (threadIdx.x % WARP == 0)
        memcpy(to, &scale, sizeof scale);
#pragma unroll
    for (int j = 0; j < OWN; j += WIDTH) {
        unsigned char *place = to + sizeof scale + element_of<WIDTH>(j);
        for (int k = 0; k < WIDTH; k++)
            q[j + k] = element_int8_sent(x[j + k], scale, inverse);
        if (element_of<WIDTH>(j) >= n)
            continue;
        if constexpr (REST) {
            float said[WIDTH];
            for (int k = 0; k < WIDTH; k++)
                said[k] = element_from_int8(q[j + k], scale);
            write_owed<WIDTH>(source, at + element_of<WIDTH>(j), &x[j], said, &owed[j]);
        }
        if constexpr (WIDTH == 4)
            *reinterpret_cast<char4 *>(place) = make_char4(q[j], q[j + 1], q[j + 2], q[j + 3]);
        else
            *place = static_cast<unsigned char>(q[j]);
    }
    return scale;
}

/* A strip of int8, one warp for each block of 256. Where a block ends early its other elements are
 * zeros, which change neither sum nor largest. */
template <int WIDTH, bool REST>
__device__ uint32_t pass_strip_int8(measuring &shared, const source &source, unsigned char *to,
                                    uint64_t at, int n)
{
    uint32_t largest = 0;
    for (int block = static_cast<int>(threadIdx.x) / WARP; block * ELEMENT_INT8_BLOCK < n;
         block += THREADS / WARP) {
        const int first = block * ELEMENT_INT8_BLOCK;
        const int some = n - first < ELEMENT_INT8_BLOCK ? n - first : ELEMENT_INT8_BLOCK;
        unsigned char *place =
            to + (at + first) / ELEMENT_INT8_BLOCK * (sizeof(float) + ELEMENT_INT8_BLOCK);
        int8_t q[OWN];
        float scale;
        if (source.from != nullptr) {
            scale = send_block<WIDTH, REST>(source, at + first, some, place, q);
        } else {
            memcpy(&scale, place, sizeof scale);
            read_bytes<WIDTH>(place + sizeof scale, some, q);
        }
        int squares = 0;
        unsigned most = 0;
        for (int j = 0; j < OWN; j++) {
            squares += q[j] * q[j];
            most = max(most, static_cast<unsigned>(abs(q[j])));
        }
        squares = __reduce_add_sync(0xffffffffu, squares);
        most = __reduce_max_sync(0xffffffffu, most);
        shared.squares[block] = squares;
        shared.scales[block] = scale;
        largest = max(largest, element_int8_magnitude(static_cast<int32_t>(most), scale));
    }
    return largest;
}

template <int CODEC, bool REST>
__device__ uint32_t pass(measuring &shared, const source &source, void *to, uint64_t at, int n,
                         bool wide)
{
    unsigned char *bytes = static_cast<unsigned char *>(to);
    if constexpr (CODEC == ARITHMETIC_INT8)
        return wide && n % 4 == 0 ? pass_strip_int8<4, REST>(shared, source, bytes, at, n)
                                  : pass_strip_int8<1, REST>(shared, source, bytes, at, n);
    return wide && n % 4 == 0 ? pass_strip<CODEC, 4, REST>(shared, source, to, at, n)
                              : pass_strip<CODEC, 1, REST>(shared, source, to, at, n);
}

/* What elements are multiplied by: known to the caller, or computed on the GPU (gpu_clip_factor).
 */
struct factor {
    float given;
    const float *computed;
};

/* One kernel's work; wide: all arrays are aligned to four elements. */
struct task {
    const float *from;
    float *rest;
    void *to;
    uint64_t n;
    bool wide;
    double *sums;
    uint32_t *largests;
};

/* One thread block for each block of the model. */
template <int CODEC, bool REST> __device__ void pass_block(const task &task, const source &source)
{
    __shared__ measuring shared;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * ARITHMETIC_BLOCK;
    const uint64_t end = first + ARITHMETIC_BLOCK < task.n ? first + ARITHMETIC_BLOCK : task.n;
    uint32_t largest = 0;
    begin_measure(shared);
    for (uint64_t at = first; at < end; at += STRIP) {
        const int some = static_cast<int>(end - at < STRIP ? end - at : STRIP);
        largest = max(largest, pass<CODEC, REST>(shared, source, task.to, at, some, task.wide));
        add_strip<CODEC>(shared, some);
    }
    end_measure(shared, largest, task.sums, task.largests);
}

template <int CODEC>
__global__ void __launch_bounds__(THREADS) measure_kernel(const __grid_constant__ task task)
{
    pass_block<CODEC, false>(task, {nullptr, 1.0f, nullptr});
}

template <int CODEC, bool REST>
__global__ void __launch_bounds__(THREADS)
    encode_kernel(const __grid_constant__ task task, factor factor)
{
    const float times = factor.computed != nullptr ? *factor.computed : factor.given;
    pass_block<CODEC, REST>(task, {task.from, times, task.rest});
}

/* Groups of WIDTH; what is left at the end one by one. */
template <int CODEC, int WIDTH>
__global__ void __launch_bounds__(THREADS) decode_kernel(const void *data, uint64_t n, float *to)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * THREADS * WIDTH;
    const uint64_t first = (static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
    for (uint64_t i = first; i < n; i += stride) {
        float x[WIDTH];
        if (i + WIDTH <= n) {
            codec_read<CODEC, WIDTH>(data, i, x);
            codec_write<ARITHMETIC_F32, WIDTH>(to, i, x);
            continue;
        }
        for (uint64_t k = i; k < n; k++)
            to[k] = element_decode(static_cast<arithmetic_codec>(CODEC), data, k);
    }
}

unsigned blocks_of(uint64_t n)
{
    return static_cast<unsigned>((n + ARITHMETIC_BLOCK - 1) / ARITHMETIC_BLOCK);
}

int encode(gpu_stream stream, arithmetic_codec codec, const task &task, factor factor)
{
    if (task.n == 0)
        return 0;
    codec_dispatch(codec, [&](auto constant) {
        if (task.rest != nullptr)
            encode_kernel<constant, true><<<blocks_of(task.n), THREADS, 0, stream>>>(task, factor);
        else
            encode_kernel<constant, false><<<blocks_of(task.n), THREADS, 0, stream>>>(task, factor);
    });
    return cudaGetLastError();
}

} // namespace

extern "C" int gpu_measure(gpu_stream stream, enum arithmetic_codec codec, const void *data,
                           uint64_t n, double *sums, uint32_t *largest)
{
    const task task = {
        nullptr, nullptr, const_cast<void *>(data), n, codec_wide(codec, nullptr, data),
        sums,    largest};
    if (n == 0)
        return 0;
    codec_dispatch(codec, [&](auto constant) {
        measure_kernel<constant><<<blocks_of(n), THREADS, 0, stream>>>(task);
    });
    return cudaGetLastError();
}

extern "C" int gpu_decode(gpu_stream stream, enum arithmetic_codec codec, const void *data,
                          uint64_t n, float *to)
{
    const bool wide = codec_wide(codec, to, data);
    const unsigned grid = codec_grid(n, wide);
    if (n == 0)
        return 0;
    codec_dispatch(codec, [&](auto constant) {
        if (wide)
            decode_kernel<constant, 4><<<grid, THREADS, 0, stream>>>(data, n, to);
        else
            decode_kernel<constant, 1><<<grid, THREADS, 0, stream>>>(data, n, to);
    });
    return cudaGetLastError();
}

extern "C" int gpu_encode(gpu_stream stream, enum arithmetic_codec codec, const float *from,
                          uint64_t n, float scale, void *to, double *sums, uint32_t *largest)
{
    return encode(stream, codec, {from, nullptr, to, n, codec_wide(codec, from, to), sums, largest},
                  {scale, nullptr});
}

extern "C" int gpu_encode_rest(gpu_stream stream, enum arithmetic_codec codec, const float *from,
                               uint64_t n, float *rest, void *to, double *sums, uint32_t *largest)
{
    const bool wide = codec_wide(codec, from, to) && reinterpret_cast<uintptr_t>(rest) % 16 == 0;
    return encode(stream, codec, {from, rest, to, n, wide, sums, largest}, {1.0f, nullptr});
}

extern "C" int gpu_encode_clipped(gpu_stream stream, enum arithmetic_codec codec, const float *from,
                                  uint64_t n, const float *factor, void *to, double *sums,
                                  uint32_t *largest)
{
    return encode(stream, codec, {from, nullptr, to, n, codec_wide(codec, from, to), sums, largest},
                  {1.0f, factor});
}

extern "C" const void *gpu_any_kernel(void)
{
    return reinterpret_cast<const void *>(&decode_kernel<ARITHMETIC_F32, 1>);
}
