/* CRC32C by folding, in registers that a loop has its bytes in anyway; for files with the flags of
 * landed_fold.c (CMakeLists.txt), on machines that multiply 512 bits without carries.
 *
 * A register of 128 bits stands for all that came before it, D bits further left; two carry-less
 * products bring it to where the next 128 bits are, modulo the polynomial. Here four registers hold
 * four such each. (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", 2009. Reflected: the constants are x^(D + 32) and x^(D - 32) modulo the polynomial
 * of CRC32C, mirrored, times x.)
 *
 * z[0..3] begin as fold_seed and three zeros; register k of each four of bytes comes to z[k] by
 * fold_in, and fold_up tells the sum. */
#ifndef GRADWEIR_COMMON_FOLD_H
#define GRADWEIR_COMMON_FOLD_H

#if defined(__AVX512DQ__) && defined(__VPCLMULQDQ__)
#define FOLD_HERE 1

#include "common/arithmetic.h"

#include <assert.h>
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define FOLD_INLINE static inline __attribute__((always_inline))

/* Bytes of four registers. */
#define FOLD_BYTES ((size_t)256)

FOLD_INLINE __m512i fold_constants(long long low, long long high)
{
    return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

FOLD_INLINE __m512i fold_by(__m512i all, __m512i by, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(all, by, 0x00),
                                     _mm512_clmulepi64_epi128(all, by, 0x11), next, 0x96);
}

FOLD_INLINE __m512i fold_seed(uint32_t seed)
{
    return _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, (long long)(uint32_t)~seed);
}

/* The first four registers are added to what there is. */
FOLD_INLINE __m512i fold_in(__m512i z, bool first, __m512i next)
{
    const __m512i by = fold_constants(0x0dcb17aa4, 0x0b9e02b86); /* D = 2048 */
    return first ? _mm512_xor_si512(next, z) : fold_by(z, by, next);
}

/* 128 bits of a register, alone. */
FOLD_INLINE __m512i fold_part(const uint64_t words[8], int i)
{
    return _mm512_set_epi64(0, 0, 0, 0, 0, 0, (long long)words[i + 1], (long long)words[i]);
}

/* The four registers, and the four parts of what they become, to 16 bytes with the same CRC; and
 * the CRC. */
static inline uint32_t fold_up(const __m512i z[4])
{
    const __m512i by = fold_constants(0x0740eef02, 0x09e4addf8);     /* D = 512 */
    const __m512i narrow = fold_constants(0x0f20c0dfe, 0x14cd00bd6); /* D = 128 */
    uint64_t words[8];
    __m512i all = fold_by(fold_by(fold_by(z[0], by, z[1]), by, z[2]), by, z[3]);
    _mm512_storeu_si512(words, all);
    all = fold_part(words, 0);
    for (int i = 2; i < 8; i += 2)
        all = fold_by(all, narrow, fold_part(words, i));
    _mm512_storeu_si512(words, all);
    return ~(uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, words[0]), words[1]);
}

/* Squares of sixteen floats into the lanes of a measure. The square of a float is exact in double,
 * so that a fused multiply-add rounds as a multiplication and an addition do. */
FOLD_INLINE void fold_square(__m512d *low, __m512d *high, __m512 x)
{
    const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    *low = _mm512_fmadd_pd(a, a, *low);
    *high = _mm512_fmadd_pd(b, b, *high);
}

/* Checksum and measure of elements that are in registers. */
struct fold_sums {
    __m512i z[4], largest; /* of their magnitudes: floats', or halves', 16 bits each */
    __m512d low, high;     /* sums of squares: lanes 0 to 7, and 8 to 15 */
};

static inline struct fold_sums fold_begin(uint32_t seed, const struct arithmetic_running *running)
{
    static_assert(ARITHMETIC_LANES == 16, "two registers of doubles");
    return (struct fold_sums){.z = {fold_seed(seed)},
                              .low = _mm512_loadu_pd(running->lanes),
                              .high = _mm512_loadu_pd(running->lanes + 8)};
}

/* With the largest magnitude of all that came in between. */
static inline uint32_t fold_end(const struct fold_sums *sums, uint32_t largest_bits,
                                struct arithmetic_running *running)
{
    _mm512_storeu_pd(running->lanes, sums->low);
    _mm512_storeu_pd(running->lanes + 8, sums->high);
    if (largest_bits > running->largest_bits)
        running->largest_bits = largest_bits;
    return fold_up(sums->z);
}

/* What is loaded here is loaded once: whoever else writes there cannot have one value stored and
 * another one measured. */
FOLD_INLINE __m512i fold_load(const void *from)
{
    __m512i next = _mm512_loadu_si512(from);
    __asm__("" : "+v"(next));
    return next;
}

FOLD_INLINE void fold_put(void *to, __m512i next, bool past)
{
    if (past)
        _mm512_stream_si512(to, next);
    else
        _mm512_storeu_si512(to, next);
}

/* Whether it can be stored to past the caches. */
static inline bool fold_aligned(const void *to)
{
    return (uintptr_t)to % sizeof(__m512i) == 0;
}

/* Whether this machine can fold, and this set of instructions may. */
static inline bool fold_runs(const struct arithmetic *arithmetic)
{
    return arithmetic == &arithmetic_avx512 && __builtin_cpu_supports("vpclmulqdq");
}

#endif
#endif
