/* Who is told what became of its gradient, and when: a worker hears a verdict only when all shards
 * have logged it. With it comes its next place, when there is one. */
#include "server/coordinator/order_internal.h"

void judge_answer(struct order *order, const struct ledger_receipt *receipt,
                  const struct name *name)
{
    const struct order_worker *worker = &order->workers[name->worker];
    if (worker->peer == 0 || !worker->told ||
        (order->plants.owed_lost && receipt->index <= order->taken_over))
        return;
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
}

void judge_owe(struct order *order, const struct name *name)
{
    /* A slot owes at most one receipt: it is not used again before its record is logged. */
    ASSERT(order->owed_count < OWED_MAX || order->plants.retire_early);
    if (order->owed_count == OWED_MAX)
        return;
    order->owed[(order->owed_first + order->owed_count++) % OWED_MAX] =
        (struct order_owed){.index = order->ledger.index, .name = *name};
}

void judge_receipts(struct order *order)
{
    const uint64_t watermark = order->plants.early_receipt ? UINT64_MAX : order_watermark(order);
    while (order->owed_count > 0 && order->owed[order->owed_first].index <= watermark) {
        const struct name name = order->owed[order->owed_first].name;
        const struct ledger_receipt *receipt = ledger_receipt(&order->ledger, &name);
        order->owed_first = (order->owed_first + 1) % OWED_MAX;
        order->owed_count--;
        if (!receipt || order->workers[name.worker].peer == 0 || !order->workers[name.worker].told)
            continue;
        struct message_receipt next = {0};
        const bool comes = places_next(order, name.worker, &next);
        judge_answer(order, receipt, &name);
        if (!comes)
            continue;
        struct message_receipt *sent =
            &order->actions->items[order->actions->count - 1].message.receipt;
        sent->next_sequence = next.next_sequence;
        sent->next_slot = next.next_slot;
        sent->next_generation = next.next_generation;
    }
}
