/* The codecs: what int8 is, and what error feedback keeps, on every instruction set. */
#include "common/codec.h"
#include "common/random.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum { N = 5 * CODEC_BLOCK + 77, SEEDS = 60 };

static const enum arithmetic_codec codecs[] = {ARITHMETIC_F32, ARITHMETIC_BF16, ARITHMETIC_F16,
                                               ARITHMETIC_INT8};

static float draw(struct random *random)
{
    const int power = (int)random_below(random, 30) - 22;
    return (float)ldexp(2 * random_uniform(random) - 1, power);
}

static void draw_all(struct random *random, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = draw(random);
}

/* The definition once more, in double and by block. */
static double step_of(const float *x, size_t n, size_t i)
{
    const size_t from = i / CODEC_BLOCK * CODEC_BLOCK;
    double largest = 0;
    for (size_t k = from; k < from + CODEC_BLOCK && k < n; k++)
        largest = fmax(largest, fabs((double)x[k]));
    return largest / 127;
}

Test(codec, int8_is_off_by_half_a_step_at_most)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct random random;
        float x[N], back[N];
        uint8_t wire[2 * N];
        random_init(&random, seed);
        const size_t n = 1 + random_below(&random, N);
        draw_all(&random, x, n);
        arithmetic_scalar.encode(ARITHMETIC_INT8, 1, x, n, wire);
        arithmetic_scalar.decode(ARITHMETIC_INT8, wire, n, back);
        for (size_t i = 0; i < n; i++)
            cr_assert_leq(fabs((double)x[i] - (double)back[i]),
                          step_of(x, n, i) * (0.5 + 1.0 / 512), "seed %lu, element %zu", seed, i);
    }
}

Test(codec, what_was_encoded_once_encodes_to_itself)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (size_t k = 0; k < 4; k++) {
            struct random random;
            float x[N];
            uint8_t wire[4 * N], again[4 * N];
            random_init(&random, seed);
            draw_all(&random, x, N);
            arithmetic_scalar.encode(codecs[k], 1, x, N, wire);
            arithmetic_scalar.decode(codecs[k], wire, N, x);
            arithmetic_scalar.encode(codecs[k], 1, x, N, again);
            cr_assert_arr_eq(wire, again, codec_bytes(codecs[k], N), "%s", codec_name(codecs[k]));
        }
}

/* Encoded, decoded, measured, averaged, with rest and mass given back: one outcome. */
static void outcome(const struct arithmetic *set, enum arithmetic_codec codec, const float *x,
                    size_t n, float out[4][N])
{
    uint8_t wire[4 * N];
    struct arithmetic_measure measure;
    const struct arithmetic_plan plan = {
        .scale = 0.7f, .entries_n = 1, .entries = {{.slot = 0, .weight = 0.3f}}};
    const struct arithmetic_sources sources = {.base = wire, .codec = codec};
    memset(out, 0, 4 * sizeof *out);
    memcpy(out[1], x, n * sizeof *x);
    set->encode(codec, 0.9f, x, n, wire);
    set->decode(codec, wire, n, out[0]);
    set->encode_rest(codec, out[0], n, out[1], wire);
    set->decode_add(codec, wire, n, out[2]);
    set->measure(codec, wire, n, &measure);
    out[2][n - 1] += (float)measure.sum_squares;
    set->average(&plan, &sources, n / 3, n, out[3]); /* begins within a block */
}

Test(codec, has_the_same_bits_on_every_instruction_set)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (size_t k = 0; k < 4; k++) {
            struct random random;
            static float x[N], expected[4][N], got[4][N];
            random_init(&random, seed);
            const size_t n = 2 + random_below(&random, N - 1);
            draw_all(&random, x, n);
            outcome(&arithmetic_scalar, codecs[k], x, n, expected);
            for (size_t i = 0; arithmetic_at(i); i++) {
                outcome(arithmetic_at(i), codecs[k], x, n, got);
                cr_assert_eq(memcmp(expected, got, sizeof got), 0, "%s %s, seed %lu",
                             arithmetic_at(i)->name, codec_name(codecs[k]), seed);
            }
        }
}

Test(codec, a_measure_is_that_of_what_is_decoded)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (size_t k = 0; k < 4; k++) {
            struct random random;
            float x[N];
            uint8_t wire[4 * N];
            struct arithmetic_measure measure;
            double sum = 0, largest = 0;
            random_init(&random, seed);
            const size_t n = 1 + random_below(&random, N);
            draw_all(&random, x, n);
            arithmetic_scalar.encode(codecs[k], 1, x, n, wire);
            if (codecs[k] == ARITHMETIC_INT8 && n > 7)
                wire[4 + 5] = 0x80; /* -128, which no encoding makes */
            for (size_t i = 0; i < n; i++) {
                const double y = (double)codec_element(codecs[k], wire, i);
                sum += y * y;
                largest = fmax(largest, fabs(y));
            }
            arithmetic_scalar.measure(codecs[k], wire, n, &measure);
            cr_assert_float_eq(measure.sum_squares, sum, 1e-12 * sum, "%s", codec_name(codecs[k]));
            cr_assert_eq((double)arithmetic_largest(measure.largest_bits), largest);
        }
}

/* Piece by piece, with a number that is none somewhere at every fourth seed. */
static void encode_by_pieces(const struct arithmetic *set, enum arithmetic_codec codec,
                             struct random *random, const float *x, float *rest, uint8_t *wire,
                             struct arithmetic_measure *measure)
{
    struct arithmetic_running running = {.largest_bits = 0};
    for (size_t at = 0; at < N;) {
        const size_t want = CODEC_BLOCK * (1 + random_below(random, 4));
        const size_t some = N - at < want ? N - at : want;
        set->encode_on(codec, x + at, some, rest ? rest + at : NULL, wire + codec_bytes(codec, at),
                       &running);
        at += some;
    }
    arithmetic_running_end(&running, measure);
}

Test(codec, an_encoding_by_pieces_measures_what_it_made)
{
    static float x[N], rest[2][N];
    static uint8_t wire[2][4 * N];
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (size_t k = 0; k < 8; k++) {
            const enum arithmetic_codec codec = codecs[k / 2];
            const bool owes = k % 2;
            struct random random;
            struct arithmetic_measure expected, got;
            random_init(&random, seed);
            draw_all(&random, x, N);
            draw_all(&random, rest[0], N);
            if (seed % 4 == 0)
                x[random_below(&random, N)] = seed % 8 ? INFINITY : NAN;
            memcpy(rest[1], rest[0], sizeof rest[0]);
            memset(wire, 0, sizeof wire);
            if (owes)
                arithmetic_scalar.encode_rest(codec, x, N, rest[0], wire[0]);
            else
                arithmetic_scalar.encode(codec, 1, x, N, wire[0]);
            arithmetic_scalar.measure(codec, wire[0], N, &expected);
            for (size_t i = 0; arithmetic_at(i); i++) {
                float owed[N];
                memcpy(owed, rest[1], sizeof owed);
                encode_by_pieces(arithmetic_at(i), codec, &random, x, owes ? owed : NULL, wire[1],
                                 &got);
                cr_assert_arr_eq(wire[0], wire[1], sizeof wire[0]);
                cr_assert_arr_eq(owed, owes ? rest[0] : rest[1], sizeof owed);
                cr_assert_eq(got.largest_bits, expected.largest_bits, "%s, seed %lu",
                             codec_name(codec), seed);
                cr_assert(got.sum_squares == expected.sum_squares || seed % 4 == 0);
            }
        }
}

Test(codec, the_bits_of_int8_are_these)
{
    static const float x[4] = {1.27f, -0.005f, 0.015f, 0};
    uint8_t wire[8];
    float scale;
    arithmetic_scalar.encode(ARITHMETIC_INT8, 1, x, 4, wire);
    memcpy(&scale, wire, sizeof scale);
    cr_assert_eq(element_bits(scale), 0x3c23d800u); /* 0.01 and up to 16 bits */
    const int8_t expected[4] = {127, 0, 1, 0};      /* -0.4998 and 1.4995 steps */
    cr_assert_arr_eq(wire + 4, expected, 4);
}

Test(codec, zeros_and_the_smallest_numbers_are_no_trouble)
{
    for (size_t s = 0; arithmetic_at(s); s++) {
        float x[3] = {0, -0.0f, 0}, back[3];
        uint8_t wire[7];
        arithmetic_at(s)->encode(ARITHMETIC_INT8, 1, x, 3, wire);
        for (size_t i = 0; i < sizeof wire; i++)
            cr_assert_eq(wire[i], 0);
        x[1] = 1e-42f;
        arithmetic_at(s)->encode(ARITHMETIC_INT8, 1, x, 3, wire);
        arithmetic_at(s)->decode(ARITHMETIC_INT8, wire, 3, back);
        cr_assert(back[1] >= 0 && back[1] <= 1.2e-38f);
        x[0] = 3.4028234e38f;
        arithmetic_at(s)->encode(ARITHMETIC_INT8, 1, x, 3, wire);
        cr_assert_eq(wire[4], 127);
    }
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* About the ends of all number formats: where float16 and bfloat16 round to infinity, and where 127
 * steps of int8 would be more than a float can hold. */
static const float extremes[] = {FLT_MAX,         -FLT_MAX,        0x1.fffffcp127f,
                                 0x1.fdfffep127f, 0x1.fe0000p127f, 0x1.fe0002p127f,
                                 0x1.fep127f,     0x1.fefffep127f, -0x1.ffp127f,
                                 0x1.0p127f,      65519.996f,      -65520.0f,
                                 FLT_MIN,         1e-45f,          -0.0f,
                                 INFINITY,        -INFINITY,       NAN};
static const float debts[] = {0.0f, -0.0f, 1.0f, -65504.0f, 0x1p103f, -0x1p103f, FLT_MAX, -FLT_MAX};

/* A rest that is not finite would poison each later gradient. */
Test(codec, a_rest_stays_finite_whatever_is_encoded)
{
    enum { FEW = CODEC_BLOCK + 7 };
    for (size_t s = 0; arithmetic_at(s); s++)
        for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++)
            for (size_t k = 0; k < sizeof debts / sizeof *debts * 4; k++) {
                const enum arithmetic_codec codec = codecs[k % 4];
                float x[FEW] = {0}, rest[FEW] = {0};
                uint8_t wire[4 * FEW];
                x[1] = x[FEW - 2] = extremes[i];
                x[3] = -0.7f * extremes[i];
                rest[1] = rest[4] = rest[FEW - 2] = debts[k / 4];
                arithmetic_at(s)->encode_rest(codec, x, FEW, rest, wire);
                cr_assert(all_finite(rest, FEW), "%s %s: %a, and %a is owed",
                          arithmetic_at(s)->name, codec_name(codec), (double)extremes[i],
                          (double)debts[k / 4]);
            }
}

Test(codec, int8_keeps_what_is_finite_finite_and_changes_no_other_scale)
{
    for (uint32_t bits = element_bits(0x1p127f); bits < 0x7f800000u;
         bits += bits < 0x7f7fff00u ? 0x3ff : 1) {
        const float x = element_float(bits), scale = element_int8_scale(bits);
        const uint32_t rounded = (element_bits(x / 127.0f) + 0xffu) & 0xffffff00u;
        cr_assert(isfinite(127.0f * scale), "%a", (double)x);
        if (isfinite(127.0f * element_float(rounded)))
            cr_assert_eq(element_bits(scale), rounded, "%a", (double)x);
        cr_assert_eq(element_to_int8(x, element_int8_inverse(scale)), 127, "%a", (double)x);
    }
}

Test(codec, what_is_not_finite_is_found_at_its_element)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (size_t k = 0; k < 4; k++) {
            struct random random;
            static float x[N];
            uint8_t wire[4 * N];
            struct arithmetic_measure measure;
            random_init(&random, seed);
            draw_all(&random, x, N);
            arithmetic_scalar.encode(codecs[k], 1, x, N, wire);
            cr_assert_eq(codec_first_not_finite(codecs[k], wire, N), UINT64_MAX);
            const size_t at = random_below(&random, N);
            x[at] = x[N - 1] = bad[seed % 3];
            for (size_t s = 0; arithmetic_at(s); s++) {
                arithmetic_at(s)->encode(codecs[k], 1, x, N, wire);
                arithmetic_at(s)->measure(codecs[k], wire, N, &measure);
                cr_assert(!arithmetic_finite(measure.largest_bits));
                cr_assert_eq(codec_first_not_finite(codecs[k], wire, N), at);
            }
        }
}

Test(codec, too_large_for_float16_is_not_finite)
{
    const float x[3] = {1, 65519, 65520};
    uint16_t wire[3];
    arithmetic_scalar.encode(ARITHMETIC_F16, 1, x, 3, wire);
    cr_assert_eq(codec_first_not_finite(ARITHMETIC_F16, wire, 3), 2);
}

/* What was sent and what is owed are the sum that was to be sent, to the bit. */
Test(codec, what_is_sent_and_the_rest_are_the_whole)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (size_t k = 0; k < 4; k++) {
            struct random random;
            float x[N], rest[N], sum[N];
            uint8_t wire[4 * N];
            random_init(&random, seed);
            draw_all(&random, x, N);
            draw_all(&random, rest, N);
            for (size_t i = 0; i < N; i++)
                sum[i] = x[i] + rest[i];
            arithmetic_scalar.encode_rest(codecs[k], x, N, rest, wire);
            arithmetic_scalar.decode_add(codecs[k], wire, N, rest);
            cr_assert_arr_eq(rest, sum, sizeof sum, "%s", codec_name(codecs[k]));
        }
}

Test(codec, a_rest_stays_as_it_was_where_the_sum_is_not_finite)
{
    float x[2 * CODEC_BLOCK], rest[2 * CODEC_BLOCK];
    uint8_t wire[8 * CODEC_BLOCK];
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < 2 * CODEC_BLOCK; i++)
            x[i] = rest[i] = 0.25f + (float)i;
        x[3] = NAN;
        arithmetic_choose(NULL)->encode_rest(codecs[k], x, 2 * CODEC_BLOCK, rest, wire);
        cr_assert_eq(element_bits(rest[3]), element_bits(3.25f));
        cr_assert(fabsf(rest[CODEC_BLOCK + 3]) < 8);
    }
}

/* 1,000 pushes, some refused: what was admitted and what is owed in the end are what was computed.
 */
Test(codec, no_mass_is_lost_over_a_thousand_pushes)
{
    enum { FEW = CODEC_BLOCK + 9, PUSHES = 1000 };
    for (size_t k = 1; k < 4; k++) {
        static double computed[FEW], admitted[FEW];
        static float x[FEW], rest[FEW], sent[FEW];
        uint8_t wire[4 * FEW];
        struct random random;
        random_init(&random, 7 + k);
        memset(computed, 0, sizeof computed);
        memset(admitted, 0, sizeof admitted);
        memset(rest, 0, sizeof rest);
        for (size_t p = 0; p < PUSHES; p++) {
            for (size_t i = 0; i < FEW; i++)
                computed[i] += (double)(x[i] = (float)(2 * random_uniform(&random) - 1));
            arithmetic_choose(NULL)->encode_rest(codecs[k], x, FEW, rest, wire);
            arithmetic_choose(NULL)->decode(codecs[k], wire, FEW, sent);
            const bool refused = random_below(&random, 4) == 0;
            if (refused)
                arithmetic_choose(NULL)->decode_add(codecs[k], wire, FEW, rest);
            for (size_t i = 0; i < FEW && !refused; i++)
                admitted[i] += (double)sent[i];
        }
        for (size_t i = 0; i < FEW; i++)
            cr_assert_float_eq(admitted[i] + (double)rest[i], computed[i], 1e-4, "%s %zu",
                               codec_name(codecs[k]), i);
    }
}

Test(codec, sizes_and_elements_belong_together)
{
    for (size_t k = 0; k < 4; k++)
        for (uint64_t n = 0; n < 3 * CODEC_BLOCK; n++)
            cr_assert_eq(codec_elements(codecs[k], codec_bytes(codecs[k], n)), n);
    cr_assert_eq(codec_bytes(ARITHMETIC_INT8, 257), 257 + 8);
    cr_assert_eq(codec_bytes(ARITHMETIC_BF16, UINT64_C(1) << 33), UINT64_C(1) << 34);
}

Test(codec, has_names)
{
    enum arithmetic_codec codec;
    for (uint32_t i = 0; i < 4; i++)
        cr_assert(codec_find(codec_name(i), &codec) && codec == (enum arithmetic_codec)i);
    cr_assert_null(codec_name(4));
    cr_assert(codec_find("bf16", &codec) && codec == ARITHMETIC_BF16);
    cr_assert(codec_find("fp16", &codec) && codec == ARITHMETIC_F16);
    cr_assert(!codec_find("int4", &codec));
}
