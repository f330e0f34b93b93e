/* What the passes that fold (fold.h) keep of encoded elements: of halves that are in registers, and
 * of blocks of int8, which are no multiples of what is folded at a time. */
#ifndef GRADWEIR_COMMON_FOLD_CODES_H
#define GRADWEIR_COMMON_FOLD_CODES_H

#include "common/codec.h"
#include "common/fold.h"

#ifdef FOLD_HERE

#include <assert.h>
#include <stddef.h>

/* Checksum and measure of halves. */
struct fold_halves {
    __m512i z[4], most; /* the largest of their magnitudes, 16 bits each */
    __m512d low, high;  /* sums of squares: lanes 0 to 7, and 8 to 15 */
};

static inline struct fold_halves fold_halves_begin(uint32_t seed,
                                                   const struct arithmetic_running *running)
{
    static_assert(ARITHMETIC_LANES == 16, "two registers of doubles");
    return (struct fold_halves){.z = {fold_seed(seed)},
                                .low = _mm512_loadu_pd(running->lanes),
                                .high = _mm512_loadu_pd(running->lanes + 8)};
}

/* 32 halves, the k-th of each four such, as they travel and as floats. */
FOLD_INLINE void fold_halves_add(struct fold_halves *h, size_t k, bool first, __m512i halves,
                                 const __m512 floats[2])
{
    for (size_t i = 0; i < 2; i++)
        fold_square(&h->low, &h->high, floats[i]);
    h->most = _mm512_max_epu16(h->most, _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff)));
    h->z[k] = first ? _mm512_xor_si512(halves, h->z[k]) : fold_next(h->z[k], halves);
}

static inline uint32_t fold_halves_end(const struct fold_halves *h, enum arithmetic_codec codec,
                                       struct arithmetic_running *running)
{
    const uint16_t half = (uint16_t)_mm512_reduce_max_epu32(_mm512_max_epu32(
        _mm512_and_si512(h->most, _mm512_set1_epi32(0xffff)), _mm512_srli_epi32(h->most, 16)));
    const uint32_t largest =
        element_bits(codec == ARITHMETIC_BF16 ? element_from_bf16(half) : element_from_f16(half));
    _mm512_storeu_pd(running->lanes, h->low);
    _mm512_storeu_pd(running->lanes + 8, h->high);
    running->largest_bits = largest > running->largest_bits ? largest : running->largest_bits;
    return fold_up(h->z);
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
        for (size_t k = 0; k < 4; k++) {
            const __m512i next = _mm512_loadu_si512(trail->at + 64 * k);
            trail->z[k] =
                trail->begun ? fold_next(trail->z[k], next) : _mm512_xor_si512(trail->z[k], next);
        }
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
