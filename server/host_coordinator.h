/* The coordinator's loop: carries messages for the coordinator's core, and turns the shards that
 * share its thread. It decides nothing and writes nothing: the log is recorded by the first shard.
 */
#ifndef GRADWEIR_SERVER_HOST_COORDINATOR_H
#define GRADWEIR_SERVER_HOST_COORDINATOR_H

#include "common/control.h"
#include "common/log.h"
#include "server/host_shard.h"

#include <stdatomic.h>

#define HOST_INPROC "inproc://coordinator"

struct host_coordinator {
    const struct host_options *options;
    struct control_context *context;
    const struct log *log;
    const char *listen;        /* tcp address, "ip:port" */
    atomic_bool *stop;         /* end at once */
    atomic_bool *drain;        /* end in order */
    int wake_fd;               /* readable when one of them was set */
    struct host_shard *shards; /* those that this thread turns beside its own loop */
    uint32_t shards_count;     /* 0: none */
};

/* Binds the control socket on `listen` and on HOST_INPROC, writes the port file, opens its shards
 * or calls `bound`, runs until the job has ended. Called on the thread that is to do it. */
gradweir_status host_coordinator_run(struct host_coordinator *host, void (*bound)(void *),
                                     void *argument);

#endif
