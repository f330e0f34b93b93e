/* The seam that carries floats: messages of a small head and a body of any length between numbered
 * peers.
 *
 * It knows nothing of gradients. One transport object belongs to one thread. Nothing here blocks,
 * nothing calls back: what happened is polled. A body moves only once its receiver has named a
 * place for it:
 *
 *      sender                                     receiver
 *      send(peer, head, body) -------------> OFFERED(head, length, offer)
 *           :                                 take(offer, place)  or  refuse(offer)     now, or
 * later SENT(token) <---------- body -------> LANDED(token)
 *
 * SENT says that the sender's buffer is free again, not that the peer has the body: acknowledge in
 * the application. Messages of one peer are OFFERED in the order they were sent; bodies may land in
 * any order. A message without body is OFFERED with length 0 and offer 0 and wants no answer.
 *
 * Life of a peer: connect -> CONNECTED, or somebody connects to us -> ACCEPTED; then any of the
 * others; at last LOST, exactly once, also after hangup() and after a connect that failed. LOST is
 * the last event of its peer: everything that was in flight has had its SENT or LANDED (with an
 * error) before it. Once LANDED or LOST has been polled the transport never touches that memory
 * again, so a slot may be given to somebody else.
 *
 * Bounded: a peer may have in_flight_max sends that are not SENT, and offers_max messages at the
 * receiver that are neither landed nor refused (credit, granted by the receiver). Beyond either,
 * send() answers ERR_AGAIN, and one WRITABLE follows when there is room.
 *
 * A body that came along with its head can be looked at before anybody has copied it:
 * settings.at_once is called from within poll() and arm() for such a message, and for what happened
 * before it and has not been polled, so that all keeps its order.
 *
 * Sleeping: poll() until it gives 0; then arm(); when that says OK, sleep until fd() is readable,
 * or until other work comes; then poll() again. Any other call ends what arm() has promised.
 *
 * Backends: "ucx" (transport_ucx.c; shared memory, TCP, RDMA) and "memory" (transport_memory.c;
 * within one process). */
#ifndef GRADWEIR_COMMON_TRANSPORT_H
#define GRADWEIR_COMMON_TRANSPORT_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSPORT_HEAD_MAX    256
#define TRANSPORT_REASON_SIZE 160
#define TRANSPORT_TEXT_SIZE   512

struct transport_memory_hub;
struct transport_event;

struct transport_settings {
    const char *backend; /* "ucx" or "memory" */
    const char *lanes;   /* ucx: "auto" (shared memory, RDMA where there is some, TCP), "posix",
                            "tcp", "rc" */
    const char *devices; /* ucx: network devices, "eth0,mlx5_0:1"; "" = the one that bears
                            bind_address, or all */
    const char *bind_address; /* "ip:port" that listen() uses, port 0 = any free one; borrowed, and
                                 read again at each listen() until one succeeds */
    uint32_t peers_max;       /* connections at a time, up to 4096 */
    uint32_t in_flight_max;   /* sends per peer that are not SENT */
    uint32_t offers_max;      /* messages per peer that wait here for take, refuse, or their body */
    uint32_t along_max; /* of these, where bodies come along with their heads (portion): so few that
                           they are in the cache when they are looked at; 0: offers_max */
    uint32_t memories_max;     /* memory_map() calls at a time */
    uint64_t rendezvous_bytes; /* longer bodies wait at the sender; shorter ones travel with their
                                  head */
    uint32_t handshake_ms;     /* who connects to us must say what it is within this */
    uint32_t keepalive_s;      /* ucx: how often silent connections are tried; a stopped peer is NOT
                                  noticed by this */
    struct transport_memory_hub *hub; /* memory: who can reach whom; borrowed until close() */

    /* ucx: NULL: everything is polled. Else what it is given is not polled any more. It may call
     * anything here but poll, arm and close. Where the body of an OFFERED lies (body()) is the
     * network's: who has neither taken nor refused it on return leaves it to be copied aside.
     * False: he has something to do before more comes, and poll() returns as soon as it can. */
    bool (*at_once)(void *context, const struct transport_event *event);
    void *at_once_context;
};

enum transport_event_kind {
    TRANSPORT_CONNECTED = 1, /* peer, token of connect() */
    TRANSPORT_ACCEPTED,      /* peer */
    TRANSPORT_LOST, /* peer, status, reason, token of connect() or 0. UNREACHABLE: it never answered
                     */
    TRANSPORT_OFFERED, /* peer, head, length; offer when length > 0 */
    TRANSPORT_LANDED,  /* peer, offer, token of take(), length, status: OK, or ERR_LOST with
                          undefined contents */
    TRANSPORT_SENT,    /* peer, token of send(), status: OK, or ERR_LOST */
    TRANSPORT_WRITABLE /* peer: a send() that was answered ERR_AGAIN may be tried again */
};

/* peer and offer are numbers with a generation in them: old ones are known as old. 0 is none. */
struct transport_event {
    enum transport_event_kind kind;
    gradweir_status status;
    uint64_t peer;
    uint64_t offer;
    uint64_t token;
    uint64_t length;
    uint32_t head_length;
    unsigned char head[TRANSPORT_HEAD_MAX];
    char reason[TRANSPORT_REASON_SIZE];
};

struct transport_message {
    const void *head;     /* copied during send() */
    uint32_t head_length; /* 0 to TRANSPORT_HEAD_MAX */
    uint32_t memory;      /* of the body, from memory_map(), or 0 */
    const void *body;     /* borrowed until SENT */
    uint64_t length;      /* of the body; may be 0 */
    uint64_t token;       /* the caller's, comes back in SENT */
};

/* Kinds of memory: the host's, and a GPU's, which the processor must not touch. */
enum transport_memory_kind { TRANSPORT_MEMORY_HOST, TRANSPORT_MEMORY_CUDA };

struct transport;

/* What a backend can do. No member is optional. Functions answer ERR_INVALID for arguments that
 * make no sense, and ERR_LOST for a peer or offer that is gone (or going: its LOST is on the way).
 */
struct transport_functions {
    const char *name;

    /* Takes all memory the transport will use, and the network devices. ERR_UNSUPPORTED: no such
     * lanes here. */
    gradweir_status (*open)(const struct transport_settings *settings,
                            struct transport **transport);

    /* Hangs up everybody, waits (up to 5 s) until nothing is in flight, and frees everything. NULL
     * is accepted. */
    void (*close)(struct transport *transport);

    /* Lets others connect to settings.bind_address. ERR_INVALID: not an address; ERR_IO: taken or
     * not ours, with errno's text. At most once. */
    gradweir_status (*listen)(struct transport *transport);

    /* Begins a connection; returns at once. CONNECTED follows within deadline_ms, or LOST
     * (ERR_UNREACHABLE) that names the address. A host name is looked up during the call. ERR_FULL:
     * peers_max are there already. */
    gradweir_status (*connect)(struct transport *transport, const char *address,
                               uint32_t deadline_ms, uint64_t token, uint64_t *peer);

    /* Room for a body of `length` bytes that goes to this peer next: whoever makes the body there,
     * and sends it from there, saves a copy. It is his until send() has taken it, or room_back(),
     * or the peer's LOST; its contents are undefined. ERR_AGAIN: all of it is in use, and there is
     * some again when something of this peer's is SENT. ERR_UNSUPPORTED: there is none. send() from
     * anywhere does the same. Neither says a reason. */
    gradweir_status (*room)(struct transport *transport, uint64_t peer, uint64_t length,
                            void **room);

    /* Of room that is not needed after all; of other memory nothing happens. */
    void (*room_back)(struct transport *transport, uint64_t peer, const void *room);

    /* Ends a connection without asking the other side; what is in flight ends with ERR_LOST, then
     * LOST follows (ERR_STOPPED). A peer that is already going, or gone, is fine: nothing happens.
     */
    void (*hangup)(struct transport *transport, uint64_t peer);

    /* Sends one message. OK: exactly one SENT follows. ERR_AGAIN: a limit is reached, one WRITABLE
     * follows. Not before CONNECTED or ACCEPTED (ERR_STATE). */
    gradweir_status (*send)(struct transport *transport, uint64_t peer,
                            const struct transport_message *message);

    /* Where the body of an offer lies, for who copies it himself and looks at it on the way: length
     * bytes, readable until take() or refuse(); after the copy refuse() ends the offer. NULL: it is
     * not here, or not any more: take() it. A peer on this host may still write there, so only what
     * was copied can be trusted. */
    const void *(*body)(struct transport *transport, uint64_t offer);

    /* Gives an offer its place: room for the offered length, borrowed until LANDED. memory is from
     * memory_map() or 0. OK: exactly one LANDED follows. Otherwise the place is not touched and the
     * offer is gone. */
    gradweir_status (*take)(struct transport *transport, uint64_t offer, void *place,
                            uint32_t memory, uint64_t token);

    /* Throws an offered body away; its sender gets SENT (OK) all the same. No event follows. An
     * offer that is gone is fine. */
    void (*refuse)(struct transport *transport, uint64_t offer);

    /* Moves what can be moved without waiting and hands out up to `max` events. Returns how many.
     */
    size_t (*poll)(struct transport *transport, struct transport_event *events, size_t max);

    /* Registers memory of this kind that bodies come from or go to: optional for the host's (faster
     * on RDMA), a must for a GPU's, which bodies are sent from and not taken to. `memory` is never
     * 0. Unmap only what nothing in flight uses. ERR_UNSUPPORTED when it is of another kind, or not
     * known. */
    gradweir_status (*memory_map)(struct transport *transport, enum transport_memory_kind kind,
                                  void *pointer, uint64_t length, uint32_t *memory);
    void (*memory_unmap)(struct transport *transport, uint32_t memory);

    /* Whether the network's library takes memory of this kind at all. ERR_UNSUPPORTED says why not.
     */
    gradweir_status (*knows)(const struct transport *transport, enum transport_memory_kind kind);

    /* Looks for work, then arms fd(). OK: sleep until fd() is readable. ERR_AGAIN:
     * poll() has something. */
    gradweir_status (*arm)(struct transport *transport);

    /* One descriptor for poll(2), epoll or zmq_poll (readable); owned by the transport, the same
     * for its whole life. */
    int (*fd)(const struct transport *transport);

    /* Where others connect to, "ip:port" with the real port; "" before listen(). Valid until
     * close(). */
    const char *(*address)(const struct transport *transport);

    /* How long bodies to this peer are best, when it is for the sender to say: where they come
     * along with their heads and can be looked at at once. UINT64_MAX: the longer the better. */
    uint64_t (*portion)(struct transport *transport, uint64_t peer);

    /* Which lanes and devices really carry this peer's bodies ("posix/memory", "tcp/eth0"); of peer
     * 0: the settings in force and where each comes from. Cuts at `size`. */
    gradweir_status (*describe)(struct transport *transport, uint64_t peer, char *text,
                                size_t size);
};

/* Every backend's object begins with this. */
struct transport {
    const struct transport_functions *functions;
};

/* Settings that suit 64 peers on one machine or a trusted network: backend "ucx", lanes "auto",
 * 127.0.0.1:0. */
struct transport_settings transport_defaults(void);

/* Checks the settings (ERR_INVALID names the wrong one and its range) and opens settings->backend.
 */
gradweir_status transport_open(const struct transport_settings *settings,
                               struct transport **transport);

/* Sleeps until there is something to poll, at most timeout_ms: arm() and poll(2) for who has
 * nothing else to wait for. */
void transport_wait(struct transport *transport, int timeout_ms);

static inline void transport_close(struct transport *transport)
{
    if (transport)
        transport->functions->close(transport);
}

static inline gradweir_status transport_listen(struct transport *transport)
{
    return transport->functions->listen(transport);
}

static inline gradweir_status transport_connect(struct transport *transport, const char *address,
                                                uint32_t deadline_ms, uint64_t token,
                                                uint64_t *peer)
{
    return transport->functions->connect(transport, address, deadline_ms, token, peer);
}

static inline void transport_hangup(struct transport *transport, uint64_t peer)
{
    transport->functions->hangup(transport, peer);
}

static inline gradweir_status transport_room(struct transport *transport, uint64_t peer,
                                             uint64_t length, void **room)
{
    return transport->functions->room(transport, peer, length, room);
}

static inline void transport_room_back(struct transport *transport, uint64_t peer, const void *room)
{
    transport->functions->room_back(transport, peer, room);
}

static inline gradweir_status transport_send(struct transport *transport, uint64_t peer,
                                             const struct transport_message *message)
{
    return transport->functions->send(transport, peer, message);
}

static inline const void *transport_body(struct transport *transport, uint64_t offer)
{
    return transport->functions->body(transport, offer);
}

static inline gradweir_status transport_take(struct transport *transport, uint64_t offer,
                                             void *place, uint32_t memory, uint64_t token)
{
    return transport->functions->take(transport, offer, place, memory, token);
}

static inline void transport_refuse(struct transport *transport, uint64_t offer)
{
    transport->functions->refuse(transport, offer);
}

static inline size_t transport_poll(struct transport *transport, struct transport_event *events,
                                    size_t max)
{
    return transport->functions->poll(transport, events, max);
}

static inline gradweir_status transport_memory_map(struct transport *transport, void *pointer,
                                                   uint64_t length, uint32_t *memory)
{
    return transport->functions->memory_map(transport, TRANSPORT_MEMORY_HOST, pointer, length,
                                            memory);
}

static inline gradweir_status transport_memory_map_cuda(struct transport *transport, void *pointer,
                                                        uint64_t length, uint32_t *memory)
{
    return transport->functions->memory_map(transport, TRANSPORT_MEMORY_CUDA, pointer, length,
                                            memory);
}

static inline void transport_memory_unmap(struct transport *transport, uint32_t memory)
{
    transport->functions->memory_unmap(transport, memory);
}

static inline gradweir_status transport_knows(const struct transport *transport,
                                              enum transport_memory_kind kind)
{
    return transport->functions->knows(transport, kind);
}

static inline gradweir_status transport_arm(struct transport *transport)
{
    return transport->functions->arm(transport);
}

static inline int transport_fd(const struct transport *transport)
{
    return transport->functions->fd(transport);
}

static inline const char *transport_address(const struct transport *transport)
{
    return transport->functions->address(transport);
}

static inline uint64_t transport_portion(struct transport *transport, uint64_t peer)
{
    return transport->functions->portion(transport, peer);
}

static inline gradweir_status transport_describe(struct transport *transport, uint64_t peer,
                                                 char *text, size_t size)
{
    return transport->functions->describe(transport, peer, text, size);
}

#endif
