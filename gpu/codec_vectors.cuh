/* A few elements of a codec at once, by one load or store where WIDTH is 4 and the array is aligned
 * to four of them (16 bytes of float32, 8 of halves, 4 of int8). */
#ifndef GRADWEIR_GPU_CODEC_VECTORS_CUH
#define GRADWEIR_GPU_CODEC_VECTORS_CUH

#include "common/element_step.h"

/* How kernels that go through an array of a codec are started: so many threads a block, each with
 * WIDTH elements at a time, in a grid that goes on in strides where the array is longer. */
constexpr int CODEC_THREADS = 256;

inline unsigned codec_grid(uint64_t n, bool wide)
{
    const uint64_t each = static_cast<uint64_t>(CODEC_THREADS) * (wide ? 4 : 1), most = 8192;
    const uint64_t wanted = (n + each - 1) / each;
    return static_cast<unsigned>(wanted < most ? wanted : most);
}

/* Whether floats, and data of a codec, are aligned to four elements. NULL is. */
inline bool codec_wide(arithmetic_codec codec, const void *floats, const void *data)
{
    const uintptr_t of_four = codec == ARITHMETIC_F32 ? 16 : codec == ARITHMETIC_INT8 ? 4 : 8;
    return reinterpret_cast<uintptr_t>(floats) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(data) % of_four == 0;
}

/* WIDTH elements from `at` on, which is a multiple of WIDTH. */
template <int CODEC, int WIDTH>
__device__ void codec_read(const void *data, uint64_t at, float to[WIDTH])
{
    if constexpr (WIDTH == 1) {
        to[0] = element_decode(static_cast<arithmetic_codec>(CODEC), data, at);
    } else if constexpr (CODEC == ARITHMETIC_F32) {
        const float4 four =
            __ldcs(reinterpret_cast<const float4 *>(static_cast<const float *>(data) + at));
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else if constexpr (CODEC == ARITHMETIC_INT8) {
        const unsigned char *block = static_cast<const unsigned char *>(data) +
                                     at / ELEMENT_INT8_BLOCK * (sizeof(float) + ELEMENT_INT8_BLOCK);
        const float scale = *reinterpret_cast<const float *>(block);
        const char4 four =
            __ldcs(reinterpret_cast<const char4 *>(block + sizeof scale + at % ELEMENT_INT8_BLOCK));
        const signed char bytes[4] = {four.x, four.y, four.z, four.w};
        for (int j = 0; j < 4; j++)
            to[j] = element_from_int8(bytes[j], scale);
    } else {
        const ushort4 four =
            __ldcs(reinterpret_cast<const ushort4 *>(static_cast<const uint16_t *>(data) + at));
        const uint16_t halves[4] = {four.x, four.y, four.z, four.w};
        for (int j = 0; j < 4; j++)
            to[j] = CODEC == ARITHMETIC_BF16 ? element_from_bf16(halves[j])
                                             : element_from_f16(halves[j]);
    }
}

/* x as it is sent; x becomes what that says. */
template <int CODEC, int WIDTH> __device__ void codec_write(void *to, uint64_t at, float x[WIDTH])
{
    if constexpr (CODEC == ARITHMETIC_F32) {
        float *place = static_cast<float *>(to) + at;
        if constexpr (WIDTH == 4)
            __stcs(reinterpret_cast<float4 *>(place), make_float4(x[0], x[1], x[2], x[3]));
        else
            *place = x[0];
    } else {
        uint16_t *place = static_cast<uint16_t *>(to) + at, half[WIDTH];
        for (int j = 0; j < WIDTH; j++) {
            half[j] = CODEC == ARITHMETIC_BF16 ? element_to_bf16(x[j]) : element_to_f16(x[j]);
            x[j] =
                CODEC == ARITHMETIC_BF16 ? element_from_bf16(half[j]) : element_from_f16(half[j]);
        }
        if constexpr (WIDTH == 4)
            __stcs(reinterpret_cast<ushort4 *>(place),
                   make_ushort4(half[0], half[1], half[2], half[3]));
        else
            *place = half[0];
    }
}

#endif
