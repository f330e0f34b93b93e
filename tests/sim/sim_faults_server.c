/* What goes wrong with servers, clocks and settings. */
#include "tests/sim/sim_calls.h"

#include <string.h>

static uint32_t some_shard(struct sim *sim)
{
    return (uint32_t)random_below(&sim->faults, sim->settings.shards);
}

void fault_stop_shard(struct sim *sim, uint32_t worker)
{
    (void)worker;
    const uint32_t shard = some_shard(sim);
    const int64_t ns =
        (int64_t)between(&sim->faults, 0.1e6, chance(&sim->faults, 0.2) ? 30e6 : 3e6);
    sim->counts.shard_stops++;
    sim_tell(sim, "FAULT: shard %u is stopped for %lld us", shard, (long long)(ns / US));
    fault_stop(sim, actor_shard(shard), ns);
}

/* Or it recovers. */
void fault_slow(struct sim *sim, uint32_t worker)
{
    const bool shard = chance(&sim->faults, 0.6);
    const uint32_t index = shard ? actor_shard(some_shard(sim)) : actor_worker(worker);
    struct sim_actor *actor = &sim->actors[index];
    if (actor->slowness > 1 && chance(&sim->faults, 0.5)) {
        actor->slowness = 1;
        return;
    }
    actor->slowness = between(&sim->faults, 3, 40);
    ++*(shard ? &sim->counts.slow_shards : &sim->counts.slow_workers);
    sim_tell(sim, "FAULT: %s is %.0f times slower", story_actor(sim, index), actor->slowness);
}

/* A process's clock jumps forward, as after a suspended machine: its deadlines are all over. */
void fault_clock(struct sim *sim, uint32_t worker)
{
    const uint32_t index = chance(&sim->faults, 0.3)   ? sim->newest
                           : chance(&sim->faults, 0.4) ? actor_shard(some_shard(sim))
                                                       : actor_worker(worker);
    struct sim_actor *actor = &sim->actors[index];
    if (!actor->alive)
        return;
    const int64_t ns =
        (int64_t)between(&sim->faults, 1e4, chance(&sim->faults, 0.3) ? 200e6 : 10e6);
    sim->counts.clock_steps++;
    sim_tell(sim, "FAULT: the clock of %s jumps by %lld us", story_actor(sim, index),
             (long long)(ns / US));
    if (actor_role(index) == SHARD)
        ghosts_end(sim, shard_of(index));
    actor->skew_ns += ns;
    server_wake(sim, index, 0);
}

/* A message of an epoch that is over arrives at a shard: it must change nothing. */
void fault_old_epoch(struct sim *sim, uint32_t worker)
{
    (void)worker;
    struct message message = {.kind = MESSAGE_CLOSE, .epoch = 0, .timeline = 1};
    const uint32_t slots = sim->settings.order.window_max + sim->settings.order.queue;
    const uint32_t slot = (uint32_t)random_below(&sim->faults, slots);
    message.close = (struct message_close){.slot = slot, .generation = sim->generations[slot]};
    const uint32_t shard = some_shard(sim);
    if (chance(&sim->faults, 0.3) && sim->index > 0) {
        message.kind = MESSAGE_RECORD;
        message.record = sim->log[1 + random_below(&sim->faults, sim->index)];
        message.record.epoch = 0;
    }
    if (!sim->shards[shard].shard)
        return;
    sim->counts.old_epochs++;
    sim_tell(sim, "FAULT: shard %u hears an old epoch's %s", shard, message_name(message.kind));
    server_shard_message(sim, shard, &message);
}

void fault_tune(struct sim *sim, uint32_t worker)
{
    struct message message = {.kind = MESSAGE_TUNE_ASK, .epoch = 1, .timeline = 1};
    if (!worker_lives(sim, worker))
        return;
    sim->counts.tunes++;
    strcpy(message.tune_ask.setting, "learning_rate");
    strcpy(message.tune_ask.value, chance(&sim->faults, 0.5) ? "0.002" : "0.01");
    control_to_coordinator(sim, actor_worker(worker), &message);
}
