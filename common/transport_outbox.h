/* What a shell says over the data plane: heads and bodies gathered by peer, so that what is said to
 * one peer within a turn goes as few messages, and what finds no room waits behind its elders.
 *
 * A message is up to OUTBOX_HEADS heads, one behind the other, and at most one body. The body is
 * that of the first head of a kind that has bodies (CHUNK, PART, PARAMETERS, PULL with PIECES).
 * Heads keep their order. */
#ifndef GRADWEIR_COMMON_TRANSPORT_OUTBOX_H
#define GRADWEIR_COMMON_TRANSPORT_OUTBOX_H

#include "common/heads.h"
#include "common/transport.h"

#include <stdbool.h>

enum {
    OUTBOX_HEADS = TRANSPORT_HEAD_MAX / HEAD_BYTES,
    OUTBOX_SMALL = 64 << 10 /* bytes: a larger body does not wait for the turn's end */
};

/* Put with one head; others may join it. */
struct outbox_item {
    uint64_t peer; /* the transport's number; 0: nobody */
    struct head_any heads[OUTBOX_HEADS];
    uint32_t heads_count;
    bool bodied; /* one of them is of a kind that has bodies; set by outbox_put */
    uint32_t memory;
    const void *body;
    uint64_t length;
    uint64_t token; /* 0, unless it is bodied */
};

struct outbox {
    struct transport *transport;
    struct outbox_item *items; /* oldest first */
    uint32_t count, max;
    /* An item cannot be sent (any more), or there was no room for it. May put others. */
    void (*lost)(void *context, const struct outbox_item *item, gradweir_status status);
    void *context;
};

/* Takes room for `max` items; the other members are the caller's to set. */
gradweir_status outbox_init(struct outbox *outbox, uint32_t max);
void outbox_deinit(struct outbox *outbox);

/* Keeps one head and its body for the next flush; a body that is not small leaves at once. */
void outbox_put(struct outbox *outbox, const struct outbox_item *item);

/* Sends whatever can be sent; true when anything could, or was lost. */
bool outbox_flush(struct outbox *outbox);

/* How many heads came (0: what came is none), and which of them has the body: the last one, if none
 * of them may have one. */
uint32_t outbox_heads(const struct transport_event *event, uint32_t *bodied);

#endif
