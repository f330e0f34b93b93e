/* The loops of the floor. Compiled once per instruction set; FLOOR_SET names the set. Alone:
 *
 *     cc -std=gnu11 -O3 -march=native -fno-math-errno -I. -DFLOOR_ALONE tests/bench/floor*.c -lm */
#include "tests/bench/floor.h"

#include <math.h>
#include <string.h>

#if defined(__SSE4_2__)
#include <immintrin.h>
#endif

#ifndef FLOOR_SET
#define FLOOR_SET  floor_plain
#define FLOOR_NAME "plain"
#endif

enum { STREAM = 4096, STREAMS = 3 }; /* three CRCs side by side hide the instruction's latency */
#define POLYNOMIAL 0x82f63b78u

static uint32_t bytes_crc[256];
static uint32_t shift[4][256]; /* the register after STREAM zero bytes, by each of its bytes */

static uint32_t crc_byte(uint32_t crc)
{
    for (int bit = 0; bit < 8; bit++)
        crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
    return crc;
}

static void make_tables(void)
{
    if (bytes_crc[1])
        return;
    for (uint32_t i = 0; i < 256; i++)
        bytes_crc[i] = crc_byte(i);
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i << (8 * k);
            for (int zero = 0; zero < STREAM; zero++)
                crc = bytes_crc[crc & 255] ^ (crc >> 8);
            shift[k][i] = crc;
        }
}

static uint32_t shifted(uint32_t crc)
{
    return shift[0][crc & 255] ^ shift[1][crc >> 8 & 255] ^ shift[2][crc >> 16 & 255] ^
           shift[3][crc >> 24];
}

static uint32_t crc_plain(uint32_t crc, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        crc = bytes_crc[(crc ^ bytes[i]) & 255] ^ (crc >> 8);
    return crc;
}

static uint64_t word(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t crc_word(uint64_t crc, uint64_t eight)
{
#if defined(__SSE4_2__)
    return _mm_crc32_u64(crc, eight);
#else
    uint64_t all = crc ^ eight; /* of a machine that keeps the lowest byte first */
    for (int i = 0; i < 8; i++)
        all = bytes_crc[all & 255] ^ (all >> 8);
    return all;
#endif
}

static uint32_t crc_block(uint32_t crc, const unsigned char *at)
{
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < STREAM; i += 8) {
        a = crc_word(a, word(at + i));
        b = crc_word(b, word(at + STREAM + i));
        c = crc_word(c, word(at + 2 * STREAM + i));
    }
    return shifted(shifted((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

static uint32_t crc_rest(uint32_t crc, const unsigned char *bytes, size_t n)
{
    uint64_t a = crc;
    for (; n >= 8; n -= 8, bytes += 8)
        a = crc_word(a, word(bytes));
    return crc_plain((uint32_t)a, bytes, n);
}

static uint32_t crc_any(uint32_t crc, const unsigned char *bytes, size_t n)
{
    return n == FLOOR_BLOCK ? crc_block(crc, bytes) : crc_rest(crc, bytes, n);
}

/* The largest magnitude, as bits: an infinity's or more when not all are finite. */
static uint32_t largest(const uint32_t *bits, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t magnitude = bits[i] & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

static void copy_past(void *to, const void *from, size_t bytes)
{
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 64 <= bytes; i += 64)
        _mm512_stream_si512((void *)((char *)to + i), _mm512_loadu_si512((const char *)from + i));
#elif defined(__AVX2__)
    for (; i + 32 <= bytes; i += 32)
        _mm256_stream_si256((void *)((char *)to + i),
                            _mm256_loadu_si256((const void *)((const char *)from + i)));
#endif
    memcpy((char *)to + i, (const char *)from + i, bytes - i);
}

static void fence(void)
{
#if defined(__SSE4_2__)
    _mm_sfence();
#endif
}

static void copy_past_whole(void *to, const void *from, size_t bytes)
{
    copy_past(to, from, bytes);
    fence();
}

static uint32_t land(void *to, const void *from, size_t bytes, bool *finite)
{
    uint32_t crc = UINT32_MAX, most = 0;
    make_tables();
    for (size_t at = 0; at < bytes; at += FLOOR_BLOCK) {
        const size_t n = bytes - at < FLOOR_BLOCK ? bytes - at : FLOOR_BLOCK;
        unsigned char *block = (unsigned char *)to + at;
        memcpy(block, (const char *)from + at, n);
        crc = crc_any(crc, block, n);
        const uint32_t here = largest((const uint32_t *)(const void *)block, n / 4);
        most = here > most ? here : most;
    }
    *finite = most < 0x7f800000u;
    return ~crc;
}

/* The slot's lines never come into the cache; the source's block is read there twice more. */
static uint32_t land_past(void *to, const void *from, size_t bytes, bool *finite)
{
    uint32_t crc = UINT32_MAX, most = 0;
    make_tables();
    for (size_t at = 0; at < bytes; at += FLOOR_BLOCK) {
        const size_t n = bytes - at < FLOOR_BLOCK ? bytes - at : FLOOR_BLOCK;
        const unsigned char *block = (const unsigned char *)from + at;
        copy_past((char *)to + at, block, n);
        crc = crc_any(crc, block, n);
        const uint32_t here = largest((const uint32_t *)(const void *)block, n / 4);
        most = here > most ? here : most;
    }
    fence();
    *finite = most < 0x7f800000u;
    return ~crc;
}

static void sgd(float *restrict w, const float *restrict g, size_t n, float rate)
{
    for (size_t i = 0; i < n; i++)
        w[i] -= rate * g[i];
}

static void adam(float *restrict w, float *restrict m, float *restrict v, const float *restrict g,
                 size_t n, const struct floor_adam *with)
{
    const struct floor_adam a = *with;
    for (size_t i = 0; i < n; i++) {
        const float m_next = a.beta1 * m[i] + (1 - a.beta1) * g[i];
        const float v_next = a.beta2 * v[i] + (1 - a.beta2) * g[i] * g[i];
        m[i] = m_next;
        v[i] = v_next;
        w[i] -= a.rate * m_next / (sqrtf(v_next) / a.bias2_root + a.epsilon);
    }
}

static void triad(float *restrict a, const float *restrict b, const float *restrict c, size_t n,
                  float s)
{
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + s * c[i];
}

static void triad_past(float *restrict a, const float *restrict b, const float *restrict c,
                       size_t n, float s)
{
    size_t i = 0;
#if defined(__AVX512F__)
    const __m512 factor = _mm512_set1_ps(s);
    for (; i + 16 <= n; i += 16)
        _mm512_stream_ps(a + i, _mm512_add_ps(_mm512_loadu_ps(b + i),
                                              _mm512_mul_ps(factor, _mm512_loadu_ps(c + i))));
#elif defined(__AVX2__)
    const __m256 factor = _mm256_set1_ps(s);
    for (; i + 8 <= n; i += 8)
        _mm256_stream_ps(a + i, _mm256_add_ps(_mm256_loadu_ps(b + i),
                                              _mm256_mul_ps(factor, _mm256_loadu_ps(c + i))));
#endif
    for (; i < n; i++)
        a[i] = b[i] + s * c[i];
    fence();
}

const struct floor_loops FLOOR_SET = {
    .name = FLOOR_NAME,
    .land = land,
    .land_past = land_past,
    .copy_past = copy_past_whole,
    .sgd = sgd,
    .adam = adam,
    .triad = triad,
    .triad_past = triad_past,
};
