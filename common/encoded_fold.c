/* See encoded_fold.h; the flags of this file are those of landed_fold.c (CMakeLists.txt).
 *
 * What is done to an element is what arithmetic_element.h says, in other words where they have the
 * same bits: a half is the upper half of its float; sums of squares of bytes are small integers,
 * which floats hold exactly; scale × byte is exact by the choice of the scale, so that a fused
 * multiply-add rounds as a multiplication and an addition do. */
#include "common/encoded_fold.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/fold_codes.h"
#include "common/status.h"

#include <assert.h>
#include <string.h>

#ifdef FOLD_HERE

bool encoded_fold_runs(const struct arithmetic *arithmetic)
{
    return fold_runs(arithmetic);
}

/* Floats in a small page. Callers' memory lies in such as a rule, and the processor does not look
 * beyond the one that it reads: who asks for a line of the next one finds that page's place known
 * and its floats on their way. */
#define PAGE ((size_t)1024)

FOLD_INLINE void look_ahead(const struct encoded *encoded, size_t i)
{
    if (i % PAGE == 0)
        __builtin_prefetch((const void *)((uintptr_t)(encoded->from + i) + PAGE * sizeof(float)));
}

/* Halves. */

/* Sixteen floats as bfloat16: the upper halves; what is below them is waste. */
FOLD_INLINE __m512i to_bf16(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    return _mm512_mask_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd, bits,
                                 _mm512_set1_epi32(0x8000));
}

/* The same where there is a NaN. */
FOLD_INLINE __m512i to_bf16_quiet(__m512 x)
{
    return _mm512_mask_or_epi32(to_bf16(x), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                _mm512_castps_si512(x), _mm512_set1_epi32(0x400000));
}

/* The upper halves of 32. */
FOLD_INLINE __m512i upper(__m512i a, __m512i b)
{
    const __m512i first = _mm512_set1_epi32(0x00020000);
    const __m512i step =
        _mm512_set_epi32(60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    /* words 1, 3, 5, ... 63 of both: 4 k + 1 and 4 k + 3 in the k-th place of 32 bits */
    const __m512i odd = _mm512_add_epi32(_mm512_mullo_epi32(step, _mm512_set1_epi32(0x10001)),
                                         _mm512_add_epi32(first, _mm512_set1_epi32(0x10001)));
    return _mm512_permutex2var_epi16(a, odd, b);
}

/* binary16; a NaN becomes the one that element_to_f16 makes of it. */
FOLD_INLINE __m256i to_f16(__m512 x)
{
    const __m512i plain = _mm512_mask_ternarylogic_epi32(
        _mm512_castps_si512(x), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
        _mm512_set1_epi32((int)0x80000000u), _mm512_set1_epi32(0x7fc00000), 0xea);
    return _mm512_cvtps_ph(_mm512_castsi512_ps(plain),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 32 sums to halves; sent: what these are. */
FOLD_INLINE __m512i to_halves(bool brain, const __m512 sum[2], __m512 sent[2])
{
    if (brain) {
        const __m512i keep = _mm512_set1_epi32((int)0xffff0000u);
        __m512i a = to_bf16(sum[0]), b = to_bf16(sum[1]);
        if (_mm512_cmp_ps_mask(sum[0], sum[1], _CMP_UNORD_Q) != 0) {
            a = to_bf16_quiet(sum[0]);
            b = to_bf16_quiet(sum[1]);
        }
        sent[0] = _mm512_castsi512_ps(_mm512_and_si512(a, keep));
        sent[1] = _mm512_castsi512_ps(_mm512_and_si512(b, keep));
        return upper(a, b);
    }
    const __m256i a = to_f16(sum[0]), b = to_f16(sum[1]);
    sent[0] = _mm512_cvtph_ps(a);
    sent[1] = _mm512_cvtph_ps(b);
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/* What was left out; where nothing finite was sent the rest stays. */
FOLD_INLINE void keep_rest(float *rest, __m512 sum, __m512 sent)
{
    const __m512i exponent = _mm512_set1_epi32(0x7f800000);
    const __mmask16 finite =
        _mm512_cmpneq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(sent), exponent), exponent);
    _mm512_mask_storeu_ps(rest, finite, _mm512_sub_ps(sum, sent));
}

/* 32 elements: their halves, stored, and what these are. */
FOLD_INLINE __m512i make_halves(bool brain, const float *from, float *rest, uint16_t *to,
                                __m512 sent[2])
{
    __m512 sum[2] = {_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)};
    if (rest != NULL) {
        sum[0] = _mm512_add_ps(sum[0], _mm512_loadu_ps(rest));
        sum[1] = _mm512_add_ps(sum[1], _mm512_loadu_ps(rest + 16));
    }
    const __m512i made = to_halves(brain, sum, sent);
    _mm512_storeu_si512(to, made);
    if (rest != NULL) {
        keep_rest(rest, sum[0], sent[0]);
        keep_rest(rest + 16, sum[1], sent[1]);
    }
    return made;
}

/* Called with constants for the first two, so that there is no choice in the loop. */
FOLD_INLINE void make_all(bool brain, bool owes, struct fold_sums *given,
                          const struct encoded *encoded, size_t n)
{
    struct fold_sums h = *given;
    uint16_t *to = encoded->to;
    for (size_t i = 0; i < n; i += FOLD_BYTES / sizeof *to) {
        look_ahead(encoded, i);
        for (size_t k = 0; k < 4; k++) {
            const size_t at = i + 32 * k;
            __m512 sent[2];
            const __m512i made = make_halves(brain, encoded->from + at,
                                             owes ? encoded->rest + at : NULL, to + at, sent);
            fold_halves_add(&h, k, i == 0, made, sent);
        }
    }
    *given = h;
}

static uint32_t make_all_halves(const struct encoded *encoded, size_t n, uint32_t seed,
                                struct arithmetic_running *running)
{
    struct fold_sums h = fold_begin(seed, running);
    if (encoded->codec == ARITHMETIC_BF16 && encoded->rest != NULL)
        make_all(true, true, &h, encoded, n);
    else if (encoded->codec == ARITHMETIC_BF16)
        make_all(true, false, &h, encoded, n);
    else if (encoded->rest != NULL)
        make_all(false, true, &h, encoded, n);
    else
        make_all(false, false, &h, encoded, n);
    return fold_halves_end(&h, encoded->codec, running);
}

/* int8. */

#define BLOCK_REGISTERS (CODEC_BLOCK / 16)

/* Bits of 2^127. From there on 127 × scale may be infinite, and a fused multiply-add would not
 * see it: such blocks, and those that are not finite, are made as everywhere. */
#define FUSED_BELOW 0x7f000000u

/* What a block is written with, which its largest magnitude tells. */
struct scaling {
    float scale, inverse;
    uint32_t largest;
};

FOLD_INLINE struct scaling scaling_of(uint32_t largest)
{
    const float scale = element_int8_scale(largest);
    return (struct scaling){
        .scale = scale, .inverse = element_int8_inverse(scale), .largest = largest};
}

/* Where a block's elements are. */
struct place {
    const float *from;
    float *rest; /* NULL: none */
    unsigned char *to;
};

FOLD_INLINE struct place place_of(bool owes, const struct encoded *encoded, size_t i)
{
    return (struct place){.from = encoded->from + i,
                          .rest = owes ? encoded->rest + i : NULL,
                          .to = (unsigned char *)encoded->to + i / CODEC_BLOCK * FOLD_BLOCK_BYTES};
}

/* The sums of a block, and what it is written with. They stay in registers. */
struct sums {
    __m512 x[BLOCK_REGISTERS];
    __m512i most;
};

FOLD_INLINE void sum_some(struct sums *sums, const struct place *place, size_t k)
{
    __m512 x = _mm512_loadu_ps(place->from + 16 * k);
    if (place->rest != NULL)
        x = _mm512_add_ps(x, _mm512_loadu_ps(place->rest + 16 * k));
    sums->most = _mm512_max_epu32(
        sums->most, _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
    sums->x[k] = x;
}

/* A block is written from its sums, and those of the next take their places one by one, so that
 * loads never pause. What is behind the 1.5 × 2^23 of element_to_int8 ends in 22 zeros, so the
 * lowest byte is the element's as it is. Returns the sum of the squares of the bytes. */
FOLD_INLINE int32_t put_block(struct sums *sums, struct scaling by, const struct place *place,
                              const struct place *next)
{
    const __m512 scale = _mm512_set1_ps(by.scale), inverse = _mm512_set1_ps(by.inverse);
    const __m512 shift = _mm512_set1_ps(12582912.0f);
    __m512 squares = _mm512_setzero_ps();
    memcpy(place->to, &by.scale, sizeof by.scale);
    sums->most = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (size_t k = 0; k < BLOCK_REGISTERS; k++) {
        const __m512 x = sums->x[k];
        const __m512 shifted = _mm512_add_ps(_mm512_mul_ps(x, inverse), shift);
        const __m512 steps = _mm512_sub_ps(shifted, shift);
        _mm_storeu_si128((__m128i *)(void *)(place->to + sizeof by.scale + 16 * k),
                         _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted)));
        if (place->rest != NULL)
            _mm512_storeu_ps(place->rest + 16 * k, _mm512_fnmadd_ps(steps, scale, x));
        squares = _mm512_fmadd_ps(steps, steps, squares);
        sum_some(sums, next, k);
    }
    return (int32_t)_mm512_reduce_add_ps(squares);
}

FOLD_INLINE void sum_block(struct sums *sums, const struct place *place)
{
    sums->most = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (size_t k = 0; k < BLOCK_REGISTERS; k++)
        sum_some(sums, place, k);
}

FOLD_INLINE void make_blocks(bool owes, const struct encoded *encoded, size_t n,
                             struct arithmetic_running *running, struct fold_trail *trail)
{
    struct place place = place_of(owes, encoded, 0), next;
    struct sums sums;
    sum_block(&sums, &place);
    for (size_t i = 0; i < n; i += CODEC_BLOCK, place = next) {
        const struct scaling by = scaling_of(_mm512_reduce_max_epu32(sums.most));
        next = place_of(owes, encoded, i + CODEC_BLOCK < n ? i + CODEC_BLOCK : i);
        look_ahead(encoded, i);
        fold_follow(trail, i > 0 ? place.to - FOLD_BLOCK_BYTES : place.to);
        if (by.largest < FUSED_BELOW) {
            const int8_t most = element_to_int8(element_float(by.largest), by.inverse);
            fold_count(by.scale, put_block(&sums, by, &place, &next), most, running);
            continue;
        }
        encoded->arithmetic->encode_on(ARITHMETIC_INT8, place.from, CODEC_BLOCK, place.rest,
                                       place.to, running);
        sum_block(&sums, &next);
    }
}

static uint32_t make_all_blocks(const struct encoded *encoded, size_t n, uint32_t seed,
                                struct arithmetic_running *running)
{
    struct fold_trail trail = {.z = {fold_seed(seed)}, .at = encoded->to};
    const unsigned char *end = (const unsigned char *)encoded->to + codec_bytes(ARITHMETIC_INT8, n);
    if (encoded->rest != NULL)
        make_blocks(true, encoded, n, running, &trail);
    else
        make_blocks(false, encoded, n, running, &trail);
    fold_follow(&trail, end);
    return checksum_crc32c(fold_up(trail.z), trail.at, (size_t)(end - trail.at));
}

uint32_t encoded_fold(const struct encoded *encoded, size_t n, uint32_t seed,
                      struct arithmetic_running *running)
{
    static_assert(ENCODED_FOLD % CODEC_BLOCK == 0, "whole blocks");
    ASSERT(n > 0 && n % ENCODED_FOLD == 0 && encoded->codec != ARITHMETIC_F32);
    return encoded->codec == ARITHMETIC_INT8 ? make_all_blocks(encoded, n, seed, running)
                                             : make_all_halves(encoded, n, seed, running);
}

#else

bool encoded_fold_runs(const struct arithmetic *arithmetic)
{
    (void)arithmetic;
    return false;
}

uint32_t encoded_fold(const struct encoded *encoded, size_t n, uint32_t seed,
                      struct arithmetic_running *running)
{
    (void)encoded;
    (void)n;
    (void)running;
    ASSERT(!"folding here");
    return seed;
}

#endif
