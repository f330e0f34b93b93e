/* A worker process of a run. */
#ifndef GRADWEIR_TRAINER_TRAIN_WORKER_H
#define GRADWEIR_TRAINER_TRAIN_WORKER_H

#include "client/trainer/train_settings.h"

/* settings.worker says which (from 1), settings.servers where to, settings.channel whom to tell.
 * Returns the exit status. */
int train_worker(const struct train_settings *settings);

#endif
