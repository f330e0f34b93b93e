#include "common/element_gradient.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5000 };

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* What the GPU's kernels do, one element after the other. */
static size_t choose(const float *x, size_t n, uint64_t k, uint32_t *indices)
{
    static uint32_t counts[ELEMENT_TOP_DIGITS];
    struct element_top top = {0, k};
    for (int round = 0; round < ELEMENT_TOP_ROUNDS; round++) {
        memset(counts, 0, sizeof counts);
        for (size_t i = 0; i < n; i++) {
            const int digit = element_top_digit(&top, round, element_magnitude(x[i]));
            if (digit >= 0)
                counts[digit]++;
        }
        top = element_top_descend(top, round, counts);
    }
    size_t taken = 0;
    uint64_t equal = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t magnitude = element_magnitude(x[i]);
        if (element_top_takes(&top, magnitude, equal))
            indices[taken++] = (uint32_t)i;
        equal += magnitude == top.threshold;
    }
    return taken;
}

struct ranked {
    uint32_t magnitude, index;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->magnitude != y->magnitude)
        return x->magnitude < y->magnitude ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int by_index(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void expect_as_sorted(const float *x, size_t n, size_t k)
{
    static uint32_t indices[N];
    static struct ranked all[N];
    for (size_t i = 0; i < n; i++)
        all[i] = (struct ranked){element_magnitude(x[i]), (uint32_t)i};
    qsort(all, n, sizeof *all, by_rank);
    qsort(all, k, sizeof *all, by_index);
    cr_assert_eq(choose(x, n, k, indices), k, "%zu of %zu", k, n);
    for (size_t i = 0; i < k; i++)
        cr_assert_eq(indices[i], all[i].index, "%zu of %zu, place %zu", k, n, i);
}

/* Numbers of few kinds: many are equal. */
static void fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = draw(&seed);
        const float size =
            seed % 3 == 0 ? element_float((uint32_t)bits & 0x7f7fffffu) : (float)(bits >> 32 & 7u);
        x[i] = bits & 1u ? -size : size;
    }
}

Test(element_gradient, the_largest_k_are_those_a_sort_finds_ties_by_index)
{
    static float x[N];
    static const size_t sizes[] = {1, 2, 17, 1000, N};
    for (uint64_t seed = 1; seed <= 8; seed++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const size_t n = sizes[s];
            fill(x, n, seed * 977);
            expect_as_sorted(x, n, 1);
            expect_as_sorted(x, n, (n + 1) / 2);
            expect_as_sorted(x, n, n);
        }
}

Test(element_gradient, equals_zeros_and_what_is_not_finite_have_their_place_among_the_largest)
{
    static float x[N];
    uint32_t two[2];
    memset(x, 0, sizeof x);
    expect_as_sorted(x, N, 3);
    x[4000] = INFINITY;
    x[17] = -NAN;
    x[18] = 3e38f;
    cr_assert_eq(choose(x, N, 2, two), 2);
    cr_expect_eq(two[0], 17u);
    cr_expect_eq(two[1], 4000u);
    for (size_t i = 0; i < N; i++)
        x[i] = i % 2 ? 1.5f : -1.5f;
    expect_as_sorted(x, N, N / 3);
}

Test(element_gradient, a_clip_scales_down_to_the_limit_and_never_up)
{
    cr_expect_float_eq(element_clip_factor(10, 0.5), 0.05, 1e-8);
    cr_expect_eq(element_clip_factor(0.1, 0.5), 1.0);
    cr_expect_eq(element_clip_factor(10, 0), 1.0);
    cr_expect(isnan(element_clip_factor(NAN, 0.5)));
    /* A gradient that is a sum of 4: its mean has norm 5, its clip to 1 a fifth of that. */
    const double norm = element_norm(400, 0.25f);
    cr_expect_eq(norm, 5.0);
    cr_expect_float_eq(element_clipped_scale(0.25f, norm, 1.0), 0.05f, 1e-7f);
    cr_expect_eq(element_clipped_scale(0.25f, norm, 0), 0.25f);
    cr_expect_eq(element_norm(16, -1.0f), 4.0);
}
