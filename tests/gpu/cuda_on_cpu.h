/* CUDA's words for a C++ compiler, so that the kernels themselves run where there is no GPU: each
 * thread of a block is a fiber that runs until it waits for others, blocks come one after the
 * other. emulate.py makes a .cpp of a .cu, whose first line includes this. It knows what the files
 * use and no more. What it shows: indices, tails, borders, barriers and sums of the kernels as
 * written. What it does not: speed, how nvcc compiles them, races that no order of fibers brings
 * out. */
#ifndef GRADWEIR_TESTS_GPU_CUDA_ON_CPU_H
#define GRADWEIR_TESTS_GPU_CUDA_ON_CPU_H

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};
struct alignas(4) char4 {
    signed char x, y, z, w;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

static inline ushort4 make_ushort4(int x, int y, int z, int w)
{
    return {static_cast<unsigned short>(x), static_cast<unsigned short>(y),
            static_cast<unsigned short>(z), static_cast<unsigned short>(w)};
}

static inline char4 make_char4(int x, int y, int z, int w)
{
    return {static_cast<signed char>(x), static_cast<signed char>(y), static_cast<signed char>(z),
            static_cast<signed char>(w)};
}

template <typename T> static inline T __ldcs(const T *from)
{
    return *from;
}

template <typename T> static inline void __stcs(T *to, T value)
{
    *to = value;
}

template <typename T> static inline void __stcg(T *to, T value)
{
    *to = value;
}

template <typename T> static inline T atomicAdd(T *to, T value)
{
    const T before = *to;
    *to = before + value;
    return before;
}

template <typename T> static inline T atomicMax(T *to, T value)
{
    const T before = *to;
    *to = before < value ? value : before;
    return before;
}

static inline unsigned max(unsigned a, unsigned b)
{
    return a < b ? b : a;
}

/* Wait for all threads of the block; of the warp, whose numbers are then joined. */
void __syncthreads();
unsigned __reduce_max_sync(unsigned mask, unsigned value);
int __reduce_add_sync(unsigned mask, int value);

enum { cudaErrorInvalidValue = 1 };

static inline int cudaGetLastError()
{
    return 0;
}

/* Runs a kernel to its end. name: as in the table of launches (cuda_launches.h). */
void cuda_run(const char *name, dim3 grid, dim3 block, const std::function<void()> &thread);

template <typename... Parameters, typename... Arguments>
void cuda_launch(const char *name, dim3 grid, dim3 block, void (*kernel)(Parameters...),
                 const Arguments &...arguments)
{
    cuda_run(name, grid, block, [&] { kernel(arguments...); });
}

#endif
