/* See landed_codes.h; the flags of this file are those of landed_fold.c (CMakeLists.txt).
 *
 * What is done to an element is what arithmetic_element.h says. Squares are added by fused
 * multiply-adds where the product is exact: of halves in double, of bytes as integers. */
#include "common/landed_codes.h"

#include "common/checksum.h"
#include "common/fold_codes.h"
#include "common/fold_step.h"
#include "common/status.h"

#include <assert.h>
#include <string.h>

#ifdef FOLD_HERE

struct stores {
    bool to, past, steps, streams;
};

/* Halves. */

FOLD_INLINE __m512 widen(bool brain, __m256i half)
{
    return brain ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))
                 : _mm512_cvtph_ps(half);
}

/* Called with constants for brain and stores, so that there is no choice in the loop. */
FOLD_INLINE void fold_halves(bool brain, struct fold_sums *given, const struct landing *landing,
                             size_t n, const struct stores stores)
{
    struct fold_sums h = *given;
    const uint16_t *from = landing->from;
    uint16_t *to = landing->to;
    const struct fold_step step =
        stores.steps ? fold_step_of(landing) : (struct fold_step){.theta = NULL};
    for (size_t i = 0; i < n; i += FOLD_BYTES / sizeof *from)
        for (size_t k = 0; k < 4; k++) {
            const size_t at = i + 32 * k;
            const __m512i next = fold_load(from + at);
            const __m512 x[2] = {widen(brain, _mm512_castsi512_si256(next)),
                                 widen(brain, _mm512_extracti64x4_epi64(next, 1))};
            if (stores.to)
                fold_put(to + at, next, stores.past);
            for (size_t j = 0; stores.steps && j < 2; j++)
                fold_step_on(&step, at + 16 * j, x[j], stores.streams);
            fold_halves_add(&h, k, i == 0, next, x);
        }
    *given = h;
}

/* int8. */

/* 64 bytes: the largest of their magnitudes, and their squares as integers. */
FOLD_INLINE void measure_bytes(__m512i q, __m512i *most, __m512i *squares)
{
    const __m512i size = _mm512_abs_epi8(q);
    const __m512i even = _mm512_and_si512(size, _mm512_set1_epi16(0xff));
    const __m512i odd = _mm512_srli_epi16(size, 8);
    *most = _mm512_max_epu8(*most, size);
    *squares = _mm512_add_epi32(
        *squares, _mm512_add_epi32(_mm512_madd_epi16(even, even), _mm512_madd_epi16(odd, odd)));
}

FOLD_INLINE int32_t largest_byte(__m512i most)
{
    const __m512i words = _mm512_max_epu16(_mm512_and_si512(most, _mm512_set1_epi16(0xff)),
                                           _mm512_srli_epi16(most, 8));
    return (int32_t)_mm512_reduce_max_epu32(_mm512_max_epu32(
        _mm512_and_si512(words, _mm512_set1_epi32(0xffff)), _mm512_srli_epi32(words, 16)));
}

/* As measure_int8 of arithmetic_codecs.h. */
FOLD_INLINE void measure_block(const unsigned char *q, float scale,
                               struct arithmetic_running *running)
{
    __m512i most = _mm512_setzero_si512(), squares = _mm512_setzero_si512();
    for (size_t k = 0; k < CODEC_BLOCK; k += 64)
        measure_bytes(_mm512_loadu_si512(q + k), &most, &squares);
    fold_count(scale, _mm512_reduce_add_epi32(squares), largest_byte(most), running);
}

FOLD_INLINE void step_block(const struct fold_step *step, size_t i, const unsigned char *q,
                            float scale, bool streams)
{
    const __m512 by = _mm512_set1_ps(scale);
    for (size_t k = 0; k < CODEC_BLOCK; k += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(q + k));
        const __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
        fold_step_on(step, i + k, _mm512_mul_ps(x, by), streams);
    }
}

/* A block is copied first, if it is to be: what somebody else may write to is read once. */
FOLD_INLINE void pass_blocks(const struct landing *landing, size_t n, const struct stores stores,
                             struct arithmetic_running *running, struct fold_trail *trail)
{
    const struct fold_step step =
        stores.steps ? fold_step_of(landing) : (struct fold_step){.theta = NULL};
    const unsigned char *from = landing->from;
    unsigned char *to = landing->to;
    for (size_t i = 0; i < n; i += CODEC_BLOCK, from += FOLD_BLOCK_BYTES) {
        const unsigned char *block = stores.to ? to : from;
        float scale;
        if (stores.to) {
            memcpy(to, from, FOLD_BLOCK_BYTES);
            to += FOLD_BLOCK_BYTES;
        }
        memcpy(&scale, block, sizeof scale);
        if (stores.steps)
            step_block(&step, i, block + sizeof scale, scale, stores.streams);
        measure_block(block + sizeof scale, scale, running);
        fold_follow(trail, block);
    }
}

static uint32_t pass_int8(const struct landing *landing, size_t n, uint32_t seed,
                          struct arithmetic_running *running)
{
    const unsigned char *begin = landing->to != NULL ? landing->to : landing->from;
    const unsigned char *end = begin + codec_bytes(ARITHMETIC_INT8, n);
    struct fold_trail trail = {.z = {fold_seed(seed)}, .at = begin};
    const bool to = landing->to != NULL;
    if (landing->plan != NULL && fold_step_streams(landing))
        pass_blocks(landing, n, (struct stores){.to = to, .steps = true, .streams = true}, running,
                    &trail);
    else if (landing->plan != NULL)
        pass_blocks(landing, n, (struct stores){.to = to, .steps = true}, running, &trail);
    else
        pass_blocks(landing, n, (struct stores){.to = to}, running, &trail);
    fold_follow(&trail, end);
    return checksum_crc32c(fold_up(trail.z), trail.at, (size_t)(end - trail.at));
}

FOLD_INLINE void pass_halves(bool brain, struct fold_sums *h, const struct landing *landing,
                             size_t n)
{
    const bool streams = landing->plan != NULL && fold_step_streams(landing);
    if (landing->to != NULL && streams)
        fold_halves(brain, h, landing, n,
                    (struct stores){.to = true, .steps = true, .streams = true});
    else if (landing->to != NULL && landing->plan != NULL)
        fold_halves(brain, h, landing, n, (struct stores){.to = true, .steps = true});
    else if (landing->to != NULL)
        fold_halves(brain, h, landing, n, (struct stores){.to = true});
    else if (streams)
        fold_halves(brain, h, landing, n, (struct stores){.steps = true, .streams = true});
    else if (landing->plan != NULL)
        fold_halves(brain, h, landing, n, (struct stores){.steps = true});
    else
        fold_halves(brain, h, landing, n, (struct stores){.to = false});
}

static uint32_t pass_all_halves(const struct landing *landing, size_t n, uint32_t seed,
                                struct arithmetic_running *running)
{
    struct fold_sums h = fold_begin(seed, running);
    if (landing->codec == ARITHMETIC_BF16)
        pass_halves(true, &h, landing, n);
    else
        pass_halves(false, &h, landing, n);
    return fold_halves_end(&h, landing->codec, running);
}

uint32_t landed_codes(const struct landing *landing, size_t n, uint32_t seed,
                      struct arithmetic_running *running)
{
    static_assert(LANDED_CODES % CODEC_BLOCK == 0, "whole blocks");
    ASSERT(n > 0 && n % LANDED_CODES == 0 && landing->codec != ARITHMETIC_F32 &&
           landing->also == NULL);
    const uint32_t crc = landing->codec == ARITHMETIC_INT8
                             ? pass_int8(landing, n, seed, running)
                             : pass_all_halves(landing, n, seed, running);
    _mm_sfence(); /* what went past the caches is seen by others before they hear of it */
    return crc;
}

#else

uint32_t landed_codes(const struct landing *landing, size_t n, uint32_t seed,
                      struct arithmetic_running *running)
{
    (void)landing;
    (void)n;
    (void)running;
    ASSERT(!"folding here");
    return seed;
}

#endif
