/* Who is told what became of its gradient, and when: a worker hears a verdict only when all shards
 * have logged it, over its own connection or by way of the shard that brought its words. With it
 * comes its next place, when there is one. */
#include "server/coordinator/order_internal.h"

struct order_action *judge_answer(struct order *order, const struct ledger_receipt *receipt,
                                  const struct name *name)
{
    const struct order_worker *worker = &order->workers[name->worker];
    if (worker->peer == 0 || !worker->told ||
        (order->plants.owed_lost && receipt->index <= order->taken_over))
        return NULL;
    order_send(order, worker->peer, MESSAGE_RECEIPT)->receipt =
        (struct message_receipt){.name = *name,
                                 .verdict = receipt->verdict,
                                 .index = receipt->index,
                                 .version = receipt->version,
                                 .staleness = receipt->staleness,
                                 .weight = receipt->weight,
                                 .durable = order->ledger.durable,
                                 .detail = receipt->detail,
                                 .whole = order->whole};
    return &order->actions->items[order->actions->count - 1];
}

void judge_owe(struct order *order, const struct order_slot *slot)
{
    /* A slot owes at most one receipt: it is not used again before its record is logged. */
    ASSERT(order->owed_count < OWED_MAX || order->plants.retire_early);
    if (order->owed_count == OWED_MAX)
        return;
    order->owed[(order->owed_first + order->owed_count++) % OWED_MAX] =
        (struct order_owed){.index = order->ledger.index, .name = slot->name, .by = slot->by};
}

/* A shard that brought the words takes the receipt back, when it fits into a head; heads.h. */
static uint32_t way_back(const struct order *order, uint32_t by,
                         const struct message_receipt *receipt)
{
    const bool fits = receipt->verdict == VERDICT_ADMITTED && receipt->staleness <= UINT32_MAX &&
                      receipt->durable == 0 &&
                      (receipt->next_sequence == 0 ||
                       receipt->next_sequence - receipt->name.sequence <= UINT16_MAX);
    return by && fits ? order->members[by - 1].peer : 0;
}

void judge_receipts(struct order *order)
{
    const uint64_t watermark = order->plants.early_receipt ? UINT64_MAX : order_watermark(order);
    while (order->owed_count > 0 && order->owed[order->owed_first].index <= watermark) {
        const struct order_owed owed = order->owed[order->owed_first];
        const struct name name = owed.name;
        const struct ledger_receipt *receipt = ledger_receipt(&order->ledger, &name);
        order->owed_first = (order->owed_first + 1) % OWED_MAX;
        order->owed_count--;
        if (!receipt || order->workers[name.worker].peer == 0 || !order->workers[name.worker].told)
            continue;
        struct message_receipt next = {0};
        const bool comes = places_next(order, name.worker, &next);
        struct order_action *action = judge_answer(order, receipt, &name);
        if (!action)
            continue;
        struct message_receipt *sent = &action->message.receipt;
        if (comes) {
            sent->next_sequence = next.next_sequence;
            sent->next_slot = next.next_slot;
            sent->next_generation = next.next_generation;
        }
        const uint32_t way = way_back(order, owed.by, sent);
        if (way)
            action->peer = way;
    }
}
