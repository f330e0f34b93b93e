/* What must hold of the log. A record stands from the moment in which the first shard has logged
 * it: whoever reigns next takes the longest log. So this is where it is judged, once, whoever wrote
 * it; what a coordinator appended and no shard has logged is nobody's. */
#include "tests/sim/sim_calls.h"

typedef unsigned long long ull;

static struct sim_name *judged(struct sim *sim, const struct name *name, uint32_t verdict)
{
    struct sim_name *known = check_name(sim, name);
    if (known->index != 0)
        sim_fail(sim, "worker %u's gradient %llu has a second verdict, %s, in record %llu",
                 name->worker, (ull)name->sequence, verdict_name(verdict), (ull)sim->index);
    known->index = sim->index;
    known->verdict = verdict;
    known->version = sim->reference->version;
    return known;
}

static const struct sim_name *admitted(struct sim *sim, const struct name *name, uint32_t slot,
                                       uint64_t generation)
{
    struct sim_name *known = judged(sim, name, VERDICT_ADMITTED);
    if (!known->body)
        sim_fail(sim, "worker %u's gradient %llu is admitted and was never described", name->worker,
                 (ull)name->sequence);
    check_whole_body(sim, known, slot);
    if (!known->finite)
        sim_fail(sim, "worker %u's gradient %llu is admitted and not finite", name->worker,
                 (ull)name->sequence);
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        sim->shards[i].places[slot].resident = generation;
    return known;
}

static const struct sim_name *check_admit(struct sim *sim, const struct record_admit *admit)
{
    const struct sim_name *known = admitted(sim, &admit->name, admit->slot, admit->generation);
    const uint64_t version = sim->reference->version;
    const int64_t most = sim->settings.order.law.staleness_max;
    if (admit->digest != known->digest || admit->basis != known->basis ||
        admit->samples != known->samples || admit->norm != known->norm)
        sim_fail(sim, "record %llu does not say what worker %u described", (ull)sim->index,
                 admit->name.worker);
    if (admit->samples == 0)
        sim_fail(sim, "record %llu admits a gradient of no samples", (ull)sim->index);
    if (admit->basis > version || (most >= 0 && version - admit->basis > (uint64_t)most))
        sim_fail(sim, "record %llu admits basis %llu at version %llu", (ull)sim->index,
                 (ull)admit->basis, (ull)version);
    sim->counts.admitted++;
    return known;
}

static bool refused_rightly(struct sim *sim, const struct sim_name *known, uint32_t verdict)
{
    const uint64_t version = sim->reference->version;
    const int64_t most = sim->settings.order.law.staleness_max;
    switch (verdict) {
    case VERDICT_STALE: return most >= 0 && version > known->basis + (uint64_t)most;
    case VERDICT_FUTURE: return known->basis > version || !sim->reference->first;
    case VERDICT_NOT_FINITE:
        return !known->finite || sim->settings.order.law.normalise == LAW_COUNT;
    case VERDICT_MISMATCH:
        return known->corrupted || (known->purpose == PURPOSE_GRADIENT && known->samples == 0);
    default: return verdict == VERDICT_CANCELLED;
    }
}

static void check_refuse(struct sim *sim, const struct record_refuse *refuse)
{
    struct sim_name *known = judged(sim, &refuse->name, refuse->verdict);
    sim->counts.refused++;
    /* FUTURE may have been right when it was decided from the head, before FIRST. */
    if (!refused_rightly(sim, known, refuse->verdict) && refuse->verdict != VERDICT_FUTURE)
        sim_fail(sim, "worker %u's gradient %llu is refused as %s without reason",
                 refuse->name.worker, (ull)refuse->name.sequence, verdict_name(refuse->verdict));
}

static void fold(struct sim *sim, const struct record *record)
{
    char waits[256] = "?";
    if (sim->index + 1 == SIM_RECORDS && !check_progress(sim, waits, sizeof waits))
        sim_fail(sim, "%d records, and still: %s", SIM_RECORDS, waits);
    if (sim->index + 1 == SIM_RECORDS)
        sim_fail(sim, "%d records: something writes without end", SIM_RECORDS);
    sim->before = sim->ledger.law.settings;
    if (ledger_apply(&sim->ledger, record) != GRADWEIR_OK)
        sim_fail(sim, "a record does not follow: %s", fail_reason());
    struct law_entry entry;
    while (ledger_retired(&sim->ledger, &entry))
        ;
    sim->index++;
    sim->counts.records++;
    sim->log[sim->index] = *record;
    sim->hashes[sim->index] = sim->ledger.hash;
}

/* A shard has taken a record into its log. */
void check_logged(struct sim *sim, uint32_t shard, const struct record *record)
{
    const struct sim_name *known = NULL;
    if (shard_ledger(sim->shards[shard].shard)->index != sim->index + 1 ||
        record->index != sim->index + 1)
        return; /* it stands already, or the shard did not take it */
    fold(sim, record);
    sim_tell(sim, "record %llu stands: %s", (ull)sim->index, record_name(record->kind));
    switch (record->kind) {
    case RECORD_FIRST:
        known = admitted(sim, &record->first.name, record->first.slot, record->first.generation);
        break;
    case RECORD_ADMIT: known = check_admit(sim, &record->admit); break;
    case RECORD_REFUSE: check_refuse(sim, &record->refuse); break;
    case RECORD_STEP:
        sim->counts.steps++;
        sim->counts.summed_steps += record->step.rounds;
        sim->counts.flushes += record->step.cause == STEP_FLUSH;
        break;
    default: break;
    }
    reference_apply(sim, record, known);
}

/* One order: every shard's log is the beginning of what stands. */
void check_shard(struct sim *sim, uint32_t shard)
{
    const struct ledger *ledger = shard_ledger(sim->shards[shard].shard);
    if (ledger->index > sim->index ||
        (ledger->index > 0 && ledger->hash != sim->hashes[ledger->index]))
        sim_fail(sim, "shard %u's log is not the others' at record %llu", shard,
                 (ull)ledger->index);
    check_stepped(sim, shard);
}
