/* How a quantity is distributed, in fixed memory: counts per logarithmic bucket.
 *
 * Values are whole numbers (nanoseconds, versions, bytes). Below 32 every value has a bucket of its
 * own; above, each power of two is cut into 16 buckets, so a percentile is at most 1/16 too large.
 * No allocation, 7.8 KiB. */
#ifndef GRADWEIR_COMMON_HISTOGRAM_H
#define GRADWEIR_COMMON_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS (16 * 61)

struct histogram {
    uint64_t count;
    uint64_t min; /* UINT64_MAX while empty */
    uint64_t max;
    double sum;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_init(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t value);

/* Adds all of `other` to `histogram`. */
void histogram_merge(struct histogram *histogram, const struct histogram *other);

/* 0 while empty. */
double histogram_mean(const struct histogram *histogram);

/* The upper end of the bucket that holds the given share (0 to 1) of values, never above max; 0
 * while empty. Share 0 gives min. */
uint64_t histogram_percentile(const struct histogram *histogram, double share);

#endif
