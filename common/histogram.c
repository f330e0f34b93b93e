/* Buckets: value v < 32 is bucket v; else with e = floor(log2 v) >= 5, bucket 16 (e - 3) + the 4
 * bits below the first. */
#include "common/histogram.h"

#include "common/status.h"

#include <string.h>

static unsigned log2_floor(uint64_t value)
{
    return 63u - (unsigned)__builtin_clzll(value);
}

static unsigned bucket_of(uint64_t value)
{
    if (value < 32)
        return (unsigned)value;
    const unsigned exponent = log2_floor(value);
    return 16 * (exponent - 3) + (unsigned)((value >> (exponent - 4)) & 15);
}

/* The largest value that falls into the bucket. */
static uint64_t bucket_end(unsigned bucket)
{
    if (bucket < 32)
        return bucket;
    const unsigned exponent = bucket / 16 + 3;
    const uint64_t step = UINT64_C(1) << (exponent - 4);
    return (UINT64_C(1) << exponent) + (bucket % 16) * step + (step - 1);
}

void histogram_init(struct histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
    histogram->min = UINT64_MAX;
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    histogram->count++;
    histogram->sum += (double)value;
    if (value < histogram->min)
        histogram->min = value;
    if (value > histogram->max)
        histogram->max = value;
    histogram->buckets[bucket_of(value)]++;
}

void histogram_merge(struct histogram *histogram, const struct histogram *other)
{
    histogram->count += other->count;
    histogram->sum += other->sum;
    if (other->min < histogram->min)
        histogram->min = other->min;
    if (other->max > histogram->max)
        histogram->max = other->max;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        histogram->buckets[i] += other->buckets[i];
}

double histogram_mean(const struct histogram *histogram)
{
    return histogram->count ? histogram->sum / (double)histogram->count : 0.0;
}

uint64_t histogram_percentile(const struct histogram *histogram, double share)
{
    ASSERT(share >= 0.0 && share <= 1.0);
    if (histogram->count == 0)
        return 0;
    if (share == 0.0)
        return histogram->min;
    const double wanted = share * (double)histogram->count;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > 0 && (double)seen >= wanted)
            return bucket_end(i) < histogram->max ? bucket_end(i) : histogram->max;
    }
    return histogram->max;
}
