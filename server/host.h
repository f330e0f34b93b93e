/* One server process: the coordinator, shards, or both, as the settings say. */
#ifndef GRADWEIR_SERVER_HOST_H
#define GRADWEIR_SERVER_HOST_H

#include "common/settings.h"

/* Runs until the job ends, SIGTERM or SIGINT drains it (the second one ends it at once). */
gradweir_status host_run(const struct settings *settings);

#endif
