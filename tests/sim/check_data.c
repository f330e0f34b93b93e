/* What must hold of floats: admitted gradients lie whole on every shard, nothing overwrites what is
 * still read, pulls and shards hold exactly what the reference holds at that version. */
#include "tests/sim/sim_calls.h"

#include <string.h>

static uint32_t slot_of(struct sim *sim, uint32_t shard, uint64_t offset)
{
    uint64_t bytes;
    const uint8_t *base = shard_address(sim->shards[shard].shard, 0);
    const uint8_t *first = shard_slot(sim->shards[shard].shard, 0, &bytes);
    const uint32_t slots = sim->settings.order.window_max + sim->settings.order.queue;
    uint64_t stride = bytes;
    if (slots > 1)
        stride =
            (uint64_t)((const uint8_t *)shard_slot(sim->shards[shard].shard, 1, &bytes) - first);
    return stride ? (uint32_t)((offset - (uint64_t)(first - base)) / stride) : 0;
}

/* A shard's part of a body: its range, then the moments if it is the last. */
static bool part_equals(struct sim *sim, uint32_t shard, const void *part, const uint8_t *body,
                        enum arithmetic_codec codec)
{
    const struct model_range range = model_shard(sim->model, sim->settings.shards, shard);
    const uint8_t *bytes = part;
    const size_t floats = codec_bytes(codec, range.elements);
    return memcmp(bytes, body + codec_bytes(codec, range.first), floats) == 0 &&
           memcmp(bytes + floats, body + codec_bytes(codec, sim->model->elements),
                  range.moments * sizeof(struct moments)) == 0;
}

void check_whole_body(struct sim *sim, const struct sim_name *known, uint32_t slot)
{
    for (uint32_t i = 0; i < sim->settings.shards; i++) {
        uint64_t bytes;
        struct shard *shard = sim->shards[i].shard;
        const void *part = known->purpose == PURPOSE_FIRST ? shard_first(shard, slot, &bytes)
                                                           : shard_slot(shard, slot, &bytes);
        if (bytes && !part_equals(sim, i, part, known->body, sim_codec(sim, known->purpose)))
            sim_fail(sim,
                     "worker %u's gradient %llu is admitted, but shard %u does not hold it intact",
                     known->name.worker, (unsigned long long)known->name.sequence, i);
    }
}

void check_landing(struct sim *sim, uint32_t shard, const struct sim_body *body)
{
    if (body->list)
        return;
    const uint32_t slot = slot_of(sim, shard, body->target);
    const uint64_t resident = slot < SLOTS_MAX ? sim->shards[shard].places[slot].resident : 0;
    if (resident == 0)
        return;
    sim_fail(sim, "a body lands in slot %u of shard %u, where admitted generation %llu still lies",
             slot, shard, (unsigned long long)(resident & 0xffffffffff));
}

/* A version leaves a shard only when all shards have it; version 0 is what FIRST says, the same for
 * all. */
void check_reply(struct sim *sim, uint32_t shard, const struct head_parameters *head)
{
    for (uint32_t i = 0; i < sim->settings.shards && head->version > 0; i++) {
        uint64_t version;
        shard_parameters(sim->shards[i].shard, &version);
        if (version < head->version)
            sim_fail(sim, "shard %u hands out version %llu, which shard %u has not computed", shard,
                     (unsigned long long)head->version, i);
    }
}

/* At the moment in which the bytes move, the slot must still hold that version. */
void check_left(struct sim *sim, uint32_t shard, const struct sim_body *body)
{
    struct head_parameters head;
    memcpy(&head, &body->head, sizeof head);
    if (head.version >= sim->reference->versions)
        sim_fail(sim, "shard %u hands out version %llu, which no step has made", shard,
                 (unsigned long long)head.version);
    if (head.flags & PULL_PIECES)
        return; /* the worker looks at what it got */
    const struct model_range range = model_shard(sim->model, sim->settings.shards, shard);
    const size_t floats = range.elements * sizeof(float);
    uint8_t part[SIM_BODY_BYTES];
    const uint8_t *whole = sim->reference->bodies[head.version];
    memcpy(part, whole + range.first * sizeof(float), floats);
    memcpy(part + floats, whole + sim->model->elements * sizeof(float),
           range.moments * sizeof(struct moments));
    if (memcmp(shard_address(sim->shards[shard].shard, body->source), part + head.offset,
               body->length) != 0)
        sim_fail(sim,
                 "version %llu was overwritten on shard %u while a body was still leaving from it",
                 (unsigned long long)head.version, shard);
}

/* A pull that rode with a push to its end comes after that gradient's verdict, and has the step
 * that stands behind its ADMIT. */
void check_rode(struct sim *sim, uint32_t worker, uint64_t version)
{
    const struct session *session = &sim->workers[worker].session;
    const struct name name = {.worker = session->worker,
                              .incarnation = session->incarnation,
                              .sequence = session->pull_after};
    if (session->pull_after == 0)
        return;
    const struct sim_name *known = check_name(sim, &name);
    if (known->index == 0)
        sim_fail(sim, "worker %u's pull rode with gradient %llu, which has no verdict yet", worker,
                 (unsigned long long)name.sequence);
    const struct record *next = known->index < sim->index ? &sim->log[known->index + 1] : NULL;
    const bool stepped = known->verdict == VERDICT_ADMITTED && next && next->kind == RECORD_STEP &&
                         next->step.cause == LAW_DUE;
    if (stepped && version < next->step.version)
        sim_fail(sim, "worker %u's pull rode with gradient %llu and has not the step behind it",
                 worker, (unsigned long long)name.sequence);
}

void check_pulled(struct sim *sim, uint32_t worker, uint64_t version)
{
    check_rode(sim, worker, version);
    sim_tell(sim, "worker %u has pulled version %llu", worker, (unsigned long long)version);
    if (version >= sim->reference->versions ||
        memcmp(sim->workers[worker].receive, sim->reference->bodies[version], sim->body_bytes) != 0)
        sim_fail(sim, "worker %u pulled version %llu and got something else", worker,
                 (unsigned long long)version);
}

void check_stepped(struct sim *sim, uint32_t index)
{
    struct sim_shard *shard = &sim->shards[index];
    uint64_t version;
    const float *parameters = shard_parameters(shard->shard, &version);
    if (!parameters || (shard->seen_any && version == shard->seen_version))
        return;
    if (shard->seen_any && version < shard->seen_version)
        sim_fail(sim, "shard %u goes from version %llu to %llu", index,
                 (unsigned long long)shard->seen_version, (unsigned long long)version);
    shard->seen_any = true;
    shard->seen_version = version;
    sim_tell(sim, "shard %u has version %llu", index, (unsigned long long)version);
    if (version >= sim->reference->versions ||
        !part_equals(sim, index, parameters, sim->reference->bodies[version], ARITHMETIC_F32))
        sim_fail(sim, "shard %u's version %llu is not what one sequential server gets", index,
                 (unsigned long long)version);
}
