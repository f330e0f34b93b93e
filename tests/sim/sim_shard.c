/* A shard's shell: carries out what the core wants, and looks at each action on the way. Its device
 * takes its time and reads memory only when it is done. */
#include "tests/sim/sim_calls.h"

#include "common/checksum.h"
#include "common/wire.h"
#include "tests/sim/sim_crash.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

static void start_job(struct sim *sim, uint32_t shard, const struct shard_action *action)
{
    for (uint32_t i = 0; i < SIM_JOBS; i++) {
        if (sim->jobs[i].used)
            continue;
        sim->jobs[i] = (struct sim_job){.used = true,
                                        .shard = shard,
                                        .kind = action->kind,
                                        .token = action->token,
                                        .offset = action->offset,
                                        .codec = action->codec,
                                        .begin = action->begin,
                                        .end = action->end};
        const double factor = 0.3 * sim->actors[actor_shard(shard)].slowness;
        event_add(sim, (struct sim_event){.at_ns = sim->now_ns + event_delay(sim, factor),
                                          .kind = SIM_JOB,
                                          .actor = actor_shard(shard),
                                          .process = sim->actors[actor_shard(shard)].process,
                                          .what = i});
        return;
    }
    sim_fail(sim, "%d device jobs are under way: something computes without end", SIM_JOBS);
}

static void scan(const struct sim_job *job, const void *numbers, struct shard_event *done)
{
    struct arithmetic_measure piece;
    arithmetic_scalar.measure(job->codec, numbers, job->end, &piece);
    done->sum_squares = piece.sum_squares;
    done->largest_bits = piece.largest_bits;
    if (!arithmetic_finite(piece.largest_bits))
        done->not_finite = codec_first_not_finite(job->codec, numbers, job->end);
}

static void compute(struct sim *sim, const struct sim_job *job)
{
    struct shard *shard = sim->shards[job->shard].shard;
    struct arithmetic_work work;
    if (job->kind == SHARD_AVERAGE) {
        shard_work(shard, &work);
        arithmetic_scalar.average(shard_plan(shard), &work.sources, job->begin, job->end,
                                  shard_average(shard) + job->begin);
        shard_measure_average(shard, &arithmetic_scalar, job->begin, job->end);
    } else {
        shard_work(shard, &work);
        arithmetic_scalar.step(shard_plan(shard), &work, job->begin, job->end);
        shard_measure_update(shard, &arithmetic_scalar, job->begin, job->end);
    }
}

void server_job(struct sim *sim, const struct sim_event *event)
{
    struct sim_job *job = &sim->jobs[event->what];
    struct shard_event done = {.kind = SHARD_DONE, .token = job->token, .not_finite = UINT64_MAX};
    if (job->kind == SHARD_SCAN)
        scan(job, shard_address(sim->shards[job->shard].shard, job->offset), &done);
    else
        compute(sim, job);
    job->used = false;
    server_shard(sim, job->shard, &done);
}

static void reply(struct sim *sim, uint32_t shard, const struct shard_action *action)
{
    const struct sim_connection *connection = data_connection(sim, (uint32_t)action->peer);
    if (!connection || connection->ended[SIDE_SHARD])
        sim_fail(sim, "shard %u replies to a peer that is gone", shard);
    struct sim_body body = {.connection = connection->number,
                            .from = SIDE_SHARD,
                            .head = action->head,
                            .length = action->length,
                            .source = action->offset,
                            .sender_token = action->token ? action->token : UINT64_MAX,
                            .flip = sim->hostile &&
                                    chance(&sim->network, 0.01 * sim->settings.trouble)};
    if (action->head.kind == HEAD_PARAMETERS) {
        struct head_parameters head;
        memcpy(&head, &action->head, sizeof head);
        check_reply(sim, shard, &head);
        head.crc = checksum_crc32c(0, shard_address(sim->shards[shard].shard, action->offset),
                                   action->length);
        memcpy(&body.head, &head, sizeof head);
    }
    data_send(sim, &body);
}

static void send_content(struct sim *sim, uint32_t index, const struct shard_action *action)
{
    struct message message = action->message;
    const size_t count = shard_content(sim->shards[index].shard, sim->content, SIM_CONTENT_BYTES);
    for (uint32_t i = 0; i < content_pages(count); i++) {
        content_page(CONTENT_SEALED, sim->content, count, i, &message.page);
        control_to_coordinator(sim, actor_shard(index), &message);
    }
}

static void act(struct sim *sim, uint32_t shard, const struct shard_action *action)
{
    switch (action->kind) {
    case SHARD_SEND:
        if (action->message.kind == MESSAGE_FREED)
            check_freed_told(sim, shard, &action->message.freed);
        control_to_coordinator(sim, actor_shard(shard), &action->message);
        break;
    case SHARD_REPLY: reply(sim, shard, action); break;
    case SHARD_TAKE:
        check_take(sim, shard, &sim->bodies[action->offer - 1]);
        data_take(sim, action->offer, action->offset, action->token);
        break;
    case SHARD_REFUSE: data_refuse(sim, action->offer); break;
    case SHARD_HANGUP: data_break(sim, (uint32_t)action->peer); break;
    case SHARD_SCAN:
    case SHARD_AVERAGE:
    case SHARD_STEP: start_job(sim, shard, action); break;
    case SHARD_KEEP: break;
    case SHARD_CONTENT: send_content(sim, shard, action); break;
    case SHARD_SAY: /* a planted fault must be found by what comes of it */
        sim_tell(sim, "shard %u says: %s", shard, action->message.denied.text);
        if (!sim->plant)
            sim_fail(sim, "shard %u: %s", shard, action->message.denied.text);
    }
}

/* Memory in which a process dies again and again at one place is not believed, rightly. */
static bool dies_in_event(struct sim_shard *shard)
{
    const uint64_t index = shard_ledger(shard->shard)->index;
    if (shard->doom != DOOM_EVENT || shard->halved_at == index)
        return false;
    shard->halved_at = index;
    return true;
}

/* False: it died in the middle of the event. */
static bool step_whole(struct sim *sim, uint32_t index, const struct shard_event *event)
{
    struct sim_shard *shard = &sim->shards[index];
    if (!dies_in_event(shard)) {
        shard_step(shard->shard, event, &shard->actions);
        return true;
    }
    const uint32_t commits = (uint32_t)random_below(&sim->network, 3);
    if (crash_step(shard->shard, event, commits, &shard->actions))
        return true;
    sim_tell(sim, "shard %u dies in the middle of an event", index);
    sim->counts.half_events++;
    shard->begun = event->kind == SHARD_MESSAGE && event->message->kind == MESSAGE_RECORD;
    if (shard->begun)
        shard->begun_record = event->message->record;
    server_shard_dies(sim, index);
    return false;
}

/* As in an event: not twice at one place. */
static bool dies_in_tile(struct sim *sim, uint32_t index)
{
    struct shard_figures figures;
    shard_figures(sim->shards[index].shard, &figures);
    if (sim->shards[index].doom != DOOM_TILE || figures.applied == sim->shards[index].torn_at)
        return false;
    for (uint32_t i = 0; i < SIM_JOBS; i++)
        if (sim->jobs[i].used && sim->jobs[i].shard == index && sim->jobs[i].kind != SHARD_SCAN) {
            sim->shards[index].torn_at = figures.applied;
            return true;
        }
    return false;
}

static void count_ahead(struct sim *sim, uint32_t index)
{
    struct sim_shard *shard = &sim->shards[index];
    struct shard_figures figures;
    shard_figures(shard->shard, &figures);
    if (figures.tiles_ahead > shard->tiles_ahead)
        sim->counts.tiles_ahead += figures.tiles_ahead - shard->tiles_ahead;
    shard->tiles_ahead = figures.tiles_ahead;
}

void server_shard(struct sim *sim, uint32_t index, const struct shard_event *event)
{
    struct sim_shard *shard = &sim->shards[index];
    if (!shard->shard || !sim->actors[actor_shard(index)].alive)
        return;
    struct shard_event own = *event;
    own.now_ns = sim->now_ns + sim->actors[actor_shard(index)].skew_ns;
    if (own.kind == SHARD_MESSAGE && own.message->kind == MESSAGE_CLOSE)
        check_close_heard(sim, index, own.message);
    if (!step_whole(sim, index, &own))
        return;
    if (own.kind == SHARD_MESSAGE && own.message->kind == MESSAGE_RECORD)
        check_logged(sim, index, &own.message->record);
    count_ahead(sim, index);
    check_promise(sim, index);
    check_shard(sim, index);
    bool dies = shard->doom == DOOM_STEP && shard->actions.count > 0;
    const uint32_t done =
        dies ? (uint32_t)random_below(&sim->network, shard->actions.count) : shard->actions.count;
    for (uint32_t i = 0; i < done; i++)
        act(sim, index, &shard->actions.items[i]);
    dies = dies || dies_in_tile(sim, index);
    if (dies) {
        sim_tell(sim, "shard %u dies in the middle of its work", index);
        server_shard_dies(sim, index);
        return;
    }
    const int64_t next = shard_next(shard->shard);
    if (event->kind == SHARD_TICK && next <= own.now_ns)
        sim_fail(sim, "shard %u's loop spins: its next tick is due in the past", index);
    server_wake(sim, actor_shard(index), next);
}

static void say_ready(struct sim *sim, uint32_t index)
{
    const struct shard *shard = sim->shards[index].shard;
    struct message ready = {.kind = MESSAGE_READY,
                            .epoch = shard_promise(shard),
                            .timeline = shard_ledger(shard)->timeline};
    ready.ready = (struct message_ready){
        .shard = index, .layout_hash = sim->model->hash, .bytes = sim->shards[index].bytes};
    control_to_coordinator(sim, actor_shard(index), &ready);
}

static struct shard_options options_of(const struct sim *sim, uint32_t index)
{
    const struct sim_settings *settings = &sim->settings;
    return (struct shard_options){.member = sim->shards[index].member,
                                  .epoch = sim->shards[index].epoch,
                                  .optimizer = settings->order.optimizer,
                                  .sessions_max = SIM_WORKERS + 2,
                                  .pulls_max = SIM_WORKERS + 4,
                                  .chunk_bytes = settings->order.chunk_bytes,
                                  .tile_elements = settings->tile,
                                  .ahead = 1,
                                  .pull_patience_ns = settings->pull_patience_ns,
                                  .warm = true,
                                  .digest = !sim->plant}; /* other checks must find those */
}

static void begin(struct sim *sim, uint32_t index)
{
    struct sim_shard *shard = &sim->shards[index];
    if (sim->plant && shard_plant(shard->shard, sim->plant))
        sim->planted = true;
    if (shard_actions_max(shard->shard) > shard->actions.max)
        sim_fail(sim, "the simulator has too few shard actions");
    server_wake(sim, actor_shard(index), 0);
}

/* The layout is here: memory, then READY. */
static void make_shard(struct sim *sim, uint32_t index)
{
    struct sim_shard *shard = &sim->shards[index];
    const struct law_settings *law = &sim->settings.order.law;
    const struct shard_options options = options_of(sim, index);
    char text[1024];
    if (shard_arena_bytes(sim->model, law, &options, &shard->bytes, text, sizeof text) !=
        GRADWEIR_OK)
        sim_fail(sim, "shard %u: %s", index, fail_reason());
    /* Fresh pages are zero and cost only where they are touched. */
    void *arena =
        mmap(NULL, shard->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT(arena != MAP_FAILED);
    shard->shard = arena;
    if (shard_init(arena, shard->bytes, sim->model, law, &options) != GRADWEIR_OK)
        sim_fail(sim, "shard %u: %s", index, fail_reason());
    begin(sim, index);
    say_ready(sim, index);
}

/* Its device was in the middle of a tile. */
static void tear_jobs(struct sim *sim, uint32_t index)
{
    for (uint32_t i = 0; i < SIM_JOBS; i++) {
        struct sim_job *job = &sim->jobs[i];
        if (!job->used || job->shard != index)
            continue;
        job->used = false;
        if (job->kind == SHARD_SCAN || job->end <= job->begin || chance(&sim->network, 0.3))
            continue;
        const uint64_t block = sim->model->block;
        job->end =
            job->begin + random_below(&sim->network, job->end - job->begin + 1) / block * block;
        compute(sim, job);
        sim->counts.torn_tiles++;
    }
}

void server_shard_dies(struct sim *sim, uint32_t index)
{
    const uint32_t number = actor_shard(index);
    struct sim_actor *actor = &sim->actors[number];
    struct sim_shard *shard = &sim->shards[index];
    shard->doom = DOOM_NONE;

    actor->alive = false;
    actor->process++;
    actor->tick_ns = actor->stopped_until_ns = 0;
    control_break(sim, number, INT64_MAX);
    data_shard_dies(sim, index);
    if (shard->shard)
        tear_jobs(sim, index);
    event_add(sim, (struct sim_event){.at_ns = sim->now_ns + event_delay(sim, 20),
                                      .kind = SIM_RESTART,
                                      .actor = number,
                                      .process = actor->process});
}

void server_shard_message(struct sim *sim, uint32_t index, const struct message *message)
{
    struct sim_shard *shard = &sim->shards[index];

    if (message->kind == MESSAGE_DENIED) {
        if (message->denied.status == GRADWEIR_ERR_INVALID)
            sim_fail(sim, "shard %u is denied: %s", index, message->denied.text);
        server_shard_dies(sim, index); /* and is started again */
    } else if (message->kind == MESSAGE_REJOIN) {
        server_enlist(sim, index);
    } else if (shard->shard) {
        server_shard(sim, index, &(struct shard_event){.kind = SHARD_MESSAGE, .message = message});
        if (message->kind == MESSAGE_MEMBER && sim->actors[actor_shard(index)].alive)
            say_ready(sim, index); /* a new connection */
    } else if (message->kind == MESSAGE_MEMBER) {
        shard->member = message->member;
        shard->epoch = message->epoch;
    } else if (message->kind == MESSAGE_PAGE) {
        make_shard(sim, index);
    } else {
        sim_fail(sim, "shard %u hears %s before it has a model", index,
                 message_name(message->kind));
    }
}

/* Another process goes on where it was. */
void server_shard_returns(struct sim *sim, uint32_t index)
{
    struct sim_shard *shard = &sim->shards[index];
    const struct shard_options options = options_of(sim, index);
    char text[1024];
    sim->actors[actor_shard(index)].alive = true;
    control_up_at(sim, actor_shard(index), sim->now_ns);
    if (!shard->shard)
        return;
    if (shard_resume(shard->shard, shard->bytes, &sim->settings.order.law, &options, text,
                     sizeof text) != GRADWEIR_OK)
        sim_fail(sim, "shard %u cannot go on: %s", index, fail_reason());
    sim_tell(sim, "shard %u goes on: %s", index, text);
    sim->counts.shard_returns++;
    if (shard->begun)
        check_logged(sim, index, &shard->begun_record);
    check_shard(sim, index);
    begin(sim, index);
}

void server_enlist(struct sim *sim, uint32_t index)
{
    const struct shard *shard = sim->shards[index].shard;
    struct message message = {.kind = MESSAGE_ENLIST, .epoch = 1, .timeline = 1};
    shard_enlist(shard, &message.enlist);
    message.enlist.shard = index;
    message.enlist.instance[0] = (uint8_t)(index + 1);
    message.enlist.instance[1] = (uint8_t)sim->actors[actor_shard(index)].process;
    control_to_coordinator(sim, actor_shard(index), &message);
}
