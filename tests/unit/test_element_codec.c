/* Codecs and measures as functions per element, which are what the GPU's kernels are made of,
 * against the CPU's loops: the same bits. */
#include "common/codec.h"
#include "common/element_gradient.h"
#include "tests/unit/element_set.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N = 70001 };

static float draw_float(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    const uint32_t bits = (uint32_t)*seed;
    return element_float((bits & 0x807fffffu) | ((118u + ((bits >> 23) & 15u)) << 23));
}

static float *draw_floats(uint64_t seed)
{
    float *x = malloc(N * sizeof *x);
    cr_assert(x != NULL);
    for (size_t i = 0; i < N; i++)
        x[i] = draw_float(&seed);
    return x;
}

static void expect_same(enum arithmetic_codec codec, const float *x, size_t n, float scale)
{
    const struct arithmetic elements = element_set();
    const size_t bytes = codec_bytes(codec, n);
    unsigned char *mine = calloc(1, bytes + 1), *theirs = calloc(1, bytes + 1);
    float *back = calloc(n + 1, sizeof *back), *back_theirs = calloc(n + 1, sizeof *back);
    struct arithmetic_measure a, b;
    cr_assert(mine && theirs && back && back_theirs);
    elements.encode(codec, scale, x, n, mine);
    arithmetic_scalar.encode(codec, scale, x, n, theirs);
    cr_expect_eq(memcmp(mine, theirs, bytes), 0, "codec %d, %zu elements", codec, n);
    elements.decode(codec, theirs, n, back);
    arithmetic_scalar.decode(codec, theirs, n, back_theirs);
    cr_expect_eq(memcmp(back, back_theirs, n * sizeof *back), 0, "codec %d, %zu", codec, n);
    elements.measure(codec, theirs, n, &a);
    arithmetic_scalar.measure(codec, theirs, n, &b);
    cr_expect_eq(memcmp(&a.sum_squares, &b.sum_squares, sizeof a.sum_squares), 0,
                 "codec %d, %zu: sums %g and %g", codec, n, a.sum_squares, b.sum_squares);
    cr_expect_eq(a.largest_bits, b.largest_bits, "codec %d, %zu", codec, n);
    free(mine);
    free(theirs);
    free(back);
    free(back_theirs);
}

Test(element_codec, elements_are_encoded_decoded_and_measured_as_the_loops_do)
{
    static const size_t sizes[] = {0, 1, 15, 17, 255, 256, 257, 4096, 4099, ARITHMETIC_BLOCK};
    for (uint64_t seed = 1; seed <= 3; seed++) {
        float *x = draw_floats(seed);
        for (int codec = ARITHMETIC_F32; codec <= ARITHMETIC_INT8; codec++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                expect_same((enum arithmetic_codec)codec, x + i, sizes[i], 0.37f);
        free(x);
    }
}

Test(element_codec, an_int8_block_that_is_not_finite_is_marked_as_the_loops_mark_it)
{
    const struct arithmetic elements = element_set();
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float *x = draw_floats(7);
    unsigned char mine[2][260], theirs[2][260];
    for (size_t k = 0; k < 3; k++) {
        struct arithmetic_measure a, b;
        x[300] = bad[k];
        elements.encode(ARITHMETIC_INT8, 1.0f, x, 512, mine);
        arithmetic_scalar.encode(ARITHMETIC_INT8, 1.0f, x, 512, theirs);
        cr_expect_eq(memcmp(mine, theirs, sizeof mine), 0, "%g", (double)bad[k]);
        elements.measure(ARITHMETIC_INT8, mine, 512, &a);
        arithmetic_scalar.measure(ARITHMETIC_INT8, mine, 512, &b);
        cr_expect(isnan(a.sum_squares) && isnan(b.sum_squares));
        cr_expect_eq(a.largest_bits, b.largest_bits);
        cr_expect_not(arithmetic_finite(a.largest_bits));
    }
    free(x);
}
