/* The table of device backends. The one #ifdef of each backend is here. */
#include "common/device.h"

#include <string.h>

static const struct device *const devices[] = {
    &device_cpu,
#ifdef GRADWEIR_CUDA
    &device_cuda,
#endif
};

const struct device *device_at(size_t i)
{
    return i < sizeof devices / sizeof *devices ? devices[i] : NULL;
}

const struct device *device_find(const char *name)
{
    for (size_t i = 0; device_at(i) != NULL; i++)
        if (strcmp(device_at(i)->name, name) == 0)
            return device_at(i);
    return NULL;
}
