/* The run's own connection to the servers: a reader that comes beside the first worker and fetches
 * the newest parameters. It waits in short turns, so that the end of the run's own server, or of
 * the run, ends the wait at once. */
#ifndef GRADWEIR_TRAINER_TRAIN_READER_H
#define GRADWEIR_TRAINER_TRAIN_READER_H

#include "client/trainer/train_children.h"

#include <gradweir/gradweir.h>
#include <signal.h>

struct train_reader {
    const struct train_settings *settings;
    struct children *children; /* whose address it goes to */
    const volatile sig_atomic_t *interrupted;
    gradweir_client *client; /* NULL until the first pull */
};

/* Copies the newest parameters [n]. False, with gradweir_last_error, when they have not come within
 * `seconds`, or will not. */
bool train_reader_pull(struct train_reader *reader, double seconds, float *parameters, size_t n);

#endif
