/* Error feedback where a push is refused: what was sent comes back into what is owed, or the taking
 * of it is undone. The taking itself is in the encoding (kernels_codec.cu). */
#include "common/element_gradient.h"
#include "gpu/codec_dispatch.cuh"
#include "gpu/codec_vectors.cuh"
#include "gpu/kernels.h"

namespace
{

constexpr int THREADS = CODEC_THREADS;

struct task {
    const void *sent;
    const float *from; /* NULL: all of it comes back */
    float *rest;
    uint64_t n;
};

/* WIDTH elements from i on. */
template <int CODEC, int WIDTH> __device__ void give_back(const task &task, uint64_t i)
{
    float said[WIDTH], rest[WIDTH], x[WIDTH];
    codec_read<CODEC, WIDTH>(task.sent, i, said);
    codec_read<ARITHMETIC_F32, WIDTH>(task.rest, i, rest);
    if (task.from != nullptr)
        codec_read<ARITHMETIC_F32, WIDTH>(task.from, i, x);
    for (int j = 0; j < WIDTH; j++)
        rest[j] = task.from != nullptr ? element_untaken(rest[j], said[j], x[j])
                                       : element_owed_again(rest[j], said[j]);
    codec_write<ARITHMETIC_F32, WIDTH>(task.rest, i, rest);
}

template <int CODEC, int WIDTH>
__global__ void __launch_bounds__(THREADS) give_back_kernel(const __grid_constant__ task task)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * THREADS * WIDTH;
    const uint64_t first = (static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
    for (uint64_t i = first; i < task.n; i += stride) {
        if (i + WIDTH <= task.n) {
            give_back<CODEC, WIDTH>(task, i);
            continue;
        }
        for (uint64_t k = i; k < task.n; k++)
            give_back<CODEC, 1>(task, k);
    }
}

} // namespace

extern "C" int gpu_give_back(gpu_stream stream, enum arithmetic_codec codec, const void *sent,
                             uint64_t n, const float *from, float *rest)
{
    const task task = {sent, from, rest, n};
    const bool wide = codec_wide(codec, from, sent) && codec_wide(ARITHMETIC_F32, rest, nullptr);
    const unsigned grid = codec_grid(n, wide);
    if (n == 0)
        return 0;
    codec_dispatch(codec, [&](auto constant) {
        if (wide)
            give_back_kernel<constant, 4><<<grid, THREADS, 0, stream>>>(task);
        else
            give_back_kernel<constant, 1><<<grid, THREADS, 0, stream>>>(task);
    });
    return cudaGetLastError();
}
