/* Bodies on their way into the memory of a process that has died. They land late, unseen by
 * anybody: the next process in that memory must not be hurt by them. */
#include "tests/sim/sim_calls.h"

#include <string.h>

static const int64_t GHOSTS = 90 * MS; /* so long the kernel or a card may write for the dead */

void ghosts_land(struct sim *sim, struct sim_body *body)
{
    if (sim->now_ns < body->ghost_ns)
        return;
    const uint32_t shard = data_connection(sim, body->connection)->shard;
    uint8_t *target = shard_address(sim->shards[shard].shard, body->target);
    const uint64_t bytes = random_below(&sim->network, body->length) + 1;
    if (memcmp(target, body->ghost, bytes) != 0) /* what was sent again anyway does no harm */
        check_landing(sim, shard, body);
    memcpy(target, body->ghost, bytes);
    body->ghost = NULL;
    body->used = false;
    sim->counts.ghost_bodies++;
}

/* What was on its way into a dead process' memory: the kernel or a network card may still write. */
void ghosts_rise(struct sim *sim, const struct sim_connection *connection)
{
    for (uint32_t i = 0; i < SIM_BODIES; i++) {
        struct sim_body *body = &sim->bodies[i];
        if (!body->used || body->connection != connection->number || body->from != SIDE_WORKER ||
            !body->taken || body->landed || body->length == 0 || !chance(&sim->network, 0.7))
            continue;
        body->ghost = sim_remember(sim, data_address(sim, body, true), body->length);
        body->ghost_ns = sim->now_ns + (int64_t)(between(&sim->network, 0, 1) * (double)GHOSTS);
        event_add(sim, (struct sim_event){.at_ns = body->ghost_ns,
                                          .kind = SIM_BODY,
                                          .actor = actor_shard(connection->shard),
                                          .from = connection->number,
                                          .what = i,
                                          .side = SIDE_SHARD});
    }
}

/* A machine that sleeps writes nothing, and its connections do not outlive that. */
void ghosts_end(struct sim *sim, uint32_t shard)
{
    for (uint32_t i = 0; i < SIM_BODIES; i++) {
        struct sim_body *body = &sim->bodies[i];
        const struct sim_connection *connection =
            body->used && body->ghost ? data_connection(sim, body->connection) : NULL;
        if (!connection || connection->shard != shard)
            continue;
        body->ghost = NULL;
        body->used = false;
    }
}
