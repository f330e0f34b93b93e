/* A run of several worker processes behind servers. */
#ifndef GRADWEIR_TRAINER_TRAIN_RUN_H
#define GRADWEIR_TRAINER_TRAIN_RUN_H

#include "client/trainer/train_settings.h"

/* Starts a server when settings->servers is NULL, and the workers; pools their returns; ends all of
 * them; writes the summary. argv is the run's own command line. Returns the exit status: 0 solved,
 * 1 not solved, 2 failed, 130 interrupted. */
int train_run(const struct train_settings *settings, char **argv);

#endif
