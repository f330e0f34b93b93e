/* What the files of control share. */
#ifndef GRADWEIR_COMMON_CONTROL_INTERNAL_H
#define GRADWEIR_COMMON_CONTROL_INTERNAL_H

#include "common/control.h"

#include "common/log.h"

#include <zmq.h>

enum {
    ROUTING_BYTES = 5,
    CONTROL_TEXT = 200,
    CONTROL_DRAIN_MAX = 256,
    CONTROL_FDS_MAX = 65536, /* a connection above it is lost only when it cannot be sent to */
    CONTROL_WATCH_EACH = 32, /* frames, or dry reads, after which the monitor is looked at anyway */
    CONTROL_LOOK_NS = 50000, /* between two looks of a busy loop at the sockets' descriptors */
    CONTROL_RETRY_MS = 1000,
    /* after the server has turned us away */
    CONTROL_REFUSALS_SURE = 3, /* in a row without a reason: it is no accident */
};

struct control_peer {
    uint32_t number; /* 0: free */
    uint32_t generation;
    uint8_t routing[ROUTING_BYTES];
    bool broken; /* its connection is gone; LOST follows when what it sent has been read */
    int fd;      /* -1: inproc */
    char identity[IDENTITY_MAX];
    struct control_link *link; /* within the thread; NULL: over ZeroMQ */
    uint8_t *frame;            /* what waits to be flushed */
    size_t frame_count;
};

struct control_link; /* control_link.c */

struct control {
    void *zmq, *socket, *monitor;
    struct control_link *link; /* client: instead of a socket */
    uint32_t links;            /* server: peers that have one */
    struct control_context *context;
    bool server, connected;
    bool has_keys;
    const char *refused; /* client: why the server turned us away at the last attempt, or NULL */
    uint32_t refusals;   /* in a row */
    bool retry_owed;     /* and the next one follows at retry_ns */
    uint64_t retry_ns;
    char endpoint[CONTROL_TEXT]; /* client */
    uint32_t domain;             /* server: its table of keys in the ZAP handler; 0: insecure */
    bool *fd_open;               /* server: what the monitor said last */
    const struct log *log;
    struct log_limit log_limit;
    char address[CONTROL_TEXT];
    struct wire_decoder *decoder;
    struct control_peer *peers; /* index 1 .. peers_max; a client uses index 1 */
    uint32_t peers_max, broken_count, unflushed;
    uint8_t *frames;
    zmq_msg_t incoming; /* the frame that is being handed out */
    bool incoming_open;
    size_t incoming_at;
    uint32_t incoming_peer;
    uint32_t received;                /* frames since LOSTs were last looked at */
    bool up_owed, lost_owed;          /* client */
    bool socket_quiet, monitor_quiet; /* read dry: nothing comes before its descriptor says so */
    bool look_owed;                   /* since then somebody was about to sleep */
    uint32_t dry;                     /* how often the socket was read dry */
    uint64_t looked_ns;
    int fds[2]; /* of socket and monitor */
    uint64_t bad_frames;
    struct control_event event;
};

/* Sockets with every option that libzmq's defaults get wrong for us. */
gradweir_status control_socket(struct control_context *context, int type,
                               const struct control_options *options, struct control **control);

/* Reads the monitor: which connections came and went. */
void control_watch(struct control *control);

/* NULL when that number is nobody's (any more). */
struct control_peer *control_peer_find(struct control *control, uint32_t number);

/* Whose frame this is; a new connection becomes a new peer. 0 with the reason: nobody's. */
uint32_t control_peer_of(struct control *control, const uint8_t *routing, zmq_msg_t *message);

/* LOST follows when what the peer had sent has been read. */
void control_peer_break(struct control *control, struct control_peer *peer);

/* Forgets a broken peer and tells its number, or 0. */
uint32_t control_peer_take_broken(struct control *control);

/* A new peer by that link; the peer of a link. */
gradweir_status control_peer_link(struct control *server, struct control_link *link);
struct control_peer *control_link_peer(struct control *server, const struct control_link *link);

/* Puts a message for the client (or the server); takes the next one that waits there, valid until
 * the next call; tells whether one waits. Closing one end is LOST to the other. */
gradweir_status control_link_put(struct control_link *link, bool to_client,
                                 const struct message *message);
bool control_link_next(struct control_link *link, bool at_client, struct wire_decoder *decoder,
                       struct message *message);
bool control_link_waits(const struct control_link *link, bool at_client);
void control_link_close(struct control_link *link, bool client);
void control_links_close(struct control *control);

/* Client: keeps why the handshake failed, by the monitor's word for it. libzmq gives up for good
 * when it was refused; control_retry begins anew after a while. */
void control_refused_now(struct control *control, uint16_t kind);
void control_retry(struct control *control);

/* With keys: ERR_STATE unless the listener turns a stranger away. */
gradweir_status control_try_stranger(struct control *control,
                                     const struct control_options *options);

/* The listener's table in its context's ZAP handler. */
gradweir_status control_take_keys(struct control *control, const struct control_options *options);
void control_forget_keys(struct control *control);

/* Keys, or leave to do without them. address: as the user gave it, without "tcp://". */
gradweir_status control_security(struct control *control, const struct control_options *options,
                                 const char *address);

/* The ZAP handler (control_zap.c): one per context, started by the first listener with keys. Each
 * listener's table of keys is a domain. */
struct control_zap;
gradweir_status control_zap_allow(struct control_zap **zap, void *zmq,
                                  const struct control_options *options, uint32_t *domain);
void control_zap_forget(struct control_zap *zap, uint32_t domain);
void control_zap_domain_name(uint32_t domain, char name[32]);
void control_zap_free(struct control_zap *zap); /* after zmq_ctx_shutdown */

/* ERR_STATE unless a stranger's key is turned away at the endpoint. */
gradweir_status control_zap_test(void *zmq, const char *endpoint, const char *server_public);

#endif
