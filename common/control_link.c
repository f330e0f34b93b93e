/* Links: control connections within one thread. Messages lie in a queue until the other end polls;
 * no socket, no signal, no other thread. They are copied as they are, as far as they count; a PAGE,
 * whose data are the sender's, is encoded. */
#include "common/control_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LINK_BYTES_FIRST = 64 << 10, LINK_BYTES_MAX = CONTENT_BYTES_MAX + (8 << 20) };

/* One direction. What was read may still be borrowed, so the next bytes gather elsewhere. */
struct link_queue {
    uint8_t *filling, *reading;
    size_t filled, filling_size;
    size_t count, at, reading_size; /* of reading */
};

/* Before each message in a queue. */
struct link_entry {
    uint32_t bytes;
    bool encoded;
};

struct control_link {
    struct control *ends[2]; /* server, client; NULL: closed */
    struct link_queue to[2]; /* to the server, to the client */
};

static void free_link(struct control_link *link)
{
    for (int i = 0; i < 2; i++) {
        free(link->to[i].filling);
        free(link->to[i].reading);
    }
    free(link);
}

static bool has_bytes(const struct link_queue *queue)
{
    return queue->at < queue->count || queue->filled > 0;
}

static gradweir_status grow(struct link_queue *queue)
{
    const size_t size = queue->filling_size ? 2 * queue->filling_size : LINK_BYTES_FIRST;
    uint8_t *bytes = size <= LINK_BYTES_MAX ? realloc(queue->filling, size) : NULL;
    if (!bytes)
        return fail(GRADWEIR_ERR_FULL, "a link within the process holds %zu bytes unread",
                    queue->filled);
    queue->filling = bytes;
    queue->filling_size = size;
    return GRADWEIR_OK;
}

gradweir_status control_link_put(struct control_link *link, bool to_client,
                                 const struct message *message)
{
    struct link_queue *queue = &link->to[to_client];
    if (!link->ends[to_client])
        return fail(GRADWEIR_ERR_LOST, "the other end of the link is closed");
    while (queue->filling_size < queue->filled + FRAME_BYTES_MAX)
        TRY(grow(queue));
    struct link_entry entry = {.encoded = message->kind == MESSAGE_PAGE};
    uint8_t *place = queue->filling + queue->filled;
    size_t bytes = message_used(message);
    if (entry.encoded)
        TRY(wire_encode(message, place + sizeof entry, MESSAGE_BYTES_MAX, &bytes));
    else
        memcpy(place + sizeof entry, message, bytes);
    entry.bytes = (uint32_t)bytes;
    memcpy(place, &entry, sizeof entry);
    queue->filled += sizeof entry + bytes;
    return GRADWEIR_OK;
}

static_assert(sizeof(struct link_entry) + sizeof(struct message) <= FRAME_BYTES_MAX &&
                  sizeof(struct link_entry) + MESSAGE_BYTES_MAX <= FRAME_BYTES_MAX,
              "a message has room");

static void turn_over(struct link_queue *queue)
{
    const struct link_queue before = *queue;
    *queue = (struct link_queue){.filling = before.reading,
                                 .filling_size = before.reading_size,
                                 .reading = before.filling,
                                 .reading_size = before.filling_size,
                                 .count = before.filled};
}

bool control_link_next(struct control_link *link, bool at_client, struct wire_decoder *decoder,
                       struct message *message)
{
    struct link_queue *queue = &link->to[at_client];
    if (!has_bytes(queue))
        return false;
    if (queue->at == queue->count)
        turn_over(queue);
    struct link_entry entry;
    memcpy(&entry, queue->reading + queue->at, sizeof entry);
    const uint8_t *bytes = queue->reading + queue->at + sizeof entry;
    queue->at += sizeof entry + entry.bytes;
    if (!entry.encoded) {
        memcpy(message, bytes, entry.bytes);
        return true;
    }
    size_t used = 0;
    const gradweir_status status = wire_decode(decoder, bytes, entry.bytes, &used, message);
    ASSERT(status == GRADWEIR_OK); /* we wrote it */
    return true;
}

bool control_link_waits(const struct control_link *link, bool at_client)
{
    return has_bytes(&link->to[at_client]);
}

void control_link_close(struct control_link *link, bool client)
{
    link->ends[client] = NULL;
    struct control *other = link->ends[!client];
    if (!other)
        free_link(link);
    else if (client)
        control_peer_break(other, control_link_peer(other, link));
    else
        other->lost_owed = true;
}

gradweir_status control_connect_within(struct control *server, struct control **client)
{
    struct control *made = calloc(1, sizeof *made);
    struct control_link *link = calloc(1, sizeof *link);
    gradweir_status status = GRADWEIR_ERR_NO_MEMORY;
    if (made && link) {
        link->ends[0] = server;
        link->ends[1] = made;
        made->peers_max = 1;
        made->peers = calloc(2, sizeof *made->peers);
        status = made->peers ? wire_decoder_new(&made->decoder) : GRADWEIR_ERR_NO_MEMORY;
    }
    if (status == GRADWEIR_OK)
        status = control_peer_link(server, link);
    if (status != GRADWEIR_OK) {
        if (made)
            free(made->peers);
        free(made);
        free(link);
        return fail(status, "no room for a link within the process");
    }
    made->peers[CONTROL_SERVER] = (struct control_peer){.number = CONTROL_SERVER, .link = link};
    made->link = link;
    made->up_owed = made->connected = true;
    made->log = server->log;
    snprintf(made->address, sizeof made->address, "%s", server->address);
    *client = made;
    return GRADWEIR_OK;
}
