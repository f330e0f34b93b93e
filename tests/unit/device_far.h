/* A device without a GPU, for tests: its memory is mapped so that nobody can read or write it, and
 * its jobs alone reach it, by another mapping. Whoever touches it directly dies at once.
 *
 * A job is carried out when poll comes to it, not when it is given: until then its destination on
 * the host holds NaNs, so that whoever reads too early has other bits than he should; and whoever
 * changes its source too early, too. Failures are set before, by counting down. */
#ifndef GRADWEIR_UNIT_DEVICE_FAR_H
#define GRADWEIR_UNIT_DEVICE_FAR_H

#include "common/device.h"

extern const struct device device_far; /* named cuda */

/* What goes wrong, for devices that are opened from then on; all zeros: nothing. */
struct device_far_faults {
    bool absent;          /* open: ERR_UNSUPPORTED */
    bool no_pinning;      /* pin: ERR_NO_MEMORY */
    uint64_t pins_max;    /* so many succeed, 0: any number */
    uint64_t copies_good; /* the job after so many is lost, and all behind it; 0: none */
    uint64_t memory_max;  /* alloc of more: ERR_NO_MEMORY; 0: any */
    uint64_t polls_idle;  /* polls in between that find nothing done */
};

/* What has happened, all devices together. */
struct device_far_seen {
    uint64_t given, done; /* jobs: copies and encodings */
    uint64_t most;        /* in flight at a time */
    uint64_t unpinned;    /* copies whose host's side was not pinned */
    uint64_t pins, unpins, opened, closed;
    uint64_t bytes;   /* copied */
    uint64_t encoded; /* elements */
};

extern struct device_far_faults device_far_faults;
extern struct device_far_seen device_far_seen;

void device_far_reset(void);

/* Memory of device `ordinal`, zeroed; and what lies in it, for who checks. */
void *device_far_new(size_t bytes, uint32_t ordinal);
void device_far_put(void *far, const void *from, size_t bytes);
void device_far_get(const void *far, void *to, size_t bytes);
void device_far_delete(void *far);

/* Where others than the processor reach far bytes, as a network card would; all of them in one
 * area. NULL: they are not far. */
const void *device_far_reach(const void *far, size_t bytes);

#endif
