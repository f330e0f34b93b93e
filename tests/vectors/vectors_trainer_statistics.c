/* Families stats, stats_merge and reward_norm, in double. */
#include "client/trainer/statistics.h"
#include "tests/vectors/vectors_trainer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static struct statistics start_of(const struct vector_case *c)
{
    const double count = vector_number(c, "initial_count");
    return (struct statistics){
        .count = count,
        .mean = vector_number(c, "initial_mean"),
        .m2 = count * vector_number(c, "initial_var"),
    };
}

/* One column of x: its statistics after each batch, then its values normalised by the last ones. */
struct stats_result {
    double *mean;
    double *variance;
    double *count;
    double *normalised;
};

static void run_column(const struct vector_case *c, size_t column,
                       const struct stats_result *result)
{
    const size_t dim = vector_size(c, "dim"), batches = vector_size(c, "n_batches"),
                 rows = vector_size(c, "rows");
    const float *x = vector_f32(c, "x");
    const int32_t *sizes = vector_i32(c, "batch_sizes");
    struct statistics s = start_of(c);
    for (size_t b = 0, row = 0; b < batches; b++) {
        const struct statistics batch =
            statistics_of(x + row * dim + column, (size_t)sizes[b], dim);
        statistics_merge(&s, &batch);
        row += (size_t)sizes[b];
        result->mean[b * dim + column] = s.mean;
        result->variance[b * dim + column] = statistics_variance(&s);
        result->count[b] = s.count;
    }
    for (size_t i = 0; i < rows; i++)
        result->normalised[i * dim + column] =
            statistics_normalise(&s, (double)x[i * dim + column], vector_number(c, "norm_eps"),
                                 vector_number(c, "norm_clip"));
}

void check_stats(const struct vector_case *c)
{
    const size_t dim = vector_size(c, "dim"), batches = vector_size(c, "n_batches"),
                 rows = vector_size(c, "rows");
    const struct stats_result result = {
        .mean = calloc(batches * dim + 1, sizeof(double)),
        .variance = calloc(batches * dim + 1, sizeof(double)),
        .count = calloc(batches + 1, sizeof(double)),
        .normalised = calloc(rows * dim + 1, sizeof(double)),
    };
    for (size_t column = 0; column < dim; column++)
        run_column(c, column, &result);
    vector_compare_f64(c, "mean", result.mean, batches * dim);
    vector_compare_f64(c, "var", result.variance, batches * dim);
    vector_compare_f64(c, "count", result.count, batches);
    vector_compare_f64(c, "normalised", result.normalised, rows * dim);
    free(result.normalised);
    free(result.count);
    free(result.variance);
    free(result.mean);
}

/* Merges the parts of one column forwards or backwards. */
static struct statistics merge_column(const struct vector_case *c, size_t column, bool backwards)
{
    const size_t dim = vector_size(c, "dim"), parts = vector_size(c, "n_parts");
    const int32_t *sizes = vector_i32(c, "part_sizes");
    struct statistics s = {.count = 0};
    for (size_t p = 0; p < parts; p++) {
        const size_t part = backwards ? parts - 1 - p : p;
        size_t row = 0;
        for (size_t before = 0; before < part; before++)
            row += (size_t)sizes[before];
        const struct statistics share =
            statistics_of(vector_f32(c, "x") + row * dim + column, (size_t)sizes[part], dim);
        statistics_merge(&s, &share);
    }
    return s;
}

void check_stats_merge(const struct vector_case *c)
{
    const size_t dim = vector_size(c, "dim");
    cr_assert(dim <= 64);
    for (int backwards = 0; backwards < 2; backwards++) {
        double mean[64], variance[64], deviation[64];
        for (size_t column = 0; column < dim; column++) {
            const struct statistics s = merge_column(c, column, backwards);
            mean[column] = s.mean;
            variance[column] = statistics_variance(&s);
            deviation[column] = sqrt(s.m2 / (s.count - 1));
        }
        vector_compare_f64(c, "mean", mean, dim);
        vector_compare_f64(c, "var", variance, dim);
        vector_compare_f64(c, "std_ddof1", deviation, dim);
    }
}

void check_reward_norm(const struct vector_case *c)
{
    const size_t steps = vector_size(c, "T"), n = vector_size(c, "N");
    struct reward_normaliser normaliser = {
        .gamma = vector_number(c, "gamma"),
        .epsilon = vector_number(c, "eps"),
        .limit = vector_number(c, "clip"),
        .reset_at_terminated = vector_is(c, "variant", "gymnasium"),
        .statistics = statistics_start(vector_number(c, "initial_count")),
    };
    double *accumulators = calloc(n + 1, sizeof(double)),
           *seen = calloc(steps * n + 1, sizeof(double));
    double *normalised = calloc(steps * n + 1, sizeof(double)),
           *variance = calloc(steps + 1, sizeof(double));
    for (size_t t = 0; t < steps; t++) {
        const struct reward_step step = {
            .n = n,
            .rewards = vector_f32(c, "rewards") + t * n,
            .terminated = vector_u8(c, "terminated") + t * n,
            .truncated = vector_u8(c, "truncated") + t * n,
            .accumulators = accumulators,
            .seen = seen + t * n,
        };
        reward_normaliser_step(&normaliser, &step, normalised + t * n);
        variance[t] = statistics_variance(&normaliser.statistics);
    }
    vector_compare_f64(c, "accumulator", seen, steps * n);
    vector_compare_f64(c, "var", variance, steps);
    vector_compare_f64(c, "normalised", normalised, steps * n);
    free(variance);
    free(normalised);
    free(seen);
    free(accumulators);
}
