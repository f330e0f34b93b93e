/* The arithmetic and the window law against the reference vectors; clipping and half precision are
 * checked here. */
#include "tests/vectors/vectors_common.h"

#include "common/arithmetic.h"
#include "tests/unit/element_set.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

const struct arithmetic *check_set_at(size_t i)
{
    static struct arithmetic elements;
    const struct arithmetic *set = arithmetic_at(i);
    if (set != NULL || (i > 0 && arithmetic_at(i - 1) == NULL))
        return set;
    elements = element_set();
    return &elements;
}

double number_or(const struct vector_case *c, const char *key, double otherwise)
{
    return vector_has(c, key) ? vector_number(c, key) : otherwise;
}

void check_clip_norm(const struct vector_case *c)
{
    const size_t n = vector_size(c, "n");
    const float *gradient = vector_f32(c, "grad");
    float *clipped = calloc(n, sizeof *clipped);
    double *sums = calloc(arithmetic_blocks(n), sizeof *sums);
    cr_assert(clipped != NULL && sums != NULL);
    for (size_t i = 0; check_set_at(i) != NULL; i++) {
        const struct arithmetic *set = check_set_at(i);
        struct arithmetic_tree tree;
        struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
        const uint32_t largest = arithmetic_measure_blocks(set, ARITHMETIC_F32, gradient, n, sums);
        const size_t nodes_n = arithmetic_tree_cover(0, sums, arithmetic_blocks(n), nodes);
        arithmetic_tree_init(&tree);
        for (size_t k = 0; k < nodes_n; k++)
            cr_assert(arithmetic_tree_add(&tree, nodes[k]));
        const double norm = sqrt(arithmetic_tree_sum(&tree));
        const double expected = vector_number(c, "expect.total_norm");
        cr_expect_eq(arithmetic_finite(largest), vector_number(c, "total_norm_finite") == 1.0);
        vector_near(c, "total_norm", &norm, &expected, 1,
                    (struct vector_tolerance){.rtol = vector_number(c, "tol.f64_rtol"),
                                              .atol = vector_number(c, "tol.f64_atol")});
        const double factor = arithmetic_clip_factor(norm, vector_number(c, "max_norm"));
        set->encode(ARITHMETIC_F32, (float)factor, gradient, n, clipped);
        vector_compare_f32(c, "clipped", clipped, n);
    }
    free(clipped);
    free(sums);
}

static void narrow(const struct vector_case *c, const struct arithmetic *set, size_t n, void *room)
{
    const uint16_t *expected[] = {vector_u16(c, "bf16_bits"), vector_u16(c, "fp16_bits")};
    const enum arithmetic_codec codecs[] = {ARITHMETIC_BF16, ARITHMETIC_F16};
    const uint8_t *is_nan = vector_u8(c, "is_nan");
    const void *from = vector_u32(c, "f32_bits");
    const uint16_t *got = room;
    for (size_t k = 0; k < 2; k++) {
        set->encode(codecs[k], 1.0f, from, n, room);
        for (size_t i = 0; i < n; i++) {
            float wide;
            set->decode(codecs[k], &got[i], 1, &wide);
            cr_expect(is_nan[i] ? isnan(wide) : got[i] == expected[k][i],
                      "%s: codec %zu, element %zu: %04x, not %04x", c->name, k, i, got[i],
                      expected[k][i]);
        }
    }
}

static void widen(const struct vector_case *c, const struct arithmetic *set, size_t n, float *room)
{
    const uint32_t *expected[] = {vector_u32(c, "from_bf16_f32_bits"),
                                  vector_u32(c, "from_fp16_f32_bits")};
    const uint8_t *is_nan[] = {vector_u8(c, "bf16_is_nan"), vector_u8(c, "fp16_is_nan")};
    const enum arithmetic_codec codecs[] = {ARITHMETIC_BF16, ARITHMETIC_F16};
    for (size_t k = 0; k < 2; k++) {
        set->decode(codecs[k], vector_u16(c, "half_bits"), n, room);
        for (size_t i = 0; i < n; i++)
            cr_expect(is_nan[k][i] ? isnan(room[i]) : element_bits(room[i]) == expected[k][i],
                      "%s: codec %zu, element %zu: %08x, not %08x", c->name, k, i,
                      element_bits(room[i]), expected[k][i]);
    }
}

void check_halfprec(const struct vector_case *c)
{
    const size_t n = vector_size(c, "count");
    float *room = calloc(n, sizeof *room);
    cr_assert(room != NULL);
    for (size_t i = 0; check_set_at(i) != NULL; i++) {
        if (vector_has_array(c, "f32_bits"))
            narrow(c, check_set_at(i), n, room);
        else
            widen(c, check_set_at(i), n, room);
    }
    free(room);
}

Test(vectors, arithmetic_and_law_agree_with_the_reference)
{
    const struct vector_family families[] = {{"clip_norm", check_clip_norm},
                                             {"halfprec", check_halfprec},
                                             {"optim", check_optim},
                                             {"window", check_window}};
    vector_run("common", families, sizeof families / sizeof *families);
}
