/* What the arithmetic promises besides its bits: no infinity from finite gradients, careful sums, a
 * watched environment. */
#include "common/arithmetic.h"

#include <criterion/criterion.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <string.h>

Test(arithmetic, the_best_set_is_chosen_unless_one_is_named)
{
    cr_expect_eq(arithmetic_choose(NULL), arithmetic_at(0));
    cr_expect_eq(arithmetic_choose("scalar"), &arithmetic_scalar);
    cr_expect_null(arithmetic_choose("mmx"));
    for (size_t i = 0; arithmetic_at(i) != NULL; i++)
        cr_expect_eq(arithmetic_choose(arithmetic_at(i)->name), arithmetic_at(i));
}

Test(arithmetic, a_changed_rounding_mode_is_noticed)
{
    cr_expect(arithmetic_environment_holds());
    fesetround(FE_UPWARD);
    const bool held = arithmetic_environment_holds();
    fesetround(FE_TONEAREST);
    cr_expect_not(held);
    cr_expect(arithmetic_environment_holds());
}

Test(arithmetic, a_step_in_a_wrong_environment_ends_the_process, .signal = SIGABRT)
{
    fesetround(FE_DOWNWARD);
    arithmetic_assert_environment();
}

#if defined(__x86_64__)
Test(arithmetic, flushed_subnormals_are_noticed)
{
    static const unsigned flags[] = {0x8000u,
                                     0x0040u}; /* results flushed, operands taken for zero */
    for (size_t i = 0; i < 2; i++) {
        const unsigned before = __builtin_ia32_stmxcsr();
        __builtin_ia32_ldmxcsr(before | flags[i]);
        const bool held = arithmetic_environment_holds();
        __builtin_ia32_ldmxcsr(before);
        cr_expect_not(held, "flag %x", flags[i]);
    }
}
#endif

/* An average of n gradients of one element each, all the same or alternating. */
static float average_of(const struct arithmetic *set, uint32_t n, float weight, const float *slots)
{
    struct arithmetic_plan plan = {.scale = 1.0f, .entries_n = n};
    const struct arithmetic_sources sources = {.base = slots, .stride_bytes = sizeof *slots};
    for (uint32_t k = 0; k < n; k++)
        plan.entries[k] = (struct arithmetic_entry){.slot = k, .weight = weight};
    float out;
    set->average(&plan, &sources, 0, 1, &out);
    return out;
}

Test(arithmetic, an_average_of_finite_gradients_is_finite)
{
    float slots[ARITHMETIC_ENTRIES_MAX];
    for (uint32_t k = 0; k < ARITHMETIC_ENTRIES_MAX; k++)
        slots[k] = FLT_MAX / 4;
    for (size_t i = 0; arithmetic_at(i) != NULL; i++)
        for (uint32_t n = 1; n <= ARITHMETIC_ENTRIES_MAX; n++) {
            const float average = average_of(arithmetic_at(i), n, 1.0f / (float)n, slots);
            cr_expect(fabs((double)average / (double)(FLT_MAX / 4) - 1.0) < 1e-5, "%u entries", n);
        }
}

Test(arithmetic, wide_averages_are_compensated_and_narrow_ones_are_not)
{
    float slots[ARITHMETIC_ENTRIES_MAX];
    for (uint32_t k = 0; k < ARITHMETIC_ENTRIES_MAX; k++)
        slots[k] = k == 0 ? 16777216.0f : 1.0f; /* 2^24: a plain sum loses every 1 */
    for (size_t i = 0; arithmetic_at(i) != NULL; i++) {
        cr_expect_eq(average_of(arithmetic_at(i), 64, 1.0f, slots), 16777216.0f + 64.0f);
        cr_expect_eq(average_of(arithmetic_at(i), 63, 1.0f, slots), 16777216.0f);
    }
}

Test(arithmetic, measure_finds_the_one_bad_element_wherever_it_is)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    static float x[3001];
    for (size_t s = 0; arithmetic_at(s) != NULL; s++)
        for (size_t i = 0; i < 3001; i += 97)
            for (size_t k = 0; k < 3; k++) {
                struct arithmetic_measure measured;
                x[i] = bad[k];
                arithmetic_at(s)->measure(ARITHMETIC_F32, x, 3001, &measured);
                cr_expect_not(arithmetic_finite(measured.largest_bits));
                x[i] = -3.0f;
                arithmetic_at(s)->measure(ARITHMETIC_F32, x, 3001, &measured);
                cr_expect(arithmetic_finite(measured.largest_bits));
                cr_expect_eq(arithmetic_largest(measured.largest_bits), 3.0f);
                cr_expect_eq(measured.sum_squares, 9.0);
                x[i] = 0.0f;
            }
}

Test(arithmetic, centered_rmsprop_survives_a_constant_gradient)
{
    struct arithmetic_plan plan = {.algorithm = ARITHMETIC_RMSPROP,
                                   .centered = true,
                                   .epsilon = 1e-8f,
                                   .scale = 1.0f,
                                   .entries_n = 1,
                                   .entries = {{.slot = 0, .weight = 1.0f}}};
    arithmetic_plan_group(&plan, 0,
                          &(struct arithmetic_group_numbers){
                              .learning_rate = 1e-3, .beta2 = 0.9, .bias1 = 1.0, .bias2 = 0.1});
    float gradient[64], theta[64] = {0}, square[64] = {0}, mean[64] = {0};
    for (size_t i = 0; i < 64; i++)
        gradient[i] = 0.1f + 0.37f * (float)i;
    const struct arithmetic_range range = {.begin = 0, .end = 64};
    const struct arithmetic_work work = {.sources = {.base = gradient},
                                         .parameters = theta,
                                         .parameters_next = theta,
                                         .state = {square, mean},
                                         .state_next = {square, mean},
                                         .ranges = &range,
                                         .ranges_n = 1};
    for (int k = 0; k < 500; k++)
        arithmetic_scalar.step(&plan, &work, 0, 64);
    for (size_t i = 0; i < 64; i++)
        cr_expect(isfinite(theta[i]), "element %zu", i);
}

Test(arithmetic, powers_are_those_of_mathematics)
{
    for (uint64_t n = 0; n < 3000; n += 7)
        cr_expect(fabs(arithmetic_power(0.999, n) / pow(0.999, (double)n) - 1.0) < 1e-12);
    cr_expect_eq(arithmetic_bias(0.5, 3), 0.875);
    cr_expect_eq(arithmetic_bias(0.9, UINT64_MAX), 1.0);
}

Test(arithmetic, clip_and_trust_factors_have_their_edges)
{
    cr_expect_eq(arithmetic_clip_factor(5.0, 0.0), 1.0);
    cr_expect_eq(arithmetic_clip_factor(0.0, 1.0), 1.0);
    cr_expect_eq(arithmetic_clip_factor(INFINITY, 1.0), 0.0);
    cr_expect(isnan(arithmetic_clip_factor(NAN, 1.0)));
    cr_expect_eq(arithmetic_trust_ratio(4.0, 1.0, 0.1, false), 2.0f);
    cr_expect_eq(arithmetic_trust_ratio(4.0, 1.0, 0.0, false), 1.0f);
    cr_expect_eq(arithmetic_trust_ratio(4.0, 0.0, 0.1, true), 1.0f);
    cr_expect_eq(arithmetic_trust_ratio(0.0, 4.0, 0.1, true), 1.0f);
}

/* The tree by its definition: the left child is as large a power of two as leaves something to the
 * right. */
static double tree_of(const double *sums, size_t n)
{
    size_t left = 1;
    while (left * 2 < n)
        left *= 2;
    return n == 1 ? sums[0] : tree_of(sums, left) + tree_of(sums + left, n - left);
}

Test(arithmetic, the_tree_is_the_same_from_every_cut_and_refuses_gaps)
{
    double sums[200];
    for (size_t i = 0; i < 200; i++)
        sums[i] = 1.0 / ((double)i + 1.5);
    struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
    for (size_t first = 0; first < 9; first++)
        for (size_t n = 1; n <= 150; n += 13) {
            struct arithmetic_tree whole, cut;
            arithmetic_tree_init(&whole);
            for (size_t i = 0; i < n; i++)
                cr_assert(arithmetic_tree_add(
                    &whole, (struct arithmetic_node){.index = first + i, .sum = sums[first + i]}));
            if (first == 0)
                cr_expect_eq(arithmetic_tree_sum(&whole), tree_of(sums, n));
            for (size_t at = 0; at <= n; at++) {
                arithmetic_tree_init(&cut);
                size_t m = arithmetic_tree_cover(first, sums + first, at, nodes);
                for (size_t i = 0; i < m; i++)
                    cr_assert(arithmetic_tree_add(&cut, nodes[i]));
                m = arithmetic_tree_cover(first + at, sums + first + at, n - at, nodes);
                for (size_t i = 0; i < m; i++)
                    cr_assert(arithmetic_tree_add(&cut, nodes[i]));
                cr_expect_eq(arithmetic_tree_sum(&cut), arithmetic_tree_sum(&whole));
            }
            cr_expect_not(
                arithmetic_tree_add(&whole, (struct arithmetic_node){.index = first + n + 1}));
            cr_expect_not(arithmetic_tree_add(&whole, (struct arithmetic_node){.level = 64}));
        }
}

Test(arithmetic, places_of_tree_nodes_are_those_of_their_sums)
{
    double sums[70];
    for (size_t i = 0; i < 70; i++)
        sums[i] = (double)i;
    for (uint64_t first = 0; first < 40; first++) {
        for (size_t n = 0; n < 70; n++) {
            struct arithmetic_node covered[ARITHMETIC_NODES_MAX], places[ARITHMETIC_NODES_MAX];
            const size_t count = arithmetic_tree_cover(first, sums, n, covered);
            cr_assert_eq(arithmetic_tree_places(first, n, places), count);
            for (size_t i = 0; i < count; i++)
                cr_assert(places[i].index == covered[i].index &&
                          places[i].level == covered[i].level);
        }
    }
}
