/* What must hold in the calm half, and when everything is quiet. */
#include "tests/sim/sim_calls.h"

#include "server/shard/shard_local.h"

#include <stdio.h>
#include <string.h>

enum { VERDICTS_WANTED = 3, PULLS_WANTED = 2 };

/* Whoever is live in the ledger lives, or gets its LEAVE. */
static bool left_all_dead(const struct sim *sim, char *text, size_t size)
{
    for (uint32_t i = 0; i < sim->ledger.workers_count; i++) {
        const struct ledger_worker *known = &sim->ledger.workers[i];
        bool lives = known->state != WORKER_LIVE;
        for (uint32_t k = 0; k < sim->workers_n; k++)
            lives |= worker_lives(sim, k) && strcmp(sim->workers[k].identity, known->identity) == 0;
        if (lives)
            continue;
        snprintf(text, size, "%.20s is dead and has no LEAVE", known->identity);
        return false;
    }
    return true;
}

static bool gets_on(const struct sim *sim, uint32_t index, char *text, size_t size)
{
    const struct sim_worker *worker = &sim->workers[index];
    char waits[160] = "it is idle";
    /* When all who could give the first parameters are gone, readers wait, rightly. */
    if (worker->gone || worker->out || (worker->reader && !sim->reference->first) ||
        (worker->reader ? worker->pulls >= PULLS_WANTED : worker->verdicts >= VERDICTS_WANTED))
        return true;
    if (text) {
        session_waiting(&worker->session, waits, sizeof waits);
        snprintf(text, size, "worker %u has %u verdicts and %u pulls; %s", index, worker->verdicts,
                 worker->pulls, waits);
    }
    return false;
}

bool check_progress(struct sim *sim, char *text, size_t size)
{
    bool anybody = false;
    for (uint32_t i = 0; i < sim->workers_n; i++) {
        anybody |= worker_lives(sim, i) && !sim->workers[i].reader;
        if (!gets_on(sim, i, NULL, 0))
            return gets_on(sim, i, text, size);
    }
    if (anybody && sim->reference->version <= sim->calm_version) {
        snprintf(text, size, "the version stays at %llu",
                 (unsigned long long)sim->reference->version);
        return false;
    }
    return swaps_get_on(sim, text, size) && left_all_dead(sim, text, size);
}

static bool shards_level(const struct sim *sim, char *text, size_t size)
{
    for (uint32_t i = 0; i < sim->settings.shards; i++) {
        const struct sim_shard *shard = &sim->shards[i];
        struct shard_figures figures;
        if (!shard->shard)
            continue;
        shard_figures(shard->shard, &figures);
        if (figures.logged == sim->index && figures.applied == sim->index &&
            (!sim->reference->first || figures.version == sim->reference->version))
            continue;
        snprintf(text, size, "shard %u has logged %llu and applied %llu of %llu records", i,
                 (unsigned long long)figures.logged, (unsigned long long)figures.applied,
                 (unsigned long long)sim->index);
        return false;
    }
    return true;
}

/* Nobody pushes any more: what is there must end, be freed, be flushed. */
bool check_quiet(struct sim *sim, char *text, size_t size)
{
    if (sim->settings.drain) {
        snprintf(text, size, "the drain does not end");
        return sim->exited && shards_level(sim, text, size);
    }
    for (uint32_t i = 0; i < sim->workers_n; i++)
        for (uint32_t k = 0; worker_lives(sim, i) && k < sim->workers[i].outstanding; k++)
            if (sim->workers[i].busy[k]) {
                snprintf(text, size, "worker %u waits for a verdict", i);
                return false;
            }
    const uint32_t slots = sim->settings.order.window_max + sim->settings.order.queue;
    for (uint32_t i = 0; i < slots; i++)
        if (sim->coordinators[sim->newest].slots[i].state == CHECK_CLOSING) {
            snprintf(text, size, "slot %u is not freed", i);
            return false;
        }
    if (!shards_level(sim, text, size))
        return false;
    snprintf(text, size, "%llu fresh gradients are not flushed",
             (unsigned long long)sim->reference->fresh);
    return sim->settings.order.flush_after_ns < 0 || !law_due(&sim->ledger.law, LAW_FLUSH);
}

static void check_counters(struct sim *sim)
{
    struct order_figures figures;
    if (sim->coordinators_n > 1)
        return; /* what others counted is gone with them */
    order_figures(sim->coordinators[sim->newest].order, &figures);
    uint64_t sum = 0, undescribed = 0, recorded[VERDICTS] = {0};
    for (uint64_t i = 1; i <= sim->index; i++) {
        const struct record *record = &sim->log[i];
        undescribed += record->kind == RECORD_REFUSE && record->refuse.digest == 0;
        if (record->kind == RECORD_REFUSE)
            recorded[record->refuse.verdict]++;
        recorded[VERDICT_ADMITTED] += record->kind == RECORD_ADMIT || record->kind == RECORD_FIRST;
    }
    for (uint32_t i = 0; i < VERDICTS; i++) {
        if (i != VERDICT_QUEUE_FULL && recorded[i] != figures.verdicts[i])
            sim_fail(sim, "the figures have %llu times %s, the log %llu",
                     (unsigned long long)figures.verdicts[i], verdict_name(i),
                     (unsigned long long)recorded[i]);
        sum += recorded[i];
    }
    for (uint32_t i = 0; i < SIM_NAMES; i++)
        if (sim->names[i].used && sim->names[i].body && !sim->names[i].index)
            sim_tell(sim, "no verdict: worker %u incarnation %llu gradient %llu",
                     sim->names[i].name.worker, (unsigned long long)sim->names[i].name.incarnation,
                     (unsigned long long)sim->names[i].name.sequence);
    if (figures.pushes + undescribed != sum)
        sim_fail(sim, "%llu pushes were taken and %llu verdicts given",
                 (unsigned long long)(figures.pushes + undescribed), (unsigned long long)sum);
    if (figures.queue_peak > sim->settings.order.queue)
        sim_fail(sim, "the queue held %u of at most %u", figures.queue_peak,
                 sim->settings.order.queue);
}

static void put_body(struct sim *sim, struct shard *shard, const struct record *record)
{
    const bool first = record->kind == RECORD_FIRST;
    if (!first && record->kind != RECORD_ADMIT)
        return;
    const struct sim_name *known =
        check_name(sim, first ? &record->first.name : &record->admit.name);
    uint64_t bytes;
    void *slot = first ? shard_first(shard, record->first.slot, &bytes)
                       : shard_slot(shard, record->admit.slot, &bytes);
    memcpy(slot, known->body, bytes);
}

/* The same log on one shard gives the same bits. */
static void check_one_shard(struct sim *sim)
{
    const struct order_options *order = &sim->settings.order;
    const struct shard_options options = {.member = {.members = 1,
                                                     .count = sim->model->elements,
                                                     .moments = 1,
                                                     .slots = order->window_max + order->queue,
                                                     .parameter_slots = 3,
                                                     .layout_hash = sim->model->hash,
                                                     .gradient_dtype = order->law.gradient_dtype},
                                          .optimizer = order->optimizer,
                                          .sessions_max = 1,
                                          .pulls_max = 1,
                                          .chunk_bytes = 1 << 20};
    struct shard_local *one;
    if (shard_local_open(sim->model, &order->law, &options, "scalar", &one) != GRADWEIR_OK)
        sim_fail(sim, "one shard: %s", fail_reason());
    bool same = true;
    for (uint64_t i = 1; i <= sim->index && same; i++) {
        struct message message = {.kind = MESSAGE_RECORD, .epoch = 1, .timeline = 1};
        message.record = sim->log[i];
        put_body(sim, one->shard, &message.record);
        shard_local_event(one, &(struct shard_event){.kind = SHARD_MESSAGE, .message = &message});
    }
    uint64_t version;
    const float *parameters = shard_parameters(one->shard, &version);
    same =
        version == sim->reference->version &&
        (!parameters || memcmp(parameters, sim->reference->bodies[version], sim->body_bytes) == 0);
    shard_local_close(one);
    if (!same)
        sim_fail(sim, "one shard gets other bits from the same log");
}

/* What workers have heard, over all epochs, is what the log says. */
static void check_heard_stands(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_NAMES; i++) {
        const struct sim_name *known = &sim->names[i];
        if (!known->used || !known->heard)
            continue;
        const struct record *record = &sim->log[known->index];
        const struct name *name = record->kind == RECORD_ADMIT   ? &record->admit.name
                                  : record->kind == RECORD_FIRST ? &record->first.name
                                                                 : &record->refuse.name;
        const uint32_t verdict =
            record->kind == RECORD_REFUSE ? record->refuse.verdict : VERDICT_ADMITTED;
        if (!check_same_name(name, &known->name) || verdict != known->receipt.verdict)
            sim_fail(sim,
                     "worker %u has heard %s for gradient %llu, and the log says something else",
                     known->name.worker, verdict_name(known->receipt.verdict),
                     (unsigned long long)known->name.sequence);
    }
}

void check_end(struct sim *sim)
{
    check_heard_stands(sim);
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        if (sim->shards[i].shard) {
            check_shard(sim, i);
            if (sim->reference->first && sim->shards[i].seen_version != sim->reference->version)
                sim_fail(sim, "shard %u ends at version %llu", i,
                         (unsigned long long)sim->shards[i].seen_version);
        }
    check_counters(sim);
    check_one_shard(sim);
}
