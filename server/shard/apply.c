/* Applies records strictly in log order; a step goes in tiles and returns to the loop between them.
 * Logging never waits for applying.
 *
 *   IDLE -> WAIT_SLOT -> APPLYING -> IDLE                          one phase
 *   IDLE -> WAIT_SLOT -> AVERAGING -> WAIT_SUMMED -> APPLYING      with the norm of the average
 *   IDLE -> WAIT_SLOT -> MOMENTS -> WAIT_SUMMED -> APPLYING        LAMB, with norms of tensors */
#include "server/shard/digests.h"
#include "server/shard/shard_internal.h"

#include "common/codec.h"

#include <math.h>
#include <string.h>

static struct record *oldest(struct shard *shard)
{
    return &records_of(shard)[shard->records_first];
}

static void settle(struct shard *shard)
{
    const uint64_t applied = shard->records_count ? oldest(shard)->index - 1 : shard->ledger.index;
    if (applied == shard->applied)
        return;
    KEEP(shard, shard->applied);
    shard->applied = applied;
}

static void pop(struct shard *shard)
{
    KEEP(shard, shard->records_first);
    KEEP(shard, shard->records_count);
    shard->records_first = (shard->records_first + 1) % shard->records_max;
    shard->records_count--;
    settle(shard);
}

/* Only what touches a float waits in the ring. So its bound is exact, however many workers come and
 * go meanwhile: a slot has one waiting ADMIT, because it is granted again only when that is applied
 * (CLOSE, FREED), and no two STEPs wait without an ADMIT between them, but for what the window held
 * before. */
static bool waits(const struct record *record)
{
    return record->kind == RECORD_FIRST || record->kind == RECORD_ADMIT ||
           record->kind == RECORD_STEP;
}

bool apply_room(const struct shard *shard, const struct record *record)
{
    return !waits(record) || shard->records_count < shard->records_max;
}

void apply_logged(struct shard *shard, const struct record *record)
{
    if (waits(record)) {
        KEEP(shard, shard->records_count);
        const uint32_t next = shard->records_first + shard->records_count++;
        record_copy(&records_of(shard)[next % shard->records_max], record);
    }
    if (record->kind == RECORD_ADMIT || record->kind == RECORD_REFUSE)
        pulls_judged(shard);
    if (record->kind == RECORD_LEAVE)
        session_left(shard, record->leave.worker, record->leave.incarnation);
    if (record->kind == RECORD_SUMMED) {
        KEEP(shard, shard->summed_version);
        KEEP(shard, shard->summed_factor);
        shard->summed_version = record->summed.version;
        shard->summed_factor = record->summed.factor;
        if (record->summed.ratios_count == shard->ratios_count && shard->ratios_count > 0)
            memcpy(at_offset(shard, shard->at.ratios), record->summed.ratios,
                   shard->ratios_count * sizeof(uint32_t));
    }
}

static void say_keep(struct shard *shard, const struct keep *kept)
{
    struct shard_action *action = act(shard, SHARD_KEEP);
    action->token = kept->index;
    action->offset = kept->first ? first_offset(shard, kept->slot) : slot_offset(shard, kept->slot);
    action->length = kept->first ? shard->body_bytes : shard->gradient_bytes;
}

static void keep(struct shard *shard, uint64_t index, uint32_t slot, bool first)
{
    if (!shard->options.keep || shard->body_bytes == 0)
        return;
    ASSERT(shard->keeps_count < SLOTS_MAX);
    KEEP(shard, shard->keeps_count);
    struct keep *kept = &shard->keeps[shard->keeps_count++];
    *kept = (struct keep){.index = index, .slot = slot, .first = first};
    say_keep(shard, kept);
}

/* offset: where they lie in the arena, behind a body's elements. */
static void merge_moments(struct shard *shard, uint64_t offset)
{
    const char *tail = at_offset(shard, offset);
    const struct moments *before = moments_of(shard, shard->moments_now);
    struct moments *moments = moments_of(shard, !shard->moments_now);
    if (shard->moments_count == 0)
        return;
    for (uint64_t i = 0; i < shard->moments_count; i++) {
        struct moments other;
        memcpy(&other, tail + i * sizeof other, sizeof other);
        moments[i] = before[i];
        moments_merge(&moments[i], &other);
        if (shard->plant.moments_twice)
            moments_merge(&moments[i], &other);
    }
    digests_moments(shard, !shard->moments_now);
    KEEP(shard, shard->moments_now);
    shard->moments_now = !shard->moments_now;
}

static void publish_moments(struct shard *shard, uint32_t parameters)
{
    memcpy(at_offset(shard, parameter_offset(shard, parameters) + shard->elements * sizeof(float)),
           moments_of(shard, shard->moments_now), shard->moments_count * sizeof(struct moments));
    digests_tail(shard, parameters);
}

static void say_stepped(struct shard *shard)
{
    tell(shard, MESSAGE_STEPPED)->stepped.version = shard->version;
}

static void apply_first(struct shard *shard, const struct record_first *first, uint64_t index)
{
    const uint64_t from = first_offset(shard, first->slot);
    keep(shard, index, first->slot, true);
    memcpy(at_offset(shard, parameter_offset(shard, 0)), at_offset(shard, from), shard->body_bytes);
    merge_moments(shard, from + shard->elements * sizeof(float));
    digests_parameters(shard, 0);
    publish_moments(shard, 0);
    KEEP(shard, shard->parameters[0]);
    KEEP(shard, shard->has_first);
    KEEP(shard, shard->whole_known);
    shard->parameters[0] =
        (struct parameter_slot){.used = true, .timeline = shard->ledger.timeline};
    shard->has_first = shard->whole_known = true;
    say_stepped(shard);
    pulls_retry(shard);
}

/* Steps. */

static void unsummed(const struct shard *shard, const struct record_step *record,
                     struct arithmetic_plan *plan)
{
    plan->phase = plan->algorithm == ARITHMETIC_LAMB ? ARITHMETIC_MOMENTS : ARITHMETIC_WHOLE;
    plan->scale = 1;
    for (uint32_t i = 0; i < plan->groups_n; i++)
        plan->groups[i].frozen = shard->groups[i].frozen || record->algorithm == STEP_NOTHING;
}

void apply_unsummed(struct shard *shard)
{
    unsummed(shard, &shard->step.record, &shard->step.plan);
}

void apply_plan(struct shard *shard, const struct record_step *record, struct arithmetic_plan *plan)
{
    const struct law_settings *law = &shard->ledger.law.settings;
    const struct optimizer_options *options = &shard->options.optimizer;
    memset(plan, 0, sizeof *plan);
    plan->algorithm = law->algorithm;
    plan->first = record->t == 1;
    plan->centered = options->centered;
    plan->momentum = options->momentum;
    plan->epsilon = (float)options->epsilon;
    plan->entries_n = record->entries_count;
    for (uint32_t i = 0; i < record->entries_count; i++) {
        plan->entries[i].slot = record->entries[i].slot;
        memcpy(&plan->entries[i].weight, &record->entries[i].weight, sizeof(float));
    }
    stacks_plan(record, &plan->stacks);
    plan->stacks.position += shard->plant.stacks_shifted;
    if (shard->plant.order_swapped) { /* two terms commute, three do not */
        const struct arithmetic_entry first = plan->entries[0];
        plan->entries[0] = plan->entries[plan->entries_n - 1];
        plan->entries[plan->entries_n - 1] = first;
    }
    for (uint32_t i = 0; i < record->groups_count; i++) {
        const struct model_group *group = &shard->groups[i];
        const struct arithmetic_group_numbers numbers = {
            .learning_rate = record->groups[i].learning_rate,
            .weight_decay = group->weight_decay >= 0 ? group->weight_decay : options->weight_decay,
            .beta1 = group->beta1 >= 0 ? group->beta1 : law->beta1,
            .beta2 = group->beta2 >= 0 ? group->beta2 : law->beta2,
            .dampening = options->dampening,
            .bias1 = record->groups[i].bias_correction1,
            .bias2 = record->groups[i].bias_correction2};
        arithmetic_plan_group(plan, i, &numbers);
    }
    unsummed(shard, record, plan);
}

static void finish_step(struct shard *shard)
{
    struct stepping *step = &shard->step;
    struct parameter_slot *made = &shard->parameters[step->to];
    publish_moments(shard, step->to);
    KEEP(shard, *made);
    KEEP(shard, shard->version);
    KEEP(shard, step->phase);
    made->writing = false;
    made->version = step->record.version;
    made->timeline = shard->ledger.timeline;
    shard->version = step->record.version;
    shard->step_ns = (uint64_t)(shard->now_ns - step->began_ns);
    tiles_turn(shard);
    step->ahead = false;
    step->phase = STEP_IDLE;
    say_stepped(shard);
    pop(shard);
    slots_free_due(shard);
    pulls_retry(shard);
}

static void say_sums(struct shard *shard)
{
    sums_tell(shard);
    KEEP(shard, shard->step.phase);
    shard->step.phase = STEP_WAIT_SUMMED;
}

void apply_say_again(struct shard *shard)
{
    if (shard->has_first)
        say_stepped(shard);
    if (shard->step.phase == STEP_WAIT_SUMMED)
        say_sums(shard);
}

/* Tiles that were made while the gradient landed are done. */
static void pass_made(struct shard *shard)
{
    while (shard->step.ahead && tile_next(shard) < tile_end(shard) &&
           ahead_made(shard, tile_next(shard), tile_end(shard))) {
        ahead_passed(shard, tile_next(shard), tile_end(shard));
        tile_done(shard);
    }
}

/* The next tile goes to the device; when there is none left, the phase is over. */
static void next_tile(struct shard *shard)
{
    struct stepping *step = &shard->step;
    pass_made(shard);
    const uint64_t next = tile_next(shard);
    uint64_t end = tile_end(shard);
    if (shard->plant.torn_step && step->phase == STEP_APPLYING && end == shard->elements &&
        next > 0)
        end = next;
    if (next == end) {
        if (step->phase != STEP_APPLYING)
            say_sums(shard);
        else
            finish_step(shard);
        return;
    }
    struct shard_action *action =
        act(shard, step->phase == STEP_AVERAGING ? SHARD_AVERAGE : SHARD_STEP);
    tile_begin(shard);
    action->begin = next;
    action->end = end;
    action->token = token_make(TOKEN_TILE, 0, 0);
    step->job = true;
}

static void begin_step(struct shard *shard, const struct record_step *record)
{
    struct stepping *step = &shard->step;
    tile_none(shard);
    step->record = *record;
    step->from = parameters_find(shard, shard->version);
    ASSERT(step->from != UINT32_MAX && record->version == shard->version + 1);
    step->to = ahead_claim(shard);
    KEEP(shard, step->phase);
    step->phase = STEP_WAIT_SLOT;
    if (step->to == UINT32_MAX)
        return;
    KEEP(shard, shard->parameters[step->to]);
    shard->parameters[step->to] = (struct parameter_slot){.used = true, .writing = true};
    step->began_ns = shard->now_ns;
    apply_plan(shard, &step->record, &step->plan);
    step->ahead = ahead_right(shard);
    step->phase = !record->rounds                           ? STEP_APPLYING
                  : step->plan.algorithm == ARITHMETIC_LAMB ? STEP_MOMENTS
                                                            : STEP_AVERAGING;
    journal_commit(shard); /* tiles are counted on what has happened */
    next_tile(shard);
}

static bool summed(struct shard *shard)
{
    struct stepping *step = &shard->step;
    /* Nobody waits for the sums of a shard without a block, so it may be several SUMMED behind;
     * their factors change nothing there. */
    const bool passed = shard->elements == 0 && shard->summed_version > step->record.version;
    if (shard->summed_version != step->record.version && !passed)
        return false;
    tile_none(shard);
    memcpy(&step->plan.scale, &shard->summed_factor, sizeof(float));
    if (step->plan.algorithm == ARITHMETIC_LAMB)
        step->plan.phase = ARITHMETIC_APPLY;
    for (uint32_t i = 0; shard->summed_factor == 0 && i < step->plan.groups_n; i++)
        step->plan.groups[i].frozen = true; /* the sums were none: nothing is changed */
    KEEP(shard, step->phase);
    step->phase = STEP_APPLYING;
    journal_commit(shard);
    next_tile(shard);
    return true;
}

void apply_done(struct shard *shard, const struct shard_event *event)
{
    struct stepping *step = &shard->step;
    ASSERT(step->job && event->status == GRADWEIR_OK);
    step->job = false;
    tile_done(shard);
    next_tile(shard);
    apply_advance(shard);
}

/* One record, or one phase of it; false when something must come first. */
static bool advance_once(struct shard *shard)
{
    const struct record *record = oldest(shard);
    if (record->kind == RECORD_STEP) {
        if (shard->step.job)
            return false;
        if (shard->step.phase == STEP_WAIT_SUMMED)
            return summed(shard);
        begin_step(shard, &record->step);
        return shard->step.phase == STEP_IDLE || shard->step.phase == STEP_WAIT_SUMMED;
    }
    if (record->kind == RECORD_FIRST)
        apply_first(shard, &record->first, record->index);
    if (record->kind == RECORD_ADMIT) {
        keep(shard, record->index, record->admit.slot, false);
        merge_moments(shard, slot_offset(shard, record->admit.slot) +
                                 codec_bytes(shard->codec, shard->elements));
    }
    pop(shard);
    return true;
}

void apply_advance(struct shard *shard)
{
    const uint64_t before = shard->applied;
    journal_commit(shard); /* what led here has happened, whatever comes now */
    while (shard->records_count && advance_once(shard))
        journal_commit(shard); /* one record at a time: the journal's bound counts on it */
    settle(shard);
    if (shard->applied != before)
        slots_free_due(shard);
}

/* What a killed process may not have written to the recording, and the tile it was at. */
void apply_revive(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->keeps_count; i++)
        say_keep(shard, &shard->keeps[i]);
    if (shard->step.phase == STEP_AVERAGING || shard->step.phase == STEP_MOMENTS ||
        shard->step.phase == STEP_APPLYING)
        next_tile(shard);
}
