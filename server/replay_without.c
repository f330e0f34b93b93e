/* Rewrites a log's records as if one worker's gradients did not count. See replay_without.h. */
#include "server/replay_without.h"

#include "common/message.h"
#include "common/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replay_without {
    char identity[64];
    uint32_t worker;      /* its number while it has one: another's, once it has left, at times */
    bool lies[SLOTS_MAX]; /* whose newest gradient is the worker's */
    struct ledger ledger; /* of the run as it was */
    struct record was;    /* the record at hand, as it was */
    struct law rest;      /* the window without the worker, at the step at hand */
    bool changed;         /* some step has been weighed anew: partial sums of before are no good */
    uint64_t previous;    /* hash of the last record given out */
};

static gradweir_status find_worker(struct recording_reader *reader, const char *identity,
                                   struct record *record)
{
    char others[600] = "";
    struct page page = {.text = others, .size = sizeof others};
    gradweir_status status;
    while ((status = recording_next(reader, record)) == GRADWEIR_OK) {
        if (record->kind != RECORD_JOIN || record->join.role != ROLE_WORKER)
            continue;
        record->join.identity[sizeof record->join.identity - 1] = 0;
        if (strcmp(record->join.identity, identity) == 0)
            return GRADWEIR_OK;
        page_put(&page, "%s%s", page.used ? ", " : "", record->join.identity);
    }
    if (status != GRADWEIR_ERR_AGAIN)
        return status;
    return fail(GRADWEIR_ERR_INVALID, "no worker \"%.60s\" took part in this run; these did: %s",
                identity, others[0] ? others : "none");
}

gradweir_status replay_without_new(struct recording_reader *reader, const char *identity,
                                   struct replay_without **without)
{
    struct replay_without *made = calloc(1, sizeof *made);
    struct record *record = malloc(sizeof *record);
    gradweir_status status =
        made && record ? GRADWEIR_OK : fail(GRADWEIR_ERR_NO_MEMORY, "no memory to replay");
    if (status == GRADWEIR_OK)
        status = find_worker(reader, identity, record);
    recording_rewind(reader);
    free(record);
    if (status != GRADWEIR_OK) {
        free(made);
        return status;
    }
    snprintf(made->identity, sizeof made->identity, "%s", identity);
    made->worker = UINT32_MAX;
    ledger_init(&made->ledger);
    *without = made;
    return GRADWEIR_OK;
}

void replay_without_free(struct replay_without *without)
{
    free(without);
}

bool replay_without_leaves(const struct replay_without *without, const struct record *record)
{
    return record->kind == RECORD_ADMIT && record->admit.name.worker == without->worker;
}

/* The window as it is before the step, of the others only; how many entries that leaves. */
static uint32_t take_rest(struct replay_without *without)
{
    const struct law *law = &without->ledger.law;
    memcpy(&without->rest, law, sizeof *law);
    law_clear(&without->rest, law->version, law->optimizer_step);
    for (uint32_t i = 0; i < law_size(law); i++) {
        const struct law_entry *entry = law_at(law, i);
        struct law_entry gone;
        while (law_retired(&without->rest, &gone))
            ;
        if (!without->lies[entry->slot])
            law_admit(&without->rest, entry);
    }
    return law_size(&without->rest);
}

static const struct law_step_entry *find_entry(const struct law_step *step, uint32_t slot)
{
    for (uint32_t i = 0; i < step->n; i++)
        if (step->entries[i].slot == slot)
            return &step->entries[i];
    return NULL;
}

static bool reads_worker(const struct replay_without *without, const struct record_step *step)
{
    const struct law *law = &without->ledger.law;
    for (uint32_t i = 0; i < law_size(law); i++)
        for (uint32_t k = 0; k < step->entries_count; k++)
            if (law_at(law, i)->slot == step->entries[k].slot &&
                without->lies[law_at(law, i)->slot])
                return true;
    return false;
}

/* A weight of 0 keeps the entry's place, so that windows and slots go on as in the run. */
static void weigh_rest(struct replay_without *without, const struct model *model,
                       struct record_step *step, struct replay_result *result)
{
    struct law_step rest = {.n = 0};
    if (take_rest(without))
        law_step(&without->rest, (enum law_cause)step->cause, &rest);
    for (uint32_t i = 0; i < step->entries_count; i++) {
        const struct law_step_entry *entry = find_entry(&rest, step->entries[i].slot);
        const float weight = entry ? entry->weight : 0.0f;
        memcpy(&step->entries[i].weight, &weight, sizeof weight);
    }
    if (rest.n == 0) {
        step->algorithm = STEP_NOTHING;
        result->steps_emptied++;
        return;
    }
    result->steps_changed++;
    if (without->rest.settings.damp != LAW_DAMP_OFF)
        for (uint32_t i = 0; i < step->groups_count; i++)
            step->groups[i].learning_rate =
                rest.learning_rate * model->groups[i].learning_rate_scale;
}

/* What the entries' weights say without partial sums. */
static void take_directly(struct record_step *step)
{
    if (step->algorithm == STEP_STACKS)
        step->algorithm = STEP_DIRECT;
    memset(&step->stacks, 0, sizeof step->stacks);
}

gradweir_status replay_without_record(struct replay_without *without, const struct model *model,
                                      struct record *record, struct replay_result *result)
{
    without->was = *record;
    if (record->kind == RECORD_STEP && record->step.groups_count == model->groups_count &&
        reads_worker(without, &record->step)) {
        without->changed = true;
        weigh_rest(without, model, &record->step, result);
    }
    if (record->kind == RECORD_STEP && without->changed)
        take_directly(&record->step);
    TRY(ledger_apply(&without->ledger, &without->was));
    if (record->kind == RECORD_JOIN && strcmp(record->join.identity, without->identity) == 0)
        without->worker = record->join.worker;
    else if (record->kind == RECORD_JOIN && record->join.worker == without->worker)
        without->worker = UINT32_MAX;
    if (record->kind == RECORD_ADMIT)
        without->lies[record->admit.slot] = replay_without_leaves(without, record);
    result->left_out += replay_without_leaves(without, record);
    if (record->kind == RECORD_FIRST)
        result->first_kept = record->first.name.worker == without->worker;
    return GRADWEIR_OK;
}

void replay_without_seal(struct replay_without *without, struct record *record)
{
    record->previous = without->previous;
    without->previous = record_hash(record);
}
