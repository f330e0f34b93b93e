/* mode = sync: a round is one fine gradient of every live worker, admitted all at once in worker
 * order. Who keeps the others waiting past round_patience is taken out, and told so. */
#include "server/coordinator/order_internal.h"

/* Whose gradient is there and would be admitted; how many. */
static uint32_t find_fine(const struct order *order, bool fine[WORKERS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        fine[i] = false;
    for (uint32_t i = sets_next(order->sets.ready, 0, order->slots_count); i < order->slots_count;
         i = sets_next(order->sets.ready, i + 1, order->slots_count))
        if (judge_fine(order, i)) {
            fine[order->slots[i].name.worker] = true;
            count++;
        }
    return count;
}

bool rounds_missing(const struct order *order, bool missing[WORKERS_MAX])
{
    bool any = false;
    if (!order->options.sync || !order->ledger.first || order->ledger.law.fresh > 0 ||
        find_fine(order, missing) == 0)
        return false;
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        missing[i] = roster_live(order, i) && !missing[i];
        any = any || missing[i];
    }
    return any;
}

bool rounds_whole(const struct order *order)
{
    bool missing[WORKERS_MAX];
    return !rounds_missing(order, missing);
}

int64_t rounds_since(const struct order *order, uint32_t worker)
{
    const int64_t joined_ns = order->workers[worker].joined_ns;
    return joined_ns > order->round_ns ? joined_ns : order->round_ns;
}

/* A worker without a shard, or without the newest version, cannot push: that is not its fault. */
static bool nobodys_fault(const struct order *order)
{
    return order->alarm || order->draining || !order_members_here(order) ||
           order->ledger.stepping || !order->whole_known ||
           order->whole != ledger_version(&order->ledger);
}

/* Its connection may be sound and its process alive: it comes back by itself, as a new incarnation,
 * when it has something to say again. */
static void take_out(struct order *order, uint32_t worker)
{
    const uint32_t peer = order->workers[worker].peer;
    order_say(order, "worker %s is taken out of the round: the others have waited %.1f s for it",
              order->ledger.workers[worker].identity,
              (double)(order->now_ns - rounds_since(order, worker)) * 1e-9);
    if (peer != 0 && order->workers[worker].ranks == 0) /* ranks.c tells ranks */
        roster_deny(order, peer, GRADWEIR_ERR_AGAIN,
                    "taken out of the round: the others have waited past round_patience");
    joins_leave(order, worker, LEAVE_ROUND);
}

void rounds_watch(struct order *order)
{
    bool missing[WORKERS_MAX];
    if (!rounds_missing(order, missing)) {
        order->round_ns = 0;
        return;
    }
    if (order->round_ns == 0 || nobodys_fault(order))
        order->round_ns = order->now_ns;
    bool out = false;
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        if (missing[i] && order->options.round_patience_ns > 0 && order_room(order) &&
            order->now_ns - rounds_since(order, i) >= order->options.round_patience_ns) {
            take_out(order, i);
            out = true;
        }
    if (out)
        judge_all(order);
}

int64_t rounds_next(const struct order *order)
{
    bool missing[WORKERS_MAX];
    int64_t next = INT64_MAX;
    if (order->round_ns == 0 || order->options.round_patience_ns <= 0 ||
        !rounds_missing(order, missing))
        return next;
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        if (missing[i] && rounds_since(order, i) + order->options.round_patience_ns < next)
            next = rounds_since(order, i) + order->options.round_patience_ns;
    return next;
}
