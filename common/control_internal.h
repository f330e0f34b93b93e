/* What the files of control share. */
#ifndef GRADWEIR_COMMON_CONTROL_INTERNAL_H
#define GRADWEIR_COMMON_CONTROL_INTERNAL_H

#include "common/control.h"

#include <zmq.h>

enum { ROUTING_BYTES = 5, CONTROL_TEXT = 200, CONTROL_DRAIN_MAX = 256 };

struct control_peer {
    uint32_t number; /* 0: free */
    uint32_t generation;
    uint8_t routing[ROUTING_BYTES];
    bool broken; /* its connection is gone; LOST follows when what it sent has been read */
    int fd;      /* -1: inproc */
    char identity[IDENTITY_MAX];
    uint8_t *frame; /* what waits to be flushed */
    size_t frame_count;
};

struct control {
    void *socket, *monitor;
    bool server, connected;
    char address[CONTROL_TEXT];
    struct wire_decoder *decoder;
    struct control_peer *peers; /* index 1 .. peers_max; a client uses index 1 */
    uint32_t peers_max, broken_count, unflushed;
    uint8_t *frames;
    zmq_msg_t incoming; /* the frame that is being handed out */
    bool incoming_open;
    size_t incoming_at;
    uint32_t incoming_peer;
    uint32_t received;       /* frames since LOSTs were last looked at */
    bool up_owed, lost_owed; /* client */
    uint64_t bad_frames;
    struct control_event event;
};

/* Sockets with every option that libzmq's defaults get wrong for us. */
gradweir_status control_socket(struct control_context *context, int type,
                               const struct control_options *options, struct control **control);

/* Reads the monitor: marks broken connections. */
void control_watch(struct control *control);

void *control_zmq(struct control_context *context);
gradweir_status control_security(struct control_context *context, void *socket, bool server,
                                 const struct control_options *options, const char *address);

#endif
