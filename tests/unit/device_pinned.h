/* The processor in a GPU's clothes, for tests: works on memory of its own and on what is pinned of
 * the host's, tells what follows a stretch only once the job is done, and can be lost after so many
 * jobs. */
#ifndef GRADWEIR_UNIT_DEVICE_PINNED_H
#define GRADWEIR_UNIT_DEVICE_PINNED_H

#include "common/device.h"

extern const struct device device_pinned; /* named cuda */

/* The job after so many is lost, and all behind it; 0: none. */
extern uint64_t device_pinned_jobs_good;

/* The largest piece of its own memory that it gives, bytes; 0: any. */
extern uint64_t device_pinned_memory_max;

#endif
