/* The loops over elements, compiled once per instruction set by the file that names the set
 * (arithmetic_scalar.c, arithmetic_avx2.c, arithmetic_avx512.c) and included by nobody else. The
 * compiler vectorises them; since no loop carries a value from one element to the next but by
 * written lanes, the width changes no bit.
 *
 * Work goes through chunks that stay in the first cache, several short passes each: short loops
 * vectorise everywhere, and the passes cost nothing beside memory. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_LOOPS_H
#define GRADWEIR_COMMON_ARITHMETIC_LOOPS_H

#include "common/arithmetic.h"
#include "common/codec.h"
#include "common/status.h"

#define CHUNK 1024 /* elements; a multiple of LANES */
#define LANES 16   /* partial sums in double: part of the definition of every norm */

/* Arrays may be the same (in place) but never shifted against each other, so no iteration reads
 * what another wrote. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

static uint32_t largest_of(const float *x, size_t n, uint32_t largest)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = element_bits(x[i]) & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    return largest;
}

#include "common/arithmetic_codecs.h"

/* Up to a chunk of `data` from element i on as float32: the memory itself where it is float32
 * already. */
static const float *as_f32(enum arithmetic_codec codec, const void *data, size_t i, size_t n,
                           float *room)
{
    if (codec == ARITHMETIC_F32)
        return (const float *)data + i;
    if (codec == ARITHMETIC_INT8)
        decode_int8(data, i, n, room);
    else
        decode(codec, (const uint16_t *)data + i, n, room);
    return room;
}

static void squares_add(double lanes[LANES], const float *x, size_t n)
{
    double sum[LANES];
    memcpy(sum, lanes, sizeof sum);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            const double value = (double)x[i + j];
            sum[j] += value * value;
        }
    for (size_t j = 0; i + j < n; j++) {
        const double value = (double)x[i + j];
        sum[j] += value * value;
    }
    memcpy(lanes, sum, sizeof sum);
}

static double lanes_sum(double lanes[LANES])
{
    for (size_t width = LANES / 2; width > 0; width /= 2)
        for (size_t j = 0; j < width; j++)
            lanes[j] += lanes[j + width];
    return lanes[0];
}

static void measure(enum arithmetic_codec codec, const void *data, size_t n,
                    struct arithmetic_measure *out)
{
    ASSERT(n <= ARITHMETIC_BLOCK);
    float room[CHUNK];
    double lanes[LANES] = {0};
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i += CHUNK) {
        const size_t some = n - i < CHUNK ? n - i : CHUNK;
        const float *x = as_f32(codec, data, i, some, room);
        squares_add(lanes, x, some);
        largest = largest_of(x, some, largest);
    }
    *out = (struct arithmetic_measure){.largest_bits = largest, .sum_squares = lanes_sum(lanes)};
}

/* sum += weight × x, with what the sum owes when owed is there. */
static void add_term(float weight, const float *x, size_t n, float *sum, float *owed)
{
    if (owed == NULL) {
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            sum[i] = sum[i] + weight * x[i];
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        const struct element_sum next = element_kahan(sum[i], owed[i], weight * x[i]);
        sum[i] = next.sum;
        owed[i] = next.owed;
    }
}

static void average_chunk(const struct arithmetic_plan *plan,
                          const struct arithmetic_sources *sources, size_t at, size_t n, float *sum)
{
    float room[CHUNK], owed[CHUNK];
    const bool compensated = plan->entries_n >= ARITHMETIC_COMPENSATED_MIN;
    memset(sum, 0, n * sizeof *sum);
    memset(owed, 0, n * sizeof *owed);
    for (uint32_t k = 0; k < plan->entries_n; k++) {
        const struct arithmetic_entry *entry = &plan->entries[k];
        const void *slot =
            (const unsigned char *)sources->base + entry->slot * sources->stride_bytes;
        const float *x = as_f32(sources->codec, slot, at, n, room);
        add_term(entry->weight, x, n, sum, compensated ? owed : NULL);
    }
    INDEPENDENT
    for (size_t i = 0; i < n; i++)
        sum[i] = sum[i] * plan->scale;
}

static void average(const struct arithmetic_plan *plan, const struct arithmetic_sources *sources,
                    size_t begin, size_t end, float *out)
{
    for (size_t i = begin; i < end; i += CHUNK)
        average_chunk(plan, sources, i, end - i < CHUNK ? end - i : CHUNK, out + (i - begin));
}

#endif
