/* Servers that die and come back, and coordinators that are replaced while they live. */
#include "tests/sim/sim_calls.h"

/* At once, or in the middle of what it is about to do. */
static void kill_coordinator(struct sim *sim, uint32_t index)
{
    if (!sim->actors[index].alive)
        return;
    sim->counts.coordinator_deaths++;
    if (chance(&sim->faults, 0.5)) {
        sim_tell(sim, "FAULT: %s dies in its next step", story_actor(sim, index));
        sim->coordinators[index].doomed = true;
        return;
    }
    sim_tell(sim, "FAULT: %s dies", story_actor(sim, index));
    server_coordinator_dies(sim, index);
}

void fault_kill_coordinator(struct sim *sim, uint32_t worker)
{
    (void)worker;
    kill_coordinator(sim, sim->newest);
}

/* The one that reigns is cut off from some, or from nobody: it lives on. */
void fault_second_coordinator(struct sim *sim, uint32_t worker)
{
    (void)worker;
    sim->counts.second_coordinators++;
    sim_tell(sim, "FAULT: another coordinator starts beside %s", story_actor(sim, sim->newest));
    server_coordinator(sim);
    const double p = chance(&sim->faults, 0.5) ? 1 : 0.6;
    for (uint32_t i = actor_shard(0); i < SIM_ACTORS; i++)
        if (sim->actors[i].alive && sim->actors[i].peer != 0 &&
            chance(&sim->faults, actor_role(i) == SHARD ? p : 0.5))
            fault_come_back(sim, i, 20);
}

static void kill_shard(struct sim *sim, uint32_t shard)
{
    if (!sim->actors[actor_shard(shard)].alive)
        return;
    sim->counts.shard_deaths++;
    static const char *const words[] = {"at once", "in its next step", "in the middle of a tile",
                                        "in the middle of an event"};
    sim->shards[shard].doom = (unsigned)random_below(&sim->faults, 4);
    sim_tell(sim, "FAULT: shard %u dies %s", shard, words[sim->shards[shard].doom]);
    if (sim->shards[shard].doom == DOOM_NONE)
        server_shard_dies(sim, shard);
}

void fault_kill_shard(struct sim *sim, uint32_t worker)
{
    (void)worker;
    kill_shard(sim, (uint32_t)random_below(&sim->faults, sim->settings.shards));
}

void fault_massacre(struct sim *sim, uint32_t worker)
{
    (void)worker;
    sim->counts.massacres++;
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        if (chance(&sim->faults, 0.7))
            kill_shard(sim, i);
    if (chance(&sim->faults, 0.6))
        kill_coordinator(sim, sim->newest);
}
