/* A ring of events; its capacity is the sum of what a transport's limits allow, so push never
 * fails. */
#include "common/transport_events.h"

#include <stdlib.h>
#include <string.h>

gradweir_status transport_events_init(struct transport_events *events,
                                      const struct transport_settings *settings)
{
    size_t per_peer = (size_t)settings->in_flight_max + settings->offers_max + 3;
    *events = (struct transport_events){.capacity = settings->peers_max * per_peer};
    events->ring = calloc(events->capacity, sizeof *events->ring);
    if (!events->ring)
        return fail(GRADWEIR_ERR_NO_MEMORY, "transport: no memory for %zu events",
                    events->capacity);
    return GRADWEIR_OK;
}

void transport_events_deinit(struct transport_events *events)
{
    free(events->ring);
    *events = (struct transport_events){0};
}

struct transport_event *transport_events_push(struct transport_events *events,
                                              enum transport_event_kind kind, uint64_t peer)
{
    ASSERT(events->count < events->capacity);
    struct transport_event *event =
        &events->ring[(events->first + events->count++) % events->capacity];
    *event = (struct transport_event){.kind = kind, .peer = peer};
    return event;
}

struct transport_event *transport_events_pop(struct transport_events *events)
{
    if (events->count == 0)
        return NULL;
    struct transport_event *event = &events->ring[events->first];
    events->first = (events->first + 1) % events->capacity;
    events->count--;
    return event;
}
