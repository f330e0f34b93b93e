/* What a record must be to follow: its place in the chain, and what is already known. After this
 * check the fold cannot fail. */
#include "common/ledger_check.h"

#include "common/message.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static gradweir_status refuse(const struct record *record, const char *why)
{
    return fail(GRADWEIR_ERR_PROTOCOL, "%s record %" PRIu64 ": %s", record_name(record->kind),
                record->index, why);
}

/* Bits of a finite float32 that is not negative. */
static bool good_weight(uint32_t bits)
{
    return bits < 0x7f800000u;
}

static bool good_factor(double value)
{
    return isfinite(value) && value >= 0.0;
}

static gradweir_status check_chain(const struct ledger *ledger, const struct record *record)
{
    if (record->epoch < ledger->epoch)
        return refuse(record, "its epoch is over");
    if (record->timeline != ledger->timeline)
        return refuse(record, "it belongs to another timeline");
    if (record->index != ledger->index + 1)
        return refuse(record, "its index is not the next");
    if (record->previous != ledger->hash)
        return refuse(record, "it does not follow the last record");
    if (record->kind != RECORD_MAP && !ledger->mapped)
        return refuse(record, "no MAP came before it");
    return GRADWEIR_OK;
}

static gradweir_status check_name(const struct ledger *ledger, const struct record *record,
                                  const struct name *name)
{
    if (name->worker >= ledger->workers_count)
        return refuse(record, "no such worker");
    const struct ledger_worker *worker = &ledger->workers[name->worker];
    if (worker->state != WORKER_LIVE || worker->incarnation != name->incarnation)
        return refuse(record, "that incarnation does not live");
    if (name->sequence != worker->last_sequence + 1)
        return refuse(record, "the sequence is not the next");
    return GRADWEIR_OK;
}

static uint32_t window_position(const struct ledger *ledger, uint32_t slot)
{
    const uint32_t size = law_size(&ledger->law);
    uint32_t i = 0;
    while (i < size && law_at(&ledger->law, i)->slot != slot)
        i++;
    return i;
}

static gradweir_status check_slot(const struct ledger *ledger, const struct record *record,
                                  uint32_t slot)
{
    if (slot >= ledger->slots)
        return refuse(record, "no such slot");
    if (window_position(ledger, slot) < law_size(&ledger->law))
        return refuse(record, "the slot is in the window already");
    return GRADWEIR_OK;
}

static gradweir_status check_first(const struct ledger *ledger, const struct record *record)
{
    if (ledger->first)
        return refuse(record, "the first parameters are there already");
    TRY(check_name(ledger, record, &record->first.name));
    return check_slot(ledger, record, record->first.slot);
}

static gradweir_status check_join(const struct ledger *ledger, const struct record *record)
{
    const struct record_join *join = &record->join;
    if (join->worker > ledger->workers_count || join->worker >= WORKERS_MAX)
        return refuse(record, "worker numbers are given in order");
    if (join->identity[0] == 0 || !memchr(join->identity, 0, sizeof join->identity))
        return refuse(record, "the identity is no text");
    if (join->role != ROLE_WORKER && join->role != ROLE_READER)
        return refuse(record, "no such role");
    if (join->outstanding_max > OUTSTANDING_MAX ||
        (join->outstanding_max == 0 && join->role == ROLE_WORKER))
        return refuse(record, "outstanding_max is out of range");
    for (uint32_t i = 0; i < ledger->workers_count; i++)
        if (i != join->worker && strcmp(ledger->workers[i].identity, join->identity) == 0)
            return refuse(record, "the identity belongs to another number");
    if (join->worker == ledger->workers_count)
        return join->incarnation == 1 ? GRADWEIR_OK
                                      : refuse(record, "a new worker's incarnation is 1");
    const struct ledger_worker *worker = &ledger->workers[join->worker];
    if (worker->state == WORKER_LIVE)
        return refuse(record, "the number is taken");
    if (join->incarnation != worker->incarnation + 1)
        return refuse(record, "the incarnation is not the next");
    return GRADWEIR_OK;
}

static gradweir_status check_leave(const struct ledger *ledger, const struct record *record)
{
    const struct record_leave *leave = &record->leave;
    if (leave->worker >= ledger->workers_count ||
        ledger->workers[leave->worker].state != WORKER_LIVE ||
        ledger->workers[leave->worker].incarnation != leave->incarnation)
        return refuse(record, "that incarnation does not live");
    if (leave->cause < LEAVE_BYE || leave->cause > LEAVE_ROUND)
        return refuse(record, "no such cause");
    return GRADWEIR_OK;
}

static gradweir_status check_admit(const struct ledger *ledger, const struct record *record)
{
    const struct record_admit *admit = &record->admit;
    if (!ledger->first)
        return refuse(record, "there are no parameters yet");
    TRY(check_name(ledger, record, &admit->name));
    TRY(check_slot(ledger, record, admit->slot));
    if (admit->basis > ledger->law.version || admit->landed_version > ledger->law.version)
        return refuse(record, "it comes from the future");
    if (!good_factor(admit->sample_weight) || !good_factor(admit->clip) || admit->clip > 1.0)
        return refuse(record, "its weight is no weight");
    return GRADWEIR_OK;
}

static gradweir_status check_refuse(const struct ledger *ledger, const struct record *record)
{
    const struct record_refuse *refused = &record->refuse;
    TRY(check_name(ledger, record, &refused->name));
    if (refused->slot >= ledger->slots)
        return refuse(record, "no such slot");
    if (refused->verdict < VERDICT_STALE || refused->verdict > VERDICT_CANCELLED)
        return refuse(record, "no such verdict");
    return GRADWEIR_OK;
}

static gradweir_status check_entries(const struct ledger *ledger, const struct record *record)
{
    const struct record_step *step = &record->step;
    if (step->entries_count == 0 || step->entries_count > WINDOW_MAX)
        return refuse(record, "no step without entries");
    uint32_t next = 0;
    for (uint32_t i = 0; i < step->entries_count; i++) {
        const uint32_t position = window_position(ledger, step->entries[i].slot);
        if (position >= law_size(&ledger->law) || position < next)
            return refuse(record, "an entry is not in the window, or not in log order");
        if (!good_weight(step->entries[i].weight))
            return refuse(record, "a weight is no weight");
        next = position + 1;
    }
    return GRADWEIR_OK;
}

static bool good_float(uint32_t bits) /* above 0 and finite */
{
    return bits > 0 && bits < 0x7f800000u;
}

/* Whatever a shard finds in memory by these numbers must be there. */
static bool stacks_sound(const struct law *law, const struct record_step *step)
{
    const struct step_stacks *stacks = &step->stacks;
    if (stacks->position != law->next || stacks->window != law->settings.window ||
        stacks->window > law->stacks.room || step->entries_count != law_size(law) ||
        stacks->fresh != law->next - law->stacks.stepped || stacks->fresh == 0 ||
        stacks->fresh > step->entries_count || stacks->known < stacks->fresh ||
        stacks->known > stacks->window || stacks->turns_count > WINDOW_MAX ||
        !good_float(stacks->rescale) || !(stacks->ratio > 0 && stacks->ratio < HUGE_VAL) ||
        !(stacks->anchor > 0 && stacks->anchor < HUGE_VAL))
        return false;
    if (stacks->known > stacks->fresh &&
        (stacks->turns_count == 0 || step->turns[0].behind != stacks->fresh))
        return false;
    for (uint32_t i = 0; i < stacks->turns_count; i++)
        if (step->turns[i].behind <= (i ? step->turns[i - 1].behind : 0) ||
            step->turns[i].behind >= stacks->window || !good_float(step->turns[i].weight))
            return false;
    return true;
}

static gradweir_status check_step(const struct ledger *ledger, const struct record *record)
{
    const struct record_step *step = &record->step;
    if (ledger->stepping)
        return refuse(record, "the step before waits for SUMMED");
    if (step->version != ledger->law.version + 1 || step->t != ledger->law.optimizer_step + 1)
        return refuse(record, "its version is not the next");
    if (step->cause < STEP_DUE || step->cause > STEP_DRAIN || step->rounds > 1)
        return refuse(record, "no such cause or number of rounds");
    if (step->groups_count == 0 || step->groups_count > GROUPS_MAX)
        return refuse(record, "no such number of groups");
    for (uint32_t i = 0; i < step->groups_count; i++)
        if (!good_factor(step->groups[i].learning_rate) ||
            !good_factor(step->groups[i].bias_correction1) ||
            !good_factor(step->groups[i].bias_correction2))
            return refuse(record, "a group's numbers are not finite");
    TRY(check_entries(ledger, record));
    if (step->algorithm == STEP_STACKS && !stacks_sound(&ledger->law, step))
        return refuse(record, "its partial sums cannot be so");
    return GRADWEIR_OK;
}

static gradweir_status check_summed(const struct ledger *ledger, const struct record *record)
{
    const struct record_summed *summed = &record->summed;
    if (!ledger->stepping || summed->version != ledger->law.version || summed->round > 1)
        return refuse(record, "no step waits for it");
    if (summed->factor > 0x3f800000u) /* 1.0f; above it are larger, negative and NaN */
        return refuse(record, "its factor is not between 0 and 1");
    if ((summed->ratios_count > 0) != (ledger->law.settings.algorithm == ARITHMETIC_LAMB))
        return refuse(record, "trust ratios belong to LAMB, and only there");
    for (uint32_t i = 0; i < summed->ratios_count; i++)
        if (summed->ratios[i] >= 0x7f800000u) /* infinity; above it are NaN and negative */
            return refuse(record, "a trust ratio is no number of its kind");
    return GRADWEIR_OK;
}

static gradweir_status check_tune(const struct ledger *ledger, const struct record *record)
{
    const struct record_tune *tune = &record->tune;
    struct law_settings settings;
    memcpy(&settings, &ledger->settings, sizeof settings);
    if (!memchr(tune->setting, 0, sizeof tune->setting) ||
        !memchr(tune->value, 0, sizeof tune->value) ||
        ledger_settings_tune(&settings, tune->setting, tune->value) != GRADWEIR_OK)
        return refuse(record, "that cannot be tuned so");
    if (settings.window > ledger->slots)
        return refuse(record, "the window would exceed the slots");
    return GRADWEIR_OK;
}

static gradweir_status check_map(const struct ledger *ledger, const struct record *record)
{
    const struct record_map *map = &record->map;
    struct law_settings settings;
    struct optimizer_options optimizer;
    if (ledger->mapped)
        return refuse(record, "the members are known already");
    if (map->members == 0 || map->members > MEMBERS_MAX || map->slots == 0 ||
        map->slots > SLOTS_MAX || map->groups_count == 0 || map->groups_count > GROUPS_MAX)
        return refuse(record, "a count is out of range");
    uint64_t next = 0;
    for (uint32_t i = 0; i < map->members; i++) {
        if (map->firsts[i] != next || map->counts[i] > UINT64_MAX - next)
            return refuse(record, "the ranges do not tile the model");
        next += map->counts[i];
    }
    if (next == 0)
        return refuse(record, "the model is empty");
    if (!memchr(map->settings, 0, sizeof map->settings))
        return refuse(record, "the settings are no text");
    TRY(ledger_settings_read(map->settings, &settings, &optimizer));
    return settings.window <= map->slots ? GRADWEIR_OK
                                         : refuse(record, "the window exceeds the slots");
}

gradweir_status ledger_check(const struct ledger *ledger, const struct record *record)
{
    TRY(check_chain(ledger, record));
    switch (record->kind) {
    case RECORD_FIRST: return check_first(ledger, record);
    case RECORD_JOIN: return check_join(ledger, record);
    case RECORD_LEAVE: return check_leave(ledger, record);
    case RECORD_ADMIT: return check_admit(ledger, record);
    case RECORD_REFUSE: return check_refuse(ledger, record);
    case RECORD_STEP: return check_step(ledger, record);
    case RECORD_SUMMED: return check_summed(ledger, record);
    case RECORD_SAVE:
        return record->save.cut > ledger->save_cut ? GRADWEIR_OK
                                                   : refuse(record, "cuts count upwards");
    case RECORD_DURABLE:
        return record->durable.cut == ledger->save_cut && ledger->save_cut > 0
                   ? GRADWEIR_OK
                   : refuse(record, "that cut is not the newest saved");
    case RECORD_TUNE: return check_tune(ledger, record);
    case RECORD_MAP: return check_map(ledger, record);
    default: return refuse(record, "no such kind");
    }
}
