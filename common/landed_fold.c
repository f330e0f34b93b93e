/* See landed_fold.h; flags for this file alone are in CMakeLists.txt.
 *
 * CRC by folding: a register of 128 bits stands for all that came before it, D bits further left;
 * two carry-less products bring it to where the next 128 bits are, modulo the polynomial. Here four
 * registers hold four such each. (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction", 2009. Reflected: the constants are x^(D + 32) and x^(D - 32) modulo the
 * polynomial of CRC32C, mirrored, times x.) */
#include "common/landed_fold.h"

#include "common/status.h"

#include <assert.h>

#if defined(__AVX512DQ__) && defined(__VPCLMULQDQ__)
#include <immintrin.h>
#include <string.h>

bool landed_fold_runs(const struct arithmetic *arithmetic)
{
    return strcmp(arithmetic->name, "avx512") == 0 && __builtin_cpu_supports("vpclmulqdq");
}

struct folding {
    __m512i z[4], largest;
    __m512d low, high; /* sums of squares: lanes 0 to 7, and 8 to 15 */
};

static __m512i constants(long long low, long long high)
{
    return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

static inline __m512i fold(__m512i all, __m512i by, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(all, by, 0x00),
                                     _mm512_clmulepi64_epi128(all, by, 0x11), next, 0x96);
}

/* 128 bits of a register, alone. */
static __m512i part(const uint64_t words[8], int i)
{
    return _mm512_set_epi64(0, 0, 0, 0, 0, 0, (long long)words[i + 1], (long long)words[i]);
}

/* The four registers, and the four parts of what they become, to 16 bytes with the same CRC. */
static uint32_t fold_up(const __m512i z[4])
{
    const __m512i by = constants(0x0740eef02, 0x09e4addf8);     /* D = 512 */
    const __m512i narrow = constants(0x0f20c0dfe, 0x14cd00bd6); /* D = 128 */
    uint64_t words[8];
    __m512i all = fold(fold(fold(z[0], by, z[1]), by, z[2]), by, z[3]);
    _mm512_storeu_si512(words, all);
    all = part(words, 0);
    for (int i = 2; i < 8; i += 2)
        all = fold(all, narrow, part(words, i));
    _mm512_storeu_si512(words, all);
    return (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, words[0]), words[1]);
}

#define INLINE static inline __attribute__((always_inline))

/* What is loaded here is loaded once: whoever else writes there cannot have one value stored and
 * another one measured. */
INLINE __m512i load_once(const float *from)
{
    __m512i next = _mm512_loadu_si512(from);
    __asm__("" : "+v"(next));
    return next;
}

INLINE void put(float *to, __m512i next, bool past)
{
    if (past)
        _mm512_stream_si512((void *)to, next);
    else
        _mm512_storeu_si512(to, next);
}

INLINE void measure(struct folding *f, __m512i next)
{
    const __m512 x = _mm512_castsi512_ps(next);
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    f->largest =
        _mm512_max_epu32(f->largest, _mm512_and_si512(next, _mm512_set1_epi32(0x7fffffff)));
    f->low = _mm512_add_pd(f->low, _mm512_mul_pd(low, low));
    f->high = _mm512_add_pd(f->high, _mm512_mul_pd(high, high));
}

/* Floats in a small page. The processor does not look beyond the page that it reads: who asks for a
 * line of the next one finds that page's place known and its lines on their way. */
#define PAGE ((size_t)1024)

struct stores {
    bool to, past, also;
};

/* Called with constants for all but the first three, so that there is no choice in the loop. */
INLINE void fold_all(struct folding *given, const struct landing *landing, size_t n,
                     const struct stores stores)
{
    struct folding f = *given;
    const __m512i by = constants(0x0dcb17aa4, 0x0b9e02b86); /* D = 2048 */
    const float *from = landing->from;
    float *to = landing->to, *also = landing->also;
    for (size_t i = 0; i < n; i += LANDED_FOLD) {
        if (i % PAGE == 0)
            __builtin_prefetch((const void *)((uintptr_t)(from + i) + PAGE * sizeof *from));
        for (size_t k = 0; k < 4; k++) {
            const __m512i next = load_once(from + i + 16 * k);
            if (stores.to)
                put(to + i + 16 * k, next, stores.past);
            if (stores.also)
                put(also + i + 16 * k, next, false);
            measure(&f, next);
            f.z[k] = i == 0 ? _mm512_xor_si512(next, f.z[k]) : fold(f.z[k], by, next);
        }
    }
    *given = f;
}

static bool aligned(const void *to)
{
    return (uintptr_t)to % sizeof(__m512i) == 0;
}

static void store_all(struct folding *f, const struct landing *landing, size_t n)
{
    const bool past = landing->past && aligned(landing->to), also = landing->also != NULL;
    if (landing->to == NULL && also)
        fold_all(f, landing, n, (struct stores){.also = true});
    else if (landing->to == NULL)
        fold_all(f, landing, n, (struct stores){.to = false});
    else if (past && also)
        fold_all(f, landing, n, (struct stores){.to = true, .past = true, .also = true});
    else if (past)
        fold_all(f, landing, n, (struct stores){.to = true, .past = true});
    else if (also)
        fold_all(f, landing, n, (struct stores){.to = true, .also = true});
    else
        fold_all(f, landing, n, (struct stores){.to = true});
}

static void begin(struct folding *f, uint32_t seed, const struct arithmetic_running *running)
{
    f->z[0] = _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, (long long)(uint32_t)~seed);
    f->z[1] = f->z[2] = f->z[3] = _mm512_setzero_si512();
    f->largest = _mm512_set1_epi32((int)running->largest_bits);
    f->low = _mm512_loadu_pd(running->lanes);
    f->high = _mm512_loadu_pd(running->lanes + 8);
}

uint32_t landed_fold(const struct landing *landing, size_t n, uint32_t seed,
                     struct arithmetic_running *running)
{
    static_assert(ARITHMETIC_LANES == 16, "two registers of doubles");
    struct folding f;
    ASSERT(n > 0 && n % LANDED_FOLD == 0);
    begin(&f, seed, running);
    store_all(&f, landing, n);
    _mm_sfence(); /* what went past the cache is seen by others before they hear of it */
    running->largest_bits = _mm512_reduce_max_epu32(f.largest);
    _mm512_storeu_pd(running->lanes, f.low);
    _mm512_storeu_pd(running->lanes + 8, f.high);
    return ~fold_up(f.z);
}

#else

bool landed_fold_runs(const struct arithmetic *arithmetic)
{
    (void)arithmetic;
    return false;
}

uint32_t landed_fold(const struct landing *landing, size_t n, uint32_t seed,
                     struct arithmetic_running *running)
{
    (void)landing;
    (void)n;
    (void)running;
    ASSERT(!"folding here");
    return seed;
}

#endif
