/* Checksum and measure in one pass: the same numbers as one after the other, however it is cut. */
#include "common/landed.h"

#include "common/checksum.h"
#include "common/codec.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N = 2 * ARITHMETIC_BLOCK + 1237 };

static float *floats(void)
{
    float *made = malloc(N * sizeof *made);
    cr_assert(made != NULL);
    uint32_t draw = 12345;
    for (size_t i = 0; i < N; i++) {
        draw = draw * 1664525u + 1013904223u;
        made[i] = ((float)(draw >> 8) - 8388608.0f) * 1e-5f;
    }
    return made;
}

Test(landed, sums_of_pieces_in_a_row_are_those_of_the_whole)
{
    static const size_t pieces[] = {16, 1008, 1024, 4096, ARITHMETIC_BLOCK};
    float *x = floats();
    for (size_t k = 0; arithmetic_at(k) != NULL; k++)
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            const size_t n = ARITHMETIC_BLOCK - 77;
            struct arithmetic_running running = {.largest_bits = 0};
            struct arithmetic_measure whole, sum;
            uint32_t crc = 0;
            for (size_t i = 0; i < n; i += pieces[p])
                crc = landed_sum(&(struct landing){.arithmetic = arithmetic_at(k), .from = x + i},
                                 n - i < pieces[p] ? n - i : pieces[p], crc, &running);
            arithmetic_running_end(&running, &sum);
            arithmetic_scalar.measure(ARITHMETIC_F32, x, n, &whole);
            cr_expect_eq(crc, checksum_crc32c(0, x, n * sizeof *x));
            cr_expect_eq(sum.largest_bits, whole.largest_bits);
            cr_expect_eq(sum.sum_squares, whole.sum_squares, "%s, pieces of %zu",
                         arithmetic_at(k)->name, pieces[p]);
        }
    free(x);
}

Test(landed, blocks_have_the_sums_of_a_scan_in_every_codec)
{
    const struct arithmetic *set = arithmetic_choose(NULL);
    for (int codec = ARITHMETIC_F32; codec <= ARITHMETIC_INT8; codec++) {
        float *x = floats(), *from = floats();
        double expected[3], sums[3];
        uint32_t largest = 0;
        set->encode((enum arithmetic_codec)codec, 1, from, N, x);
        const size_t bytes = codec_bytes((enum arithmetic_codec)codec, N);
        const uint32_t expected_largest =
            arithmetic_measure_blocks(set, (enum arithmetic_codec)codec, x, N, expected);
        const struct landing landing = {
            .arithmetic = set, .codec = (enum arithmetic_codec)codec, .from = x};
        cr_expect_eq(landed_blocks(&landing, N, sums, &largest), checksum_crc32c(0, x, bytes));
        cr_expect_eq(largest, expected_largest);
        cr_expect_eq(memcmp(sums, expected, sizeof sums), 0);
        free(x);
        free(from);
    }
}

Test(landed, what_is_not_finite_is_seen_wherever_it_is)
{
    float *x = floats();
    for (size_t i = 0; i < N; i += 9973) {
        double sums[3];
        uint32_t largest = 0;
        const float kept = x[i];
        x[i] = element_float(0xff800000u);
        const struct landing landing = {.arithmetic = arithmetic_choose(NULL), .from = x};
        (void)landed_blocks(&landing, N, sums, &largest);
        cr_expect(!arithmetic_finite(largest), "element %zu", i);
        x[i] = kept;
    }
    free(x);
}

/* All sizes about the pieces that are taken at a time, places of every alignment of a float,
 * through the caches and past them. */
Test(landed, a_copy_on_the_way_has_the_sums_of_what_was_copied)
{
    float *x = floats(), *to = floats();
    for (size_t k = 0; arithmetic_at(k) != NULL; k++)
        for (size_t n = 1; n < 2500; n += n < 200 ? 1 : 97) {
            const size_t shift = n % 16;
            struct landing landing = {
                .arithmetic = arithmetic_at(k), .from = x + n, .to = to + shift, .past = n & 1};
            struct arithmetic_running running = {.largest_bits = 0};
            struct arithmetic_measure whole, sum;
            memset(to, 0, (shift + n + 1) * sizeof *to);
            cr_expect_eq(landed_sum(&landing, n, 77, &running),
                         checksum_crc32c(77, x + n, n * sizeof *x), "%zu elements", n);
            arithmetic_running_end(&running, &sum);
            arithmetic_scalar.measure(ARITHMETIC_F32, x + n, n, &whole);
            cr_expect_eq(memcmp(to + shift, x + n, n * sizeof *x), 0);
            cr_expect_eq(to[shift + n], 0.0f);
            cr_expect_eq(sum.largest_bits, whole.largest_bits);
            cr_expect_eq(sum.sum_squares, whole.sum_squares, "%zu elements", n);
        }
    free(x);
    free(to);
}

Test(landed, a_second_copy_is_the_first_one)
{
    float *x = floats(), *to = floats(), *also = floats();
    for (size_t k = 0; arithmetic_at(k) != NULL; k++)
        for (size_t i = 0; i < 8; i++) {
            const size_t n = 1237 + 64 * i;
            const struct landing landing = {.arithmetic = arithmetic_at(k),
                                            .from = x,
                                            .to = i & 1 ? to : NULL,
                                            .also = i & 2 ? also : NULL,
                                            .past = i & 4};
            struct arithmetic_running running = {.largest_bits = 0};
            memset(to, 0, (n + 1) * sizeof *to);
            memset(also, 0, (n + 1) * sizeof *also);
            cr_expect_eq(landed_sum(&landing, n, 0, &running),
                         checksum_crc32c(0, x, n * sizeof *x));
            cr_expect_eq(memcmp(to, x, n * sizeof *x) == 0, (i & 1) != 0);
            cr_expect_eq(memcmp(also, x, n * sizeof *x) == 0, (i & 2) != 0);
            cr_expect(to[n] == 0.0f && also[n] == 0.0f);
        }
    free(x);
    free(to);
    free(also);
}

Test(landed, codes_are_copied_on_the_way_too)
{
    const struct arithmetic *set = arithmetic_choose(NULL);
    for (int codec = ARITHMETIC_F32; codec <= ARITHMETIC_INT8; codec++) {
        float *x = floats(), *from = floats(), *to = floats();
        double expected[3], sums[3];
        uint32_t largest = 0, expected_largest = 0;
        struct landing landing = {
            .arithmetic = set, .codec = (enum arithmetic_codec)codec, .from = x};
        set->encode(landing.codec, 1, from, N, x);
        const uint32_t crc = landed_blocks(&landing, N, expected, &expected_largest);
        landing.to = to;
        cr_expect_eq(landed_blocks(&landing, N, sums, &largest), crc);
        cr_expect_eq(memcmp(to, x, codec_bytes(landing.codec, N)), 0);
        cr_expect_eq(largest, expected_largest);
        cr_expect_eq(memcmp(sums, expected, sizeof sums), 0);
        free(x);
        free(from);
        free(to);
    }
}
