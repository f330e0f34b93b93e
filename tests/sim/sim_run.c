/* One seed: a hostile half, a calm half in which everybody must get on, an end when all is quiet.
 */
#include "tests/sim/sim_calls.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t CALM_MAX = 20 * SECOND;

void sim_tell_line(struct sim *sim, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%10.3f ms  ", (double)sim->now_ns / 1e6);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
}

_Noreturn void sim_fail_at(struct sim *sim, const char *check, const char *format, ...)
{
    snprintf(sim->check, sizeof sim->check, "%s", check);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sim->sentence, sizeof sim->sentence, format, arguments);
    va_end(arguments);
    siglongjmp(sim->leave, 1);
}

uint8_t *sim_remember(struct sim *sim, const void *bytes, size_t count)
{
    const size_t room = (count + 63) / 64 * 64;
    if (room > SIM_MEMORY - sim->memory_used)
        sim_fail(sim, "the simulator's memory for one seed is full");
    uint8_t *copy = sim->memory + sim->memory_used;
    sim->memory_used += room;
    memcpy(copy, bytes, count);
    return copy;
}

/* Big tables are allocated once for all seeds. */
gradweir_status sim_open(struct sim **out)
{
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the simulator");
    sim->heap = calloc(SIM_EVENTS, sizeof *sim->heap);
    sim->messages = calloc(SIM_MESSAGES, sizeof *sim->messages);
    sim->connections = calloc(SIM_CONNECTIONS, sizeof *sim->connections);
    sim->bodies = calloc(SIM_BODIES, sizeof *sim->bodies);
    sim->peers = calloc(SIM_PEERS, sizeof *sim->peers);
    sim->workers = calloc(SIM_WORKERS, sizeof *sim->workers);
    sim->pages = calloc(SIM_PAGES, sizeof *sim->pages);
    sim->content = calloc(1, SIM_CONTENT_BYTES);
    sim->coordinators = calloc(SIM_COORDINATORS, sizeof *sim->coordinators);
    sim->names = calloc(SIM_NAMES, sizeof *sim->names);
    sim->hashes = calloc(SIM_RECORDS, sizeof *sim->hashes);
    sim->log = calloc(SIM_RECORDS, sizeof *sim->log);
    sim->reference = calloc(1, sizeof *sim->reference);
    sim->memory = aligned_alloc(64, SIM_MEMORY);
    sim->order_actions.max = 2048;
    sim->order_actions.items = calloc(2048, sizeof *sim->order_actions.items);
    sim->session_actions.items = calloc(SESSION_ACTIONS_MAX, sizeof *sim->session_actions.items);
    bool whole = sim->heap && sim->messages && sim->connections && sim->bodies && sim->peers &&
                 sim->workers && sim->names && sim->hashes && sim->log && sim->reference &&
                 sim->coordinators && sim->pages && sim->content && sim->memory &&
                 sim->order_actions.items && sim->session_actions.items;
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        sim->shards[i].actions.max = 1024;
        sim->shards[i].actions.items = calloc(1024, sizeof *sim->shards[i].actions.items);
        whole = whole && sim->shards[i].actions.items;
    }
    if (!whole || !swaps_room(sim)) {
        sim_close(sim);
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the simulator");
    }
    *out = sim;
    return GRADWEIR_OK;
}

void sim_close(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        free(sim->shards[i].actions.items);
    free(sim->session_actions.items);
    free(sim->order_actions.items);
    group_free(sim);
    free(sim->memory);
    free(sim->reference);
    free(sim->log);
    free(sim->hashes);
    free(sim->names);
    free(sim->pages);
    free(sim->content);
    free(sim->coordinators);
    free(sim->workers);
    free(sim->peers);
    free(sim->bodies);
    free(sim->connections);
    free(sim->messages);
    free(sim->heap);
    free(sim->swaps);
    free(sim);
}

static void reset(struct sim *sim, uint64_t seed)
{
    sim->seed = seed;
    sim->hash = 0;
    sim->sentence[0] = sim->check[0] = 0;
    sim->failed = sim->calm = sim->quiet = sim->exited = false;
    sim->hostile = true;
    sim->now_ns = MS;
    sim->fault_ns = 2 * MS;
    sim->heap_n = sim->connections_n = sim->bodies_hint = sim->peers_n = 0;
    sim->index = 0;
    sim->memory_used = 0;
    ledger_init(&sim->ledger);
    sim->model = NULL;
    random_split(&sim->random, seed, "job", 0);
    random_split(&sim->network, seed, "network", 0);
    random_split(&sim->faults, seed, "faults", 0);
    swaps_reset(sim);
    for (uint32_t i = 0; i < SIM_MESSAGES; i++)
        sim->messages[i].next = i + 1 < SIM_MESSAGES ? i + 1 : UINT32_MAX;
    sim->messages_free = 0;
    memset(sim->pages_used, 0, sizeof sim->pages_used);
    memset(sim->connections, 0, SIM_CONNECTIONS * sizeof *sim->connections);
    for (uint32_t i = 0; i < SIM_BODIES; i++)
        sim->bodies[i].used = false;
    for (uint32_t i = 0; i < SIM_JOBS; i++)
        sim->jobs[i].used = false;
    memset(sim->names, 0, SIM_NAMES * sizeof *sim->names);
    memset(sim->generations, 0, sizeof sim->generations);
    sim->newest = sim->coordinators_n = 0;
    memset(sim->actors, 0, sizeof sim->actors);
    for (uint32_t i = 0; i < SIM_ACTORS; i++)
        sim->actors[i].slowness = 1;
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        sim->shards[i].seen_any = false;
        sim->shards[i].doom = DOOM_NONE;
        sim->shards[i].promised = 0;
        sim->shards[i].begun = false;
        sim->shards[i].torn_at = sim->shards[i].halved_at = UINT64_MAX;
        memset(sim->shards[i].places, 0, sizeof sim->shards[i].places);
    }
}

static void start(struct sim *sim)
{
    settings_choose(sim);
    settings_tell(sim);
    if (sim->settings.trouble <= 0)
        sim->fault_ns = INT64_MAX;
    reference_init(sim);
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        sim->actors[actor_shard(i)].alive = true;
    for (uint32_t i = 0; i < SIM_ACTORS; i++)
        sim->actors[i].skew_ns = (int64_t)random_below(&sim->random, 1000000000);
    for (uint32_t i = actor_shard(0); i < SIM_ACTORS; i++)
        if (chance(&sim->random, 0.15))
            sim->actors[i].slowness = between(&sim->random, 2, 10);
    server_start(sim);
    for (uint32_t i = 0; i < sim->workers_n; i++)
        event_add(sim, (struct sim_event){.at_ns = sim->now_ns + event_delay(sim, 2),
                                          .kind = SIM_RESTART,
                                          .actor = actor_worker(i)});
}

static void tick(struct sim *sim, const struct sim_event *event)
{
    const uint32_t actor = event->actor;
    if (sim->actors[actor].tick_ns > event->at_ns)
        return;
    if (actor_role(actor) == COORDINATOR)
        server_order(sim, actor, &(struct order_event){.kind = ORDER_TICK});
    else if (actor_role(actor) == SHARD)
        server_shard(sim, shard_of(actor),
                     &(struct shard_event){.kind = SHARD_TICK, .now_ns = sim->now_ns});
    else
        worker_step(sim, worker_of(actor), (struct session_event){.kind = SESSION_TICK});
}

/* Nobody connects through a partition. */
static bool is_cut_off(struct sim *sim, const struct sim_event *event)
{
    const int64_t *blocked_ns = sim->actors[event->actor].blocked_ns;
    const int64_t heal_ns = blocked_ns[0] > blocked_ns[1] ? blocked_ns[0] : blocked_ns[1];
    if (heal_ns <= sim->now_ns)
        return false;
    struct sim_event later = *event;
    later.at_ns = heal_ns + event_delay(sim, 2);
    event_add(sim, later);
    return true;
}

/* from: the connection, when it is the coordinator that went. */
static void went_down(struct sim *sim, const struct sim_event *event)
{
    struct sim_actor *actor = &sim->actors[event->actor];
    if (event->from == 0 || actor->peer != event->from)
        return;
    actor->peer = 0;
    control_up_at(sim, event->actor, sim->now_ns + event_delay(sim, 5));
}

static void supervise(struct sim *sim)
{
    if (!sim->actors[sim->newest].alive)
        server_coordinator(sim);
}

/* While times are hostile, now and then something else is said before it notices. */
static void shard_is_up(struct sim *sim, uint32_t actor)
{
    if (!sim->hostile || !chance(&sim->network, 0.3)) {
        server_enlist(sim, shard_of(actor));
        return;
    }
    sim->counts.late_enlists++;
    event_add(sim, (struct sim_event){.at_ns = sim->now_ns +
                                               event_delay(sim, between(&sim->network, 1, 60)),
                                      .kind = SIM_ENLIST,
                                      .actor = actor,
                                      .process = sim->actors[actor].process,
                                      .from = sim->actors[actor].peer});
}

static void shard_event(struct sim *sim, const struct sim_event *event)
{
    const uint32_t actor = event->actor;
    if (event->kind == SIM_DOWN)
        went_down(sim, event);
    if (event->kind == SIM_RESTART)
        server_shard_returns(sim, shard_of(actor));
    if (event->kind == SIM_ENLIST && sim->actors[actor].peer == event->from)
        server_enlist(sim, shard_of(actor));
    if (event->kind != SIM_UP)
        return;
    if (sim->actors[actor].peer != 0 || is_cut_off(sim, event))
        return;
    if (control_up(sim, actor))
        shard_is_up(sim, actor);
    else
        control_up_at(sim, actor, sim->now_ns + event_delay(sim, 10));
}

static void worker_event(struct sim *sim, const struct sim_event *event)
{
    const uint32_t worker = worker_of(event->actor);
    switch (event->kind) {
    case SIM_UP:
        if (sim->actors[event->actor].peer != 0 || !sim->actors[event->actor].alive ||
            is_cut_off(sim, event))
            break;
        if (!control_up(sim, event->actor))
            control_up_at(sim, event->actor, sim->now_ns + event_delay(sim, 10));
        else
            worker_step(sim, worker, (struct session_event){.kind = SESSION_UP});
        break;
    case SIM_DOWN:
        went_down(sim, event);
        if (sim->actors[event->actor].peer == 0)
            worker_step(sim, worker, (struct session_event){.kind = SESSION_DOWN});
        break;
    case SIM_USER: worker_user(sim, worker); break;
    case SIM_FILL: worker_fill(sim, worker, event->what); break;
    case SIM_SWAP: swaps_turn(sim, worker); break;
    default: worker_start(sim, worker); break;
    }
}

static void lost(struct sim *sim, uint32_t coordinator, uint32_t peer)
{
    sim->peers[peer].lost = true;
    sim_tell(sim, "%s loses peer %u, %s", story_actor(sim, coordinator), peer,
             story_actor(sim, sim->peers[peer].actor));
    server_order(sim, coordinator, &(struct order_event){.kind = ORDER_LOST, .peer = peer});
}

static void handle(struct sim *sim, const struct sim_event *event)
{
    sim->now_ns = event->at_ns;
    sim->counts.events++;
    sim->hash = (sim->hash ^ (uint64_t)event->at_ns ^ (uint64_t)event->kind << 56 ^
                 (uint64_t)event->actor << 48 ^ (uint64_t)event->what << 24 ^ event->from) *
                0x9e3779b97f4a7c15;
    if (event->kind != SIM_SUPERVISE && event->process != sim->actors[event->actor].process &&
        event->kind != SIM_BODY) {
        if (event->kind == SIM_CONTROL)
            control_release(sim, event->what);
        return;
    }
    switch (event->kind) {
    case SIM_CONTROL: control_arrives(sim, event); break;
    case SIM_LOST: lost(sim, event->actor, event->from); break;
    case SIM_TICK: tick(sim, event); break;
    case SIM_CUT: fault_cut(sim, event); break;
    case SIM_SUPERVISE: supervise(sim); break;
    case SIM_JOB: server_job(sim, event); break;
    case SIM_UP:
    case SIM_ENLIST:
    case SIM_DOWN:
    case SIM_USER:
    case SIM_FILL:
    case SIM_SWAP:
    case SIM_RESTART:
        if (actor_role(event->actor) == WORKER)
            worker_event(sim, event);
        else
            shard_event(sim, event);
        break;
    default: data_event(sim, event); break;
    }
}

/* From here on nothing new goes wrong. */
static void calm_down(struct sim *sim)
{
    sim_tell(sim, "the calm begins");
    sim->hostile = false;
    sim->calm = true;
    sim->calm_ns = sim->now_ns;
    sim->calm_version = sim->reference->version;
    for (uint32_t i = 0; i < SIM_WORKERS; i++)
        sim->workers[i].verdicts = sim->workers[i].pulls = 0;
    faults_end(sim);
}

/* In mode sync the others wait for one of each: who has nothing to say any more leaves. */
static void leave_quietly(struct sim *sim)
{
    for (uint32_t i = 0; sim->settings.order.sync && !sim->settings.drain && i < sim->workers_n;
         i++)
        if (worker_lives(sim, i) && !sim->workers[i].busy[0] && !sim->workers[i].leaving) {
            sim->workers[i].leaving = true;
            worker_step(sim, i, (struct session_event){.kind = SESSION_BYE});
        }
}

static void fall_quiet(struct sim *sim)
{
    sim_tell(sim, "everybody has got on; no new gradients");
    sim->quiet = true;
    sim->quiet_ns = sim->now_ns;
    sim->counts.drains += sim->settings.drain;
}

/* Whoever reigns is told; one whom nobody follows yet would rightly leave the job alone. */
static void drain(struct sim *sim)
{
    struct sim_coordinator *newest = &sim->coordinators[sim->newest];
    struct order_figures figures;
    if (!sim->settings.drain || newest->drain_told || !sim->actors[sim->newest].alive)
        return;
    order_figures(newest->order, &figures);
    newest->drain_told = figures.acting;
    if (figures.acting)
        server_order(sim, sim->newest, &(struct order_event){.kind = ORDER_DRAIN});
}

/* Runs until the end is reached or must have been reached. */
static void play(struct sim *sim)
{
    char waits[256] = "";
    struct sim_event event;
    while (event_next(sim, &event)) {
        handle(sim, &event);
        faults_next(sim);
        if (sim->hostile && sim->now_ns >= sim->settings.hostile_ns)
            calm_down(sim);
        if (sim->calm && !sim->quiet && check_progress(sim, waits, sizeof waits))
            fall_quiet(sim);
        if (sim->quiet) {
            drain(sim);
            leave_quietly(sim);
        }
        if (sim->quiet && check_quiet(sim, waits, sizeof waits))
            return;
        if (sim->calm && sim->now_ns - sim->calm_ns > CALM_MAX)
            sim_fail(sim, "%lld s of calm, and still: %s", (long long)(CALM_MAX / SECOND), waits);
    }
    sim_fail(sim, "nothing happens any more, and still: %s", waits);
}

bool sim_run(struct sim *sim, uint64_t seed)
{
    reset(sim, seed);
    const bool whole = sigsetjmp(sim->leave, 1) == 0;
    if (whole) {
        start(sim);
        play(sim);
        check_end(sim);
    }
    server_stop(sim);
    model_free(sim->model);
    return whole;
}
