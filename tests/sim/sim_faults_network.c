/* What goes wrong with networks: breaks, partitions of one way or both, storms. */
#include "tests/sim/sim_calls.h"

#include <stdlib.h>

enum { BOTH_WAYS = 3 };
static const int64_t HEARTBEATS = 3 * MS; /* so long nothing may come before a link is given up */

void fault_come_back(struct sim *sim, uint32_t actor, double factor)
{
    const bool worker = actor_role(actor) == WORKER;
    control_break(sim, actor, worker ? sim->now_ns : INT64_MAX);
    control_up_at(sim, actor, sim->now_ns + event_delay(sim, factor));
}

void fault_break_control(struct sim *sim, uint32_t worker)
{
    const uint32_t actor = actor_worker(worker);
    if (!worker_lives(sim, worker) || sim->actors[actor].peer == 0)
        return;
    sim->counts.control_breaks++;
    sim_tell(sim, "FAULT: worker %u's control connection breaks", worker);
    fault_come_back(sim, actor, chance(&sim->faults, 0.3) ? 100 : 5);
}

void fault_break_shard(struct sim *sim, uint32_t worker)
{
    (void)worker;
    const uint32_t shard = (uint32_t)random_below(&sim->faults, sim->settings.shards);
    if (sim->actors[actor_shard(shard)].peer == 0)
        return;
    sim->counts.shard_breaks++;
    sim_tell(sim, "FAULT: shard %u's control connection breaks", shard);
    fault_come_back(sim, actor_shard(shard), 60);
}

void fault_storm(struct sim *sim, uint32_t worker)
{
    (void)worker;
    sim->counts.storms++;
    sim_tell(sim, "FAULT: everybody's control connection breaks");
    for (uint32_t i = actor_shard(0); i < SIM_ACTORS; i++)
        if (sim->actors[i].peer != 0 && sim->actors[i].alive)
            fault_come_back(sim, i, 30);
}

void fault_break_data(struct sim *sim, uint32_t worker)
{
    const uint32_t shard = (uint32_t)random_below(&sim->faults, sim->settings.shards);
    const uint32_t number = sim->workers[worker].connections[shard];
    if (!worker_lives(sim, worker) || number == 0)
        return;
    sim->counts.data_breaks++;
    sim_tell(sim, "FAULT: the connection from worker %u to shard %u breaks", worker, shard);
    data_break(sim, number);
}

/* Short ones hold things up; long ones end in a break, which the deaf side notices first. */
static int64_t partition_ns(struct sim *sim)
{
    return (int64_t)between(&sim->faults, 0.2e6, chance(&sim->faults, 0.4) ? 25e6 : 3e6);
}

static void cut_later(struct sim *sim, struct sim_event event)
{
    event.kind = SIM_CUT;
    event.process = sim->actors[event.actor].process;
    event.at_ns = sim->now_ns + (int64_t)(between(&sim->faults, 0.7, 1.3) * (double)HEARTBEATS);
    event_add(sim, event);
}

static void partition(struct sim *sim, uint32_t actor)
{
    struct sim_actor *who = &sim->actors[actor];
    if (!who->alive || who->peer == 0)
        return;
    const uint32_t ways = 1 + (uint32_t)random_below(&sim->faults, BOTH_WAYS);
    const int64_t ns = partition_ns(sim);
    for (uint32_t i = 0; i < 2; i++)
        if (ways >> i & 1)
            who->blocked_ns[i] = sim->now_ns + ns;
    uint64_t *count[] = {NULL, &sim->counts.partitions_in, &sim->counts.partitions_out,
                         &sim->counts.partitions_both};
    static const char *const words[] = {NULL, "reaches the coordinator from", "reaches",
                                        "goes to or comes from"};
    ++*count[ways];
    sim_tell(sim, "FAULT: nothing %s %s for %lld us", words[ways], story_actor(sim, actor),
             (long long)(ns / US));
    if (ns > HEARTBEATS)
        cut_later(sim, (struct sim_event){.actor = actor, .from = who->peer, .what = ways});
}

void fault_partition(struct sim *sim, uint32_t worker)
{
    partition(sim, actor_worker(worker));
}

void fault_partition_shard(struct sim *sim, uint32_t worker)
{
    (void)worker;
    partition(sim, actor_shard((uint32_t)random_below(&sim->faults, sim->settings.shards)));
}

void fault_partition_data(struct sim *sim, uint32_t worker)
{
    const uint32_t shard = (uint32_t)random_below(&sim->faults, sim->settings.shards);
    struct sim_connection *connection =
        data_connection(sim, sim->workers[worker].connections[shard]);
    if (!worker_lives(sim, worker) || !connection || !connection->alive)
        return;
    const uint32_t ways = 1 + (uint32_t)random_below(&sim->faults, BOTH_WAYS);
    const int64_t ns = partition_ns(sim);
    for (uint32_t i = 0; i < 2; i++)
        if (ways >> i & 1)
            connection->blocked_ns[i] = sim->now_ns + ns;
    sim->counts.data_partitions++;
    sim_tell(sim, "FAULT: nothing passes between worker %u and shard %u (ways %u) for %lld us",
             worker, shard, ways, (long long)(ns / US));
    if (ns > HEARTBEATS)
        cut_later(sim, (struct sim_event){
                           .actor = actor_worker(worker), .from = connection->number, .side = 1});
}

/* Too little came for too long. Who hears nothing knows at once, the other later. */
void fault_cut(struct sim *sim, const struct sim_event *event)
{
    if (event->side == 1) {
        data_break(sim, event->from);
        return;
    }
    struct sim_actor *who = &sim->actors[event->actor];
    if (who->peer != event->from || !who->alive)
        return;
    int64_t heal_ns =
        who->blocked_ns[0] > who->blocked_ns[1] ? who->blocked_ns[0] : who->blocked_ns[1];
    if (heal_ns < sim->now_ns)
        heal_ns = sim->now_ns;
    const bool deaf = event->what >> 1 & 1;
    const int64_t tell_ns = deaf ? sim->now_ns : heal_ns + event_delay(sim, 4);
    sim_tell(sim, "the control connection of %s is given up", story_actor(sim, event->actor));
    control_break(sim, event->actor, actor_role(event->actor) == WORKER ? tell_ns : INT64_MAX);
    control_up_at(sim, event->actor, (tell_ns > heal_ns ? tell_ns : heal_ns) + event_delay(sim, 5));
}
