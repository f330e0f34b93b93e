/* What must hold of slots: nobody gets one before all shards have freed it, whoever reigned when it
 * was taken; no generation comes twice; a shard frees only what it was told to, and not before it
 * has applied what reads it. */
#include "tests/sim/sim_calls.h"

#include <string.h>

bool check_fenced(const struct sim *sim, uint32_t coordinator)
{
    const uint32_t epoch = order_ledger(sim->coordinators[coordinator].order)->epoch;
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        if (sim->shards[i].shard && shard_promise(sim->shards[i].shard) > epoch)
            return true;
    return false;
}

static void check_queue(struct sim *sim, const struct sim_coordinator *coordinator)
{
    uint32_t given = 0;
    for (uint32_t i = 0; i < SLOTS_MAX; i++)
        given += coordinator->slots[i].state == CHECK_PLACED && !coordinator->slots[i].held;
    if (given > sim->settings.order.queue)
        sim_fail(sim, "%u places are given; the queue has room for %u", given,
                 sim->settings.order.queue);
}

void check_placed(struct sim *sim, uint32_t index, const struct message_place *place)
{
    struct sim_coordinator *coordinator = &sim->coordinators[index];
    struct check_slot *slot = &coordinator->slots[place->slot];
    if (slot->state == CHECK_PLACED && slot->generation == place->generation)
        return; /* said again */
    if (slot->state != CHECK_FREE && slot->state != CHECK_INHERITED)
        sim_fail(sim, "slot %u is given to worker %u before all shards have freed it", place->slot,
                 place->name.worker);
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        if (sim->shards[i].places[place->slot].resident != 0 && !check_fenced(sim, index))
            sim_fail(sim, "slot %u is given to worker %u, and on shard %u a gradient lies in it",
                     place->slot, place->name.worker, i);
    const bool held = slot->state == CHECK_INHERITED &&
                      place->generation == sim->generations[place->slot] &&
                      check_same_name(&place->name, &sim->owners[place->slot]);
    if (!held &&
        (place->generation <= slot->generation ||
         (place->generation <= sim->generations[place->slot] && !check_fenced(sim, index))))
        sim_fail(sim, "slot %u is given again under a generation that it had before", place->slot);
    memset(slot, 0, sizeof *slot);
    slot->state = CHECK_PLACED;
    slot->held = held;
    slot->generation = place->generation;
    if (place->generation > sim->generations[place->slot]) {
        sim->generations[place->slot] = place->generation;
        sim->owners[place->slot] = place->name;
    }
    if (!held) /* whose records are not in the log any more lie in their places once more */
        check_queue(sim, coordinator);
}

/* A record admits what lies there. A coordinator may admit what has landed under another. */
void check_taken(struct sim *sim, uint32_t index, uint32_t slot, uint64_t generation)
{
    struct check_slot *where = &sim->coordinators[index].slots[slot];
    const bool given = where->state == CHECK_PLACED && where->generation == generation;
    const bool inherited = where->state == CHECK_INHERITED && generation <= sim->generations[slot];
    if (!given && !inherited)
        sim_fail(sim, "a record admits from slot %u, which was not given to it", slot);
    where->generation = generation;
    where->state = CHECK_WINDOW;
}

void check_close_told(struct sim *sim, uint32_t index, const struct message_close *close)
{
    struct check_slot *slot = &sim->coordinators[index].slots[close->slot];
    const bool done = slot->state == CHECK_CLOSING || slot->state == CHECK_FREE;
    if (done && slot->generation == close->generation)
        return; /* said again */
    /* A place that was given and taken back within one step was never told to anybody. */
    if (close->generation > slot->generation)
        slot->generation = close->generation;
    slot->state = CHECK_CLOSING;
    slot->freed = 0;
}

/* What comes from an epoch that is over counts for nothing. */
void check_close_heard(struct sim *sim, uint32_t shard, const struct message *message)
{
    const struct message_close *close = &message->close;
    struct check_place *place = &sim->shards[shard].places[close->slot];
    if (message->epoch != shard_promise(sim->shards[shard].shard) ||
        close->generation < place->closed)
        return;
    place->closed = close->generation;
    place->after = close->after;
}

/* It follows another coordinator now. A CLOSE that waits for a record which the shard has not
 * logged named a record of somebody else's log. */
void check_promise(struct sim *sim, uint32_t index)
{
    struct sim_shard *shard = &sim->shards[index];
    const uint32_t promise = shard_promise(shard->shard);
    if (promise == shard->promised)
        return;
    shard->promised = promise;
    for (uint32_t i = 0; i < SLOTS_MAX; i++)
        if (shard->places[i].after > shard_ledger(shard->shard)->index)
            shard->places[i].closed = shard->places[i].after = 0;
}

void check_freed_told(struct sim *sim, uint32_t shard, const struct message_freed *freed)
{
    struct check_place *place = &sim->shards[shard].places[freed->slot];
    struct shard_figures figures;
    shard_figures(sim->shards[shard].shard, &figures);
    if (freed->generation > place->closed)
        sim_fail(sim, "shard %u frees slot %u, which the coordinator has not closed", shard,
                 freed->slot);
    uint64_t bytes; /* a shard without a piece of the model has nothing to wait for */
    shard_slot(sim->shards[shard].shard, freed->slot, &bytes);
    if (bytes > 0 && freed->generation == place->closed && figures.applied < place->after)
        sim_fail(sim, "shard %u frees slot %u before it has applied what reads it", shard,
                 freed->slot);
    if (place->resident <= freed->generation)
        place->resident = 0;
    if (place->freed < freed->generation)
        place->freed = freed->generation;
}

void check_freed_heard(struct sim *sim, uint32_t index, uint32_t shard,
                       const struct message_freed *freed)
{
    struct check_slot *slot = &sim->coordinators[index].slots[freed->slot];
    const uint32_t all = (1u << sim->settings.shards) - 1;
    if (slot->state != CHECK_CLOSING || slot->generation != freed->generation)
        return;
    slot->freed |= 1u << shard;
    if (slot->freed == all)
        slot->state = CHECK_FREE;
}

/* A body of a use that is over is thrown away, whenever it comes. */
void check_take(struct sim *sim, uint32_t shard, const struct sim_body *body)
{
    struct head_chunk head;
    if (body->head.kind != HEAD_CHUNK)
        return;
    memcpy(&head, &body->head, sizeof head);
    if (head.slot < SLOTS_MAX && head.generation <= sim->shards[shard].places[head.slot].freed)
        sim_fail(sim, "shard %u takes a body into slot %u, which it has freed of that generation",
                 shard, head.slot);
}
