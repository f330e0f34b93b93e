#include "common/histogram.h"

#include "common/random.h"

#include <criterion/criterion.h>
#include <stdlib.h>

Test(histogram, an_empty_one_answers_zero)
{
    struct histogram h;
    histogram_init(&h);
    cr_assert_eq(histogram_mean(&h), 0.0);
    cr_assert_eq(histogram_percentile(&h, 0.5), 0);
}

static int ascending(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

Test(histogram, percentiles_are_never_below_and_at_most_a_sixteenth_above_the_true_ones)
{
    enum { COUNT = 2000 };
    static uint64_t values[COUNT];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct random random;
        struct histogram h;
        random_init(&random, seed);
        histogram_init(&h);
        for (unsigned i = 0; i < COUNT; i++) {
            values[i] = random_next(&random) >> random_below(&random, 64);
            histogram_add(&h, values[i]);
        }
        qsort(values, COUNT, sizeof *values, ascending);
        for (unsigned share = 1; share <= 100; share++) {
            const uint64_t truth = values[COUNT * share / 100 - 1];
            const uint64_t said = histogram_percentile(&h, share / 100.0);
            cr_assert_geq(said, truth);
            cr_assert_leq((double)said, (double)truth * (1.0 + 1.0 / 16));
        }
        cr_assert_eq(h.min, values[0]);
        cr_assert_eq(h.max, values[COUNT - 1]);
    }
}

Test(histogram, the_ends_of_the_number_line_have_buckets)
{
    struct histogram h;
    histogram_init(&h);
    histogram_add(&h, 0);
    histogram_add(&h, UINT64_MAX);
    cr_assert_eq(histogram_percentile(&h, 0.0), 0);
    cr_assert_eq(histogram_percentile(&h, 1.0), UINT64_MAX);
}

Test(histogram, merging_equals_adding_all)
{
    struct histogram a, b, both;
    histogram_init(&a);
    histogram_init(&b);
    histogram_init(&both);
    for (uint64_t i = 0; i < 100; i++) {
        histogram_add(i % 3 ? &a : &b, i * i);
        histogram_add(&both, i * i);
    }
    histogram_merge(&a, &b);
    cr_assert_eq(a.count, both.count);
    cr_assert_eq(a.min, both.min);
    cr_assert_eq(a.max, both.max);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        cr_assert_eq(a.buckets[i], both.buckets[i]);
}
