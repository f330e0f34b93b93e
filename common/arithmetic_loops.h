/* The loops over elements, compiled once per instruction set by the file that names the set
 * (arithmetic_scalar.c, arithmetic_avx2.c, arithmetic_avx512.c) and included by nobody else. The
 * compiler vectorises them; since no loop carries a value from one element to the next but by
 * written lanes, the width changes no bit.
 *
 * What is summed or widened goes through chunks that stay in the first cache. What a step does to
 * an element is one loop (arithmetic_optimizers.h): several short passes over a chunk cost more
 * than the memory does. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_LOOPS_H
#define GRADWEIR_COMMON_ARITHMETIC_LOOPS_H

#include "common/arithmetic.h"
#include "common/codec.h"
#include "common/status.h"

#define CHUNK 2048 /* elements; a multiple of ARITHMETIC_LANES */

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

static void squares_add(double lanes[ARITHMETIC_LANES], const float *x, size_t n)
{
    double sum[ARITHMETIC_LANES];
    memcpy(sum, lanes, sizeof sum);
    size_t i = 0;
    for (; i + ARITHMETIC_LANES <= n; i += ARITHMETIC_LANES)
        for (size_t j = 0; j < ARITHMETIC_LANES; j++) {
            const double value = (double)x[i + j];
            sum[j] += value * value;
        }
    for (size_t j = 0; i + j < n; j++) {
        const double value = (double)x[i + j];
        sum[j] += value * value;
    }
    memcpy(lanes, sum, sizeof sum);
}

static void measure_on(enum arithmetic_codec codec, const void *data, size_t n,
                       struct arithmetic_running *running)
{
    float room[CHUNK];
    if (codec == ARITHMETIC_INT8) {
        measure_int8(data, n, running);
        return;
    }
    if (codec == ARITHMETIC_BF16) {
        measure_halves(ARITHMETIC_BF16, data, n, running);
        return;
    }
    if (codec == ARITHMETIC_F16) {
        measure_halves(ARITHMETIC_F16, data, n, running);
        return;
    }
    for (size_t i = 0; i < n; i += CHUNK) {
        const size_t some = n - i < CHUNK ? n - i : CHUNK;
        const float *x = as_f32(codec, data, i, some, room);
        squares_add(running->lanes, x, some);
        running->largest_bits = largest_of(x, some, running->largest_bits);
    }
}

static void encode_on(enum arithmetic_codec codec, const float *from, size_t n, float *rest,
                      void *to, struct arithmetic_running *running)
{
    if (codec == ARITHMETIC_INT8) {
        encode_int8(1.0f, from, n, rest, to, running);
        return;
    }
    if (rest)
        encode_rest(codec, from, n, rest, to);
    else
        encode(codec, 1.0f, from, n, to);
    measure_on(codec, to, n, running);
}

static void measure(enum arithmetic_codec codec, const void *data, size_t n,
                    struct arithmetic_measure *out)
{
    ASSERT(n <= ARITHMETIC_BLOCK);
    struct arithmetic_running running = {.largest_bits = 0};
    measure_on(codec, data, n, &running);
    arithmetic_running_end(&running, out);
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

#define TOGETHER 8 /* sources added in one pass: more streams than that no prefetcher follows */

/* The same, eight terms of each sum one after the other: the sum stays in registers meanwhile. */
static void add_terms(const struct arithmetic_entry *entries, const float *const x[TOGETHER],
                      size_t n, float *sum, float *owed)
{
    const float *a = x[0], *b = x[1], *c = x[2], *d = x[3], *e = x[4], *f = x[5], *g = x[6],
                *h = x[7];
    float w[TOGETHER];
    for (size_t k = 0; k < TOGETHER; k++)
        w[k] = entries[k].weight;
    const float wa = w[0], wb = w[1], wc = w[2], wd = w[3], we = w[4], wf = w[5], wg = w[6],
                wh = w[7];
    if (owed == NULL) {
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            sum[i] =
                (((((((sum[i] + wa * a[i]) + wb * b[i]) + wc * c[i]) + wd * d[i]) + we * e[i]) +
                  wf * f[i]) +
                 wg * g[i]) +
                wh * h[i];
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        struct element_sum s = element_kahan(sum[i], owed[i], wa * a[i]);
        s = element_kahan(s.sum, s.owed, wb * b[i]);
        s = element_kahan(s.sum, s.owed, wc * c[i]);
        s = element_kahan(s.sum, s.owed, wd * d[i]);
        s = element_kahan(s.sum, s.owed, we * e[i]);
        s = element_kahan(s.sum, s.owed, wf * f[i]);
        s = element_kahan(s.sum, s.owed, wg * g[i]);
        s = element_kahan(s.sum, s.owed, wh * h[i]);
        sum[i] = s.sum;
        owed[i] = s.owed;
    }
}

/* Up to a chunk of what entry k names, from element `at` on, as float32. */
static const float *source_of(const struct arithmetic_plan *plan,
                              const struct arithmetic_sources *sources, uint32_t k, size_t at,
                              size_t n, float *room)
{
    const void *slot =
        (const unsigned char *)sources->base + plan->entries[k].slot * sources->stride_bytes;
    return as_f32(sources->codec, slot, at, n, room);
}

/* sum[i] = Σ_k weight_k × gradient_k[at + i], terms in log order, not scaled yet. */
static void direct_chunk(const struct arithmetic_plan *plan,
                         const struct arithmetic_sources *sources, size_t at, size_t n, float *sum)
{
    float room[CHUNK], room_owed[CHUNK];
    float *owed = plan->entries_n >= ARITHMETIC_COMPENSATED_MIN ? room_owed : NULL;
    const uint32_t together = sources->codec == ARITHMETIC_F32 ? TOGETHER : UINT32_MAX;
    uint32_t k = 0;
    memset(sum, 0, n * sizeof *sum);
    if (owed != NULL)
        memset(owed, 0, n * sizeof *owed);
    for (; plan->entries_n - k >= together; k += together) {
        const float *x[TOGETHER];
        for (uint32_t j = 0; j < TOGETHER; j++)
            x[j] = source_of(plan, sources, k + j, at, n, room);
        add_terms(&plan->entries[k], x, n, sum, owed);
    }
    for (; k < plan->entries_n; k++)
        add_term(plan->entries[k].weight, source_of(plan, sources, k, at, n, room), n, sum, owed);
}

#include "common/arithmetic_stacks.h"

static void sum_chunk(const struct arithmetic_plan *plan, const struct arithmetic_sources *sources,
                      size_t at, size_t n, float *sum)
{
    if (plan->stacks.window > 0)
        stacks_chunk(plan, sources, at, n, sum);
    else
        direct_chunk(plan, sources, at, n, sum);
}

static void average(const struct arithmetic_plan *plan, const struct arithmetic_sources *sources,
                    size_t begin, size_t end, float *out)
{
    for (size_t at = begin, n; at < end; at += n) {
        float *sum = out + (at - begin);
        n = turn_run(plan, sources, at);
        n = n > CHUNK ? n : CHUNK;
        n = end - at < n ? end - at : n;
        sum_chunk(plan, sources, at, n, sum);
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            sum[i] = sum[i] * plan->scale;
    }
    stream_end();
}

#endif
