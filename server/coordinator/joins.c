/* Who takes part, under which incarnation. The same nonce gets the same one again; another nonce
 * takes the place of whoever lives under that identity, and who was replaced stays out. */
#include "server/coordinator/order_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool good_identity(const char identity[IDENTITY_MAX])
{
    if (!memchr(identity, 0, IDENTITY_MAX))
        return false;
    for (const char *c = identity; *c != 0; c++)
        if (!isprint((unsigned char)*c))
            return false;
    return true;
}

static const char *join_refused(const struct order *order, const struct message_join *join,
                                int32_t *status)
{
    *status = GRADWEIR_ERR_MISMATCH;
    if (!roster_protocol(join->protocol_oldest, join->protocol_newest))
        return fail_reason();
    if (join->job != 0 && join->job != order->options.job)
        return "another job runs here";
    *status = GRADWEIR_ERR_INVALID;
    if (join->role < ROLE_WORKER || join->role > ROLE_RANK)
        return "the role is neither worker nor reader";
    if (!good_identity(join->identity))
        return "the identity is no name: up to 63 printable ASCII characters are allowed";
    *status = GRADWEIR_ERR_STOPPED;
    return order->draining ? "the job ends" : NULL;
}

static uint32_t find_identity(const struct order *order, const char *identity)
{
    uint32_t i = 0;
    while (i < order->ledger.workers_count &&
           strcmp(order->ledger.workers[i].identity, identity) != 0)
        i++;
    return i;
}

/* Who comes without a name: known by its nonce, or "worker-N". */
static void name_it(const struct order *order, struct message_join *join)
{
    if (join->identity[0] != 0)
        return;
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        if (memcmp(order->ledger.workers[i].nonce, join->nonce, NONCE_BYTES) == 0) {
            memcpy(join->identity, order->ledger.workers[i].identity, IDENTITY_MAX);
            return;
        }
    uint32_t n = order->ledger.workers_count;
    do
        snprintf(join->identity, IDENTITY_MAX, "worker-%u", n++);
    while (find_identity(order, join->identity) < order->ledger.workers_count);
}

static void release(struct order *order, uint32_t number, uint32_t displaced)
{
    struct peer *old = roster_find(order, number);
    if (old) {
        old->state = PEER_NEW;
        old->displaced = displaced;
    }
}

/* The worker's connections are no longer its own. `displaced` is PEER_WORKER if others of the same
 * processes take their places: one that comes late may be dead. */
static void detach(struct order *order, uint32_t worker, uint32_t displaced)
{
    for (uint32_t r = 0; r < order->workers[worker].ranks; r++) {
        release(order, order->workers[worker].rank_peers[r], displaced);
        order->workers[worker].rank_peers[r] = 0;
    }
    release(order, order->workers[worker].peer, displaced);
    order->workers[worker].peer = 0;
    order->workers[worker].told = false;
    sets_worker(order, worker);
}

static void fence(struct order *order, uint32_t index)
{
    if (order->workers[index].ranks > 0) { /* ranks.c tells them */
        joins_leave(order, index, LEAVE_REPLACED);
        return;
    }
    if (order->workers[index].peer != 0)
        roster_deny(order, order->workers[index].peer, GRADWEIR_ERR_FENCED,
                    "another process has joined under this identity");
    detach(order, index, PEER_FREE);
    joins_leave(order, index, LEAVE_REPLACED);
}

void joins_pass(struct order *order, uint32_t worker)
{
    for (uint32_t i = 0; i < NONCE_BYTES; i += 8) {
        const uint64_t bits = random_next(&order->random);
        memcpy(order->workers[worker].pass + i, &bits, sizeof bits);
    }
}

static void append_join(struct order *order, uint32_t index, const struct message_join *join)
{
    struct order_worker *worker = &order->workers[index];
    const struct order_options *options = &order->options;
    struct record record = {.kind = RECORD_JOIN};
    record.join.worker = index;
    record.join.incarnation =
        index < order->ledger.workers_count ? order->ledger.workers[index].incarnation + 1 : 1;
    record.join.role = join->role == ROLE_RANK ? ROLE_WORKER : join->role;
    memcpy(record.join.nonce, join->nonce, NONCE_BYTES);
    memcpy(record.join.identity, join->identity, IDENTITY_MAX);
    record.join.outstanding_max = join->outstanding_max < options->outstanding_max
                                      ? join->outstanding_max
                                      : options->outstanding_max;
    if (record.join.outstanding_max == 0)
        record.join.outstanding_max = 1;
    joins_pass(order, index);
    struct message_entry entry = {.worker = index, .incarnation = record.join.incarnation};
    memcpy(entry.pass, worker->pass, NONCE_BYTES);
    order_send_all(order, MESSAGE_ENTRY)->entry = entry;
    order_append(order, &record);
    worker->join_at = order->ledger.index;
    worker->joined_ns = order->now_ns;
    worker->asked = worker->granted = 0;
    worker->held = 0;
    worker->numbers_count = 0;
    sets_worker(order, index);
}

/* Its number of before, a new one, or that of one that left: first of those whose number fences
 * nobody off, the one that came earliest. WORKERS_MAX: all are here. */
static uint32_t find_number(const struct order *order, const char *identity)
{
    const struct ledger *ledger = &order->ledger;
    const uint32_t known = find_identity(order, identity);
    const uint32_t most = order->options.numbers_max ? order->options.numbers_max : WORKERS_MAX;
    uint32_t best = WORKERS_MAX;
    if (known < ledger->workers_count || known < most)
        return known;
    for (uint32_t i = 0; i < ledger->workers_count; i++) {
        if (ledger->workers[i].state == WORKER_LIVE)
            continue;
        const bool fences = ledger->workers[i].fenced_count > 0;
        const bool best_fences = best < WORKERS_MAX && ledger->workers[best].fenced_count > 0;
        if (best == WORKERS_MAX || fences < best_fences ||
            (fences == best_fences && order->workers[i].join_at < order->workers[best].join_at))
            best = i;
    }
    return best < WORKERS_MAX ? best : known;
}

static uint32_t live_count(const struct order *order)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        if (order->ledger.workers[i].state == WORKER_LIVE)
            live += order->workers[i].ranks ? order->workers[i].ranks : 1;
    return live;
}

static void deny_full(struct order *order, uint32_t peer)
{
    char text[TEXT_MAX];
    snprintf(text, sizeof text,
             "workers_max = %u, and %u are here, those counted whose lease is not over yet",
             order->options.workers_max, live_count(order));
    roster_deny(order, peer, GRADWEIR_ERR_FULL, text);
}

bool joins_take(struct order *order, struct peer *peer)
{
    struct message_join *join = &peer->join;
    name_it(order, join);
    const uint32_t index = find_number(order, join->identity);
    const struct ledger_worker *known = &order->ledger.workers[index < WORKERS_MAX ? index : 0];
    const bool live = index < order->ledger.workers_count && known->state == WORKER_LIVE;
    peer->state = PEER_NEW;
    if (ledger_fenced(&order->ledger, join->nonce)) {
        roster_deny(order, peer->number, GRADWEIR_ERR_FENCED,
                    "another process has joined under this identity");
        return false;
    }
    const uint32_t processes = peer->rank.ranks ? peer->rank.ranks : 1;
    if (!live &&
        (index >= WORKERS_MAX || live_count(order) + processes > order->options.workers_max)) {
        deny_full(order, peer->number);
        return false;
    }
    if (live && memcmp(known->nonce, join->nonce, NONCE_BYTES) == 0)
        detach(order, index, PEER_WORKER);
    else {
        if (live)
            fence(order, index);
        append_join(order, index, join);
    }
    peer->state = PEER_WORKER;
    peer->displaced = PEER_FREE;
    peer->index = index;
    order->workers[index].peer = peer->number;
    order->workers[index].told = false;
    order->workers[index].ranks = peer->rank.ranks;
    sets_worker(order, index);
    return true;
}

void joins_came(struct order *order, struct peer *peer, const struct message_join *join)
{
    int32_t status = 0;
    const char *why = join_refused(order, join, &status);
    if (!why && peer->state == PEER_SHARD) {
        status = GRADWEIR_ERR_PROTOCOL;
        why = "a shard is no worker";
    }
    if (why) {
        roster_deny(order, peer->number, status, why);
        return;
    }
    if (!ranks_introduced(order, peer, join))
        return;
    if (order->model && join->layout_hash != 0 && join->layout_hash != order->model->hash) {
        order_content(order, peer->number, CONTENT_LAYOUT, order->layout, order->layout_bytes);
        roster_deny(order, peer->number, GRADWEIR_ERR_MISMATCH,
                    "the job's model has another layout");
        return;
    }
    if (peer->state == PEER_WORKER && ranks_own(order, peer)) {
        if (memcmp(order->ledger.workers[peer->index].nonce, join->nonce, NONCE_BYTES) == 0 &&
            order->ledger.workers[peer->index].state == WORKER_LIVE) {
            order->workers[peer->index].told = false; /* said twice: so is the answer */
            sets_worker(order, peer->index);
            return;
        }
        if (peer->rank.ranks)
            ranks_lost(order, peer);
        else {
            order->workers[peer->index].peer = 0;
            order->workers[peer->index].lost_ns = order->now_ns;
            sets_worker(order, peer->index);
        }
    }
    peer->state = PEER_JOINING;
    peer->displaced = PEER_FREE;
    order->joining = true;
    peer->turn = ++order->tickets;
    peer->join = *join;
}

static void ask_for_layout(struct order *order)
{
    for (uint32_t i = 0; i < order->peers_max && order->layout_peer == 0; i++) {
        const struct peer *peer = &order->peers[i];
        if (peer->state != PEER_JOINING || peer->join.layout_hash == 0)
            continue;
        order->layout_peer = peer->number;
        order_send(order, peer->number, MESSAGE_WANT)->want.content = CONTENT_LAYOUT;
    }
}

/* As they came: of two connections of one worker the later one counts. */
static struct peer *earliest(struct order *order)
{
    struct peer *first = NULL;
    for (uint32_t i = 0; i < order->peers_max; i++) {
        struct peer *peer = &order->peers[i];
        if (peer->rank.ranks && peer->state == PEER_JOINING && !ranks_ready(order, peer))
            continue;
        if (peer->state == PEER_JOINING && (!first || peer->turn < first->turn))
            first = peer;
    }
    return first;
}

void joins_retry(struct order *order)
{
    if (!order->model) {
        ask_for_layout(order);
        return;
    }
    if (!order->joining && order->parts_peer == 0)
        return;
    order->joining = false;
    for (uint32_t i = 0; i < order->peers_max; i++) {
        order->joining = order->joining || order->peers[i].state == PEER_JOINING;
        if (order->peers[i].state == PEER_JOINING && order->peers[i].rank.ranks)
            (void)ranks_over(order, &order->peers[i]);
    }
    ranks_ask(order);
    struct peer *peer;
    while ((peer = earliest(order))) {
        if (peer->join.layout_hash != 0 && peer->join.layout_hash != order->model->hash) {
            peer->state = PEER_NEW;
            joins_came(order, peer, &peer->join);
        } else if (order->ledger.mapped && order_room(order)) {
            if (peer->rank.ranks)
                ranks_take(order, peer);
            else
                (void)joins_take(order, peer);
        } else {
            return;
        }
    }
}

static void tell(struct order *order, uint32_t index)
{
    const struct ledger_worker *known = &order->ledger.workers[index];
    const struct order_worker *worker = &order->workers[index];
    struct message_joined *joined = &order_send(order, worker->peer, MESSAGE_JOINED)->joined;
    joined->job = order->options.job;
    joined->worker = index;
    joined->incarnation = known->incarnation;
    joined->version = order->whole;
    joined->first = order->ledger.first && order->first_at <= order_watermark(order);
    joined->layout_hash = order->ledger.layout_hash;
    joined->last_sequence = known->last_sequence;
    joined->outstanding_max = known->outstanding_max;
    memcpy(joined->pass, worker->pass, NONCE_BYTES);
    joined->chunk_bytes = order->options.chunk_bytes;
    joined->gradient_dtype = order->ledger.law.settings.gradient_dtype;
    joined->magnitude_max = order->ledger.law.settings.magnitude_max;
    joined->members_count = order->options.shards;
    for (uint32_t i = 0; i < order->options.shards; i++) {
        const struct model_range range = model_shard(order->model, order->options.shards, i);
        struct member *member = &joined->members[i];
        memcpy(member->address, order->members[i].address, ADDRESS_MAX);
        member->first = range.first;
        member->count = range.elements;
    }
}

void joins_tell(struct order *order)
{
    const uint32_t count = order->ledger.workers_count;
    for (uint32_t i = sets_next(order->sets.untold, 0, count); i < count;
         i = sets_next(order->sets.untold, i + 1, count)) {
        struct order_worker *worker = &order->workers[i];
        if ((worker->join_at > order_watermark(order) && !order->plants.joined_early))
            continue;
        worker->told = true;
        sets_worker(order, i);
        tell(order, i);
    }
}

/* Its slots lie in a row from its next sequence on. What was described ends in a record, and so
 * does what comes before such a one, for sequences have no gaps; the rest is only closed. */
static void end_slots(struct order *order, uint32_t worker)
{
    uint64_t described = 0;
    struct name name = {.worker = worker,
                        .incarnation = order->ledger.workers[worker].incarnation,
                        .sequence = order->ledger.workers[worker].last_sequence};
    for (uint32_t i = sets_next(order->sets.placed, 0, order->slots_count); i < order->slots_count;
         i = sets_next(order->sets.placed, i + 1, order->slots_count)) {
        const struct order_slot *slot = &order->slots[i];
        if (slot->name.worker == worker && slot->described && slot->name.sequence > described)
            described = slot->name.sequence;
    }
    while (name.sequence < order->workers[worker].granted) {
        name.sequence++;
        const uint32_t slot = places_find(order, &name);
        if (slot == order->slots_count)
            continue;
        if (name.sequence > described)
            places_close(order, slot, order->ledger.index);
        else
            judge_refuse(order, slot, VERDICT_CANCELLED, 0);
    }
}

void joins_leave(struct order *order, uint32_t index, uint32_t cause)
{
    end_slots(order, index);
    struct record record = {.kind = RECORD_LEAVE};
    record.leave = (struct record_leave){
        .worker = index, .incarnation = order->ledger.workers[index].incarnation, .cause = cause};
    order_append(order, &record);
    if (order->workers[index].ranks)
        ranks_left(order, index, cause);
    detach(order, index, PEER_FREE);
    order->workers[index].ranks = 0;
    order->workers[index].asked = order->workers[index].granted = 0;
    sets_worker(order, index);
}
