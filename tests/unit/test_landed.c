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

/* Three tensors in as many groups, one of them frozen, none of which ends where pieces do. */
enum { BORDER = ARITHMETIC_BLOCK - 1003, FROZEN = BORDER + 30, MOST = FROZEN + 5000 };

static const struct arithmetic_range ranges[] = {
    {.begin = 0, .end = BORDER, .group = 0},
    {.begin = BORDER, .end = FROZEN, .group = 1},
    {.begin = FROZEN, .end = MOST, .group = 2},
    {.begin = MOST, .end = N, .group = 0},
};

static void plan_of(struct arithmetic_plan *plan)
{
    *plan = (struct arithmetic_plan){.algorithm = ARITHMETIC_SGD, .scale = 1, .entries_n = 1};
    plan->entries[0] = (struct arithmetic_entry){.slot = 3, .weight = 0.7f};
    for (uint32_t i = 0; i < 3; i++)
        arithmetic_plan_group(plan, i,
                              &(struct arithmetic_group_numbers){.learning_rate = 0.3 + i,
                                                                 .weight_decay = 0.01 * i,
                                                                 .bias1 = 1,
                                                                 .bias2 = 1,
                                                                 .frozen = i == 2});
}

/* What a step makes of it that comes later. */
static void step_later(const struct landing *landing, size_t n, float *expected)
{
    struct arithmetic_work work = *landing->work;
    const size_t at = (size_t)landing->at, bytes = codec_bytes(landing->codec, N);
    unsigned char *gradient = calloc(1, bytes);
    work.sources = (struct arithmetic_sources){.base = gradient, .codec = landing->codec};
    work.parameters_next = expected;
    memcpy(gradient + codec_bytes(landing->codec, at), landing->from,
           codec_bytes(landing->codec, n));
    arithmetic_scalar.step(landing->plan, &work, at, at + n);
    free(gradient);
}

/* From all sorts of places to all sorts of ends; bit k of `how`: past the caches, stays in place.
 */
static void steps_alike(enum arithmetic_codec codec, const struct arithmetic *set, unsigned how)
{
    static struct arithmetic_plan plan;
    float *x = floats(), *from = floats(), *to = floats(), *next = floats(), *expected = floats();
    const size_t begins[] = {0, ARITHMETIC_BLOCK, BORDER / 16 * 16, BORDER / 64 * 64 - 192};
    plan_of(&plan);
    for (size_t k = 0; k < 4; k++) {
        const size_t at = begins[k] / CODEC_BLOCK * CODEC_BLOCK;
        const size_t n = k == 3 ? 77 : N - at < 2 * BORDER ? N - at : 2 * BORDER;
        const struct arithmetic_work work = {.parameters = from,
                                             .parameters_next = next,
                                             .ranges = ranges,
                                             .ranges_n = 4,
                                             .streams = how & 1};
        const struct landing landing = {.arithmetic = set,
                                        .codec = codec,
                                        .from = x,
                                        .to = how & 2 ? NULL : to,
                                        .past = how & 1,
                                        .plan = &plan,
                                        .work = &work,
                                        .at = at};
        double sums[3], same[3];
        uint32_t largest = 0;
        set->encode(codec, 1, from + 17, n, x);
        memset(next, 0, N * sizeof *next);
        memset(expected, 0, N * sizeof *next);
        step_later(&landing, n, expected);
        cr_expect_eq(landed_blocks(&landing, n, sums, &largest),
                     checksum_crc32c(0, x, codec_bytes(codec, n)));
        cr_expect_eq(memcmp(next, expected, N * sizeof *next), 0, "%s, %s, %u, from %zu",
                     codec_name(codec), set->name, how, at);
        cr_expect_eq(arithmetic_measure_blocks(set, codec, x, n, same), largest);
        cr_expect_eq(memcmp(sums, same, arithmetic_blocks(n) * sizeof *sums), 0);
        cr_expect(how & 2 || memcmp(to, x, codec_bytes(codec, n)) == 0);
    }
    free(x);
    free(from);
    free(to);
    free(next);
    free(expected);
}

Test(landed, a_step_in_the_same_pass_has_the_bits_of_one_that_comes_later)
{
    for (int codec = ARITHMETIC_F32; codec <= ARITHMETIC_INT8; codec++)
        for (size_t k = 0; arithmetic_at(k) != NULL; k++)
            for (unsigned how = 0; how < 4; how++)
                steps_alike((enum arithmetic_codec)codec, arithmetic_at(k), how);
}
