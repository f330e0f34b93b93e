/* What the ranks of a group say of their shares of one gradient, and what it comes to: one norm,
 * one digest, one verdict. */
#include "server/coordinator/order_internal.h"

#include <math.h>

bool ranks_described(const struct order *order, const struct order_slot *slot)
{
    const uint32_t ranks = order->workers[slot->name.worker].ranks;
    return ranks == 0 || slot->shares == (1u << ranks) - 1;
}

static bool alike(const struct message_describe *a, const struct message_describe *b)
{
    return a->basis == b->basis && a->samples == b->samples && a->purpose == b->purpose &&
           a->layout_hash == b->layout_hash;
}

/* Norm and digest of the whole, in the order of ranks: not of their coming. */
static void combine(struct order_slot *slot, uint32_t ranks)
{
    double sum = 0;
    for (uint32_t r = 0; r < ranks; r++)
        sum += slot->share_norms[r] * slot->share_norms[r];
    slot->describe.norm = sqrt(sum);
    slot->describe.digest = parts_digest(slot->share_digests, ranks);
}

/* The verdict names both: detail has a bit for each. */
static void parted(struct order *order, struct order_slot *slot, uint32_t rank,
                   const struct message_describe *describe)
{
    uint32_t first = 0;
    while (!(slot->shares >> first & 1))
        first++;
    order_say(
        order,
        "push %llu of worker %s: rank %u says basis %llu and %llu samples, rank %u basis %llu "
        "and %llu: refused",
        (unsigned long long)slot->name.sequence, order->ledger.workers[slot->name.worker].identity,
        first, (unsigned long long)slot->describe.basis, (unsigned long long)slot->describe.samples,
        rank, (unsigned long long)describe->basis, (unsigned long long)describe->samples);
    judge_known(order, slot, VERDICT_MISMATCH, 1u << first | 1u << rank);
}

void ranks_describe(struct order *order, uint32_t index, uint32_t rank,
                    const struct message_describe *describe)
{
    struct order_slot *slot = &order->slots[index];
    const uint32_t ranks = order->workers[slot->name.worker].ranks;
    const bool first = !slot->described;
    if (slot->shares >> rank & 1) {
        judge_described_again(order, describe, slot->share_digests[rank], NULL);
        return;
    }
    if (first) {
        order->figures.pushes++;
        slot->described = true;
        slot->describe = *describe;
        slot->since_ns = order->now_ns;
        judge_wait(order, slot);
    } else if (!alike(&slot->describe, describe) && slot->verdict == VERDICT_NONE) {
        parted(order, slot, rank, describe);
    }
    slot->share_norms[rank] = describe->norm;
    slot->share_digests[rank] = describe->digest;
    slot->shares |= 1u << rank;
    if (ranks_described(order, slot))
        combine(slot, ranks);
    if (first)
        judge_head(order, slot);
    judge_note_ready(order, slot);
}
