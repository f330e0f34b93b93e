/* One server process: the coordinator, shards, or both, as the settings say. */
#ifndef GRADWEIR_SERVER_HOST_H
#define GRADWEIR_SERVER_HOST_H

#include "common/settings.h"

#include <stdbool.h>

/* Exit status of a server that ended in order, with a recording that is not whole; and of a
 * coordinator whose epoch is over, because its shards follow another one. */
enum { HOST_UNRECORDED = 3, HOST_FENCED = 4 };

/* Runs until the job ends; SIGTERM, SIGINT and SIGHUP drain it (a second SIGTERM or SIGINT ends it
 * at once). *unrecorded becomes true when this process's part of the recording is not whole. */
gradweir_status host_run(const struct settings *settings, bool *unrecorded);

#endif
