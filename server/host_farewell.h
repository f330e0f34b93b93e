/* The coordinator's last words: STOP must reach whoever it was meant for. ZeroMQ throws away what a
 * client has not read yet when the connection breaks, so the socket stays open until they have
 * answered or hung up. */
#ifndef GRADWEIR_SERVER_HOST_FAREWELL_H
#define GRADWEIR_SERVER_HOST_FAREWELL_H

#include "common/control.h"

#include <stdbool.h>

enum { FAREWELL_MAX = 320 }; /* as many as control has peers */

struct host_farewell {
    uint32_t peers[FAREWELL_MAX]; /* whose BYE, or end, is awaited */
    uint32_t count;
};

/* STOP was given to control_send for this peer. */
void host_farewell_expect(struct host_farewell *farewell, uint32_t peer);

/* Until all have said BYE or hung up, at most two seconds: a worker that computes for longer learns
 * it from a server that is not there any more. */
void host_farewell_wait(struct host_farewell *farewell, struct control *control);

#endif
