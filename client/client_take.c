/* Bodies of pulls: each is brought to its place and summed, and the session hears of it. */
#include "client/client_ahead.h"
#include "client/client_memory.h"

#include "common/checksum.h"
#include "common/clock.h"

/* A body that has come along is brought to its place, summed, and on into bound memory, in one look
 * at it. */
static void take_at_hand(struct gradweir_client *client, const struct session_action *action,
                         const void *body, void *place)
{
    const bool on = action->box == 0;
    const uint32_t crc = client_ahead_take(client, place, body, action->length, on);
    transport_refuse(client->transport, action->offer);
    client_event(client, &(struct session_event){.kind = SESSION_LANDED,
                                                 .now_ns = (int64_t)clock_now_ns(),
                                                 .token = action->token,
                                                 .length = action->length,
                                                 .crc = crc});
}

void client_take(struct gradweir_client *client, const struct session_action *action)
{
    const bool boxed = action->box > 0;
    if (!boxed)
        client_ahead_begin(client);
    void *place = boxed ? client_pull_place(client, action->box, action->offset)
                        : client->received + action->offset;
    const void *body = transport_body(client->transport, action->offer);
    if (body) {
        take_at_hand(client, action, body, place);
        return;
    }
    const uint32_t i = client->takes_free;
    if (i == client->takes_max) { /* a shard that sends so much at a time is not ours to follow */
        transport_refuse(client->transport, action->offer);
        transport_hangup(client->transport, client->peers[action->member]);
        return;
    }
    const gradweir_status status = transport_take(
        client->transport, action->offer, place,
        boxed ? client_memory_landing(client, action->box) : client->received_memory, i + 1);
    if (status != GRADWEIR_OK) {
        client_event(client, &(struct session_event){.kind = SESSION_LANDED,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .token = action->token,
                                                     .status = status});
        return;
    }
    client->takes_free = client->takes[i].next_free;
    client->takes[i] = (struct take){
        .token = action->token, .place = place, .length = action->length, .boxed = boxed};
}

void client_landed(struct gradweir_client *client, const struct transport_event *event)
{
    const uint32_t i = (uint32_t)event->token - 1;
    ASSERT(i < client->takes_max);
    const struct take entry = client->takes[i];
    client->takes[i].next_free = client->takes_free;
    client->takes_free = i;
    struct session_event told = {.kind = SESSION_LANDED,
                                 .now_ns = (int64_t)clock_now_ns(),
                                 .token = entry.token,
                                 .length = event->length,
                                 .status = event->status};
    if (event->status == GRADWEIR_OK)
        told.crc = checksum_crc32c(0, entry.place, event->length);
    if (told.status == GRADWEIR_OK && !entry.boxed && told.crc == (uint32_t)(entry.token >> 32))
        client_ahead_landed(client, entry.place, entry.length);
    client_event(client, &told);
}
