/* Repeats a recorded run to the bit, on any number of shards. */
#ifndef GRADWEIR_SERVER_REPLAY_H
#define GRADWEIR_SERVER_REPLAY_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct replay_options {
    const char *folder;
    uint32_t shards;
    const char *simd; /* NULL: the best there is */
    uint64_t until;   /* version after which to stop; UINT64_MAX: the end */
    uint64_t every;   /* print a digest at each multiple of it; 0: never */
    FILE *out;        /* where to print; NULL: nowhere */
};

struct replay_result {
    uint64_t version, digest, records, admitted, refused;
    bool cut_short; /* the bodies end before the log does: a killed process, or the byte bound */
};

/* ERR_CORRUPT when a record, a body or a recomputed sum differs from the run's; result then tells
 * how far it went, without a digest. */
gradweir_status replay_run(const struct replay_options *options, struct replay_result *result);

/* gradweir-server replay DIR [--until V] [--shards N] [--simd NAME] [--every K] */
int replay_main(int argc, char **argv);

#endif
