/* See statistics.h. */
#include "client/trainer/statistics.h"

#include <math.h>

struct statistics statistics_start(double count)
{
    return (struct statistics){.count = count, .mean = 0, .m2 = count};
}

struct statistics statistics_of(const float *values, size_t n, size_t stride)
{
    struct statistics s = {.count = (double)n};
    for (size_t i = 0; i < n; i++)
        s.mean = element_mean_add(s.mean, (double)values[i * stride], s.count);
    for (size_t i = 0; i < n; i++)
        s.m2 = element_m2_add(s.m2, (double)values[i * stride], s.mean);
    return s;
}

struct statistics statistics_of_doubles(const double *values, size_t n)
{
    struct statistics s = {.count = (double)n};
    for (size_t i = 0; i < n; i++)
        s.mean = element_mean_add(s.mean, values[i], s.count);
    for (size_t i = 0; i < n; i++)
        s.m2 = element_m2_add(s.m2, values[i], s.mean);
    return s;
}

bool statistics_finite(const struct statistics *statistics)
{
    return isfinite(statistics->count) && isfinite(statistics->mean) && isfinite(statistics->m2);
}

void statistics_merge(struct statistics *statistics, const struct statistics *other)
{
    *statistics = element_statistics_merge(*statistics, *other);
}

struct statistics statistics_since(const struct statistics *now, const struct statistics *earlier)
{
    return element_statistics_since(*now, *earlier);
}

double statistics_variance(const struct statistics *statistics)
{
    return element_variance_of(*statistics);
}

double statistics_normalise(const struct statistics *statistics, double x, double epsilon,
                            double limit)
{
    return element_normalised(x, statistics->mean, element_spread(*statistics, epsilon), limit);
}

void reward_normaliser_step(struct reward_normaliser *normaliser, const struct reward_step *step,
                            double *normalised)
{
    for (size_t i = 0; i < step->n; i++) {
        const bool cut = normaliser->reset_at_terminated && step->terminated[i];
        step->accumulators[i] = element_discounted(step->accumulators[i], normaliser->gamma, cut,
                                                   (double)step->rewards[i]);
    }
    const struct statistics batch = statistics_of_doubles(step->accumulators, step->n);
    statistics_merge(&normaliser->statistics, &batch);
    statistics_merge(&normaliser->fresh, &batch);
    const double scale = element_spread(normaliser->statistics, normaliser->epsilon);
    for (size_t i = 0; i < step->n; i++) {
        normalised[i] = element_normalised((double)step->rewards[i], 0, scale, normaliser->limit);
        if (step->seen != NULL)
            step->seen[i] = step->accumulators[i];
        if (step->terminated[i] || step->truncated[i])
            step->accumulators[i] = 0;
    }
}
