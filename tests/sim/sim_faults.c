/* What goes wrong in the hostile half, beside what networks do by themselves. */
#include "tests/sim/sim.h"

#include <string.h>

static uint32_t some_worker(struct sim *sim)
{
    return (uint32_t)random_below(&sim->faults, sim->workers_n);
}

static void stop(struct sim *sim, uint32_t actor, int64_t ns)
{
    int64_t *until_ns = &sim->actors[actor].stopped_until_ns;
    if (*until_ns < sim->now_ns + ns)
        *until_ns = sim->now_ns + ns;
}

static void reconnect_later(struct sim *sim, uint32_t actor, double factor)
{
    event_add(sim, (struct sim_event){.at_ns = sim->now_ns + event_delay(sim, factor),
                                      .kind = SIM_UP,
                                      .actor = actor,
                                      .process = sim->actors[actor].process});
}

static void break_control(struct sim *sim, uint32_t worker)
{
    const uint32_t actor = actor_worker(worker);
    if (!worker_lives(sim, worker) || sim->actors[actor].peer == 0)
        return;
    sim->counts.control_breaks++;
    sim_tell(sim, "FAULT: worker %u's control connection breaks", worker);
    control_break(sim, actor, true);
    reconnect_later(sim, actor, chance(&sim->faults, 0.3) ? 100 : 5);
}

static void break_data(struct sim *sim, uint32_t worker)
{
    const uint32_t shard = (uint32_t)random_below(&sim->faults, sim->settings.shards);
    const uint32_t number = sim->workers[worker].connections[shard];
    if (!worker_lives(sim, worker) || number == 0)
        return;
    sim->counts.data_breaks++;
    sim_tell(sim, "FAULT: the connection from worker %u to shard %u breaks", worker, shard);
    data_break(sim, number);
}

/* A stop longer than a few missed heartbeats also loses the control connection. */
static void stop_worker(struct sim *sim, uint32_t worker)
{
    const uint32_t actor = actor_worker(worker);
    if (!worker_lives(sim, worker) || sim->actors[actor].stopped_until_ns > sim->now_ns)
        return;
    const int64_t ns =
        (int64_t)between(&sim->faults, 0.2e6, chance(&sim->faults, 0.3) ? 40e6 : 4e6);
    sim->counts.worker_stops++;
    sim_tell(sim, "FAULT: worker %u is stopped for %lld us", worker, (long long)(ns / US));
    stop(sim, actor, ns);
    if (ns < 4 * MS)
        return;
    control_break(sim, actor, true);
    event_add(sim, (struct sim_event){.at_ns = sim->actors[actor].stopped_until_ns + MS / 2,
                                      .kind = SIM_UP,
                                      .actor = actor,
                                      .process = sim->actors[actor].process});
}

void fault_kill(struct sim *sim, uint32_t worker, int64_t back_ns)
{
    struct sim_actor *actor = &sim->actors[actor_worker(worker)];
    sim_tell(sim, "FAULT: worker %u dies", worker);
    actor->alive = false;
    actor->process++;
    actor->stopped_until_ns = 0;
    control_break(sim, actor_worker(worker), false);
    data_break_all(sim, worker);
    sim->workers[worker].gone = back_ns == INT64_MAX;
    if (back_ns != INT64_MAX)
        event_add(sim, (struct sim_event){.at_ns = sim->now_ns + back_ns,
                                          .kind = SIM_RESTART,
                                          .actor = actor_worker(worker),
                                          .process = actor->process});
}

static void kill_worker(struct sim *sim, uint32_t worker)
{
    uint32_t living = 0;
    for (uint32_t i = 0; i < sim->workers_n; i++)
        living += !sim->workers[i].gone && !sim->workers[i].out && !sim->workers[i].reader;
    if (!worker_lives(sim, worker))
        return;
    sim->counts.worker_deaths++;
    const bool for_good = living > 1 && worker > 0 && chance(&sim->faults, 0.3);
    const double most = chance(&sim->faults, 0.5) ? 1e6 : 30e6;
    fault_kill(sim, worker, for_good ? INT64_MAX : (int64_t)between(&sim->faults, 1e4, most));
}

/* Another process joins under a worker's name while the old one is stopped, and then goes on. */
static void make_zombie(struct sim *sim, uint32_t worker)
{
    if (sim->workers_n == SIM_WORKERS || !worker_lives(sim, worker) || sim->workers[worker].reader)
        return;
    sim->counts.zombies++;
    sim_tell(sim, "FAULT: process %u takes worker %u's name", sim->workers_n, worker);
    struct sim_worker *twin = &sim->workers[sim->workers_n];
    memcpy(twin->identity, sim->workers[worker].identity, sizeof twin->identity);
    twin->outstanding = sim->workers[worker].outstanding;
    twin->reader = twin->gone = false;
    stop(sim, actor_worker(worker), (int64_t)between(&sim->faults, 0, 10e6));
    worker_start(sim, sim->workers_n++);
}

static void say_bye(struct sim *sim, uint32_t worker)
{
    if (!worker_lives(sim, worker) || !sim->workers[worker].session.joined ||
        sim->workers[worker].leaving || sim->actors[actor_worker(worker)].peer == 0)
        return;
    sim->counts.byes++;
    sim_tell(sim, "FAULT: worker %u leaves in order", worker);
    sim->workers[worker].leaving = true;
    worker_step(sim, worker, (struct session_event){.kind = SESSION_BYE});
}

static void stop_shard(struct sim *sim)
{
    const uint32_t shard = (uint32_t)random_below(&sim->faults, sim->settings.shards);
    const int64_t ns =
        (int64_t)between(&sim->faults, 0.1e6, chance(&sim->faults, 0.2) ? 30e6 : 3e6);
    sim->counts.shard_stops++;
    sim_tell(sim, "FAULT: shard %u is stopped for %lld us", shard, (long long)(ns / US));
    stop(sim, actor_shard(shard), ns);
}

static void break_shard(struct sim *sim)
{
    const uint32_t shard = (uint32_t)random_below(&sim->faults, sim->settings.shards);
    const uint32_t actor = actor_shard(shard);
    if (sim->actors[actor].peer == 0)
        return;
    sim->counts.shard_breaks++;
    sim_tell(sim, "FAULT: shard %u's control connection breaks", shard);
    control_break(sim, actor, false);
    reconnect_later(sim, actor, 60);
}

/* Something that a worker once said is said again, over the connection it has now. */
static void repeat(struct sim *sim, uint32_t worker)
{
    if (!worker_lives(sim, worker) || !sim->workers[worker].has_old ||
        sim->workers[worker].old.kind == MESSAGE_BYE)
        return;
    sim->counts.repeats++;
    sim_tell(sim, "FAULT: worker %u repeats an old %s", worker,
             message_name(sim->workers[worker].old.kind));
    control_to_coordinator(sim, actor_worker(worker), &sim->workers[worker].old);
}

/* A message of an epoch that is over arrives at a shard: it must change nothing. */
static void old_epoch(struct sim *sim)
{
    struct message message = {.kind = MESSAGE_CLOSE, .epoch = 0, .timeline = 1};
    const uint32_t slots = sim->settings.order.window_max + sim->settings.order.queue;
    const uint32_t slot = (uint32_t)random_below(&sim->faults, slots);
    message.close = (struct message_close){.slot = slot, .generation = sim->slots[slot].generation};
    const uint32_t shard = (uint32_t)random_below(&sim->faults, sim->settings.shards);
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

static void tune(struct sim *sim, uint32_t worker)
{
    struct message message = {.kind = MESSAGE_TUNE_ASK, .epoch = 1, .timeline = 1};
    if (!worker_lives(sim, worker))
        return;
    sim->counts.tunes++;
    strcpy(message.tune_ask.setting, "learning_rate");
    strcpy(message.tune_ask.value, chance(&sim->faults, 0.5) ? "0.002" : "0.01");
    control_to_coordinator(sim, actor_worker(worker), &message);
}

static void one_fault(struct sim *sim)
{
    const uint32_t worker = some_worker(sim);
    const uint64_t which = random_below(&sim->faults, 100);
    if (which < 18)
        break_control(sim, worker);
    else if (which < 38)
        break_data(sim, worker);
    else if (which < 50)
        stop_worker(sim, worker);
    else if (which < 58)
        kill_worker(sim, worker);
    else if (which < 62)
        make_zombie(sim, worker);
    else if (which < 66)
        say_bye(sim, worker);
    else if (which < 73)
        stop_shard(sim);
    else if (which < 77)
        break_shard(sim);
    else if (which < 88)
        repeat(sim, worker);
    else if (which < 97)
        old_epoch(sim);
    else
        tune(sim, worker);
}

void faults_next(struct sim *sim)
{
    while (sim->hostile && sim->now_ns >= sim->fault_ns) {
        one_fault(sim);
        const double gap = 0.4e6 / (0.1 + sim->settings.trouble);
        sim->fault_ns += 1 + (int64_t)between(&sim->faults, 0, 2 * gap);
    }
}
