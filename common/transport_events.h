/* The events that a transport has not handed out yet: a ring whose capacity its backend has
 * computed, so that it cannot overflow, and the numbers that peers and offers are known by. Used by
 * backends only. */
#ifndef GRADWEIR_COMMON_TRANSPORT_EVENTS_H
#define GRADWEIR_COMMON_TRANSPORT_EVENTS_H

#include "common/transport.h"

struct transport_events {
    struct transport_event *ring;
    size_t capacity;
    size_t first;
    size_t count;
};

/* Room for everything that peers_max peers can have waiting: per peer one CONNECTED or ACCEPTED,
 * one WRITABLE, one LOST, a SENT per send in flight, and an OFFERED or LANDED per offer. */
gradweir_status transport_events_init(struct transport_events *events,
                                      const struct transport_settings *settings);
void transport_events_deinit(struct transport_events *events);

/* The new last event, zeroed but for kind and peer; valid until the next call. */
struct transport_event *transport_events_push(struct transport_events *events,
                                              enum transport_event_kind kind, uint64_t peer);

/* The first event, removed; NULL when there is none. Valid until the next push. */
struct transport_event *transport_events_pop(struct transport_events *events);

/* A number is a generation (never 0) above 16 bits of index. */
#define TRANSPORT_INDEX_BITS 16

static inline uint64_t transport_number(uint64_t generation, uint32_t index)
{
    return generation << TRANSPORT_INDEX_BITS | index;
}

static inline uint32_t transport_index(uint64_t number)
{
    return (uint32_t)(number & ((1u << TRANSPORT_INDEX_BITS) - 1));
}

#endif
