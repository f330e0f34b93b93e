/* Stores that go past the caches: for what is written once and not read again soon, so that its
 * lines are neither fetched first nor push out others. Included by the loops of a set, with the
 * widest store that the set has; where there is none it is a plain copy. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_STREAM_H
#define GRADWEIR_COMMON_ARITHMETIC_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define STREAM_FLOATS        16
#define STREAM_PUT(to, from) _mm512_stream_ps(to, _mm512_loadu_ps(from))
#define STREAM_END()         _mm_sfence()
#elif defined(__AVX2__)
#include <immintrin.h>
#define STREAM_FLOATS        8
#define STREAM_PUT(to, from) _mm256_stream_ps(to, _mm256_loadu_ps(from))
#define STREAM_END()         _mm_sfence()
#elif defined(__SSE2__)
#include <emmintrin.h>
#define STREAM_FLOATS        4
#define STREAM_PUT(to, from) _mm_stream_ps(to, _mm_loadu_ps(from))
#define STREAM_END()         _mm_sfence()
#else
#define STREAM_FLOATS        1
#define STREAM_PUT(to, from) (*(to) = *(from))
#define STREAM_END()         ((void)0)
#endif

/* Copies n floats; visible to others in order only after stream_end. */
static inline void stream(float *to, const float *from, size_t n)
{
    size_t i = 0;
    for (; i < n && (uintptr_t)(to + i) % (STREAM_FLOATS * sizeof(float)) != 0; i++)
        to[i] = from[i];
    for (; i + STREAM_FLOATS <= n; i += STREAM_FLOATS)
        STREAM_PUT(to + i, from + i);
    memcpy(to + i, from + i, (n - i) * sizeof(float));
}

static inline void stream_end(void)
{
    STREAM_END();
}

#endif
