/* Runs a check on every device backend of this build that this machine can open, with every setting
 * that matters: shared by test_device.c and test_device_memory.c. */
#ifndef GRADWEIR_UNIT_DEVICE_RIG_H
#define GRADWEIR_UNIT_DEVICE_RIG_H

#include "common/device.h"

struct device_rig {
    const struct device *device;
    struct device_state *state;
    const char *what;
    uint64_t tag; /* of the newest job */
};

void device_rig_each(void (*check)(struct device_rig *rig));

/* Polls until the newest job is done: the only one in flight. */
struct device_done device_rig_finish(struct device_rig *rig);
void device_rig_copy(struct device_rig *rig, const void *from, void *to, size_t bytes);
void *device_rig_get(struct device_rig *rig, size_t bytes);

#endif
