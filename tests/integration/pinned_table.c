/* The table of devices of pinned_server, instead of common/device.c: the linker takes the first it
 * finds. PINNED_JOBS_GOOD in the environment: the device is lost after so many jobs.
 * PINNED_MEMORY_MAX: it has no larger piece of memory. */
#include "tests/unit/device_pinned.h"

#include <stdlib.h>
#include <string.h>

const struct device *device_at(size_t i)
{
    return i == 0 ? &device_cpu : i == 1 ? &device_pinned : NULL;
}

const struct device *device_find(const char *name)
{
    const char *good = getenv("PINNED_JOBS_GOOD"), *most = getenv("PINNED_MEMORY_MAX");
    device_pinned_jobs_good = good ? strtoull(good, NULL, 10) : 0;
    device_pinned_memory_max = most ? strtoull(most, NULL, 10) : 0;
    for (size_t i = 0; device_at(i); i++)
        if (strcmp(device_at(i)->name, name) == 0)
            return device_at(i);
    return NULL;
}
