/* What a key allows: its owner's name comes from the control plane, not from what the peer writes.
 */
#include "server/coordinator/order_internal.h"

#include <stdio.h>
#include <string.h>

static bool deny(struct order *order, uint32_t peer, const char *text)
{
    order_say(order, "a connection is turned away: %s", text);
    roster_deny(order, peer, GRADWEIR_ERR_REFUSED, text);
    return false;
}

/* Names of servers are not for workers: who holds a shard's key is no worker, and the other way
 * round. */
static bool is_server(const char *identity)
{
    return strcmp(identity, "server") == 0 || strncmp(identity, "shard-", 6) == 0;
}

/* The key's name itself, or NAME/anything: several processes of one owner, who do not fence each
 * other. No key's name has a slash. */
static bool belongs_to(const char *joining, const char *identity)
{
    const size_t length = strlen(identity);
    return strncmp(joining, identity, length) == 0 &&
           (joining[length] == 0 || joining[length] == '/');
}

/* joining: IDENTITY_MAX bytes of the message; "" becomes the key's name. */
static bool may_join(struct order *order, uint32_t peer, const char *identity, char *joining)
{
    char text[TEXT_MAX];
    if (is_server(identity)) {
        snprintf(text, sizeof text, "the key of %s is no worker's", identity);
        return deny(order, peer, text);
    }
    if (joining[0] == 0)
        snprintf(joining, IDENTITY_MAX, "%s", identity);
    if (memchr(joining, 0, IDENTITY_MAX) && belongs_to(joining, identity))
        return true;
    snprintf(text, sizeof text, "the key of %s cannot join as %.*s", identity, IDENTITY_MAX,
             joining);
    return deny(order, peer, text);
}

static bool may_enlist(struct order *order, uint32_t peer, const char *identity,
                       const struct message_enlist *enlist)
{
    char text[TEXT_MAX], name[32];
    snprintf(name, sizeof name, "shard-%u", enlist->shard);
    if (strcmp(identity, name) == 0)
        return true;
    snprintf(text, sizeof text, "the key of %s is not that of %s", identity, name);
    return deny(order, peer, text);
}

bool proven(struct order *order, uint32_t peer, const char *identity, struct message *message)
{
    if (!identity || identity[0] == 0)
        return true;
    switch (message->kind) {
    case MESSAGE_JOIN: return may_join(order, peer, identity, message->join.identity);
    case MESSAGE_SWAP: return may_join(order, peer, identity, message->swap.identity);
    default: return may_enlist(order, peer, identity, &message->enlist);
    }
}
