/* What everything waits for, by name and since when: the `waits` of the status page, one sentence
 * each. A line for every kind of wait there is:
 *
 *   the layout, the first parameters    a shard that is away, takes its memory, or is silent
 *   a window that is not full           a landing on a shard
 *   a place                             a record that a shard has not logged
 *   a round of mode = sync              a shard's sums, its step, its pinned parameter slot
 *   a rank of a group, its share */
#include "common/page.h"
#include "server/coordinator/order_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct waits {
    const struct order *order;
    struct page *page;
    int64_t now_ns;
    bool any;
};

static void wait_line(struct waits *waits, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void wait_line(struct waits *waits, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    page_put(waits->page, "%s", waits->any ? "," : "");
    page_quoted(waits->page, text);
    waits->any = true;
}

/* As the roster of the page calls it. */
static const char *who(const struct waits *waits, uint32_t worker)
{
    return waits->order->ledger.workers[worker].identity;
}

/* Seconds since then. */
static double since(const struct waits *waits, int64_t then_ns)
{
    return (double)(waits->now_ns - then_ns) * 1e-9;
}

static void wait_beginning(struct waits *waits)
{
    const struct order *order = waits->order;
    for (uint32_t i = 0; i < order->options.shards && order->phase == PHASE_SEAL; i++)
        if (!order->members[i].sealed && order->members[i].peer != 0)
            wait_line(waits, "epoch %u waits for what shard %u holds", order->epoch, i);
    if (order->phase == PHASE_ACT && !order->model)
        wait_line(waits, "shards wait for the first worker, which tells the layout");
    else if (order->ledger.mapped && !order->ledger.first)
        wait_line(waits, "gradients wait for the first parameters");
    if (order->alarm)
        wait_line(waits, "nothing is admitted: a shard's log or sums contradict ours");
    if (order->ledger.mapped && !order_room(order))
        wait_line(waits, "admissions wait: the slowest shard is a whole ring behind");
}

/* When the oldest record that it has not logged was appended. */
static int64_t behind_since(const struct order *order, uint32_t index)
{
    const uint64_t oldest = order->ledger.index < KEPT ? 1 : order->ledger.index - KEPT + 1;
    const uint64_t logged = order->logged[index];
    const uint64_t next = logged + 1 < oldest ? oldest : logged + 1;
    return order->appended_ns[next % KEPT];
}

/* Of a shard that is there and ready. */
static void wait_ready(struct waits *waits, uint32_t index)
{
    const struct order *order = waits->order;
    const struct order_member *member = &order->members[index];
    const uint64_t version = ledger_version(&order->ledger);
    if (order->logged[index] < order->ledger.index)
        wait_line(waits,
                  "receipts wait for shard %u to log record %" PRIu64
                  " since %.1f s (heard of %.1f "
                  "s ago)",
                  index, order->logged[index] + 1, since(waits, behind_since(order, index)),
                  since(waits, member->seen_ns));
    if (order->ledger.stepping && !steps_summed(order, index))
        wait_line(waits, "step %" PRIu64 " waits for the sums of shard %u since %.1f s", version,
                  index, since(waits, order->last_step_ns));
    else if (member->pulse.waiting == 1)
        wait_line(waits,
                  "shard %u waits for a reader to let go of a parameter slot since %.1f s, before "
                  "it steps on from version %" PRIu64,
                  index, since(waits, member->pinned_ns), member->stepped);
    else if (order->ledger.first && !order->ledger.stepping && member->stepped < version)
        wait_line(waits, "version %" PRIu64 " waits for the step of shard %u since %.1f s", version,
                  index, since(waits, order->last_step_ns));
}

static void wait_shards(struct waits *waits)
{
    const struct order *order = waits->order;
    for (uint32_t i = 0; i < order->options.shards; i++) {
        const struct order_member *member = &order->members[i];
        if (member->peer == 0 && member->known)
            wait_line(waits, "everything waits for shard %u: it is not connected since %.1f s", i,
                      since(waits, member->seen_ns));
        else if (member->peer == 0)
            wait_line(waits, "everything waits for shard %u: it is not connected", i);
        else if (order->model && !member->ready)
            wait_line(waits, "workers wait for shard %u: it takes its memory", i);
        else if (member->ready)
            wait_ready(waits, i);
    }
}

static void wait_landings(struct waits *waits)
{
    const struct order *order = waits->order;
    for (uint32_t i = 0; i < order->slots_count; i++) {
        const struct order_slot *slot = &order->slots[i];
        const uint64_t missing = order->bodies & ~slot->landed;
        if (slot->state != SLOT_PLACED || !slot->described || slot->ready != 0)
            continue;
        for (uint32_t shard = 0; shard < order->options.shards; shard++)
            if (missing >> shard & 1)
                wait_line(waits,
                          "gradient %" PRIu64 " of %s waits until it has landed on shard %u "
                          "since %.1f s",
                          slot->name.sequence, who(waits, slot->name.worker), shard,
                          since(waits, slot->since_ns));
    }
}

/* Ranks that have not come to where the others meet. */
static void wait_meetings(struct waits *waits)
{
    const char *identity;
    uint32_t missing, ranks;
    for (uint32_t i = 0; swaps_waiting(waits->order, i, &identity, &missing, &ranks); i++)
        for (uint32_t r = 0; missing >> r; r++)
            if (missing >> r & 1)
                wait_line(waits, "the ranks of %s meet: they wait for rank %u of %u", identity, r,
                          ranks);
}

/* Groups that are not whole: before they are in, and behind the loss of a rank. */
static void wait_ranks(struct waits *waits)
{
    const struct order *order = waits->order;
    for (uint32_t i = 0; i < order->peers_max; i++) {
        const struct peer *peer = &order->peers[i];
        const uint32_t absent = ranks_absent(order, peer);
        for (uint32_t r = 0; absent >> r; r++)
            if (absent >> r & 1)
                wait_line(waits,
                          "worker %s is not in: it waits for its rank %u of %u, or its parts",
                          peer->join.identity, r, peer->rank.ranks);
    }
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        const uint32_t missing = ranks_missing(order, i);
        for (uint32_t r = 0; missing >> r; r++)
            if (missing >> r & 1)
                wait_line(waits,
                          "worker %s waits for its rank %u of %u, lost since %.1f s: it is out "
                          "after %.1f s",
                          who(waits, i), r, order->workers[i].ranks,
                          since(waits, order->workers[i].lost_ns),
                          (double)order->options.lease_ns * 1e-9);
    }
}

static void wait_shares(struct waits *waits)
{
    const struct order *order = waits->order;
    for (uint32_t i = 0; i < order->slots_count; i++) {
        const struct order_slot *slot = &order->slots[i];
        const uint32_t ranks = order->workers[slot->name.worker].ranks;
        if (slot->state != SLOT_PLACED || slot->shares == 0)
            continue;
        for (uint32_t r = 0; r < ranks; r++)
            if (!(slot->shares >> r & 1))
                wait_line(waits,
                          "gradient %" PRIu64 " of %s waits for the share of its rank %u since "
                          "%.1f s",
                          slot->name.sequence, who(waits, slot->name.worker), r,
                          since(waits, slot->since_ns));
    }
}

static void wait_places(struct waits *waits)
{
    const struct order *order = waits->order;
    uint32_t closing = 0;
    uint64_t freed = UINT64_MAX;
    for (uint32_t i = 0; i < order->slots_count; i++)
        if (order->slots[i].state == SLOT_CLOSING) {
            closing++;
            freed &= order->slots[i].freed;
        }
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        if (!places_waits(order, i))
            continue;
        uint32_t shard = 0;
        while (shard < order->options.shards && freed >> shard & 1)
            shard++;
        if (closing > 0 && places_used(order) < order->options.queue)
            wait_line(waits,
                      "%s waits for a place since %.1f s: %u of %u slots close, shard %u has "
                      "not freed them",
                      who(waits, i), since(waits, order->workers[i].asked_ns), closing,
                      order->slots_count, shard);
        else
            wait_line(waits, "%s waits for a place since %.1f s: %u of %u are taken", who(waits, i),
                      since(waits, order->workers[i].asked_ns), places_used(order),
                      order->options.queue);
    }
}

/* Who else could have filled the window, were it not for a round or a shard, which are named. */
static void wait_window(struct waits *waits)
{
    const struct order *order = waits->order;
    bool missing[WORKERS_MAX];
    if (!order->ledger.first || order->ledger.stepping)
        return;
    if (rounds_missing(order, missing)) {
        for (uint32_t i = 0; i < order->ledger.workers_count; i++)
            if (missing[i])
                wait_line(waits, "the round of version %" PRIu64 " waits for %s since %.1f s",
                          ledger_version(&order->ledger) + 1, who(waits, i),
                          since(waits, rounds_since(order, i)));
        return;
    }
    const uint64_t fresh = order->ledger.law.fresh;
    const uint32_t stride = order->ledger.law.settings.stride;
    const int64_t then_ns =
        order->last_admit_ns > order->last_step_ns ? order->last_admit_ns : order->last_step_ns;
    if (fresh < stride)
        wait_line(
            waits,
            "step %" PRIu64 " waits for %" PRIu64 " more of %u gradients; the last came %.1f s "
            "ago",
            ledger_version(&order->ledger) + 1, stride - fresh, stride, since(waits, then_ns));
}

void order_waits(const struct order *order, int64_t now_ns, struct page *page)
{
    struct waits waits = {.order = order, .page = page, .now_ns = now_ns};
    page_put(page, ",\"waits\":[");
    wait_beginning(&waits);
    wait_shards(&waits);
    wait_ranks(&waits);
    wait_meetings(&waits);
    wait_shares(&waits);
    wait_landings(&waits);
    wait_places(&waits);
    wait_window(&waits);
    page_put(page, "]");
}
