/* Peers, the layout, leases. Shards are members.c's, workers' joining is joins.c's. */
#include "server/coordinator/order_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct peer *roster_find(struct order *order, uint32_t number)
{
    uint16_t *hint = &order->peer_at[number % PEER_HINTS];
    struct peer *peer = &order->peers[*hint];
    if (peer->state != PEER_FREE && peer->number == number)
        return peer;
    for (uint32_t i = 0; i < order->peers_max; i++)
        if (order->peers[i].state != PEER_FREE && order->peers[i].number == number) {
            *hint = (uint16_t)i;
            return &order->peers[i];
        }
    return NULL;
}

struct peer *roster_take(struct order *order, uint32_t number)
{
    struct peer *peer = roster_find(order, number);
    for (uint32_t i = 0; !peer && i < order->peers_max; i++)
        if (order->peers[i].state == PEER_FREE) {
            peer = &order->peers[i];
            ranks_forget(peer);
            memset(peer, 0, sizeof *peer);
            peer->number = number;
            peer->state = PEER_NEW;
        }
    return peer;
}

bool order_is_worker(const struct order *order, uint32_t number)
{
    for (uint32_t i = 0; i < order->peers_max; i++)
        if (order->peers[i].number == number &&
            (order->peers[i].state == PEER_JOINING || order->peers[i].state == PEER_WORKER))
            return true;
    return false;
}

void roster_deny(struct order *order, uint32_t peer, int32_t status, const char *text)
{
    struct message *message = order_send(order, peer, MESSAGE_DENIED);
    message->denied.status = status;
    snprintf(message->denied.text, sizeof message->denied.text, "%s", text);
}

bool roster_protocol(uint32_t oldest, uint32_t newest)
{
    if (newest >= PROTOCOL_OLDEST && oldest <= PROTOCOL_VERSION)
        return true;
    return fail(GRADWEIR_ERR_MISMATCH,
                "you speak protocol %u to %u, the coordinator %d to %d: use programs of one "
                "version",
                oldest, newest, PROTOCOL_OLDEST, PROTOCOL_VERSION) == GRADWEIR_OK;
}

bool roster_live(const struct order *order, uint32_t worker)
{
    const struct ledger_worker *known = &order->ledger.workers[worker];
    return worker < order->ledger.workers_count && known->state == WORKER_LIVE &&
           known->role == ROLE_WORKER;
}

/* The layout: the first worker that has one tells it. */

static gradweir_status keep_layout(struct order *order, const struct peer *peer)
{
    struct model *model = NULL;
    TRY(model_decode(content_bytes(order->assembler), content_count(order->assembler), &model));
    if (model->hash != peer->join.layout_hash) {
        model_free(model);
        return fail(GRADWEIR_ERR_MISMATCH, "the layout is not the one that JOIN named");
    }
    gradweir_status fits = queue_fit(order, model);
    if (fits == GRADWEIR_OK)
        fits = steps_room(order, model);
    if (fits != GRADWEIR_OK) {
        model_free(model);
        return fits;
    }
    const size_t bytes = content_count(order->assembler);
    uint8_t *layout = malloc(bytes);
    if (!layout) {
        model_free(model);
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the layout");
    }
    memcpy(layout, content_bytes(order->assembler), bytes);
    order->model = model;
    order->layout = layout;
    order->layout_bytes = bytes;
    return GRADWEIR_OK;
}

void roster_page(struct order *order, struct peer *peer, const struct message_page *page)
{
    if (order->model || peer->number != order->layout_peer || page->content != CONTENT_LAYOUT) {
        order->figures.foreign++;
        return;
    }
    gradweir_status status = content_add(order->assembler, page);
    if (status == GRADWEIR_OK && !content_whole(order->assembler))
        return;
    if (status == GRADWEIR_OK)
        status = keep_layout(order, peer);
    order->layout_peer = 0;
    if (status != GRADWEIR_OK) {
        peer->state = PEER_NEW;
        roster_deny(order, peer->number, status, fail_reason());
        return;
    }
    for (uint32_t i = 0; i < order->options.shards; i++)
        if (order->members[i].peer != 0)
            members_tell(order, i);
}

/* Losses. */

void roster_ask_displaced(struct order *order, uint32_t was, uint32_t index)
{
    for (uint32_t i = 0; i < order->peers_max; i++) {
        const struct peer *peer = &order->peers[i];
        if (peer->state == PEER_NEW && peer->displaced == was && peer->index == index)
            order_send(order, peer->number, MESSAGE_REJOIN);
    }
}

void roster_lost(struct order *order, uint32_t number)
{
    struct peer *peer = roster_find(order, number);
    if (!peer)
        return;
    if (order->layout_peer == number)
        order->layout_peer = 0;
    if (peer->state == PEER_SHARD) {
        members_lost(order, peer->index);
    }
    if (order->parts_peer == number)
        order->parts_peer = 0;
    swaps_lost(order, number);
    const bool own = peer->state == PEER_WORKER && ranks_own(order, peer);
    if (peer->state == PEER_WORKER && peer->rank.ranks > 0) {
        ranks_lost(order, peer);
    } else if (peer->state == PEER_WORKER && order->workers[peer->index].peer == number) {
        order->workers[peer->index].peer = 0;
        order->workers[peer->index].told = false;
        order->workers[peer->index].lost_ns = order->now_ns;
        sets_worker(order, peer->index);
    }
    if (own)
        roster_ask_displaced(order, PEER_WORKER, peer->index);
    ranks_forget(peer);
    peer->state = PEER_FREE;
}

void roster_leases(struct order *order)
{
    const uint32_t count = order->plants.lease_off ? 0 : order->ledger.workers_count;
    for (uint32_t i = sets_next(order->sets.lost, 0, count); i < count;
         i = sets_next(order->sets.lost, i + 1, count))
        if (order_room(order) &&
            order->now_ns - order->workers[i].lost_ns >= order->options.lease_ns) {
            order_say(order, "worker %s is gone: its lease is over",
                      order->ledger.workers[i].identity);
            joins_leave(order, i, LEAVE_LEASE);
        }
}
