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

#define POLYNOMIAL 0x82f63b78u

static uint32_t bytes_crc[256];

/* One bit more, mirrored: times x. */
static uint32_t times_x(uint32_t crc)
{
    return (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
}

static uint32_t crc_byte(uint32_t crc)
{
    for (int bit = 0; bit < 8; bit++)
        crc = times_x(crc);
    return crc;
}

static void make_tables(void)
{
    if (bytes_crc[1])
        return;
    for (uint32_t i = 0; i < 256; i++)
        bytes_crc[i] = crc_byte(i);
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

static uint32_t crc_rest(uint32_t crc, const unsigned char *bytes, size_t n)
{
    uint64_t a = crc;
    for (; n >= 8; n -= 8, bytes += 8)
        a = crc_word(a, word(bytes));
    return crc_plain((uint32_t)a, bytes, n);
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

#if defined(__AVX512F__) && defined(__VPCLMULQDQ__)

/* CRC by folding: a register of 128 bit stands for all that came before it, D bits further left;
 * two carry-less products bring it to where the next 128 bits are, modulo the polynomial. Here four
 * registers of four such each. (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ", 2009: reflected, so constants are x^(D + 32) and x^(D - 32), mirrored, times x.) */
enum { FOLDED = 256 };

static uint64_t power_mirrored(unsigned n)
{
    uint32_t power = 1u << 31; /* x^0, mirrored */
    for (unsigned i = 0; i < n; i++)
        power = times_x(power);
    return (uint64_t)power << 1;
}

static __m512i constants(unsigned distance)
{
    const long long low = (long long)power_mirrored(distance + 32);
    const long long high = (long long)power_mirrored(distance - 32);
    return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

static __m512i fold(__m512i all, __m512i by, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(all, by, 0x00),
                                     _mm512_clmulepi64_epi128(all, by, 0x11), next, 0x96);
}

/* The four registers, and the four parts of what they become, to 16 bytes with the same CRC. */
static uint32_t fold_up(const __m512i z[4])
{
    const __m512i by = constants(512), narrow = constants(128);
    __m512i all = fold(fold(fold(z[0], by, z[1]), by, z[2]), by, z[3]);
    uint64_t parts[8], last[8];
    _mm512_storeu_si512(parts, all);
    all = _mm512_set_epi64(0, 0, 0, 0, 0, 0, (long long)parts[1], (long long)parts[0]);
    for (int i = 2; i < 8; i += 2)
        all =
            fold(all, narrow,
                 _mm512_set_epi64(0, 0, 0, 0, 0, 0, (long long)parts[i + 1], (long long)parts[i]));
    _mm512_storeu_si512(last, all);
    return (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, last[0]), last[1]);
}

struct folding {
    __m512i z[4], by, most;
};

/* 256 bytes: read once, written once, folded and measured in registers. */
static void fold_bytes(struct folding *f, char *to, const char *from, bool past, bool first)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (int k = 0; k < 4; k++) {
        const __m512i next = _mm512_loadu_si512(from + 64 * k);
        if (past)
            _mm512_stream_si512((void *)(to + 64 * k), next);
        else
            _mm512_store_si512(to + 64 * k, next);
        f->most = _mm512_max_epu32(f->most, _mm512_and_si512(next, magnitude));
        f->z[k] = first ? _mm512_xor_si512(next, f->z[k]) : fold(f->z[k], f->by, next);
    }
}

static inline uint32_t land_all(void *to, const void *from, size_t bytes, bool past, bool *finite)
{
    struct folding f = {.most = _mm512_setzero_si512()};
    const size_t folded = bytes / FOLDED * FOLDED;
    uint32_t crc = UINT32_MAX;
    make_tables();
    if (folded) {
        f.by = constants(2048);
        f.z[0] = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1);
        f.z[1] = f.z[2] = f.z[3] = _mm512_setzero_si512();
        fold_bytes(&f, to, from, past, true);
        for (size_t at = FOLDED; at < folded; at += FOLDED)
            fold_bytes(&f, (char *)to + at, (const char *)from + at, past, false);
        crc = fold_up(f.z);
    }
    const unsigned char *rest = (const unsigned char *)from + folded;
    memcpy((char *)to + folded, rest, bytes - folded);
    crc = crc_rest(crc, rest, bytes - folded);
    const uint32_t most = largest((const uint32_t *)(const void *)rest, (bytes - folded) / 4);
    fence();
    *finite = most < 0x7f800000u && _mm512_reduce_max_epu32(f.most) < 0x7f800000u;
    return ~crc;
}

static uint32_t land(void *to, const void *from, size_t bytes, bool *finite)
{
    return land_all(to, from, bytes, false, finite);
}

static uint32_t land_past(void *to, const void *from, size_t bytes, bool *finite)
{
    return land_all(to, from, bytes, true, finite);
}

#else

enum { STREAM = 4096, STREAMS = 3 }; /* three CRCs side by side hide the instruction's latency */
static uint32_t shift[4][256]; /* the register after STREAM zero bytes, by each of its bytes */

static void make_shift(void)
{
    make_tables();
    if (shift[0][1])
        return;
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

static uint32_t crc_any(uint32_t crc, const unsigned char *bytes, size_t n)
{
    return n == FLOOR_BLOCK ? crc_block(crc, bytes) : crc_rest(crc, bytes, n);
}

static uint32_t land(void *to, const void *from, size_t bytes, bool *finite)
{
    uint32_t crc = UINT32_MAX, most = 0;
    make_shift();
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
    make_shift();
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

#endif

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
