/* One shard's loop: carries messages, moves bodies and computes for the shard's core. It decides
 * nothing. Everything it owns (control socket, transport, device, arena) belongs to one thread: its
 * own (start, join), or the coordinator's, which turns it beside its own loop (open, turn, close).
 */
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
    atomic_bool *stop;       /* set by whoever ends the process in a hurry */
    atomic_bool *drain;      /* somebody asked us to end: without a coordinator that would say STOP
                                the loop does; NULL: the coordinator is in this process */
    atomic_bool *over;       /* who supervises us says that the job has ended in order: as STOP */
    struct shard_loop *loop; /* host_shard_loop.h */
    pthread_t thread;
    bool started;
    gradweir_status status; /* why the loop ended, once it has */
    char reason[512];
    bool unrecorded; /* once it is closed: its part of the recording is not whole */
};

enum { HOST_SHARD_FDS_MAX = 3 };

/* Without a thread. within: the coordinator's control object, on the same thread; NULL: connect.
 * Fields above `loop` are filled in by the caller. */
gradweir_status host_shard_open(struct host_shard *host, struct control *within);

/* One turn; any is set when there was anything to do. False when the loop has ended: as it should
 * or with `status` and `reason`. */
bool host_shard_turn(struct host_shard *host, bool *any);

/* Before sleeping: false when there is something to do at once. fds: readable when there is; at
 * most HOST_SHARD_FDS_MAX. timeout_ms is made shorter when something is due before. */
struct pollfd;
bool host_shard_sleeps(struct host_shard *host, struct pollfd *fds, size_t *count, int *timeout_ms);
void host_shard_close(struct host_shard *host); /* not opened is accepted */

/* On a thread of its own; fields above `loop` are filled in by the caller. */
gradweir_status host_shard_start(struct host_shard *host);

/* Waits until the coordinator has said STOP (or stop is set, or drain and there is no coordinator)
 * and everything is freed. */
gradweir_status host_shard_join(struct host_shard *host);

#endif
