/* The fold: what each record changes. Whether a record may be folded at all is ledger_check.c's. */
#include "common/ledger.h"

#include "common/ledger_check.h"
#include "common/message.h"

#include <string.h>

void ledger_init(struct ledger *ledger)
{
    memset(ledger, 0, sizeof *ledger);
    ledger->epoch = 1;
    ledger->timeline = 1;
}

void ledger_seal(const struct ledger *ledger, struct record *record)
{
    record->epoch = ledger->epoch;
    record->timeline = ledger->timeline;
    record->index = ledger->index + 1;
    record->previous = ledger->hash;
}

/* S can never exceed what live workers can have in flight, else no step would ever be due; nor may
 * lowering throw away what has joined since the last step. Without any worker, flush and drain
 * serve what is left. */
static void lower_stride(struct ledger *ledger)
{
    uint64_t flight = 0;
    for (uint32_t i = 0; i < ledger->workers_count; i++)
        if (ledger->workers[i].state == WORKER_LIVE && ledger->workers[i].role == ROLE_WORKER)
            flight += ledger->workers[i].outstanding_max;
    struct law_settings settings;
    memcpy(&settings, &ledger->settings, sizeof settings);
    if (flight > 0 && settings.stride > flight) {
        const uint64_t stride = flight < ledger->law.fresh ? ledger->law.fresh : flight;
        const bool tumbling = settings.window == settings.stride;
        settings.stride = stride < settings.stride ? (uint32_t)stride : settings.stride;
        settings.window = tumbling ? settings.stride : settings.window;
    }
    if (memcmp(&settings, &ledger->law.settings, sizeof settings) != 0)
        law_tune(&ledger->law, &settings);
}

static void give_receipt(struct ledger *ledger, const struct name *name,
                         const struct ledger_receipt *receipt)
{
    struct ledger_worker *worker = &ledger->workers[name->worker];
    worker->last_sequence = name->sequence;
    worker->verdicts[receipt->verdict]++;
    worker->receipts[name->sequence % LEDGER_RECEIPTS] = *receipt;
}

static void note_generation(struct ledger *ledger, uint64_t generation)
{
    if (generation > ledger->generation_max)
        ledger->generation_max = generation;
}

static void fold_first(struct ledger *ledger, const struct record *record)
{
    const struct record_first *first = &record->first;
    ledger->first = true;
    ledger->first_digest = first->digest;
    note_generation(ledger, first->generation);
    give_receipt(ledger, &first->name,
                 &(struct ledger_receipt){.sequence = first->name.sequence,
                                          .digest = first->digest,
                                          .index = record->index,
                                          .verdict = VERDICT_ADMITTED});
}

/* Its number goes to another identity: its counts must not, and must not be lost either. What was
 * fenced off stays so. */
static void depart(struct ledger *ledger, struct ledger_worker *worker)
{
    for (uint32_t i = 0; i < VERDICTS; i++)
        ledger->departed[i] += worker->verdicts[i];
    memset(worker->verdicts, 0, sizeof worker->verdicts);
}

static bool fences(const struct ledger_worker *known, const uint8_t nonce[16])
{
    for (uint32_t i = 0; i < known->fenced_count && i < LEDGER_FENCED; i++)
        if (memcmp(known->fenced[i], nonce, sizeof known->fenced[i]) == 0)
            return true;
    return false;
}

static void fence_off(struct ledger_worker *worker)
{
    memcpy(worker->fenced[worker->fenced_count++ % LEDGER_FENCED], worker->nonce,
           sizeof worker->nonce);
}

/* Whoever was away beyond its lease may come back, but not once another has had its name. */
static void fold_join(struct ledger *ledger, const struct record_join *join)
{
    struct ledger_worker *worker = &ledger->workers[join->worker];
    if (join->worker == ledger->workers_count)
        ledger->workers_count++;
    else if (strcmp(worker->identity, join->identity) != 0)
        depart(ledger, worker);
    else if (memcmp(worker->nonce, join->nonce, sizeof worker->nonce) != 0 &&
             !fences(worker, worker->nonce))
        fence_off(worker);
    worker->state = WORKER_LIVE;
    worker->role = join->role;
    worker->incarnation = join->incarnation;
    memcpy(worker->nonce, join->nonce, sizeof worker->nonce);
    memset(worker->identity, 0, sizeof worker->identity);
    memcpy(worker->identity, join->identity, strlen(join->identity));
    worker->outstanding_max = join->outstanding_max;
    worker->last_sequence = 0;
    memset(worker->receipts, 0, sizeof worker->receipts);
    lower_stride(ledger);
}

static void fold_leave(struct ledger *ledger, const struct record_leave *leave)
{
    struct ledger_worker *worker = &ledger->workers[leave->worker];
    worker->state = WORKER_LEFT;
    if (leave->cause == LEAVE_REPLACED)
        fence_off(worker);
    lower_stride(ledger);
}

static void fold_admit(struct ledger *ledger, const struct record *record)
{
    const struct record_admit *admit = &record->admit;
    const struct law_entry entry = {
        .slot = admit->slot,
        .worker = admit->name.worker,
        .generation = admit->generation,
        .sequence = admit->name.sequence,
        .basis = admit->basis,
        .samples = admit->samples,
        .sample_weight = admit->sample_weight,
        .clip = admit->clip,
        .admitted_version = ledger->law.version,
    };
    /* Whoever never asks for retired entries must not fill the ring with them. */
    struct law_entry forgotten;
    if (ledger->law.next - ledger->law.retired >= 2 * (uint64_t)LAW_WINDOW_MAX)
        law_retired(&ledger->law, &forgotten);
    const float weight = (float)law_weight(&ledger->law, &entry);
    law_admit(&ledger->law, &entry);
    note_generation(ledger, admit->generation);
    give_receipt(ledger, &admit->name,
                 &(struct ledger_receipt){.sequence = admit->name.sequence,
                                          .digest = admit->digest,
                                          .index = record->index,
                                          .version = ledger->law.version,
                                          .staleness = ledger->law.version - admit->basis,
                                          .verdict = VERDICT_ADMITTED,
                                          .weight = weight});
}

static void fold_refuse(struct ledger *ledger, const struct record *record)
{
    const struct record_refuse *refuse = &record->refuse;
    const uint64_t version = ledger->law.version;
    note_generation(ledger, refuse->generation);
    give_receipt(
        ledger, &refuse->name,
        &(struct ledger_receipt){.sequence = refuse->name.sequence,
                                 .digest = refuse->digest,
                                 .index = record->index,
                                 .version = version,
                                 .staleness = version > refuse->basis ? version - refuse->basis : 0,
                                 .detail = refuse->detail,
                                 .verdict = refuse->verdict});
}

static void fold_step(struct ledger *ledger, const struct record_step *step)
{
    uint32_t slots[WINDOW_MAX];
    for (uint32_t i = 0; i < step->entries_count; i++)
        slots[i] = step->entries[i].slot;
    struct law_step_stacks stacks;
    ledger_stacks_read(step, &stacks);
    law_apply_record(&ledger->law, step->version, slots, step->entries_count, &stacks);
    ledger->steps_by_cause[step->cause]++;
    ledger->stepping = step->rounds > 0;
    lower_stride(ledger);
}

static void fold_tune(struct ledger *ledger, const struct record_tune *tune)
{
    ASSERT(ledger_settings_tune(&ledger->settings, tune->setting, tune->value) == GRADWEIR_OK);
    lower_stride(ledger);
}

static void fold_map(struct ledger *ledger, const struct record_map *map)
{
    ASSERT(ledger_settings_read(map->settings, &ledger->settings, &ledger->optimizer) ==
           GRADWEIR_OK);
    ledger->members = map->members;
    ledger->layout_hash = map->layout_hash;
    ledger->slots = map->slots;
    if (!ledger->mapped)
        law_init(&ledger->law, &ledger->settings);
    ledger->mapped = true;
    lower_stride(ledger);
}

static void fold(struct ledger *ledger, const struct record *record)
{
    switch (record->kind) {
    case RECORD_FIRST: fold_first(ledger, record); break;
    case RECORD_JOIN: fold_join(ledger, &record->join); break;
    case RECORD_LEAVE: fold_leave(ledger, &record->leave); break;
    case RECORD_ADMIT: fold_admit(ledger, record); break;
    case RECORD_REFUSE: fold_refuse(ledger, record); break;
    case RECORD_STEP: fold_step(ledger, &record->step); break;
    case RECORD_SUMMED:
        ledger->summed_version = record->summed.version;
        ledger->summed_factor = record->summed.factor;
        ledger->stepping = false;
        break;
    case RECORD_SAVE:
        ledger->save_cut = record->save.cut;
        ledger->save_index = record->index;
        break;
    case RECORD_DURABLE: ledger->durable = ledger->save_index; break;
    case RECORD_TUNE: fold_tune(ledger, &record->tune); break;
    case RECORD_MAP: fold_map(ledger, &record->map); break;
    }
}

gradweir_status ledger_apply(struct ledger *ledger, const struct record *record)
{
    TRY(ledger_check(ledger, record));
    fold(ledger, record);
    ledger->epoch = record->epoch;
    ledger->index = record->index;
    ledger->hash = record_hash(record);
    return GRADWEIR_OK;
}

bool ledger_retired(struct ledger *ledger, struct law_entry *entry)
{
    return law_retired(&ledger->law, entry);
}

const struct ledger_receipt *ledger_receipt(const struct ledger *ledger, const struct name *name)
{
    if (name->worker >= ledger->workers_count || name->sequence == 0)
        return NULL;
    const struct ledger_worker *worker = &ledger->workers[name->worker];
    const struct ledger_receipt *receipt = &worker->receipts[name->sequence % LEDGER_RECEIPTS];
    const bool same =
        worker->incarnation == name->incarnation && receipt->sequence == name->sequence;
    return same ? receipt : NULL;
}

uint32_t ledger_find(const struct ledger *ledger, const char *identity)
{
    for (uint32_t i = 0; i < ledger->workers_count; i++)
        if (ledger->workers[i].state == WORKER_LIVE &&
            strcmp(ledger->workers[i].identity, identity) == 0)
            return i;
    return WORKERS_MAX;
}

bool ledger_fenced(const struct ledger *ledger, const uint8_t nonce[16])
{
    for (uint32_t i = 0; i < ledger->workers_count; i++)
        if (fences(&ledger->workers[i], nonce))
            return true;
    return false;
}

uint64_t ledger_version(const struct ledger *ledger)
{
    return ledger->law.version;
}

uint32_t ledger_window(const struct ledger *ledger)
{
    return law_size(&ledger->law);
}
