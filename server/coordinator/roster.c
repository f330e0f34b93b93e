/* Peers, shards, the layout, leases. Workers' joining is joins.c's. */
#include "server/coordinator/order_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct peer *roster_find(struct order *order, uint32_t number)
{
    for (uint32_t i = 0; i < order->peers_max; i++)
        if (order->peers[i].state != PEER_FREE && order->peers[i].number == number)
            return &order->peers[i];
    return NULL;
}

struct peer *roster_take(struct order *order, uint32_t number)
{
    struct peer *peer = roster_find(order, number);
    for (uint32_t i = 0; !peer && i < order->peers_max; i++)
        if (order->peers[i].state == PEER_FREE) {
            peer = &order->peers[i];
            memset(peer, 0, sizeof *peer);
            peer->number = number;
            peer->state = PEER_NEW;
        }
    return peer;
}

void roster_deny(struct order *order, uint32_t peer, int32_t status, const char *text)
{
    struct message *message = order_send(order, peer, MESSAGE_DENIED);
    message->denied.status = status;
    snprintf(message->denied.text, sizeof message->denied.text, "%s", text);
}

bool roster_live(const struct order *order, uint32_t worker)
{
    const struct ledger_worker *known = &order->ledger.workers[worker];
    return worker < order->ledger.workers_count && known->state == WORKER_LIVE &&
           known->role == ROLE_WORKER;
}

/* Shards. */

static void send_member(struct order *order, uint32_t index)
{
    const struct order_member *member = &order->members[index];
    const struct model_range range = model_shard(order->model, order->options.shards, index);
    order_send(order, member->peer, MESSAGE_MEMBER)->member =
        (struct message_member){.job = order->options.job,
                                .shard = index,
                                .members = order->options.shards,
                                .first = range.first,
                                .count = range.elements,
                                .moments = index + 1 == order->options.shards,
                                .slots = order->slots_count,
                                .parameter_slots = order->options.parameter_slots,
                                .layout_hash = order->model->hash};
    if (!member->ready)
        order_content(order, member->peer, CONTENT_LAYOUT, order->layout, order->layout_bytes);
}

static const char *enlist_refused(const struct order *order, const struct peer *peer,
                                  const struct message_enlist *enlist, int32_t *status)
{
    *status = GRADWEIR_ERR_MISMATCH;
    if (enlist->protocol_newest < PROTOCOL_OLDEST || enlist->protocol_oldest > PROTOCOL_VERSION)
        return "we do not speak each other's protocol";
    if (enlist->job != 0 && enlist->job != order->options.job)
        return "this is another job";
    *status = GRADWEIR_ERR_INVALID;
    if (enlist->shard >= order->options.shards)
        return "there are not so many shards";
    if (!memchr(enlist->address, 0, sizeof enlist->address) || peer->state != PEER_NEW)
        return "that makes no sense";
    const struct order_member *member = &order->members[enlist->shard];
    *status = GRADWEIR_ERR_REFUSED;
    if (member->peer != 0 && memcmp(member->instance, enlist->instance, NONCE_BYTES) != 0)
        return "that shard is here already";
    if (member->ready && enlist->cold)
        return "this shard's memory is lost, and with it what the job has learned";
    if (!member->ready && enlist->index != 0)
        return "its memory holds a log that this coordinator does not know";
    if (member->ready &&
        (enlist->index > order->ledger.index || enlist->index < member->logged ||
         enlist->index + KEPT <= order->ledger.index ||
         (enlist->index > 0 && enlist->hash != order->hashes[enlist->index % HASHES])))
        return "its log does not fit the coordinator's";
    return NULL;
}

/* What a connection may have lost on its way to a shard that kept its memory. Saying it twice does
 * no harm: records are told by index, closes and entries by number. */
static void send_again(struct order *order, uint32_t index)
{
    const struct order_member *member = &order->members[index];
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        if (order->ledger.workers[i].state != WORKER_LIVE)
            continue;
        struct message *message = order_send(order, member->peer, MESSAGE_ENTRY);
        message->entry.worker = i;
        message->entry.incarnation = order->ledger.workers[i].incarnation;
        memcpy(message->entry.pass, order->workers[i].pass, NONCE_BYTES);
    }
    for (uint64_t i = member->logged + 1; i <= order->ledger.index; i++)
        order_send(order, member->peer, MESSAGE_RECORD)->record = order->kept[i % KEPT];
    for (uint32_t i = 0; i < order->slots_count; i++)
        if (order->slots[i].state == SLOT_CLOSING && !(order->slots[i].freed >> index & 1))
            order_send(order, member->peer, MESSAGE_CLOSE)->close =
                (struct message_close){.slot = i,
                                       .generation = order->slots[i].generation,
                                       .after = order->slots[i].close_after};
    if (order->whole_known)
        order_send(order, member->peer, MESSAGE_WHOLE)->whole.version = order->whole;
}

void roster_enlist(struct order *order, struct peer *peer, const struct message_enlist *enlist)
{
    int32_t status = 0;
    const char *why = enlist_refused(order, peer, enlist, &status);
    if (why) {
        order_say(order, "shard %u is denied: %s", enlist->shard, why);
        roster_deny(order, peer->number, status, why);
        return;
    }
    struct order_member *member = &order->members[enlist->shard];
    struct peer *old = roster_find(order, member->peer);
    if (old) /* the same process has noticed before us that its connection broke */
        old->state = PEER_NEW;
    memcpy(member->instance, enlist->instance, NONCE_BYTES);
    peer->state = PEER_SHARD;
    peer->index = enlist->shard;
    member->peer = peer->number;
    member->seen_ns = order->now_ns;
    if (member->ready)
        member->logged = enlist->index;
    memcpy(member->address, enlist->address, sizeof member->address);
    if (member->known)
        order_say(order, "shard %u is back", enlist->shard);
    member->known = true;
    if (order->model)
        send_member(order, enlist->shard);
    if (member->ready)
        send_again(order, enlist->shard);
}

static void append_map(struct order *order)
{
    struct record record = {.kind = RECORD_MAP};
    struct record_map *map = &record.map;
    map->members = order->options.shards;
    for (uint32_t i = 0; i < map->members; i++) {
        const struct model_range range = model_shard(order->model, map->members, i);
        map->firsts[i] = range.first;
        map->counts[i] = range.elements;
        if (range.elements > 0 || range.moments > 0)
            order->bodies |= UINT64_C(1) << i;
    }
    map->layout_hash = order->model->hash;
    map->slots = order->slots_count;
    map->groups_count = order->model->groups_count;
    const gradweir_status status = ledger_settings_write(
        &order->options.law, &order->options.optimizer, map->settings, sizeof map->settings);
    ASSERT(status == GRADWEIR_OK);
    order_append(order, &record);
}

void roster_ready(struct order *order, struct peer *peer, const struct message_ready *ready)
{
    struct order_member *member = &order->members[peer->index];
    if (!order->model || ready->shard != peer->index || ready->layout_hash != order->model->hash) {
        order->figures.foreign++;
        return;
    }
    member->ready = true;
    member->seen_ns = order->now_ns;
    for (uint32_t i = 0; i < order->options.shards; i++)
        if (!order->members[i].ready)
            return;
    if (!order->ledger.mapped)
        append_map(order);
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
    const gradweir_status fits = queue_fit(order, model);
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
            send_member(order, i);
}

/* Losses. */

void roster_lost(struct order *order, uint32_t number)
{
    struct peer *peer = roster_find(order, number);
    if (!peer)
        return;
    if (order->layout_peer == number)
        order->layout_peer = 0;
    if (peer->state == PEER_SHARD) {
        order->members[peer->index].peer = 0;
        order_say(order, "shard %u is lost: nothing is admitted until it is back", peer->index);
    }
    if (peer->state == PEER_WORKER && order->workers[peer->index].peer == number) {
        order->workers[peer->index].peer = 0;
        order->workers[peer->index].told = false;
        order->workers[peer->index].lost_ns = order->now_ns;
    }
    peer->state = PEER_FREE;
}

void roster_leases(struct order *order)
{
    for (uint32_t i = 0; i < order->ledger.workers_count && !order->plants.lease_off; i++)
        if (order->ledger.workers[i].state == WORKER_LIVE && order->workers[i].peer == 0 &&
            order->now_ns - order->workers[i].lost_ns >= order->options.lease_ns) {
            order_say(order, "worker %s is gone: its lease is over",
                      order->ledger.workers[i].identity);
            joins_leave(order, i, LEAVE_LEASE);
        }
}
