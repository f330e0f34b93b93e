/* What goes wrong in the hostile half, beside what networks do by themselves: when, which, and what
 * happens to workers. Networks and servers have files of their own. */
#include "tests/sim/sim_calls.h"

#include <string.h>

void fault_stop(struct sim *sim, uint32_t actor, int64_t ns)
{
    int64_t *until_ns = &sim->actors[actor].stopped_until_ns;
    if (*until_ns < sim->now_ns + ns)
        *until_ns = sim->now_ns + ns;
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
    fault_stop(sim, actor, ns);
    if (ns < 4 * MS)
        return;
    control_break(sim, actor, sim->now_ns);
    control_up_at(sim, actor, sim->actors[actor].stopped_until_ns + MS / 2);
}

void fault_kill(struct sim *sim, uint32_t worker, int64_t back_ns)
{
    struct sim_actor *actor = &sim->actors[actor_worker(worker)];
    sim_tell(sim, "FAULT: worker %u dies", worker);
    actor->alive = false;
    actor->process++;
    actor->stopped_until_ns = 0;
    control_break(sim, actor_worker(worker), INT64_MAX);
    data_break_all(sim, worker);
    sim->workers[worker].gone = back_ns == INT64_MAX;
    if (back_ns == INT64_MAX)
        return;
    sim->counts.worker_restarts++;
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
    const bool for_good =
        living > 1 && worker > 0 && !group_has(sim, worker) && chance(&sim->faults, 0.15);
    const double most = chance(&sim->faults, 0.5) ? 1e6 : 30e6;
    fault_kill(sim, worker, for_good ? INT64_MAX : (int64_t)between(&sim->faults, 1e4, most));
}

/* Another process joins under a worker's name while the old one is stopped, and then goes on. */
static void make_twin(struct sim *sim, uint32_t worker)
{
    if (sim->workers_n == SIM_WORKERS || !worker_lives(sim, worker) ||
        sim->workers[worker].reader || group_has(sim, worker))
        return;
    sim->counts.twins++;
    sim_tell(sim, "FAULT: process %u takes worker %u's name", sim->workers_n, worker);
    struct sim_worker *twin = &sim->workers[sim->workers_n];
    memcpy(twin->identity, sim->workers[worker].identity, sizeof twin->identity);
    twin->outstanding = sim->workers[worker].outstanding;
    twin->reader = twin->gone = false;
    fault_stop(sim, actor_worker(worker), (int64_t)between(&sim->faults, 0, 10e6));
    worker_start(sim, sim->workers_n++);
}

static void say_bye(struct sim *sim, uint32_t worker)
{
    if (!worker_lives(sim, worker) || !sim->workers[worker].session.joined ||
        group_has(sim, worker) || sim->workers[worker].leaving ||
        sim->actors[actor_worker(worker)].peer == 0)
        return;
    sim->counts.byes++;
    sim_tell(sim, "FAULT: worker %u leaves in order", worker);
    sim->workers[worker].leaving = true;
    worker_step(sim, worker, (struct session_event){.kind = SESSION_BYE});
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

static const struct {
    uint32_t weight; /* of all weights together */
    void (*cause)(struct sim *sim, uint32_t worker);
} kinds[] = {{14, fault_break_control},
             {16, fault_break_data},
             {9, stop_worker},
             {8, kill_worker},
             {3, make_twin},
             {3, say_bye},
             {9, repeat},
             {10, fault_partition},
             {4, fault_partition_shard},
             {6, fault_partition_data},
             {1, fault_storm},
             {6, fault_stop_shard},
             {4, fault_break_shard},
             {5, fault_kill_shard},
             {3, fault_kill_coordinator},
             {2, fault_second_coordinator},
             {1, fault_massacre},
             {4, fault_slow},
             {6, fault_clock},
             {7, fault_old_epoch},
             {2, fault_tune}};

static void one_fault(struct sim *sim)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        sum += kinds[i].weight;
    const uint32_t worker = (uint32_t)random_below(&sim->faults, sim->workers_n);
    uint64_t which = random_below(&sim->faults, sum);
    size_t i = 0;
    for (; which >= kinds[i].weight; i++)
        which -= kinds[i].weight;
    kinds[i].cause(sim, worker);
}

/* Now and then several at once. */
void faults_next(struct sim *sim)
{
    while (sim->hostile && sim->now_ns >= sim->fault_ns) {
        one_fault(sim);
        const double gap = 0.6e6 / (0.1 + sim->settings.trouble);
        if (!chance(&sim->faults, 0.15))
            sim->fault_ns += 1 + (int64_t)between(&sim->faults, 0, 2 * gap);
    }
}

/* From here on nothing new goes wrong, and what still does ends. */
void faults_end(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_COORDINATORS; i++)
        sim->coordinators[i].doomed = false;
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        sim->shards[i].doom = DOOM_NONE;
    for (uint32_t i = 0; i < SIM_ACTORS; i++) {
        struct sim_actor *actor = &sim->actors[i];
        actor->slowness = 1;
        for (uint32_t k = 0; k < 2; k++)
            if (actor->blocked_ns[k] > sim->now_ns)
                actor->blocked_ns[k] = sim->now_ns;
        if (actor->peer != 0 && sim->peers[actor->peer].coordinator != sim->newest)
            fault_come_back(sim, i, 10); /* everybody finds the newest now */
    }
}
