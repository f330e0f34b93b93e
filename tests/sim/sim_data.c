/* Data connections. Heads of one direction arrive in order; a body moves after it was taken, later,
 * and is copied only then, so that memory that was given up too early shows. A connection that
 * breaks gives every token back to both sides before it says that it is gone. */
#include "tests/sim/sim_calls.h"

#include "common/checksum.h"

#include <string.h>

struct sim_connection *data_connection(struct sim *sim, uint32_t number)
{
    struct sim_connection *connection = &sim->connections[number % SIM_CONNECTIONS];
    return number != 0 && connection->number == number ? connection : NULL;
}

static void end_later(struct sim *sim, const struct sim_connection *connection, enum sim_side side)
{
    const uint32_t actor =
        side == SIDE_WORKER ? actor_worker(connection->worker) : actor_shard(connection->shard);
    event_add(sim, (struct sim_event){.at_ns = sim->now_ns + event_delay(sim, 3),
                                      .kind = SIM_END,
                                      .actor = actor,
                                      .process = sim->actors[actor].process,
                                      .from = connection->number,
                                      .side = side});
}

void data_break(struct sim *sim, uint32_t number)
{
    struct sim_connection *connection = data_connection(sim, number);
    if (!connection || !connection->alive)
        return;
    connection->alive = false;
    end_later(sim, connection, SIDE_WORKER);
    end_later(sim, connection, SIDE_SHARD);
}

void data_connect(struct sim *sim, uint32_t worker, uint32_t shard)
{
    const uint32_t number = ++sim->connections_n;
    struct sim_connection *connection = &sim->connections[number % SIM_CONNECTIONS];
    if (connection->number && !(connection->ended[0] && connection->ended[1]))
        sim_fail(sim, "the simulator has no connection left: something connects without end");
    *connection = (struct sim_connection){.number = number,
                                          .worker = worker,
                                          .shard = shard,
                                          .alive = true,
                                          .clock_ns = {sim->now_ns, sim->now_ns}};
    sim->workers[worker].connections[shard] = number;
    if (!sim->actors[actor_shard(shard)].alive) { /* nobody listens */
        connection->ended[SIDE_SHARD] = true;
        data_break(sim, number);
        return;
    }
    event_add(sim, (struct sim_event){.at_ns = sim->now_ns + event_delay(sim, 1),
                                      .kind = SIM_CONNECTED,
                                      .actor = actor_worker(worker),
                                      .process = sim->actors[actor_worker(worker)].process,
                                      .from = number});
}

static void free_bodies(struct sim *sim, uint32_t number)
{
    const struct sim_connection *connection = data_connection(sim, number);
    if (!connection->ended[0] || !connection->ended[1])
        return;
    for (uint32_t i = 0; i < SIM_BODIES; i++)
        if (sim->bodies[i].used && sim->bodies[i].connection == number && !sim->bodies[i].ghost)
            sim->bodies[i].used = false;
}

/* The worker's process is gone: its side hears nothing any more. */
void data_break_all(struct sim *sim, uint32_t worker)
{
    for (uint32_t i = 0; i < SIM_CONNECTIONS; i++) {
        struct sim_connection *connection = &sim->connections[i];
        if (connection->number == 0 || connection->worker != worker)
            continue;
        data_break(sim, connection->number);
        connection->ended[SIDE_WORKER] = true;
        free_bodies(sim, connection->number);
    }
    memset(sim->workers[worker].connections, 0, sizeof sim->workers[worker].connections);
}

static uint32_t actor_of(const struct sim_connection *connection, enum sim_side side)
{
    return side == SIDE_WORKER ? actor_worker(connection->worker) : actor_shard(connection->shard);
}

static enum sim_side other(enum sim_side side)
{
    return side == SIDE_WORKER ? SIDE_SHARD : SIDE_WORKER;
}

static void body_event(struct sim *sim, const struct sim_body *body, enum sim_event_kind kind,
                       enum sim_side side)
{
    const struct sim_connection *connection = data_connection(sim, body->connection);
    const uint32_t actor = actor_of(connection, side);
    int64_t at = sim->now_ns + event_delay(sim, kind == SIM_BODY ? sim->actors[actor].slowness : 1);
    if (kind == SIM_BODY && sim->hostile && chance(&sim->network, 0.05 * sim->settings.trouble)) {
        at += event_delay(sim, 60);
        sim->counts.slow_bodies++;
    }
    const enum sim_side sender = kind == SIM_SENT ? other(body->from) : body->from;
    if (at <= connection->blocked_ns[sender])
        at = connection->blocked_ns[sender] + event_delay(sim, 1);
    if (kind == SIM_HEAD) {
        int64_t *clock_ns = &data_connection(sim, body->connection)->clock_ns[body->from];
        at = at <= *clock_ns ? *clock_ns + 1 : at;
        *clock_ns = at;
    }
    event_add(sim, (struct sim_event){.at_ns = at,
                                      .kind = kind,
                                      .actor = actor,
                                      .process = sim->actors[actor].process,
                                      .from = body->connection,
                                      .what = (uint32_t)(body - sim->bodies),
                                      .side = side});
}

void data_send(struct sim *sim, const struct sim_body *given)
{
    struct sim_connection *connection = data_connection(sim, given->connection);
    if (!connection || connection->ended[given->from])
        sim_fail(sim, "something is sent over data connection %u, which is gone for its sender",
                 given->connection);
    uint32_t tries = 0;
    while (sim->bodies[sim->bodies_hint].used) {
        sim->bodies_hint = (sim->bodies_hint + 1) % SIM_BODIES;
        if (++tries == SIM_BODIES)
            sim_fail(sim, "%d bodies are under way: something sends without end", SIM_BODIES);
    }
    struct sim_body *body = &sim->bodies[sim->bodies_hint];
    *body = *given;
    body->used = true;
    body->returned = body->sender_token == UINT64_MAX;
    story_head(sim, connection, body, false);
    if (connection->alive)
        body_event(sim, body, SIM_HEAD, other(body->from));
}

static struct sim_body *offered(struct sim *sim, uint64_t offer)
{
    ASSERT(offer > 0 && offer <= SIM_BODIES);
    struct sim_body *body = &sim->bodies[offer - 1];
    if (!body->used || !body->offered || body->taken || body->length == 0)
        sim_fail(sim, "a body is taken or refused that is not on offer");
    return body;
}

void data_take(struct sim *sim, uint64_t offer, uint64_t target, uint64_t token)
{
    struct sim_body *body = offered(sim, offer);
    body->taken = true;
    body->target = target;
    body->token = token;
    body_event(sim, body, SIM_BODY, other(body->from));
}

void data_refuse(struct sim *sim, uint64_t offer)
{
    struct sim_body *body = offered(sim, offer);
    body->taken = body->landed = true;
    body_event(sim, body, SIM_SENT, body->from);
}

/* Events of heads and bodies for whoever they are for. */
static void deliver(struct sim *sim, const struct sim_body *body, enum sim_side side,
                    struct shard_event event)
{
    const struct sim_connection *connection = data_connection(sim, body->connection);
    event.peer = connection->number;
    event.length = body->length;
    event.offer = (uint64_t)(body - sim->bodies) + 1;
    if (side == SIDE_SHARD) {
        server_shard(sim, connection->shard, &event);
        return;
    }
    const enum session_event_kind kind = event.kind == SHARD_OFFERED  ? SESSION_OFFERED
                                         : event.kind == SHARD_LANDED ? SESSION_LANDED
                                                                      : SESSION_SENT;
    worker_step(sim, connection->worker,
                (struct session_event){.kind = kind,
                                       .member = connection->shard,
                                       .head = event.head,
                                       .offer = event.offer,
                                       .length = event.length,
                                       .token = event.token,
                                       .status = event.status,
                                       .crc = event.crc});
}

static void give_back(struct sim *sim, struct sim_body *body, gradweir_status status)
{
    if (body->returned)
        return;
    body->returned = true;
    const struct sim_connection *connection = data_connection(sim, body->connection);
    if (!connection->ended[body->from])
        deliver(sim, body, body->from,
                (struct shard_event){
                    .kind = SHARD_SENT, .token = body->sender_token, .status = status});
}

static void release(struct sim_body *body)
{
    if (body->landed && body->returned)
        body->used = false;
}

static void sent(struct sim *sim, struct sim_body *body)
{
    give_back(sim, body, GRADWEIR_OK);
    release(body);
}

static void head_arrives(struct sim *sim, struct sim_body *body, enum sim_side side)
{
    const struct sim_connection *connection = data_connection(sim, body->connection);
    if (!connection->alive || connection->ended[side])
        return;
    const struct head_any head = body->head; /* borrowed for the step */
    body->offered = true;
    story_head(sim, connection, body, true);
    if (body->length == 0) {
        body->landed = true;
        if (!body->returned)
            body_event(sim, body, SIM_SENT, body->from);
    }
    const uint64_t portion =
        connection->number % 4 * 100; /* of some ways: bodies are short there */
    deliver(sim, body, side,
            (struct shard_event){.kind = SHARD_OFFERED, .head = &head, .portion = portion});
    if (connection->ended[side])
        return; /* it died of it */
    if (body->length && !body->taken)
        sim_fail(sim, "a body was offered and neither taken nor refused");
    release(body);
}

uint8_t *data_address(struct sim *sim, const struct sim_body *body, bool source)
{
    const struct sim_connection *connection = data_connection(sim, body->connection);
    const bool worker_side = (body->from == SIDE_WORKER) == source;
    const uint64_t offset = source ? body->source : body->target;
    struct sim_worker *worker = &sim->workers[connection->worker];
    if (!worker_side)
        return shard_address(sim->shards[connection->shard].shard, offset);
    if (body->list)
        return (uint8_t *)worker->lists[connection->shard];
    uint8_t *base = source ? worker->buffers[body->buffer] : worker->receive;
    ASSERT(offset + body->length <= (source ? SIM_BODY_BYTES : sizeof worker->receive));
    return base + offset;
}

/* A shard's process is gone, and with it all it knew of its connections. */
void data_shard_dies(struct sim *sim, uint32_t shard)
{
    for (uint32_t i = 0; i < SIM_CONNECTIONS; i++) {
        struct sim_connection *connection = &sim->connections[i];
        if (connection->number == 0 || connection->shard != shard || connection->ended[SIDE_SHARD])
            continue;
        ghosts_rise(sim, connection);
        data_break(sim, connection->number);
        connection->ended[SIDE_SHARD] = true;
        free_bodies(sim, connection->number);
    }
}

static void body_lands(struct sim *sim, struct sim_body *body, enum sim_side side)
{
    const struct sim_connection *connection = data_connection(sim, body->connection);
    if (body->ghost) {
        ghosts_land(sim, body);
        return;
    }
    if (body->landed || connection->ended[side])
        return;
    const bool whole = connection->alive;
    const uint64_t bytes = whole ? body->length : random_below(&sim->network, body->length);
    uint8_t *target = data_address(sim, body, false);
    if (side == SIDE_SHARD)
        check_landing(sim, connection->shard, body);
    else if (whole)
        check_left(sim, connection->shard, body);
    memcpy(target, data_address(sim, body, true), bytes);
    if (body->flip && bytes > 0) {
        target[random_below(&sim->network, bytes)] ^=
            (uint8_t)(1u << random_below(&sim->network, 8));
        sim->counts.corrupt_bodies++;
    }
    sim->counts.torn_bodies += !whole;
    body->landed = true;
    struct shard_event landed = {.kind = SHARD_LANDED,
                                 .token = body->token,
                                 .length = body->length,
                                 .status = whole ? GRADWEIR_OK : GRADWEIR_ERR_LOST};
    if (side == SIDE_SHARD && whole)
        shard_measure_body(sim->shards[connection->shard].shard, &arithmetic_scalar, body->target,
                           &landed);
    else
        landed.crc = checksum_crc32c(0, target, body->length);
    deliver(sim, body, side, landed);
    if (whole && !body->returned)
        body_event(sim, body, SIM_SENT, body->from);
    release(body);
}

/* Gives back what this side still waits for. Handling a token may start something else. */
static bool give_back_side(struct sim *sim, uint32_t number, enum sim_side side)
{
    bool any = false;
    for (uint32_t i = 0; i < SIM_BODIES; i++) {
        struct sim_body *body = &sim->bodies[i];
        if (!body->used || body->connection != number)
            continue;
        if (body->from == side && !body->returned) {
            any = true;
            give_back(sim, body, GRADWEIR_ERR_LOST);
        } else if (body->from != side && body->taken && !body->landed) {
            any = true;
            body->landed = true;
            deliver(sim, body, side,
                    (struct shard_event){
                        .kind = SHARD_LANDED, .token = body->token, .status = GRADWEIR_ERR_LOST});
        }
    }
    return any;
}

static void side_ends(struct sim *sim, uint32_t number, enum sim_side side)
{
    struct sim_connection *connection = data_connection(sim, number);
    if (connection->ended[side])
        return;
    while (give_back_side(sim, number, side))
        ;
    connection->ended[side] = true;
    if (side == SIDE_SHARD) {
        server_shard(sim, connection->shard,
                     &(struct shard_event){.kind = SHARD_PEER_LOST, .peer = number});
        return;
    }
    if (sim->workers[connection->worker].connections[connection->shard] == number)
        sim->workers[connection->worker].connections[connection->shard] = 0;
    worker_step(sim, connection->worker,
                (struct session_event){.kind = SESSION_PEER_LOST, .member = connection->shard});
}

void data_event(struct sim *sim, const struct sim_event *event)
{
    struct sim_connection *connection = data_connection(sim, event->from);
    if (event->kind == SIM_END) {
        if (connection) {
            side_ends(sim, event->from, event->side);
            free_bodies(sim, event->from);
        }
        return;
    }
    if (event->kind == SIM_CONNECTED) {
        if (connection && connection->alive)
            worker_step(
                sim, connection->worker,
                (struct session_event){.kind = SESSION_CONNECTED, .member = connection->shard});
        return;
    }
    struct sim_body *body = &sim->bodies[event->what];
    if (!connection || !body->used || body->connection != event->from)
        return; /* it went with its connection */
    if (event->kind == SIM_HEAD)
        head_arrives(sim, body, event->side);
    else if (event->kind == SIM_BODY)
        body_lands(sim, body, event->side);
    else
        sent(sim, body);
}
