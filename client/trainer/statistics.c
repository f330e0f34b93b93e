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
        s.mean += (double)values[i * stride] / (double)n;
    for (size_t i = 0; i < n; i++)
        s.m2 += ((double)values[i * stride] - s.mean) * ((double)values[i * stride] - s.mean);
    return s;
}

struct statistics statistics_of_doubles(const double *values, size_t n)
{
    struct statistics s = {.count = (double)n};
    for (size_t i = 0; i < n; i++)
        s.mean += values[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        s.m2 += (values[i] - s.mean) * (values[i] - s.mean);
    return s;
}

bool statistics_finite(const struct statistics *statistics)
{
    return isfinite(statistics->count) && isfinite(statistics->mean) && isfinite(statistics->m2);
}

void statistics_merge(struct statistics *statistics, const struct statistics *other)
{
    const double total = statistics->count + other->count;
    if (other->count <= 0)
        return;
    const double delta = other->mean - statistics->mean;
    statistics->m2 += other->m2 + delta * delta * statistics->count * other->count / total;
    statistics->mean += delta * other->count / total;
    statistics->count = total;
}

struct statistics statistics_since(const struct statistics *now, const struct statistics *earlier)
{
    const double count = now->count - earlier->count;
    if (count <= 0)
        return (struct statistics){.count = 0};
    struct statistics s = {.count = count};
    s.mean = (now->count * now->mean - earlier->count * earlier->mean) / count;
    const double delta = s.mean - earlier->mean;
    s.m2 = now->m2 - earlier->m2 - delta * delta * earlier->count * count / now->count;
    s.m2 = fmax(0, s.m2);
    return s;
}

double statistics_variance(const struct statistics *statistics)
{
    return statistics->count > 0 ? statistics->m2 / statistics->count : 1;
}

double statistics_normalise(const struct statistics *statistics, double x, double epsilon,
                            double limit)
{
    const double y = (x - statistics->mean) / sqrt(statistics_variance(statistics) + epsilon);
    return limit > 0 ? fmin(fmax(y, -limit), limit) : y;
}

void reward_normaliser_step(struct reward_normaliser *normaliser, const struct reward_step *step,
                            double *normalised)
{
    for (size_t i = 0; i < step->n; i++) {
        const bool cut = normaliser->reset_at_terminated && step->terminated[i];
        step->accumulators[i] =
            (cut ? 0 : normaliser->gamma * step->accumulators[i]) + (double)step->rewards[i];
    }
    const struct statistics batch = statistics_of_doubles(step->accumulators, step->n);
    statistics_merge(&normaliser->statistics, &batch);
    statistics_merge(&normaliser->fresh, &batch);
    const double scale = sqrt(statistics_variance(&normaliser->statistics) + normaliser->epsilon);
    for (size_t i = 0; i < step->n; i++) {
        const double y = (double)step->rewards[i] / scale, limit = normaliser->limit;
        normalised[i] = limit > 0 ? fmin(fmax(y, -limit), limit) : y;
        if (step->seen != NULL)
            step->seen[i] = step->accumulators[i];
        if (step->terminated[i] || step->truncated[i])
            step->accumulators[i] = 0;
    }
}
