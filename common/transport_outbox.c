/* See transport_outbox.h. */
#include "common/transport_outbox.h"

#include <stdlib.h>
#include <string.h>

gradweir_status outbox_init(struct outbox *outbox, uint32_t max)
{
    outbox->items = calloc(max, sizeof *outbox->items);
    outbox->max = outbox->items ? max : 0;
    outbox->count = 0;
    return outbox->items ? GRADWEIR_OK : fail(GRADWEIR_ERR_NO_MEMORY, "no memory for an outbox");
}

void outbox_deinit(struct outbox *outbox)
{
    free(outbox->items);
    outbox->items = NULL;
    outbox->count = outbox->max = 0;
}

static bool has_bodies(const void *bytes)
{
    struct head_any head;
    memcpy(&head, bytes, sizeof head);
    return head.kind == HEAD_CHUNK || head.kind == HEAD_PART || head.kind == HEAD_PARAMETERS ||
           (head.kind == HEAD_PULL && head.flags & PULL_PIECES);
}

static void join(struct outbox_item *to, const struct outbox_item *item)
{
    to->heads[to->heads_count++] = item->heads[0];
    if (!item->bodied)
        return;
    to->bodied = true;
    to->memory = item->memory;
    to->body = item->body;
    to->length = item->length;
    to->token = item->token;
}

/* The peer's newest item, when it can take this one too. */
static struct outbox_item *companion(struct outbox *outbox, const struct outbox_item *item)
{
    for (uint32_t i = outbox->count; i > 0; i--) {
        struct outbox_item *other = &outbox->items[i - 1];
        if (other->peer != item->peer)
            continue;
        return other->heads_count < OUTBOX_HEADS && !(other->bodied && item->bodied) ? other : NULL;
    }
    return NULL;
}

void outbox_put(struct outbox *outbox, const struct outbox_item *given)
{
    struct outbox_item item = *given;
    ASSERT(item.heads_count == 1);
    item.bodied = has_bodies(&item.heads[0]);
    ASSERT(item.bodied || (item.length == 0 && item.token == 0));
    struct outbox_item *other = companion(outbox, &item);
    if (other) {
        join(other, &item);
    } else if (outbox->count < outbox->max) {
        outbox->items[outbox->count++] = item;
    } else {
        outbox->lost(outbox->context, &item, GRADWEIR_ERR_AGAIN);
        return;
    }
    if (item.length > OUTBOX_SMALL)
        outbox_flush(outbox);
}

static gradweir_status try(const struct outbox *outbox, const struct outbox_item *item)
{
    if (item->peer == 0)
        return GRADWEIR_ERR_LOST;
    return transport_send(outbox->transport, item->peer,
                          &(struct transport_message){.head = item->heads,
                                                      .head_length = item->heads_count * HEAD_BYTES,
                                                      .memory = item->memory,
                                                      .body = item->length ? item->body : NULL,
                                                      .length = item->length,
                                                      .token = item->token});
}

static bool has_elder(const struct outbox *outbox, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (outbox->items[i].peer == outbox->items[index].peer)
            return true;
    return false;
}

bool outbox_flush(struct outbox *outbox)
{
    bool any = false;
    for (uint32_t i = 0; i < outbox->count;) {
        const struct outbox_item *item = &outbox->items[i];
        const gradweir_status status =
            has_elder(outbox, i) ? GRADWEIR_ERR_AGAIN : try(outbox, item);
        if (status == GRADWEIR_ERR_AGAIN) {
            i++;
            continue;
        }
        const struct outbox_item gone = *item;
        outbox->count--;
        memmove(&outbox->items[i], &outbox->items[i + 1],
                (outbox->count - i) * sizeof *outbox->items);
        if (status != GRADWEIR_OK)
            outbox->lost(outbox->context, &gone, status);
        any = true;
    }
    return any;
}

uint32_t outbox_heads(const struct transport_event *event, uint32_t *bodied)
{
    const uint32_t count = event->head_length / HEAD_BYTES;
    *bodied = 0;
    if (count == 0 || event->head_length % HEAD_BYTES)
        return 0;
    while (*bodied + 1 < count && !has_bodies(event->head + *bodied * HEAD_BYTES))
        ++*bodied;
    return count;
}
