/* What must hold of the log, of receipts, and of slots, at every step. */
#include "tests/sim/sim_calls.h"

#include "common/checksum.h"

#include <math.h>
#include <string.h>

typedef unsigned long long ull;

static bool same_name(const struct name *a, const struct name *b)
{
    return a->worker == b->worker && a->incarnation == b->incarnation && a->sequence == b->sequence;
}

struct sim_name *check_name(struct sim *sim, const struct name *name)
{
    const uint64_t bits[3] = {name->worker, name->incarnation, name->sequence};
    uint32_t i = (uint32_t)checksum_hash64(0, bits, sizeof bits) & (SIM_NAMES - 1);
    while (sim->names[i].used && !same_name(&sim->names[i].name, name))
        i = (i + 1) & (SIM_NAMES - 1);
    sim->names[i].used = true;
    sim->names[i].name = *name;
    return &sim->names[i];
}

static bool body_finite(const struct sim *sim, const uint8_t *body)
{
    const double most = sim->settings.order.law.magnitude_max;
    for (uint64_t i = 0; i < sim->model->elements; i++) {
        float x;
        memcpy(&x, body + i * sizeof x, sizeof x);
        if (!(fabs((double)x) <= most))
            return false;
    }
    for (uint64_t i = 0; i < sim->model->moments; i++) {
        struct moments moments;
        memcpy(&moments, body + sim->model->elements * sizeof(float) + i * sizeof moments,
               sizeof moments);
        if (!isfinite(moments.count) || !isfinite(moments.mean) || !isfinite(moments.m2))
            return false;
    }
    return true;
}

/* A worker describes a gradient: from now on its name means these bytes. */
void check_described(struct sim *sim, uint32_t worker, const struct message_describe *describe)
{
    struct sim_name *known = check_name(sim, &describe->name);
    const struct sim_worker *from = &sim->workers[worker];
    if (known->body) {
        if (known->digest != describe->digest)
            sim_fail(sim, "worker %u uses the name of its gradient %llu for other bytes", worker,
                     (ull)describe->name.sequence);
        return;
    }
    for (uint32_t i = 0; i < from->outstanding; i++) {
        const struct session_push *push = &from->session.pushes[i];
        if (push->state != PUSH_FREE && push->sequence == describe->name.sequence)
            known->body = sim_remember(sim, from->buffers[push->what.buffer], sim->body_bytes);
    }
    if (!known->body)
        sim_fail(sim, "worker %u describes gradient %llu, which it has not", worker,
                 (ull)describe->name.sequence);
    known->digest = describe->digest;
    known->basis = describe->basis;
    known->samples = describe->samples;
    known->norm = describe->norm;
    known->purpose = describe->purpose;
    known->finite = body_finite(sim, known->body);
}

/* Records. */

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
    struct check_slot *where = &sim->slots[slot];
    if (!known->body)
        sim_fail(sim, "worker %u's gradient %llu is admitted and was never described", name->worker,
                 (ull)name->sequence);
    if (where->state != CHECK_PLACED || where->generation != generation)
        sim_fail(sim, "record %llu admits from slot %u, which was not given to it", (ull)sim->index,
                 slot);
    check_whole_body(sim, known, slot);
    if (!known->finite)
        sim_fail(sim, "worker %u's gradient %llu is admitted and not finite", name->worker,
                 (ull)name->sequence);
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        where->resident[i] = generation;
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
    if (admit->basis > version || (most >= 0 && version - admit->basis > (uint64_t)most))
        sim_fail(sim, "record %llu admits basis %llu at version %llu", (ull)sim->index,
                 (ull)admit->basis, (ull)version);
    sim->slots[admit->slot].state = CHECK_WINDOW;
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
    case VERDICT_MISMATCH: return known->corrupted;
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

void check_append(struct sim *sim, const struct record *record)
{
    const struct sim_name *known = NULL;
    char waits[256] = "?";
    if (sim->index + 1 == SIM_RECORDS && !check_progress(sim, waits, sizeof waits))
        sim_fail(sim, "%d records, and still: %s", SIM_RECORDS, waits);
    if (record->index != sim->index + 1 || sim->index + 1 == SIM_RECORDS)
        sim_fail(sim, "record %llu follows record %llu", (ull)record->index, (ull)sim->index);
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
    sim_tell(sim, "record %llu: %s", (ull)sim->index, record_name(record->kind));
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

/* Slots. */

static void placed(struct sim *sim, const struct name *name, uint32_t index, uint64_t generation)
{
    struct check_slot *slot = &sim->slots[index];
    if (slot->state == CHECK_PLACED && slot->generation == generation)
        return; /* said again */
    if (slot->state != CHECK_FREE)
        sim_fail(sim, "slot %u is given to worker %u before all shards have freed it", index,
                 name->worker);
    if (generation <= slot->generation)
        sim_fail(sim, "slot %u is given again under a generation that it had before", index);
    memset(slot, 0, sizeof *slot);
    slot->state = CHECK_PLACED;
    slot->generation = generation;
    uint32_t given = 0;
    for (uint32_t i = 0; i < SLOTS_MAX; i++)
        given += sim->slots[i].state == CHECK_PLACED;
    if (given > sim->settings.order.queue)
        sim_fail(sim, "%u places are given; the queue has room for %u", given,
                 sim->settings.order.queue);
}

void check_freed(struct sim *sim, uint32_t shard, const struct message_freed *freed, bool arrived)
{
    struct check_slot *slot = &sim->slots[freed->slot];
    const uint32_t all = (1u << sim->settings.shards) - 1;
    if (!arrived) {
        struct shard_figures figures;
        shard_figures(sim->shards[shard].shard, &figures);
        if (freed->generation > slot->closed && freed->generation >= slot->generation)
            sim_fail(sim, "shard %u frees slot %u, which the coordinator has not closed", shard,
                     freed->slot);
        if (freed->generation == slot->closed && figures.applied < slot->closed_after)
            sim_fail(sim, "shard %u frees slot %u before it has applied what reads it", shard,
                     freed->slot);
        if (slot->resident[shard] == freed->generation)
            slot->resident[shard] = 0;
        return;
    }
    if (slot->state != CHECK_CLOSING || slot->generation != freed->generation)
        return;
    slot->freed |= 1u << shard;
    if (slot->freed == all)
        slot->state = CHECK_FREE;
}

void check_all_told(struct sim *sim, const struct message *message)
{
    if (message->kind != MESSAGE_CLOSE)
        return;
    struct check_slot *slot = &sim->slots[message->close.slot];
    /* A place that was given and taken back within one step was never told to anybody. */
    if (message->close.generation > slot->generation)
        slot->generation = message->close.generation;
    slot->state = CHECK_CLOSING;
    slot->freed = 0;
    slot->closed = message->close.generation;
    slot->closed_after = message->close.after;
}

/* Receipts. */

static void check_receipt(struct sim *sim, const struct message_receipt *receipt)
{
    struct sim_name *known = check_name(sim, &receipt->name);
    const ull sequence = receipt->name.sequence;
    const uint32_t worker = receipt->name.worker;
    if (receipt->verdict == VERDICT_QUEUE_FULL) {
        if (!sim->settings.order.overflow_reject || known->index != 0)
            sim_fail(sim, "worker %u is told QUEUE_FULL for gradient %llu", worker, sequence);
        return;
    }
    if (known->index == 0 || known->index != receipt->index || known->verdict != receipt->verdict)
        sim_fail(sim, "worker %u is told %s for gradient %llu, and no record says so", worker,
                 verdict_name(receipt->verdict), sequence);
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        if (shard_ledger(sim->shards[i].shard)->index < receipt->index)
            sim_fail(sim, "worker %u is told %s for gradient %llu before shard %u has logged it",
                     worker, verdict_name(receipt->verdict), sequence, i);
    if (receipt->version != known->version)
        sim_fail(sim, "worker %u's receipt for gradient %llu says version %llu; it was %llu",
                 worker, sequence, (ull)receipt->version, (ull)known->version);
    const struct message_receipt *first = &known->receipt;
    if (known->answered && (first->staleness != receipt->staleness ||
                            first->weight != receipt->weight || first->detail != receipt->detail))
        sim_fail(sim, "worker %u's second receipt for gradient %llu is not the first", worker,
                 sequence);
    known->answered = true;
    known->receipt = *receipt;
}

void check_told(struct sim *sim, uint32_t peer, const struct message *message)
{
    (void)peer;
    if (message->kind == MESSAGE_PLACE) {
        placed(sim, &message->place.name, message->place.slot, message->place.generation);
    } else if (message->kind == MESSAGE_RECEIPT) {
        check_receipt(sim, &message->receipt);
        if (message->receipt.next_sequence)
            placed(sim, &message->receipt.name, message->receipt.next_slot,
                   message->receipt.next_generation);
    }
}

bool check_is_old(const struct sim *sim, const struct message *message)
{
    if (message->kind != MESSAGE_ASK && message->kind != MESSAGE_DESCRIBE &&
        message->kind != MESSAGE_BYE)
        return false;
    const struct name *name = &message->ask.name; /* it stands first in all three */
    const struct ledger_worker *worker = &sim->ledger.workers[name->worker];
    return worker->state != WORKER_LIVE || worker->incarnation != name->incarnation;
}

/* One order: every shard's log is the beginning of the coordinator's. */
void check_shard(struct sim *sim, uint32_t shard)
{
    const struct ledger *ledger = shard_ledger(sim->shards[shard].shard);
    if (ledger->index > sim->index ||
        (ledger->index > 0 && ledger->hash != sim->hashes[ledger->index]))
        sim_fail(sim, "shard %u's log is not the beginning of the coordinator's at record %llu",
                 shard, (ull)ledger->index);
    check_stepped(sim, shard);
}
