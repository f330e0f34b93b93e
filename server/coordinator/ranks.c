/* Groups: several connections that are one worker. It takes part once all ranks are here and their
 * parts tile the model; what its first rank hears all hear; what one of them asks, it asks. One
 * that is missing makes the worker lost, and after its lease the worker leaves and the others are
 * told.
 *
 * Which rank describes or sends first never matters, so nothing has to be agreed on before: a share
 * has its own digest, and the gradient's is made of them in the order of ranks. */
#include "server/coordinator/order_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_PATIENCE_NS = 2000000000 };

static const char over[] =
    "this group has been taken out, or one of its ranks is another process now "
    "and knows nothing of what was under way: all ranks join anew, as gradweir_group_renew does";

void ranks_forget(struct peer *peer)
{
    free(peer->parts);
    peer->parts = NULL;
}

void ranks_came(struct order *order, struct peer *peer, const struct message_rank *rank)
{
    const bool same = peer->rank.rank == rank->rank && peer->rank.ranks == rank->ranks &&
                      peer->rank.instance == rank->instance;
    if (rank->rank >= rank->ranks || peer->state == PEER_SHARD ||
        (peer->state == PEER_WORKER && !same)) {
        order->figures.foreign++;
        return;
    }
    if (!same)
        ranks_forget(peer);
    peer->rank = *rank;
}

bool ranks_introduced(struct order *order, struct peer *peer, const struct message_join *join)
{
    if (join->role != ROLE_RANK && peer->rank.ranks > 0) { /* it is none any more */
        if (peer->state == PEER_WORKER)
            ranks_lost(order, peer);
        peer->state = PEER_NEW;
        peer->rank = (struct message_rank){.ranks = 0};
        ranks_forget(peer);
    }
    if (join->role != ROLE_RANK)
        return true;
    if (join->identity[0] == 0)
        roster_deny(order, peer->number, GRADWEIR_ERR_INVALID, "ranks need an identity");
    else if (peer->rank.ranks == 0)
        order_send(order, peer->number, MESSAGE_REJOIN); /* RANK comes first */
    return join->identity[0] != 0 && peer->rank.ranks > 0;
}

static bool siblings(const struct peer *a, const struct peer *b)
{
    return a->rank.ranks == b->rank.ranks && strcmp(a->join.identity, b->join.identity) == 0 &&
           memcmp(a->join.nonce, b->join.nonce, NONCE_BYTES) == 0;
}

/* The newest connection of that rank of the peer's group, or NULL. */
static struct peer *sibling(struct order *order, const struct peer *peer, uint32_t rank)
{
    struct peer *best = NULL;
    for (uint32_t i = 0; i < order->peers_max; i++) {
        struct peer *other = &order->peers[i];
        if ((other->state == PEER_JOINING || other->state == PEER_WORKER) &&
            other->rank.ranks > 0 && other->rank.rank == rank && siblings(other, peer) &&
            (!best || other->turn > best->turn))
            best = other;
    }
    return best;
}

void ranks_ask(struct order *order)
{
    if (order->parts_peer != 0 && order->now_ns - order->parts_ns > PARTS_PATIENCE_NS) {
        struct peer *peer = roster_find(order, order->parts_peer);
        if (peer)
            peer->state = PEER_NEW;
        order->parts_peer = 0;
    }
    for (uint32_t i = 0; i < order->peers_max && order->parts_peer == 0; i++) {
        const struct peer *peer = &order->peers[i];
        if (peer->state != PEER_JOINING || peer->rank.ranks == 0 || peer->parts)
            continue;
        order->parts_peer = peer->number;
        order->parts_ns = order->now_ns;
        order_send(order, peer->number, MESSAGE_WANT)->want.content = CONTENT_PARTS;
    }
}

static gradweir_status keep_parts(struct order *order, struct peer *peer)
{
    struct parts *parts = NULL;
    TRY(parts_decode(content_bytes(order->assembler), content_count(order->assembler), &parts));
    gradweir_status status = parts_check(parts, order->model);
    if (status == GRADWEIR_OK &&
        (parts->rank != peer->rank.rank || parts->ranks != peer->rank.ranks))
        status = fail(GRADWEIR_ERR_PROTOCOL, "the parts are of another rank");
    if (status == GRADWEIR_OK)
        peer->parts = parts;
    else
        free(parts);
    return status;
}

void ranks_page(struct order *order, struct peer *peer, const struct message_page *page)
{
    if (!order->model || peer->number != order->parts_peer || peer->state != PEER_JOINING ||
        peer->parts) {
        order->figures.foreign++;
        return;
    }
    gradweir_status status = content_add(order->assembler, page);
    if (status == GRADWEIR_OK && !content_whole(order->assembler))
        return;
    if (status == GRADWEIR_OK)
        status = keep_parts(order, peer);
    order->parts_peer = 0;
    if (status == GRADWEIR_OK)
        return;
    peer->state = PEER_NEW;
    roster_deny(order, peer->number, status, fail_reason());
}

bool ranks_ready(struct order *order, const struct peer *peer)
{
    for (uint32_t r = 0; r < peer->rank.ranks; r++) {
        const struct peer *other = sibling(order, peer, r);
        if (!other || !other->parts)
            return false;
    }
    return true;
}

uint32_t ranks_absent(const struct order *order, const struct peer *peer)
{
    uint32_t here = 0;
    if (peer->state != PEER_JOINING || peer->rank.ranks == 0)
        return 0;
    for (uint32_t i = 0; i < order->peers_max; i++) {
        const struct peer *other = &order->peers[i];
        if ((other->state != PEER_JOINING && other->state != PEER_WORKER) ||
            other->rank.ranks == 0 || !siblings(other, peer))
            continue;
        if (other->state == PEER_JOINING && other < peer)
            return 0; /* that one speaks for all */
        if (other->parts)
            here |= 1u << other->rank.rank;
    }
    return ~here & (uint32_t)((UINT64_C(1) << peer->rank.ranks) - 1);
}

uint32_t ranks_missing(const struct order *order, uint32_t index)
{
    const struct order_worker *worker = &order->workers[index];
    uint32_t missing = 0;
    if (order->ledger.workers[index].state != WORKER_LIVE)
        return 0;
    for (uint32_t r = 0; r < worker->ranks; r++)
        missing |= (worker->rank_peers[r] == 0 && !(worker->byes >> r & 1) ? 1u : 0u) << r;
    return missing;
}

bool ranks_own(const struct order *order, const struct peer *peer)
{
    const struct order_worker *worker = &order->workers[peer->index];
    return peer->rank.ranks ? worker->ranks == peer->rank.ranks &&
                                  worker->rank_peers[peer->rank.rank] == peer->number
                            : worker->peer == peer->number;
}

static void deny_all(struct order *order, struct peer **ranks, uint32_t count,
                     gradweir_status status, const char *text)
{
    for (uint32_t r = 0; r < count; r++) {
        ranks[r]->state = PEER_NEW;
        ranks_forget(ranks[r]); /* whoever tries again may have others */
        roster_deny(order, ranks[r]->number, status, text);
    }
}

static gradweir_status tile(const struct order *order, struct peer **ranks, uint32_t count)
{
    const struct parts *parts[RANKS_MAX] = {NULL};
    for (uint32_t r = 0; r < count; r++)
        parts[r] = ranks[r]->parts;
    return parts_tile(parts, count, order->model);
}

/* The live worker that these ranks are, or WORKERS_MAX. */
static uint32_t live_worker(const struct order *order, const struct peer *peer)
{
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        if (order->ledger.workers[i].state == WORKER_LIVE &&
            memcmp(order->ledger.workers[i].nonce, peer->join.nonce, NONCE_BYTES) == 0 &&
            strcmp(order->ledger.workers[i].identity, peer->join.identity) == 0)
            return i;
    return WORKERS_MAX;
}

/* Whether some of these ranks are other processes than those of the live worker of this nonce. A
 * new coordinator has never heard of those, but knows that who was not told of that incarnation has
 * no part in what is under way. */
static bool changed(const struct order *order, uint32_t worker, struct peer **ranks, uint32_t count)
{
    bool any = false;
    for (uint32_t r = 0; r < count; r++)
        any |= order->workers[worker].ranks == 0
                   ? ranks[r]->rank.incarnation != order->ledger.workers[worker].incarnation
                   : order->workers[worker].instances[r] != ranks[r]->rank.instance;
    return any;
}

/* All have just started: nobody knows of anything under way. */
static bool fresh(struct peer **ranks, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++)
        if (ranks[r]->rank.incarnation != 0)
            return false;
    return true;
}

static void take_all(struct order *order, struct peer **ranks, uint32_t count)
{
    char text[TEXT_MAX];
    if (!joins_take(order, ranks[0])) {
        deny_all(order, ranks + 1, count - 1, GRADWEIR_ERR_REFUSED,
                 "the first rank of this group was turned away");
        return;
    }
    struct order_worker *worker = &order->workers[ranks[0]->index];
    worker->byes = 0;
    for (uint32_t r = 0; r < count; r++) {
        ranks[r]->state = PEER_WORKER;
        ranks[r]->displaced = PEER_FREE;
        ranks[r]->index = ranks[0]->index;
        ranks[r]->rank.incarnation = order->ledger.workers[ranks[0]->index].incarnation;
        worker->rank_peers[r] = ranks[r]->number;
        worker->instances[r] = ranks[r]->rank.instance;
    }
    snprintf(text, sizeof text, "%s", order->ledger.workers[ranks[0]->index].identity);
    order_say(order, "worker %s is here with %u ranks, whose parts tile the model", text, count);
}

/* Of two connections of one rank the later one counts: the other is nobody's. */
static void forget_older(struct order *order, struct peer **ranks, uint32_t count)
{
    for (uint32_t i = 0; i < order->peers_max; i++) {
        struct peer *peer = &order->peers[i];
        if (peer->state == PEER_JOINING && peer->rank.ranks == count && siblings(peer, ranks[0]) &&
            peer != ranks[peer->rank.rank])
            peer->state = PEER_NEW;
    }
}

void ranks_take(struct order *order, struct peer *peer)
{
    struct peer *ranks[RANKS_MAX];
    const uint32_t count = peer->rank.ranks;
    for (uint32_t r = 0; r < count; r++)
        ranks[r] = sibling(order, peer, r);
    forget_older(order, ranks, count);
    const gradweir_status status = tile(order, ranks, count);
    if (status != GRADWEIR_OK) {
        deny_all(order, ranks, count, status, fail_reason());
        return;
    }
    const uint32_t live = live_worker(order, peer);
    const bool other = live < WORKERS_MAX && changed(order, live, ranks, count);
    if (other)
        joins_leave(order, live, LEAVE_LEASE);
    if (other && !fresh(ranks, count))
        deny_all(order, ranks, count, GRADWEIR_ERR_LOST, over);
    else
        take_all(order, ranks, count);
}

/* Its incarnation is over: that of a group does not come again, for its ranks may have different
 * pushes under way. */
bool ranks_over(struct order *order, struct peer *peer)
{
    const uint32_t live = live_worker(order, peer);
    if (peer->rank.incarnation == 0 ||
        (live < WORKERS_MAX && order->ledger.workers[live].incarnation == peer->rank.incarnation))
        return false;
    deny_all(order, &peer, 1, GRADWEIR_ERR_LOST, over);
    return true;
}

void ranks_lost(struct order *order, struct peer *peer)
{
    struct order_worker *worker = &order->workers[peer->index];
    if (!ranks_own(order, peer))
        return;
    worker->rank_peers[peer->rank.rank] = 0;
    if (!(worker->byes >> peer->rank.rank & 1)) { /* one is missing: the worker is */
        worker->peer = 0;
        worker->told = false;
        worker->lost_ns = order->now_ns;
        sets_worker(order, peer->index);
        return;
    }
    for (uint32_t r = 0; worker->peer == peer->number && r < worker->ranks; r++)
        if (worker->rank_peers[r])
            worker->peer = worker->rank_peers[r];
}

static gradweir_status why(const struct order *order, uint32_t index, uint32_t cause, char *text)
{
    const struct order_worker *worker = &order->workers[index];
    const char *identity = order->ledger.workers[index].identity;
    uint32_t missing = 0;
    while (missing < worker->ranks && worker->rank_peers[missing])
        missing++;
    if (cause == LEAVE_REPLACED) {
        snprintf(text, TEXT_MAX, "another process has joined under this identity");
        return GRADWEIR_ERR_FENCED;
    }
    if (cause == LEAVE_ROUND) {
        snprintf(text, TEXT_MAX,
                 "taken out of the round: the others have waited past round_patience");
        return GRADWEIR_ERR_AGAIN;
    }
    if (missing == worker->ranks) /* all are here, but as other processes */
        snprintf(text, TEXT_MAX, "the ranks of worker %s begin anew", identity);
    else
        snprintf(text, TEXT_MAX,
                 "rank %u of worker %s is gone: its gradient is cancelled; the ranks that are left "
                 "join anew, as gradweir_group_renew does",
                 missing, identity);
    return GRADWEIR_ERR_LOST;
}

/* The worker leaves: those of its ranks that are still here hear why. */
void ranks_left(struct order *order, uint32_t index, uint32_t cause)
{
    struct order_worker *worker = &order->workers[index];
    char text[TEXT_MAX];
    const gradweir_status status = why(order, index, cause, text);
    for (uint32_t r = 0; r < worker->ranks && cause != LEAVE_BYE; r++)
        if (worker->rank_peers[r])
            roster_deny(order, worker->rank_peers[r], status, text);
    worker->byes = 0;
}

bool ranks_bye(struct order *order, const struct peer *peer)
{
    struct order_worker *worker = &order->workers[peer->index];
    worker->byes |= 1u << peer->rank.rank;
    return worker->ranks == 0 || worker->byes == (1u << worker->ranks) - 1;
}

static bool is_shared(uint32_t kind)
{
    return kind == MESSAGE_JOINED || kind == MESSAGE_PLACE || kind == MESSAGE_RECEIPT ||
           kind == MESSAGE_WHOLE || kind == MESSAGE_MOVED;
}

static void mirror(struct order *order, uint32_t at)
{
    const struct peer *peer = roster_find(order, order->actions->items[at].peer);
    if (!peer || peer->state != PEER_WORKER || peer->rank.ranks == 0 ||
        order->workers[peer->index].peer != peer->number)
        return;
    for (uint32_t r = 0; r < peer->rank.ranks; r++) {
        const uint32_t number = order->workers[peer->index].rank_peers[r];
        if (number == 0 || number == peer->number)
            continue;
        const struct message message = order->actions->items[at].message;
        *order_send(order, number, message.kind) = message;
    }
}

void ranks_mirror(struct order *order)
{
    const uint32_t count = order->actions->count;
    for (uint32_t i = 0; i < count; i++)
        if (order->actions->items[i].kind == ORDER_SEND &&
            is_shared(order->actions->items[i].message.kind))
            mirror(order, i);
}
