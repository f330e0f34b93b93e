/* Gradients into wire bytes and back, and what is measured on the way. Sums keep the order of the
 * definition (arithmetic.h, measure): element i of a block goes to lane i mod 16 in double, then
 * the lanes are added in a binary tree. */
#include "common/element_step.h"
#include "gpu/kernels.h"

namespace
{

constexpr int THREADS = 256;
constexpr int LANES = 16;
constexpr int STRIP = 4096; /* elements of a block that are in shared memory at a time */

/* What a block's measure needs while its elements pass by, a strip at a time. */
struct measuring {
    float strip[STRIP];
    double lanes[LANES];
    uint32_t largest;
};

/* Each lane adds its elements of the strip in their order; the lanes are the first 16 threads. */
__device__ void add_strip(measuring &shared, int n)
{
    __syncthreads();
    if (threadIdx.x < LANES) {
        double sum = shared.lanes[threadIdx.x];
        for (int i = static_cast<int>(threadIdx.x); i < n; i += LANES) {
            const double value = static_cast<double>(shared.strip[i]);
            sum += value * value;
        }
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
            shared.lanes[j] += shared.lanes[j + width];
    sums[blockIdx.x] = shared.lanes[0];
    largests[blockIdx.x] = shared.largest;
}

__device__ uint32_t larger(uint32_t largest, float x)
{
    const uint32_t size = element_bits(x) & 0x7fffffffu;
    return size > largest ? size : largest;
}

/* One thread block for each block of the model. */
template <int CODEC>
__global__ void __launch_bounds__(THREADS)
    measure_kernel(const void *data, uint64_t n, double *sums, uint32_t *largests)
{
    __shared__ measuring shared;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * ARITHMETIC_BLOCK;
    const uint64_t end = first + ARITHMETIC_BLOCK < n ? first + ARITHMETIC_BLOCK : n;
    uint32_t largest = 0;
    begin_measure(shared);
    for (uint64_t at = first; at < end; at += STRIP) {
        const int some = static_cast<int>(end - at < STRIP ? end - at : STRIP);
        for (int i = static_cast<int>(threadIdx.x); i < some; i += THREADS) {
            const float x = element_decode(static_cast<arithmetic_codec>(CODEC), data, at + i);
            shared.strip[i] = x;
            largest = larger(largest, x);
        }
        add_strip(shared, some);
    }
    end_measure(shared, largest, sums, largests);
}

template <int CODEC>
__global__ void __launch_bounds__(THREADS) decode_kernel(const void *data, uint64_t n, float *to)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * THREADS;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += stride)
        to[i] = element_decode(static_cast<arithmetic_codec>(CODEC), data, i);
}

/* The strip's floats become halves or stay floats, and the strip holds what they say. */
template <int CODEC>
__device__ uint32_t encode_strip(measuring &shared, const float *from, float scale, uint64_t at,
                                 int n, void *to)
{
    uint32_t largest = 0;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += THREADS) {
        float x = from[at + i] * scale;
        if (CODEC == ARITHMETIC_F32) {
            static_cast<float *>(to)[at + i] = x;
        } else {
            const uint16_t half = CODEC == ARITHMETIC_BF16 ? element_to_bf16(x) : element_to_f16(x);
            static_cast<uint16_t *>(to)[at + i] = half;
            x = CODEC == ARITHMETIC_BF16 ? element_from_bf16(half) : element_from_f16(half);
        }
        shared.strip[i] = x;
        largest = larger(largest, x);
    }
    return largest;
}

/* One warp for each block of 256 bytes: its largest magnitude, its scale, its bytes. */
__device__ uint32_t encode_strip_int8(measuring &shared, const float *from, float factor,
                                      uint64_t at, int n, unsigned char *to)
{
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    uint32_t seen = 0;
    for (int block = warp * ELEMENT_INT8_BLOCK; block < n;
         block += THREADS / 32 * ELEMENT_INT8_BLOCK) {
        const int some = n - block < ELEMENT_INT8_BLOCK ? n - block : ELEMENT_INT8_BLOCK;
        unsigned char *place =
            to + (at + block) / ELEMENT_INT8_BLOCK * (sizeof(float) + ELEMENT_INT8_BLOCK);
        uint32_t largest = 0;
        for (int i = lane; i < some; i += 32) {
            const float x = from[at + block + i] * factor;
            shared.strip[block + i] = x;
            largest = larger(largest, x);
        }
        largest = __reduce_max_sync(0xffffffffu, largest);
        const float scale = element_int8_scale(largest), inverse = element_int8_inverse(scale);
        const bool sound = (element_bits(scale) & 0x7f800000u) != 0x7f800000u;
        if (lane == 0)
            memcpy(place, &scale, sizeof scale);
        for (int i = lane; i < some; i += 32) {
            const float x = shared.strip[block + i];
            const bool finite = (element_bits(x) & 0x7f800000u) != 0x7f800000u;
            const int8_t q = sound ? element_to_int8(x, inverse) : static_cast<int8_t>(!finite);
            place[sizeof scale + i] = static_cast<unsigned char>(q);
            shared.strip[block + i] = element_from_int8(q, scale);
            seen = larger(seen, shared.strip[block + i]);
        }
    }
    return seen;
}

template <int CODEC>
__global__ void __launch_bounds__(THREADS) encode_kernel(const float *from, uint64_t n, float scale,
                                                         void *to, double *sums, uint32_t *largests)
{
    __shared__ measuring shared;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * ARITHMETIC_BLOCK;
    const uint64_t end = first + ARITHMETIC_BLOCK < n ? first + ARITHMETIC_BLOCK : n;
    uint32_t largest = 0;
    begin_measure(shared);
    for (uint64_t at = first; at < end; at += STRIP) {
        const int some = static_cast<int>(end - at < STRIP ? end - at : STRIP);
        const uint32_t here =
            CODEC == ARITHMETIC_INT8
                ? encode_strip_int8(shared, from, scale, at, some, static_cast<unsigned char *>(to))
                : encode_strip<CODEC>(shared, from, scale, at, some, to);
        largest = here > largest ? here : largest;
        add_strip(shared, some);
    }
    end_measure(shared, largest, sums, largests);
}

unsigned blocks_of(uint64_t n)
{
    return static_cast<unsigned>((n + ARITHMETIC_BLOCK - 1) / ARITHMETIC_BLOCK);
}

} // namespace

extern "C" int gpu_measure(gpu_stream stream, enum arithmetic_codec codec, const void *data,
                           uint64_t n, double *sums, uint32_t *largest)
{
    const unsigned grid = blocks_of(n);
    if (n == 0)
        return 0;
    switch (codec) {
    case ARITHMETIC_F32:
        measure_kernel<ARITHMETIC_F32><<<grid, THREADS, 0, stream>>>(data, n, sums, largest);
        break;
    case ARITHMETIC_BF16:
        measure_kernel<ARITHMETIC_BF16><<<grid, THREADS, 0, stream>>>(data, n, sums, largest);
        break;
    case ARITHMETIC_F16:
        measure_kernel<ARITHMETIC_F16><<<grid, THREADS, 0, stream>>>(data, n, sums, largest);
        break;
    case ARITHMETIC_INT8:
        measure_kernel<ARITHMETIC_INT8><<<grid, THREADS, 0, stream>>>(data, n, sums, largest);
        break;
    }
    return cudaGetLastError();
}

extern "C" int gpu_decode(gpu_stream stream, enum arithmetic_codec codec, const void *data,
                          uint64_t n, float *to)
{
    const uint64_t wanted = (n + THREADS - 1) / THREADS;
    const unsigned grid = static_cast<unsigned>(wanted < 4096 ? wanted : 4096);
    if (n == 0)
        return 0;
    switch (codec) {
    case ARITHMETIC_F32:
        decode_kernel<ARITHMETIC_F32><<<grid, THREADS, 0, stream>>>(data, n, to);
        break;
    case ARITHMETIC_BF16:
        decode_kernel<ARITHMETIC_BF16><<<grid, THREADS, 0, stream>>>(data, n, to);
        break;
    case ARITHMETIC_F16:
        decode_kernel<ARITHMETIC_F16><<<grid, THREADS, 0, stream>>>(data, n, to);
        break;
    case ARITHMETIC_INT8:
        decode_kernel<ARITHMETIC_INT8><<<grid, THREADS, 0, stream>>>(data, n, to);
        break;
    }
    return cudaGetLastError();
}

extern "C" int gpu_encode(gpu_stream stream, enum arithmetic_codec codec, const float *from,
                          uint64_t n, float scale, void *to, double *sums, uint32_t *largest)
{
    const unsigned grid = blocks_of(n);
    if (n == 0)
        return 0;
    switch (codec) {
    case ARITHMETIC_F32:
        encode_kernel<ARITHMETIC_F32>
            <<<grid, THREADS, 0, stream>>>(from, n, scale, to, sums, largest);
        break;
    case ARITHMETIC_BF16:
        encode_kernel<ARITHMETIC_BF16>
            <<<grid, THREADS, 0, stream>>>(from, n, scale, to, sums, largest);
        break;
    case ARITHMETIC_F16:
        encode_kernel<ARITHMETIC_F16>
            <<<grid, THREADS, 0, stream>>>(from, n, scale, to, sums, largest);
        break;
    case ARITHMETIC_INT8:
        encode_kernel<ARITHMETIC_INT8>
            <<<grid, THREADS, 0, stream>>>(from, n, scale, to, sums, largest);
        break;
    }
    return cudaGetLastError();
}

extern "C" const void *gpu_any_kernel(void)
{
    return reinterpret_cast<const void *>(&decode_kernel<ARITHMETIC_F32>);
}
