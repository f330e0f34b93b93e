/* Links: control connections within one thread. Messages are encoded as on any other way and lie
 * in a queue of bytes until the other end polls; no socket, no signal, no other thread. */
#include "common/control_internal.h"

#include <stdlib.h>
#include <string.h>

enum { LINK_BYTES_FIRST = 64 << 10, LINK_BYTES_MAX = CONTENT_BYTES_MAX + (8 << 20) };

/* One direction. What was read may still be borrowed, so the next bytes gather elsewhere. */
struct link_queue {
    uint8_t *filling, *reading;
    size_t filled, filling_size;
    size_t count, at, reading_size; /* of reading */
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
    size_t written;
    while (queue->filling_size < queue->filled + FRAME_BYTES_MAX)
        TRY(grow(queue));
    TRY(wire_encode(message, queue->filling + queue->filled, FRAME_BYTES_MAX, &written));
    queue->filled += written;
    return GRADWEIR_OK;
}

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
    size_t used = 0;
    const gradweir_status status =
        wire_decode(decoder, queue->reading + queue->at, queue->count - queue->at, &used, message);
    ASSERT(status == GRADWEIR_OK); /* we wrote it */
    queue->at += used;
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
