/* What the passes that fold (fold.h) keep of encoded elements: of halves that are in registers, and
 * of blocks of int8, which are no multiples of what is folded at a time. */
#ifndef GRADWEIR_COMMON_FOLD_CODES_H
#define GRADWEIR_COMMON_FOLD_CODES_H

#include "common/codec.h"
#include "common/fold.h"

#ifdef FOLD_HERE

#include <stddef.h>

/* 32 halves, the k-th of each four such, as they travel and as floats. */
FOLD_INLINE void fold_halves_add(struct fold_sums *h, size_t k, bool first, __m512i halves,
                                 const __m512 floats[2])
{
    for (size_t i = 0; i < 2; i++)
        fold_square(&h->low, &h->high, floats[i]);
    h->largest = _mm512_max_epu16(h->largest, _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff)));
    h->z[k] = fold_in(h->z[k], first, halves);
}

static inline uint32_t fold_halves_end(const struct fold_sums *h, enum arithmetic_codec codec,
                                       struct arithmetic_running *running)
{
    const uint16_t half = (uint16_t)_mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_and_si512(h->largest, _mm512_set1_epi32(0xffff)),
                         _mm512_srli_epi32(h->largest, 16)));
    const uint32_t largest =
        element_bits(codec == ARITHMETIC_BF16 ? element_from_bf16(half) : element_from_f16(half));
    return fold_end(h, largest, running);
}

#define FOLD_BLOCK_BYTES (sizeof(float) + CODEC_BLOCK)

/* The checksum of bytes in memory, up to where somebody is. */
struct fold_trail {
    __m512i z[4];
    const unsigned char *at;
    bool begun;
};

FOLD_INLINE void fold_follow(struct fold_trail *trail, const unsigned char *until)
{
    while (until - trail->at >= (ptrdiff_t)FOLD_BYTES) {
        for (size_t k = 0; k < 4; k++)
            trail->z[k] =
                fold_in(trail->z[k], !trail->begun, _mm512_loadu_si512(trail->at + 64 * k));
        trail->begun = true;
        trail->at += FOLD_BYTES;
    }
}

/* A block is behind: what it adds to a measure (measure_int8 of arithmetic_codecs.h). */
FOLD_INLINE void fold_count(float scale, int32_t squares, int32_t most,
                            struct arithmetic_running *running)
{
    const bool finite = (element_bits(scale) & 0x7f800000u) != 0x7f800000u;
    const uint32_t size = finite ? element_bits((float)most * scale) & 0x7fffffffu : 0x7fc00000u;
    running->lanes[0] += (double)squares * ((double)scale * (double)scale);
    running->largest_bits = size > running->largest_bits ? size : running->largest_bits;
}

#endif
#endif
