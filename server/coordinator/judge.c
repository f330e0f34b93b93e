/* What was described and has landed: its verdict and its record. Sequences are judged in order. */
#include "server/coordinator/order_internal.h"

#include <math.h>
#include <string.h>

/* What is known of a slot. */

static bool complete(const struct order *order, const struct order_slot *slot)
{
    if (order->plants.admit_partial)
        return slot->landed != 0;
    return (slot->landed & order->bodies) == order->bodies;
}

void judge_wait(struct order *order, const struct order_slot *slot)
{
    const int64_t due = order_later(slot->since_ns, order->options.push_patience_ns);
    order->patience_ns = due < order->patience_ns ? due : order->patience_ns;
}

void judge_note_ready(struct order *order, struct order_slot *slot)
{
    if (slot->ready != 0 || !slot->described)
        return;
    if (slot->verdict == VERDICT_NONE && !slot->torn &&
        (!complete(order, slot) || !ranks_described(order, slot)))
        return;
    slot->ready = order->ready_at[slot - order->slots] = ++order->completions;
    slot->landed_version = ledger_version(&order->ledger);
    sets_slot(order, (uint32_t)(slot - order->slots));
}

void judge_known(struct order *order, struct order_slot *slot, uint32_t verdict, uint64_t detail)
{
    slot->verdict = verdict;
    slot->detail = detail;
    judge_note_ready(order, slot);
}

bool judge_pending(const struct order *order)
{
    for (uint32_t i = sets_next(order->sets.ready, 0, order->slots_count); i < order->slots_count;
         i = sets_next(order->sets.ready, i + 1, order->slots_count))
        if (order->slots[i].verdict == VERDICT_NONE)
            return true;
    return false;
}

/* The library refuses them where they are pushed; of a client that is not ours nobody else does. */
static bool samples_make_sense(uint64_t samples)
{
    return samples > 0 && samples <= SAMPLES_MAX;
}

static void refuse_samples(struct order *order, struct order_slot *slot)
{
    const uint64_t samples = slot->describe.samples;
    order_say(order, "push %llu of worker %s says %llu samples, 1 to 2^53 are allowed: refused",
              (unsigned long long)slot->name.sequence,
              order->ledger.workers[slot->name.worker].identity, (unsigned long long)samples);
    judge_known(order, slot, VERDICT_MISMATCH, samples);
}

void judge_head(struct order *order, struct order_slot *slot)
{
    const struct message_describe *describe = &slot->describe;
    if (describe->layout_hash != order->ledger.layout_hash)
        judge_known(order, slot, VERDICT_MISMATCH, order->ledger.layout_hash);
    else if (describe->purpose == PURPOSE_GRADIENT && !samples_make_sense(describe->samples))
        refuse_samples(order, slot);
    else if (describe->purpose == PURPOSE_FIRST && order->ledger.first)
        judge_known(order, slot, VERDICT_CANCELLED, 0);
    else if (describe->purpose == PURPOSE_GRADIENT && !order->ledger.first)
        judge_known(order, slot, VERDICT_FUTURE, 0);
    else if (describe->purpose == PURPOSE_GRADIENT) {
        const enum law_verdict verdict = law_judge_basis(&order->ledger.law, describe->basis);
        if (verdict != LAW_FINE)
            judge_known(order, slot, verdict == LAW_STALE ? VERDICT_STALE : VERDICT_FUTURE, 0);
    }
}

/* The name has been described before, or has its verdict: the first fate stays. */
void judge_described_again(struct order *order, const struct message_describe *describe,
                           uint64_t digest, const struct ledger_receipt *receipt)
{
    order->figures.duplicates++;
    if (order->plants.no_dedupe)
        return;
    if (digest != describe->digest) {
        order_send(order, order->workers[describe->name.worker].peer, MESSAGE_RECEIPT)->receipt =
            (struct message_receipt){.name = describe->name,
                                     .verdict = VERDICT_MISMATCH,
                                     .version = ledger_version(&order->ledger),
                                     .durable = order->ledger.durable,
                                     .detail = digest,
                                     .whole = order->whole};
        return;
    }
    if (receipt && receipt->index <= order_watermark(order))
        judge_answer(order, receipt, &describe->name);
}

void judge_describe(struct order *order, uint32_t rank, const struct message_describe *describe)
{
    const bool group = order->workers[describe->name.worker].ranks > 0;
    const struct ledger_receipt *receipt = ledger_receipt(&order->ledger, &describe->name);
    if (receipt) {
        /* The log has the digest of all shares together: of one alone nothing can be said. */
        judge_described_again(order, describe, group ? describe->digest : receipt->digest, receipt);
        return;
    }
    const uint32_t index = places_find(order, &describe->name);
    if (index == order->slots_count) { /* its place has expired: it needs another */
        places_ask(order, &describe->name, true);
        return;
    }
    struct order_slot *slot = &order->slots[index];
    if (slot->described && !group) {
        judge_described_again(order, describe, slot->describe.digest, NULL);
        return;
    }
    if (describe->slot != index || describe->generation != slot->generation) {
        places_ask(order, &describe->name,
                   true); /* it holds an older place: tell it the present one */
        return;
    }
    if (group) {
        ranks_describe(order, index, rank, describe);
        return;
    }
    order->figures.pushes++;
    slot->described = true;
    slot->describe = *describe;
    slot->since_ns = order->now_ns;
    judge_wait(order, slot);
    judge_head(order, slot);
    judge_note_ready(order, slot);
}

void judge_add(struct order_slot *slot, uint32_t member, const struct message_landed *landed)
{
    if (slot->landed == 0)
        slot->digest = landed->digest;
    slot->torn |= !landed->intact || landed->digest != slot->digest;
    slot->landed |= UINT64_C(1) << member;
    if (landed->not_finite < slot->not_finite)
        slot->not_finite = landed->not_finite;
    if (!(landed->magnitude <= slot->magnitude))
        slot->magnitude = landed->magnitude;
    slot->sum_squares[member] = landed->sum_squares;
}

void judge_landed(struct order *order, uint32_t member, const struct message_landed *landed)
{
    if (landed->slot >= order->slots_count) {
        order->figures.foreign++;
        return;
    }
    struct order_slot *slot = &order->slots[landed->slot];
    if (slot->state != SLOT_PLACED || slot->generation != landed->generation ||
        slot->landed >> member & 1)
        return; /* closed meanwhile, or said twice */
    slot->torn |= landed->name.worker != slot->name.worker ||
                  landed->name.incarnation != slot->name.incarnation ||
                  landed->name.sequence != slot->name.sequence;
    judge_add(slot, member, landed);
    judge_note_ready(order, slot);
    order->inert = slot->ready == 0;
}

void judge_patience(struct order *order)
{
    if (order->now_ns < order->patience_ns)
        return;
    order->patience_ns = INT64_MAX;
    for (uint32_t i = sets_next(order->sets.placed, 0, order->slots_count); i < order->slots_count;
         i = sets_next(order->sets.placed, i + 1, order->slots_count)) {
        struct order_slot *slot = &order->slots[i];
        if (!slot->described || slot->ready != 0)
            continue;
        if (order->now_ns - slot->since_ns >= order->options.push_patience_ns)
            judge_known(order, slot, VERDICT_CANCELLED, 0);
        else
            judge_wait(order, slot);
    }
}

/* Verdicts. */

static struct law_arrival arrival_of(const struct order_slot *slot)
{
    return (struct law_arrival){.finite = slot->not_finite == UINT64_MAX,
                                .largest = slot->magnitude,
                                .basis = slot->describe.basis,
                                .samples = slot->describe.samples,
                                .norm = slot->describe.norm};
}

static uint32_t decide(const struct order *order, const struct order_slot *slot, uint64_t *detail)
{
    *detail = slot->detail;
    if (slot->verdict != VERDICT_NONE)
        return slot->verdict;
    if (slot->torn || slot->digest != slot->describe.digest) {
        *detail = slot->describe.digest;
        return VERDICT_MISMATCH;
    }
    if (slot->not_finite != UINT64_MAX) {
        *detail = slot->not_finite;
        return VERDICT_NOT_FINITE;
    }
    if (slot->describe.purpose == PURPOSE_FIRST)
        return order->ledger.first ? VERDICT_CANCELLED : VERDICT_ADMITTED;
    const struct law_arrival arrival = arrival_of(slot);
    switch (law_judge(&order->ledger.law, &arrival)) {
    case LAW_FINE: return VERDICT_ADMITTED;
    case LAW_NOT_FINITE: *detail = UINT64_MAX; return VERDICT_NOT_FINITE;
    case LAW_FUTURE: return VERDICT_FUTURE;
    case LAW_STALE: return VERDICT_STALE;
    }
    return VERDICT_MISMATCH;
}

/* The client's norm against the shards' own sums: a client that measures wrongly clips wrongly. */
static void compare_norms(struct order *order, const struct order_slot *slot)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < order->options.shards; i++)
        sum += slot->sum_squares[i];
    const double theirs = slot->describe.norm * slot->describe.norm;
    const double larger = sum > theirs ? sum : theirs;
    const double apart = larger > 0.0 ? fabs(sum - theirs) / larger : 0.0;
    if (apart > 1e-3 && order->figures.sum_mismatch_max <= 1e-3)
        order_say(order, "worker %s says a norm of %g, the shards measure %g",
                  order->ledger.workers[slot->name.worker].identity, slot->describe.norm,
                  sqrt(sum));
    if (apart > order->figures.sum_mismatch_max)
        order->figures.sum_mismatch_max = apart;
}

static void admit(struct order *order, uint32_t index)
{
    struct order_slot *slot = &order->slots[index];
    const struct message_describe *describe = &slot->describe;
    const struct law_arrival arrival = arrival_of(slot);
    const struct law_entry entry = law_entry(&order->ledger.law, &arrival);
    struct record record = {.kind = RECORD_ADMIT};
    record.admit = (struct record_admit){.name = slot->name,
                                         .slot = index,
                                         .generation = slot->generation,
                                         .digest = describe->digest,
                                         .basis = describe->basis,
                                         .landed_version = slot->landed_version,
                                         .samples = describe->samples,
                                         .norm = describe->norm,
                                         .sample_weight = entry.sample_weight *
                                                          (order->plants.weight_twice ? 2 : 1),
                                         .clip = entry.clip};
    const uint64_t staleness = ledger_version(&order->ledger) - describe->basis;
    compare_norms(order, slot);
    slot->state = SLOT_WINDOW;
    order->workers[slot->name.worker].held--;
    sets_slot(order, index);
    sets_worker(order, slot->name.worker);
    order->last_admit_ns = order->now_ns;
    order->figures.verdicts[VERDICT_ADMITTED]++;
    order->figures.staleness_of++;
    order->figures.staleness_sum += staleness;
    if (staleness > order->figures.staleness_max)
        order->figures.staleness_max = staleness;
    order_append(order, &record);
    judge_owe(order, slot);
    steps_due(order);
}

static void admit_first(struct order *order, uint32_t index)
{
    const struct order_slot *slot = &order->slots[index];
    struct record record = {.kind = RECORD_FIRST};
    record.first = (struct record_first){.name = slot->name,
                                         .slot = index,
                                         .generation = slot->generation,
                                         .digest = slot->describe.digest};
    order->figures.verdicts[VERDICT_ADMITTED]++;
    order_append(order, &record);
    order->first_at = order->ledger.index;
    judge_owe(order, slot);
    places_close(order, index, order->ledger.index);
    order->last_step_ns = order->now_ns;
}

void judge_refuse(struct order *order, uint32_t index, uint32_t verdict, uint64_t detail)
{
    const struct order_slot *slot = &order->slots[index];
    struct record record = {.kind = RECORD_REFUSE};
    record.refuse = (struct record_refuse){.name = slot->name,
                                           .slot = index,
                                           .generation = slot->generation,
                                           .verdict = verdict,
                                           .basis = slot->describe.basis,
                                           .digest = slot->describe.digest,
                                           .detail = detail};
    order->figures.verdicts[verdict]++;
    if (order->plants.refusal_unlogged) {
        judge_answer(order, &(struct ledger_receipt){.verdict = verdict, .detail = detail},
                     &slot->name);
    } else {
        order_append(order, &record);
        judge_owe(order, slot);
    }
    places_close(order, index, order->ledger.index);
}

static bool its_turn(const struct order *order, const struct order_slot *slot)
{
    const struct ledger_worker *worker = &order->ledger.workers[slot->name.worker];
    return slot->state == SLOT_PLACED && slot->ready != 0 &&
           slot->name.sequence == worker->last_sequence + 1;
}

bool judge_fine(const struct order *order, uint32_t index)
{
    const struct order_slot *slot = &order->slots[index];
    uint64_t detail = 0;
    return its_turn(order, slot) && slot->describe.purpose == PURPOSE_GRADIENT &&
           decide(order, slot, &detail) == VERDICT_ADMITTED;
}

static bool may_admit(const struct order *order, const struct order_slot *slot)
{
    if (order->alarm || !order_members_here(order))
        return false;
    if (slot->describe.purpose == PURPOSE_FIRST)
        return true;
    if (law_due(&order->ledger.law, LAW_DUE)) /* it waits for the sums of the step before */
        return false;
    return !order->options.sync || order->draining || order->ledger.law.fresh > 0 ||
           rounds_whole(order);
}

/* The smaller goes first: by completion, in mode sync by worker. */
static uint64_t rank_of(const struct order *order, uint32_t i)
{
    return order->options.sync ? order->slots[i].name.worker : order->ready_at[i];
}

/* The next slot that can have its verdict. Of many that wait only those are looked at closely that
 * would come before what has been found. */
static uint32_t next_slot(const struct order *order)
{
    uint32_t best = order->slots_count;
    uint64_t first = UINT64_MAX;
    for (uint32_t i = sets_next(order->sets.ready, 0, order->slots_count); i < order->slots_count;
         i = sets_next(order->sets.ready, i + 1, order->slots_count)) {
        const struct order_slot *slot = &order->slots[i];
        uint64_t detail = 0;
        if (rank_of(order, i) >= first || !its_turn(order, slot) ||
            (decide(order, slot, &detail) == VERDICT_ADMITTED && !may_admit(order, slot)))
            continue;
        first = rank_of(order, i);
        best = i;
    }
    return best;
}

void judge_all(struct order *order)
{
    if (!order->ledger.mapped)
        return;
    steps_due(order);
    while (order_room(order)) {
        uint64_t detail = 0;
        const uint32_t index = next_slot(order);
        if (index == order->slots_count)
            return;
        const uint32_t verdict = decide(order, &order->slots[index], &detail);
        if (verdict != VERDICT_ADMITTED)
            judge_refuse(order, index, verdict, detail);
        else if (order->slots[index].describe.purpose == PURPOSE_FIRST)
            admit_first(order, index);
        else
            admit(order, index);
    }
}
