/* What the two files of the memory backend share: links (two peers that know each other) and the
 * messages on them. One lock per hub covers all its transports: tests value that more than speed.
 */
#ifndef GRADWEIR_COMMON_TRANSPORT_MEMORY_LINK_H
#define GRADWEIR_COMMON_TRANSPORT_MEMORY_LINK_H

#include "common/transport_events.h"
#include "common/transport_memory.h"

#include <pthread.h>
#include <stdbool.h>

enum memory_message_state { MESSAGE_FREE, MESSAGE_QUEUED, MESSAGE_OFFERED, MESSAGE_TAKEN };

/* A send, kept at its sender until SENT. */
struct memory_message {
    enum memory_message_state state;
    uint64_t order;
    uint64_t token, take_token;
    const unsigned char *body;
    uint64_t length, moved;
    unsigned char *place;
    uint64_t offer; /* at the receiver */
    uint32_t head_length;
    unsigned char head[TRANSPORT_HEAD_MAX];
};

enum memory_peer_state { MEMORY_PEER_FREE, MEMORY_PEER_OPEN, MEMORY_PEER_GONE };

struct memory_peer {
    enum memory_peer_state state;
    struct memory *owner;
    struct memory_peer *other; /* NULL once the link is broken */
    uint64_t number, token;
    uint64_t sent; /* messages so far: their order */
    uint32_t in_flight, held;
    bool blocked, writable_queued;
    struct memory_message *messages;
};

struct memory {
    struct transport base;
    struct transport_settings settings;
    struct transport_memory_hub *hub;
    struct transport_events events;
    struct memory *next; /* in the hub */
    int fd;
    char address[64]; /* "" when not listening */
    struct memory_peer *peers;
    struct memory_message *messages;
    uint32_t mapped;
};

struct transport_memory_hub {
    pthread_mutex_t lock;
    struct memory *first;
    uint64_t step_bytes;
    uint64_t countdown;
    uint64_t serial;
    transport_memory_reach reach; /* NULL: no CUDA memory here */
};

/* In numbers of mapped memory: it is CUDA's. */
#define MEMORY_IS_CUDA (UINT32_C(1) << 31)

/* These want the hub's lock held. */
struct memory_peer *memory_peer_find(struct memory *memory, uint64_t number);
struct transport_event *memory_tell(struct memory_peer *peer, enum transport_event_kind kind);
void memory_lost(struct memory_peer *peer, gradweir_status status, const char *reason);
void memory_link_break(struct memory_peer *peer, gradweir_status status, const char *reason);

/* Members of transport_memory_functions. */
gradweir_status memory_send(struct transport *transport, uint64_t peer,
                            const struct transport_message *message);
gradweir_status memory_room(struct transport *transport, uint64_t peer, uint64_t length,
                            void **room);
void memory_room_back(struct transport *transport, uint64_t peer, const void *room);
const void *memory_body(struct transport *transport, uint64_t offer);
gradweir_status memory_take(struct transport *transport, uint64_t offer, void *place,
                            uint32_t mapped, uint64_t token);
void memory_refuse(struct transport *transport, uint64_t offer);
size_t memory_poll(struct transport *transport, struct transport_event *events, size_t max);

#endif
