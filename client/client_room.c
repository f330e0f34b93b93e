/* Room at the transport in which the next chunk of a push is made, beside the send buffer: a body
 * that is made there need not be copied there. What is resent later comes from the send buffer. */
#include "client/client_encode.h"

#include "common/clock.h"

/* The open member whose chunk begins at this byte of a body, or MEMBERS_MAX; and its length. */
static uint32_t member_at(const struct gradweir_client *client, uint64_t offset, uint64_t chunk,
                          uint64_t *length)
{
    const struct session *session = &client->session;
    for (uint32_t i = 0; i < session->members_count; i++) {
        const struct session_member *member = &session->members[i];
        const uint64_t within = offset - member->offset, rest = member->bytes - within;
        if (offset < member->offset || within >= member->bytes)
            continue;
        *length = rest < chunk ? rest : chunk;
        return member->state == MEMBER_OPEN && within % chunk == 0 ? i : MEMBERS_MAX;
    }
    return MEMBERS_MAX;
}

/* How long a push waits for room, while nothing becomes free: then it goes on without, until there
 * is some again. */
#define ROOM_PATIENCE_NS (UINT64_C(10) * CLOCK_MS)

/* OK: room. The receiver copies out what was made before; who runs ahead of him makes bodies that
 * have to be copied once more. */
static gradweir_status room_wait(struct gradweir_client *client, uint32_t member, uint64_t length,
                                 uint64_t patience_ns)
{
    void *at;
    const uint64_t end = clock_now_ns() + patience_ns;
    for (idle_anew(&client->idle);;) {
        const struct session_member *to = &client->session.members[member];
        if (to->state != MEMBER_OPEN || client->failed != GRADWEIR_OK)
            return GRADWEIR_ERR_LOST;
        client->room.peer = client->peers[member];
        const gradweir_status status =
            transport_room(client->transport, client->room.peer, length, &at);
        if (status == GRADWEIR_OK)
            client->room.at = at;
        if (status != GRADWEIR_ERR_AGAIN || patience_ns == 0)
            return status;
        const bool any = client_turn(client);
        if (clock_now_ns() >= end)
            return GRADWEIR_ERR_AGAIN;
        if (!idle_again(&client->idle, any))
            client_sleep(client, end);
    }
}

/* Over a connection where bodies come along with their heads (transport_portion) there are no
 * blocks to wait for; a chunk that is made when it can leave is sent from the cache. */
enum { MADE_AHEAD = 2 };

/* False: nothing has left for long. */
static bool departure_wait(struct gradweir_client *client, uint32_t member, uint64_t patience_ns)
{
    const struct session_member *to = &client->session.members[member];
    uint64_t end = clock_now_ns() + patience_ns;
    uint32_t before = to->in_flight;
    if (to->in_flight < MADE_AHEAD)
        return true;
    if (patience_ns == 0 ||
        transport_portion(client->transport, client->peers[member]) == UINT64_MAX)
        return false;
    for (idle_anew(&client->idle);;) {
        const bool any = client_turn(client);
        if (to->state != MEMBER_OPEN || client->failed != GRADWEIR_OK || clock_now_ns() >= end)
            return false;
        if (to->in_flight < MADE_AHEAD)
            return true;
        if (to->in_flight != before) {
            before = to->in_flight;
            end = clock_now_ns() + patience_ns;
        }
        if (!idle_again(&client->idle, any))
            client_sleep(client, end);
    }
}

uint64_t client_room_take(struct client_encoding *encoding, uint64_t chunk)
{
    struct gradweir_client *client = encoding->client;
    struct client_room *room = &client->room;
    uint64_t length;
    *room = (struct client_room){.buffer = encoding->buffer, .offset = encoding->filled};
    const uint32_t member = member_at(client, encoding->filled, chunk, &length);
    if (member == MEMBERS_MAX)
        return chunk;
    encoding->stays = !departure_wait(client, member, encoding->stays ? 0 : ROOM_PATIENCE_NS);
    if (encoding->codec == ARITHMETIC_F32 && !client->lent[encoding->buffer] && !encoding->direct) {
        const uint64_t patience_ns = encoding->no_room ? 0 : ROOM_PATIENCE_NS;
        room->length = length;
        encoding->no_room = room_wait(client, member, length, patience_ns) != GRADWEIR_OK;
    }
    return length;
}

void *client_room_next(struct gradweir_client *client, uint64_t offset, uint64_t length)
{
    struct client_room *room = &client->room;
    if (!room->at || offset != room->offset + room->made || length > room->length - room->made)
        return NULL;
    room->made += length;
    return room->at + (offset - room->offset);
}

const uint8_t *client_room_use(struct gradweir_client *client, const struct session_action *action)
{
    struct client_room *room = &client->room;
    const uint8_t *at = room->at;
    if (!at || room->made != room->length || room->peer != client->peers[action->member] ||
        room->buffer != action->buffer || room->offset != action->offset ||
        room->length != action->length)
        return NULL;
    room->at = NULL;
    return at;
}

void client_room_back(struct gradweir_client *client)
{
    if (client->room.at)
        transport_room_back(client->transport, client->room.peer, client->room.at);
    client->room.at = NULL;
}
