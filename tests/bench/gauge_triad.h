/* The machine's triad (a[i] = b[i] + s c[i], 12 bytes of traffic an element) on several threads at
 * once, for what a step is held against. */
#ifndef GRADWEIR_BENCH_GAUGE_TRIAD_H
#define GRADWEIR_BENCH_GAUGE_TRIAD_H

#include "common/status.h"

#include <stdint.h>

struct triads;

/* elements: of each of the three arrays of each thread. close takes NULL. */
gradweir_status triads_open(uint32_t threads, uint64_t elements, struct triads **triads);
void triads_close(struct triads *triads);

/* 1e9 bytes per second of all threads together, from when the first begins until the last ends, in
 * about `seconds`; the better of both ways: through the caches and past them. */
double triads_rate(struct triads *triads, double seconds);

#endif
