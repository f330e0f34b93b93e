/* Running mean and variance that can be merged (Chan, Golub and LeVeque, 1979), and what rewards
 * and observations are normalised by. Everything is double. Whoever walks over many numbers chooses
 * the order; what one number or one merge does is here, for gcc, clang and nvcc. */
#ifndef GRADWEIR_COMMON_ELEMENT_STATISTICS_H
#define GRADWEIR_COMMON_ELEMENT_STATISTICS_H

#include "common/arithmetic_element.h"

#include <stdbool.h>

struct statistics {
    double count;
    double mean;
    double m2; /* sum of squared distances from the mean */
};

/* One more of n numbers: first all through the mean, then all through m2. */
ELEMENT double element_mean_add(double mean, double x, double n)
{
    return mean + x / n;
}

ELEMENT double element_m2_add(double m2, double x, double mean)
{
    return m2 + (x - mean) * (x - mean);
}

/* Both together; either may be empty. */
ELEMENT struct statistics element_statistics_merge(struct statistics a, struct statistics b)
{
    const double total = a.count + b.count;
    if (b.count <= 0)
        return a;
    const double delta = b.mean - a.mean;
    a.m2 += b.m2 + delta * delta * a.count * b.count / total;
    a.mean += delta * b.count / total;
    a.count = total;
    return a;
}

/* The inverse of merging: what came between `earlier` and `now`. Empty when nothing did. */
ELEMENT struct statistics element_statistics_since(struct statistics now, struct statistics earlier)
{
    struct statistics s = {0, 0, 0};
    const double count = now.count - earlier.count;
    if (count <= 0)
        return s;
    s.count = count;
    s.mean = (now.count * now.mean - earlier.count * earlier.mean) / count;
    const double delta = s.mean - earlier.mean;
    s.m2 = now.m2 - earlier.m2 - delta * delta * earlier.count * count / now.count;
    s.m2 = fmax(0.0, s.m2);
    return s;
}

/* Of the population; 1 of an empty statistic, so that dividing by it changes nothing. */
ELEMENT double element_variance_of(struct statistics s)
{
    return s.count > 0 ? s.m2 / s.count : 1;
}

/* What a distance from the mean is divided by. */
ELEMENT double element_spread(struct statistics s, double epsilon)
{
    return sqrt(element_variance_of(s) + epsilon);
}

/* (x - mean) / spread, within +-limit; limit 0 is no limit. */
ELEMENT double element_normalised(double x, double mean, double spread, double limit)
{
    const double y = (x - mean) / spread;
    return limit > 0 ? fmin(fmax(y, -limit), limit) : y;
}

/* The discounted return that rewards are normalised by, one step on; it begins anew where `cut`. */
ELEMENT double element_discounted(double before, double gamma, bool cut, double reward)
{
    return (cut ? 0 : gamma * before) + reward;
}

#endif
