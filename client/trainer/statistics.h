/* Running mean and variance that can be merged (Chan, Golub and LeVeque, 1979), and the
 * normalisation of rewards by them. Everything is double, and one statistic is three numbers
 * (count, mean, M2), so that workers can share them. */
#ifndef GRADWEIR_TRAINER_STATISTICS_H
#define GRADWEIR_TRAINER_STATISTICS_H

#include "common/element_statistics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The usual start: `count` pseudo-observations of mean 0 and variance 1 (1e-4 in Gymnasium). */
struct statistics statistics_start(double count);

/* The statistics of n numbers, `stride` apart. n may be 0. */
struct statistics statistics_of(const float *values, size_t n, size_t stride);
struct statistics statistics_of_doubles(const double *values, size_t n);

/* Whether all three numbers are finite: what is not must never be merged with what others have. */
bool statistics_finite(const struct statistics *statistics);

/* Adds `other` to `statistics`; either may be empty. */
void statistics_merge(struct statistics *statistics, const struct statistics *other);

/* What was added between `earlier` and `now`: the inverse of merging. Empty when nothing was. */
struct statistics statistics_since(const struct statistics *now, const struct statistics *earlier);

/* Population variance; 1 of an empty statistic, so that dividing by it changes nothing. */
double statistics_variance(const struct statistics *statistics);

/* clip((x - mean) / sqrt(variance + epsilon), +-limit); limit 0 is no limit. */
double statistics_normalise(const struct statistics *statistics, double x, double epsilon,
                            double limit);

/* Rewards divided by the standard deviation of the discounted return, which is followed per
 * environment. */
struct reward_normaliser {
    double gamma;
    double epsilon;
    double limit;             /* 0: none */
    bool reset_at_terminated; /* Gymnasium: R = gamma R (1 - terminated) + r; VecNormalize: R =
                                 gamma R + r */
    struct statistics statistics;
    struct statistics fresh; /* of them, what came since somebody emptied it: for sharing */
};

/* One step of n environments. accumulators [n] are the discounted returns, 0 at the start, owned by
 * the caller; they are as they entered the statistics in `seen` [n] (may be NULL) and 0 afterwards
 * where an episode ended. Writes the normalised rewards [n]. */
struct reward_step {
    size_t n;
    const float *rewards;
    const uint8_t *terminated;
    const uint8_t *truncated;
    double *accumulators;
    double *seen;
};
void reward_normaliser_step(struct reward_normaliser *normaliser, const struct reward_step *step,
                            double *normalised);

#endif
