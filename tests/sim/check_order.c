/* What must hold of names and receipts, and of what a coordinator says, at every step. */
#include "tests/sim/sim_calls.h"

#include "common/checksum.h"

#include <math.h>
#include <string.h>

typedef unsigned long long ull;

bool check_same_name(const struct name *a, const struct name *b)
{
    return a->worker == b->worker && a->incarnation == b->incarnation && a->sequence == b->sequence;
}

struct sim_name *check_name(struct sim *sim, const struct name *name)
{
    const uint64_t bits[3] = {name->worker, name->incarnation, name->sequence};
    uint32_t i = (uint32_t)checksum_hash64(0, bits, sizeof bits) & (SIM_NAMES - 1);
    while (sim->names[i].used && !check_same_name(&sim->names[i].name, name))
        i = (i + 1) & (SIM_NAMES - 1);
    sim->names[i].used = true;
    sim->names[i].name = *name;
    return &sim->names[i];
}

static bool body_finite(const struct sim *sim, const uint8_t *body, uint32_t purpose)
{
    const double most = sim->settings.order.law.magnitude_max;
    for (uint64_t i = 0; i < sim->model->elements; i++)
        if (!(fabs((double)codec_element(sim_codec(sim, purpose), body, i)) <= most))
            return false;
    for (uint64_t i = 0; i < sim->model->moments; i++) {
        struct moments moments;
        memcpy(&moments, body + sim_tail(sim, purpose) + i * sizeof moments, sizeof moments);
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
    const bool group = group_has(sim, worker);
    if (known->body) {
        known->corrupted |= group && known->basis != describe->basis;
        if ((group ? group_share(sim, worker, known->body) : known->digest) != describe->digest)
            sim_fail(sim, "worker %u uses the name of its gradient %llu for other bytes", worker,
                     (ull)describe->name.sequence);
        return;
    }
    for (uint32_t i = 0; i < from->outstanding; i++) {
        const struct session_push *push = &from->session.pushes[i];
        const bool over = push->state == PUSH_FREE || push->state == PUSH_ENDING;
        if (!over &&
            push->sequence == describe->name.sequence) { /* who was turned away, while its
                                                            body is still made, had it too */
            known->body = sim_remember(sim, from->buffers[push->what.buffer], sim->body_bytes);
            known->norm = from->norms[push->what.buffer];
        }
    }
    if (!known->body)
        sim_fail(sim, "worker %u describes gradient %llu, which it has not", worker,
                 (ull)describe->name.sequence);
    known->digest = group ? group_digest(sim, known->body) : describe->digest;
    known->basis = describe->basis;
    known->samples = describe->samples;
    known->purpose = describe->purpose;
    known->finite = body_finite(sim, known->body, known->purpose);
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

/* Whoever is told that it takes part does so under every later coordinator. */
static void check_joined(struct sim *sim, const struct message_joined *joined)
{
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        if (shard_ledger(sim->shards[i].shard)->workers[joined->worker].incarnation <
            joined->incarnation)
            sim_fail(sim, "worker %u is told that it is in before shard %u has logged it",
                     joined->worker, i);
}

void check_told(struct sim *sim, uint32_t coordinator, const struct message *message)
{
    if (message->kind == MESSAGE_PLACE) {
        check_placed(sim, coordinator, &message->place);
    } else if (message->kind == MESSAGE_CLOSE) {
        check_close_told(sim, coordinator, &message->close);
    } else if (message->kind == MESSAGE_JOINED) {
        check_joined(sim, &message->joined);
    } else if (message->kind == MESSAGE_RECEIPT) {
        const struct message_receipt *receipt = &message->receipt;
        check_receipt(sim, receipt);
        struct message_place next = {.name = receipt->name,
                                     .slot = receipt->next_slot,
                                     .generation = receipt->next_generation};
        next.name.sequence = receipt->next_sequence;
        if (next.name.sequence)
            check_placed(sim, coordinator, &next);
    }
}

/* A coordinator appends a record: nothing is decided by that, but what it admits must be there. */
void check_append(struct sim *sim, uint32_t coordinator, const struct record *record)
{
    sim_tell(sim, "%s appends record %llu: %s", story_actor(sim, coordinator), (ull)record->index,
             record_name(record->kind));
    if (record->kind != RECORD_FIRST && record->kind != RECORD_ADMIT)
        return;
    const bool first = record->kind == RECORD_FIRST;
    const struct name *name = first ? &record->first.name : &record->admit.name;
    const uint32_t slot = first ? record->first.slot : record->admit.slot;
    const struct sim_name *known = check_name(sim, name);
    if (!known->body)
        sim_fail(sim, "worker %u's gradient %llu is admitted and was never described", name->worker,
                 (ull)name->sequence);
    check_taken(sim, coordinator, slot,
                first ? record->first.generation : record->admit.generation);
    if (!check_fenced(sim, coordinator))
        check_whole_body(sim, known, slot);
}

/* What a worker has heard stands in the log. */
void check_heard(struct sim *sim, uint32_t worker, const struct message_receipt *receipt,
                 uint64_t digest)
{
    if (receipt->verdict == VERDICT_NONE || receipt->verdict == VERDICT_QUEUE_FULL)
        return;
    struct sim_name *known = check_name(sim, &receipt->name);
    if (known->index == 0 || known->verdict != receipt->verdict)
        sim_fail(sim, "worker %u hears %s for gradient %llu, and no record says so", worker,
                 verdict_name(receipt->verdict), (ull)receipt->name.sequence);
    const uint64_t own = group_has(sim, worker) && known->body
                             ? group_share(sim, worker, known->body)
                             : known->digest;
    if (known->body && own != digest)
        sim_fail(sim,
                 "worker %u is told what became of other bytes than those of its gradient %llu",
                 worker, (ull)receipt->name.sequence);
    known->heard = true;
}

bool check_is_old(const struct ledger *ledger, const struct message *message)
{
    if (message->kind != MESSAGE_ASK && message->kind != MESSAGE_DESCRIBE &&
        message->kind != MESSAGE_BYE)
        return false;
    const struct name *name = &message->ask.name; /* it stands first in all three */
    const struct ledger_worker *worker = &ledger->workers[name->worker];
    return worker->state != WORKER_LIVE || worker->incarnation != name->incarnation;
}
