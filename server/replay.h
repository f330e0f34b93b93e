/* Repeats a recorded run to the bit, on any number of shards; or what it would have been without
 * one worker. */
#ifndef GRADWEIR_SERVER_REPLAY_H
#define GRADWEIR_SERVER_REPLAY_H

#include "common/status.h"
#include "server/recording.h"

#include <stdbool.h>
#include <stdint.h>

struct replay_options {
    const char *folder;
    uint32_t shards;
    const char *simd; /* NULL: the best there is */
    uint64_t until;   /* version after which to stop; UINT64_MAX: the end */
    uint64_t every;   /* tell the digest at each multiple of it; 0: never */
    const char
        *without; /* identity of the worker to leave out (see replay_without.h); NULL: none */
    void (*tell)(void *context, uint64_t version, uint64_t digest); /* NULL: nobody hears it */
    void *context;
};

struct replay_result {
    uint64_t version, digest, records, admitted, refused;
    bool until;               /* it went as far as was asked for; else the recording ended: */
    enum recording_end ended; /* why, */
    char ended_file[32];      /* and which of its files ended first */
    uint64_t left_out;        /* without: gradients of that worker, */
    uint64_t steps_changed;   /* steps that had read one and then read fewer, */
    uint64_t steps_emptied;   /* and steps that had read nothing else */
    bool first_kept;          /* the first parameters were that worker's, and were kept */
};

/* ERR_CORRUPT when a record, a body or a recomputed sum differs from the run's; result then tells
 * how far it went, without a digest. ERR_INVALID for a worker that the run did not have, naming
 * those it had. */
gradweir_status replay_run(const struct replay_options *options, struct replay_result *result);

/* gradweir-server replay DIR [--until V] [--shards N] [--simd NAME] [--every K] [--without WORKER]
 * [--json FILE]. 0; 1 when the recording does not give what the run gave; 2 for wrong usage; 3
 * when it ends before the run did (a bound, a full disk, a killed process) and --until did not. */
int replay_main(int argc, char **argv);

#endif
