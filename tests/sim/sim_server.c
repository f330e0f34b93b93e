/* The job's servers: how they start, wake and stop. */
#include "tests/sim/sim_calls.h"

#include <sys/mman.h>

/* One tick is under way per actor: the earliest that was wanted, by its own clock. */
void server_wake(struct sim *sim, uint32_t index, int64_t at_ns)
{
    struct sim_actor *actor = &sim->actors[index];
    if (at_ns == INT64_MAX)
        return;
    at_ns -= actor->skew_ns;
    if (actor->tick_ns > sim->now_ns && actor->tick_ns <= at_ns)
        return;
    actor->tick_ns = at_ns <= sim->now_ns ? sim->now_ns + 1 : at_ns;
    event_add(sim, (struct sim_event){.at_ns = actor->tick_ns,
                                      .kind = SIM_TICK,
                                      .actor = index,
                                      .process = actor->process});
}

void server_start(struct sim *sim)
{
    server_coordinator(sim);
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        control_up_at(sim, actor_shard(i), sim->now_ns);
}

void server_stop(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_COORDINATORS; i++) {
        order_free(sim->coordinators[i].order);
        sim->coordinators[i].order = NULL;
    }
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        if (sim->shards[i].shard)
            munmap(sim->shards[i].shard, sim->shards[i].bytes);
        sim->shards[i].shard = NULL;
    }
}
