/* One shard's thread: carries messages, moves bodies and computes for the shard's core. It decides
 * nothing. Everything it owns (control socket, transport, device, arena) belongs to this thread. */
#ifndef GRADWEIR_SERVER_HOST_SHARD_H
#define GRADWEIR_SERVER_HOST_SHARD_H

#include "common/control.h"
#include "common/device.h"
#include "common/log.h"
#include "server/host_settings.h"

#include <pthread.h>
#include <stdatomic.h>

struct host_shard {
    const struct host_options *options;
    struct control_context *context;
    const char *coordinator; /* endpoint of the coordinator */
    const struct log *log;
    uint32_t index;
    atomic_bool *stop; /* set by whoever ends the process in a hurry */
    pthread_t thread;
    bool started;
    gradweir_status status; /* of the thread, once joined */
    char reason[256];
};

/* Starts the thread; fields above `thread` are filled in by the caller. */
gradweir_status host_shard_start(struct host_shard *host);

/* Waits until the coordinator has said STOP (or stop is set) and everything is freed. */
gradweir_status host_shard_join(struct host_shard *host);

#endif
