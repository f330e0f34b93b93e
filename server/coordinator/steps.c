/* Steps: when, with what numbers, and when they are whole. */
#include "server/coordinator/order_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t SECOND_NS = 1000000000;

static void fill_groups(const struct order *order, const struct law_step *step,
                        struct record_step *record)
{
    record->groups_count = order->model->groups_count;
    for (uint32_t i = 0; i < record->groups_count; i++) {
        const struct model_group *group = &order->model->groups[i];
        const uint64_t t = step->optimizer_step;
        record->groups[i] = (struct step_group){
            .learning_rate = step->learning_rate * group->learning_rate_scale,
            .bias_correction1 = group->beta1 >= 0 ? arithmetic_bias(group->beta1, t) : step->bias1,
            .bias_correction2 = group->beta2 >= 0 ? arithmetic_bias(group->beta2, t) : step->bias2};
    }
}

static int compare(const void *a, const void *b)
{
    int64_t left, right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

/* The median is taken anew at every step while there are few, then now and then: sorting at every
 * step would cost more than all the rest of it. */
static void note_interval(struct order *order)
{
    const int64_t interval = order->now_ns - order->last_step_ns;
    const bool first = order->last_step_ns == 0;
    order->last_step_ns = order->now_ns;
    if (first)
        return;
    order->intervals[order->intervals_count++ % INTERVALS] = interval;
    const uint64_t n =
        order->intervals_count < INTERVALS ? order->intervals_count : (uint64_t)INTERVALS;
    if (n == INTERVALS && order->intervals_count % (INTERVALS / 2) != 0)
        return;
    int64_t sorted[INTERVALS];
    memcpy(sorted, order->intervals, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    order->interval_median = sorted[n / 2];
}

static void append_step(struct order *order, enum law_cause cause)
{
    struct law_step step;
    law_step(&order->ledger.law, cause, &step);
    struct record record = {.kind = RECORD_STEP};
    record.step.version = step.version;
    record.step.t = step.optimizer_step;
    record.step.cause = cause;
    record.step.rounds = step.needs_sums;
    record.step.entries_count = step.n;
    fill_groups(order, &step, &record.step);
    for (uint32_t i = 0; i < step.n; i++) {
        record.step.entries[i].slot = step.entries[i].slot;
        memcpy(&record.step.entries[i].weight, &step.entries[i].weight, sizeof(uint32_t));
    }
    ledger_stacks_write(&step.stacks, &record.step);
    order->step_clip = order->ledger.law.settings.clip_average;
    sums_begin(order->sums, step.version);
    note_interval(order);
    order->figures.flushes += cause == LAW_FLUSH;
    order->figures.drains += cause == LAW_DRAIN;
    order_append(order, &record);
}

void steps_due(struct order *order)
{
    while (order->ledger.mapped && !order->ledger.stepping && !order->alarm &&
           law_due(&order->ledger.law, LAW_DUE))
        append_step(order, LAW_DUE);
}

/* Sums over the whole model. */

gradweir_status steps_room(struct order *order, const struct model *model)
{
    const enum sums_kind kind = sums_kind_of(&order->options.law);
    if (kind == SUMS_TENSORS && model->parameter_tensors > RATIOS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "optimizer lamb steps at most %d tensors; these are %u",
                    RATIOS_MAX, model->parameter_tensors);
    sums_free(order->sums);
    order->sums = NULL;
    return sums_new(model, kind, order->options.shards, &order->sums);
}

bool steps_summed(const struct order *order, uint32_t member)
{
    return order->sums && sums_version(order->sums) == ledger_version(&order->ledger) &&
           sums_has(order->sums, member);
}

/* The factor, or the ratios; false when the sums make none. */
static bool take_sums(const struct order *order, struct record_summed *summed)
{
    float factor = 1.0f;
    bool sound;
    if (sums_kind_of(&order->options.law) == SUMS_TENSORS) {
        summed->ratios_count = order->model->parameter_tensors;
        sound = sums_ratios(order->sums, &order->options.optimizer, summed->ratios);
    } else {
        summed->norm = sums_norm(order->sums);
        sound = isfinite(summed->norm);
        factor = (float)arithmetic_clip_factor(summed->norm, order->step_clip);
    }
    memcpy(&summed->factor, &factor, sizeof factor);
    return sound;
}

static void append_summed(struct order *order)
{
    struct record record = {.kind = RECORD_SUMMED};
    record.summed.version = ledger_version(&order->ledger);
    record.summed.round = 1;
    if (!take_sums(order, &record.summed)) {
        order_say(order,
                  "ALARM: the shards' sums for version %llu make no norm; the step "
                  "changes nothing, and nothing is admitted any more",
                  (unsigned long long)record.summed.version);
        order->alarm = true;
        record.summed.norm = 0.0;
        record.summed.factor = 0;
        memset(record.summed.ratios, 0, sizeof record.summed.ratios);
    }
    order_append(order, &record);
}

void steps_sums(struct order *order, uint32_t member, const struct message_sums *sums)
{
    const uint64_t version = ledger_version(&order->ledger);
    const bool wanted = order->ledger.stepping && order->sums && sums->version == version;
    if (wanted && sums_version(order->sums) != version)
        sums_begin(order->sums, version); /* a step of the epoch before */
    if (!wanted || sums->round > 1 || !sums_take(order->sums, member, sums)) {
        order->figures.foreign++;
        return;
    }
    if (sums_whole(order->sums))
        append_summed(order);
}

void steps_stepped(struct order *order, uint32_t member, uint64_t version)
{
    struct order_member *from = &order->members[member];
    if (!order->ledger.first || version > ledger_version(&order->ledger) ||
        (from->stepped_any && version < from->stepped)) {
        order->figures.foreign++;
        return;
    }
    from->stepped_any = true;
    from->stepped = version;
    order->inert = !order->draining;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < order->options.shards; i++) {
        if (!order->members[i].stepped_any)
            return;
        least = order->members[i].stepped < least ? order->members[i].stepped : least;
    }
    if (order->whole_known && least <= order->whole)
        return;
    order->whole_known = true;
    order->whole = least;
    order->inert = false;
    order_send_all(order, MESSAGE_WHOLE)->whole.version = least;
}

/* Flush: nothing came for long, so a step with what is there. */

static int64_t flush_after(const struct order *order)
{
    if (order->options.flush_after_ns != 0)
        return order->options.flush_after_ns;
    if (order->intervals_count == 0)
        return SECOND_NS;
    const int64_t median = order->interval_median;
    const int64_t low = SECOND_NS / 20, high = 60 * SECOND_NS;
    return median > high / 3 ? high : 3 * median < low ? low : 3 * median;
}

int64_t steps_flush_at(const struct order *order)
{
    const int64_t after = flush_after(order);
    if (after < 0 || order->plants.flush_off || order->alarm || !order->ledger.mapped ||
        order->ledger.stepping || !order_members_here(order) || !order_room(order) ||
        !law_due(&order->ledger.law, LAW_FLUSH) || judge_pending(order))
        return INT64_MAX;
    const int64_t since =
        order->last_admit_ns > order->last_step_ns ? order->last_admit_ns : order->last_step_ns;
    return since > INT64_MAX - after ? INT64_MAX : since + after;
}

void steps_flush(struct order *order)
{
    if (order->now_ns >= steps_flush_at(order))
        append_step(order, LAW_FLUSH);
}

/* Drain: places that nobody has described are closed, what is under way gets a little longer, the
 * rest of the window makes a last step, and when everything is whole everybody hears STOP. */

static bool under_way(struct order *order)
{
    bool any = false;
    const bool late = order->now_ns - order->drain_ns >= 2 * SECOND_NS;
    for (uint32_t i = 0; i < order->slots_count; i++) {
        struct order_slot *slot = &order->slots[i];
        if (slot->state != SLOT_PLACED)
            continue;
        if (!slot->described && slot->name.sequence == order->workers[slot->name.worker].granted) {
            order->workers[slot->name.worker].granted--;
            order->workers[slot->name.worker].asked = order->workers[slot->name.worker].granted;
            sets_worker(order, slot->name.worker);
            places_close(order, i, order->ledger.index);
            continue;
        }
        any = true;
        if (late && slot->ready == 0) {
            slot->described = true;
            slot->verdict = VERDICT_CANCELLED;
            slot->ready = order->ready_at[i] = ++order->completions;
            sets_slot(order, i);
        }
    }
    return any;
}

static bool finished(struct order *order)
{
    if (under_way(order))
        return false;
    if (!order->ledger.mapped)
        return true;
    if (order->ledger.stepping)
        return false;
    if (law_due(&order->ledger.law, LAW_DRAIN) && !order->alarm)
        append_step(order, LAW_DRAIN);
    const bool whole = !order->ledger.first ||
                       (order->whole_known && order->whole == ledger_version(&order->ledger));
    return whole && !order->ledger.stepping && order->owed_count == 0 &&
           order_watermark(order) == order->ledger.index;
}

void steps_drain(struct order *order)
{
    const bool over = order->now_ns - order->drain_ns >= 30 * SECOND_NS;
    if (!finished(order) && !over)
        return;
    if (over)
        order_say(order,
                  "the end was not reached in order within 30 s: a shard is missing or "
                  "behind; stopping at version %llu",
                  (unsigned long long)order->whole);
    for (uint32_t i = 0; i < order->peers_max && take_over_ours(order); i++)
        if (order->peers[i].state != PEER_FREE)
            order_send(order, order->peers[i].number, MESSAGE_STOP);
    order_exit(order, GRADWEIR_OK, "");
}
