/* What is tried before anything is started: options that would be dropped in silence, and files
 * that could not be written at the end. */
#ifndef GRADWEIR_TRAINER_TRAIN_CHECKS_H
#define GRADWEIR_TRAINER_TRAIN_CHECKS_H

#include "client/trainer/train_settings.h"

/* ERR_INVALID for an option that this run has no use for: one of the servers with --local, one of
 * one's own server with --servers. */
gradweir_status train_check_options(const struct train_settings *settings,
                                    struct train_reason *reason);

/* Whether the value of this option is the servers' own to say when a run has --servers. */
bool train_check_servers_have(const char *name);

/* Opens the files of --json, --curve and --server-log for writing, and leaves what is in them.
 * ERR_IO names the first that cannot be opened. */
gradweir_status train_check_files(const struct train_settings *settings,
                                  struct train_reason *reason);

#endif
