/* Which engine --device and --env-device ask for, and whether it is there: tried before anything is
 * started, so that a machine without a GPU says so at once. */
#ifndef GRADWEIR_TRAINER_TRAIN_DEVICE_H
#define GRADWEIR_TRAINER_TRAIN_DEVICE_H

#include "client/trainer/engine.h"
#include "client/trainer/train_settings.h"

/* What the settings ask of the engine of that worker (0, 1, ...), whose network is borrowed. NULL,
 * with the reason, for a device that nobody knows or this build is without, or that is not where
 * --env-device has the environments. */
const struct engine *train_engine(const struct train_settings *settings,
                                  const struct network *network, uint64_t worker,
                                  struct engine_options *options, struct engine_reason *reason);

/* Whether the engine could be opened here. The reason begins with the option. */
gradweir_status train_check_device(const struct train_settings *settings,
                                   struct train_reason *reason);

#endif
