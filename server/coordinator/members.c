/* Shards: who is there, what memory they came with, what a connection has missed. */
#include "server/coordinator/order_internal.h"

#include <stdio.h>
#include <string.h>

void order_member(const struct order_options *options, const struct model *model, uint32_t index,
                  uint32_t slots, struct message_member *member)
{
    const struct model_range range = model_shard(model, options->shards, index);
    *member = (struct message_member){.job = options->job,
                                      .shard = index,
                                      .members = options->shards,
                                      .first = range.first,
                                      .count = range.elements,
                                      .moments = index + 1 == options->shards,
                                      .slots = slots,
                                      .parameter_slots = options->parameter_slots,
                                      .ring = options->ring,
                                      .layout_hash = model->hash,
                                      .gradient_dtype = options->law.gradient_dtype};
    memcpy(member->instance, options->instance, NONCE_BYTES);
}

void members_tell(struct order *order, uint32_t index)
{
    const struct order_member *member = &order->members[index];
    struct message_member *told = &order_send(order, member->peer, MESSAGE_MEMBER)->member;
    order_member(&order->options, order->model, index, order->slots_count, told);
    if (!member->ready)
        order_content(order, member->peer, CONTENT_LAYOUT, order->layout, order->layout_bytes);
}

/* To one, or to all (peer 0). */
static struct message *say(struct order *order, uint32_t peer, uint32_t kind)
{
    return peer == 0 ? order_send_all(order, kind) : order_send(order, peer, kind);
}

static void say_entries(struct order *order, uint32_t peer)
{
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        if (order->ledger.workers[i].state != WORKER_LIVE)
            continue;
        struct message_entry *entry = &say(order, peer, MESSAGE_ENTRY)->entry;
        entry->worker = i;
        entry->incarnation = order->ledger.workers[i].incarnation;
        memcpy(entry->pass, order->workers[i].pass, NONCE_BYTES);
    }
}

static void say_records(struct order *order, uint32_t index)
{
    const struct order_member *member = &order->members[index];
    for (uint64_t i = order->logged[index] + 1; i <= order->ledger.index; i++)
        order_send(order, member->peer, MESSAGE_RECORD)->record = order->kept[i % KEPT];
}

/* But for those that the members of `done` have freed. */
static void say_closes(struct order *order, uint32_t peer, uint64_t done)
{
    for (uint32_t i = 0; i < order->slots_count; i++)
        if (order->slots[i].state == SLOT_CLOSING && !(order->slots[i].freed & done))
            say(order, peer, MESSAGE_CLOSE)->close =
                (struct message_close){.slot = i,
                                       .generation = order->slots[i].generation,
                                       .after = order->slots[i].close_after};
}

/* Saying it twice does no harm: records are told by index, closes and entries by number. */
void members_catch_up(struct order *order, uint32_t index)
{
    const uint32_t peer = order->members[index].peer;
    say_entries(order, peer);
    say_records(order, index);
    say_closes(order, peer, UINT64_C(1) << index);
    if (order->whole_known)
        order_send(order, peer, MESSAGE_WHOLE)->whole.version = order->whole;
}

void members_catch_up_all(struct order *order)
{
    say_entries(order, 0);
    for (uint32_t i = 0; i < order->options.shards; i++)
        if (order->members[i].peer != 0)
            say_records(order, i);
    say_closes(order, 0, 0);
}

static const char *misfit(const struct order *order, const struct message_enlist *enlist)
{
    if (enlist->cold || (enlist->index == 0 && order->logged[enlist->shard] == 0))
        return NULL; /* without a log it promises when it hears MEMBER */
    if (enlist->epoch < order->ledger.epoch)
        return "its memory is of an older time: it has not promised what this shard promised";
    if (enlist->index > order->ledger.index || enlist->index < order->logged[enlist->shard] ||
        enlist->index + KEPT <= order->ledger.index ||
        (enlist->index >= order->hashes_from && enlist->index > 0 &&
         enlist->hash != order->hashes[enlist->index % HASHES]))
        return "its log does not fit the coordinator's";
    return NULL;
}

/* Shards that make other bits of a record would be of two minds about one version. */
static bool of_our_build(const struct message_enlist *enlist)
{
    if (enlist->protocol_oldest == PROTOCOL_SERVERS && enlist->protocol_newest == PROTOCOL_SERVERS)
        return true;
    return fail(GRADWEIR_ERR_MISMATCH,
                "this shard is of %s build than the coordinator (servers' protocol %u, here %d): "
                "their bits would differ; run all servers of a job from one build",
                enlist->protocol_newest < PROTOCOL_SERVERS ? "an older" : "a newer",
                enlist->protocol_newest, PROTOCOL_SERVERS) == GRADWEIR_OK;
}

static const char *refused(const struct order *order, const struct peer *peer,
                           const struct message_enlist *enlist, int32_t *status)
{
    *status = GRADWEIR_ERR_MISMATCH;
    if (!of_our_build(enlist))
        return fail_reason();
    if (enlist->job != 0 && enlist->job != order->options.job)
        return "this is another job";
    *status = GRADWEIR_ERR_INVALID;
    if (enlist->shard >= order->options.shards)
        return "there are not so many shards";
    if (!memchr(enlist->address, 0, sizeof enlist->address) || peer->state != PEER_NEW ||
        enlist->epoch >= UINT32_MAX - 1)
        return "that makes no sense";
    const struct order_member *member = &order->members[enlist->shard];
    *status = GRADWEIR_ERR_REFUSED;
    if (member->peer != 0 && enlist->cold &&
        memcmp(member->instance, enlist->instance, NONCE_BYTES) != 0)
        return "that shard is here already";
    /* Who follows a later epoch need not fit: it fences us. */
    return order->phase == PHASE_ACT && enlist->epoch <= order->ledger.epoch ? misfit(order, enlist)
                                                                             : NULL;
}

/* What the others still have is of no use without this range. Cuts would help; there are none. */
static void memory_lost(struct order *order, uint32_t index)
{
    const struct model_range range = model_shard(order->model, order->options.shards, index);
    char text[TEXT_MAX];
    snprintf(text, sizeof text,
             "shard %u came back without its memory: elements %llu to %llu of the model, at "
             "version %llu, are lost, and there is no checkpoint to go back to",
             index, (unsigned long long)range.first,
             (unsigned long long)(range.first + range.elements),
             (unsigned long long)ledger_version(&order->ledger));
    for (uint32_t i = 0; i < order->peers_max; i++)
        if (order->peers[i].state != PEER_FREE)
            roster_deny(order, order->peers[i].number, GRADWEIR_ERR_LOST, text);
    take_over_end(order, GRADWEIR_ERR_LOST, "%s", text);
}

/* Floats travel to another process now, even if its address is the same. */
static void say_moved(struct order *order, uint32_t index)
{
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        const struct order_worker *worker = &order->workers[i];
        if (worker->peer == 0 || !worker->told)
            continue;
        struct message_moved *moved = &order_send(order, worker->peer, MESSAGE_MOVED)->moved;
        moved->shard = index;
        memcpy(moved->address, order->members[index].address, sizeof moved->address);
    }
}

static void came_back(struct order *order, uint32_t index, bool other)
{
    struct order_member *member = &order->members[index];
    if (member->known)
        order_say(order, "shard %u is back%s", index, other ? ", as another process" : "");
    if (member->ready)
        order->logged[index] = member->index;
    if (order->model)
        members_tell(order, index);
    if (member->ready)
        members_catch_up(order, index);
    if (member->ready && other)
        say_moved(order, index);
}

static void note(struct order *order, struct peer *peer, const struct message_enlist *enlist)
{
    struct order_member *member = &order->members[enlist->shard];
    struct peer *old = roster_find(order, member->peer);
    if (old) { /* it has noticed before us that its connection broke, or is its process' heir */
        old->state = PEER_NEW;
        old->displaced = PEER_SHARD;
    }
    peer->displaced = PEER_FREE;
    memcpy(member->instance, enlist->instance, NONCE_BYTES);
    memcpy(member->address, enlist->address, sizeof member->address);
    peer->state = PEER_SHARD;
    peer->index = enlist->shard;
    member->peer = peer->number;
    order->here |= UINT64_C(1) << enlist->shard;
    member->seen_ns = order->now_ns;
    member->cold = enlist->cold;
    member->promise = enlist->epoch;
    member->index = enlist->index;
    member->hash = enlist->hash;
    member->promised = member->sealed = false;
}

/* What a shard says before it has noticed that its connection is a new one comes before its ENLIST,
 * and is answered with REJOIN where it has a worker's name in it: so it enlists twice. The first
 * time is answered. */
static bool said_twice(const struct order *order, const struct peer *peer,
                       const struct message_enlist *enlist)
{
    return peer->state == PEER_SHARD && peer->index == enlist->shard &&
           memcmp(order->members[enlist->shard].instance, enlist->instance, NONCE_BYTES) == 0;
}

void members_enlist(struct order *order, struct peer *peer, const struct message_enlist *enlist)
{
    int32_t status = 0;
    if (said_twice(order, peer, enlist))
        return;
    const char *why = refused(order, peer, enlist, &status);
    if (order->phase == PHASE_ACT && !why && enlist->epoch > order->ledger.epoch) {
        take_over_fenced(order, enlist->epoch);
        return;
    }
    if (why) {
        order_say(order, "shard %u is denied: %s", enlist->shard, why);
        roster_deny(order, peer->number, status, why);
        return;
    }
    struct order_member *member = &order->members[enlist->shard];
    const bool other = memcmp(member->instance, enlist->instance, NONCE_BYTES) != 0;
    note(order, peer, enlist);
    if (order->phase != PHASE_ACT) {
        take_over_enlisted(order, enlist->shard);
    } else if (enlist->cold && order->logged[enlist->shard] > 0) {
        memory_lost(order, enlist->shard);
    } else {
        member->ready = member->ready && !enlist->cold;
        came_back(order, enlist->shard, other);
    }
    member->known = true;
}

void members_lost(struct order *order, uint32_t index)
{
    order->members[index].peer = 0;
    order->here &= ~(UINT64_C(1) << index);
    order->members[index].promised = order->members[index].sealed = false;
    if (order->phase == PHASE_ACT)
        order_say(order, "shard %u is lost: nothing is admitted until it is back", index);
    roster_ask_displaced(order, PEER_SHARD, index);
}

void members_bodies(struct order *order)
{
    order->bodies = 0;
    for (uint32_t i = 0; i < order->options.shards; i++) {
        const struct model_range range = model_shard(order->model, order->options.shards, i);
        if (range.elements > 0 || range.moments > 0)
            order->bodies |= UINT64_C(1) << i;
    }
}

void members_map(struct order *order)
{
    struct record record = {.kind = RECORD_MAP};
    struct record_map *map = &record.map;
    map->members = order->options.shards;
    for (uint32_t i = 0; i < map->members; i++) {
        const struct model_range range = model_shard(order->model, map->members, i);
        map->firsts[i] = range.first;
        map->counts[i] = range.elements;
    }
    members_bodies(order);
    map->layout_hash = order->model->hash;
    map->slots = order->slots_count;
    map->groups_count = order->model->groups_count;
    const gradweir_status status = ledger_settings_write(
        &order->options.law, &order->options.optimizer, map->settings, sizeof map->settings);
    ASSERT(status == GRADWEIR_OK);
    order_append(order, &record);
}

void members_ready(struct order *order, struct peer *peer, const struct message_ready *ready)
{
    struct order_member *member = &order->members[peer->index];
    if (!order->model || ready->shard != peer->index) {
        order->figures.foreign++;
        return;
    }
    if (ready->layout_hash != order->model->hash) {
        roster_deny(order, peer->number, GRADWEIR_ERR_MISMATCH,
                    "this shard has taken its memory for another layout: start it anew");
        return;
    }
    const bool fresh = !member->ready;
    member->ready = true;
    member->seen_ns = order->now_ns;
    for (uint32_t i = 0; i < order->options.shards; i++)
        if (!order->members[i].ready)
            return;
    if (!order->ledger.mapped)
        members_map(order);
    else if (fresh)
        members_catch_up(order, peer->index);
}
