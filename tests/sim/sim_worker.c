/* A worker: the session core's shell. */
#include "tests/sim/sim_calls.h"

#include "common/checksum.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

bool worker_lives(const struct sim *sim, uint32_t index)
{
    const struct sim_worker *worker = &sim->workers[index];
    return index < sim->workers_n && sim->actors[actor_worker(index)].alive && !worker->gone &&
           !worker->out;
}

void worker_think(struct sim *sim, uint32_t index, double factor)
{
    const double ns = (double)sim->settings.think_ns * between(&sim->random, 0.2, 1.8) * factor;
    event_add(sim, (struct sim_event){.at_ns = sim->now_ns + 1 + (int64_t)ns,
                                      .kind = SIM_USER,
                                      .actor = actor_worker(index),
                                      .process = sim->actors[actor_worker(index)].process});
}

/* What the core wants. */

static void send_chunk(struct sim *sim, uint32_t index, const struct session_action *action)
{
    struct sim_worker *worker = &sim->workers[index];
    struct sim_body body = {.connection = worker->connections[action->member],
                            .from = SIDE_WORKER,
                            .head = action->head,
                            .length = action->length,
                            .source = action->offset,
                            .buffer = action->buffer,
                            .sender_token = UINT64_MAX,
                            .flip = false};
    if (action->kind == SESSION_LIST) {
        struct head_pull head;
        memcpy(&head, &action->head, sizeof head);
        struct piece *list = worker->lists[action->member];
        head.pieces = session_pull_pieces(&worker->session, action->member, list);
        body.length = head.pieces * sizeof *list;
        body.list = true;
        head.crc = checksum_crc32c(0, list, body.length);
        memcpy(&body.head, &head, sizeof head);
        body.flip = sim->hostile && chance(&sim->network, 0.01 * sim->settings.trouble);
    }
    if (action->kind == SESSION_CHUNK) {
        struct head_chunk head;
        memcpy(&head, &action->head, sizeof head);
        ASSERT(action->offset + action->length <= sim->body_bytes);
        head.crc =
            checksum_crc32c(0, worker->buffers[action->buffer] + action->offset, action->length);
        memcpy(&body.head, &head, sizeof head);
        body.sender_token = action->token;
        body.flip = sim->hostile && chance(&sim->network, 0.01 * sim->settings.trouble);
        const struct name name = {.worker = worker->session.worker,
                                  .incarnation = worker->session.incarnation,
                                  .sequence = head.sequence};
        struct sim_name *known = check_name(sim, &name);
        known->corrupted |= body.flip;
    }
    data_send(sim, &body);
}

/* Words that go by way of a member say the same as those over the control connection. */
static void words(struct sim *sim, uint32_t index, const struct session_action *action)
{
    struct head_describe head;
    memcpy(&head, &action->head, sizeof head);
    const struct session *session = &sim->workers[index].session;
    const struct message_describe describe = {.name = {.worker = session->worker,
                                                       .incarnation = session->incarnation,
                                                       .sequence = head.sequence},
                                              .slot = head.slot,
                                              .generation = head.generation,
                                              .purpose = PURPOSE_GRADIENT,
                                              .basis = head.basis,
                                              .samples = head.samples,
                                              .norm = head.norm,
                                              .layout_hash = session->options.layout_hash,
                                              .digest = head.digest};
    sim->counts.riding_words++;
    check_described(sim, index, &describe);
}

static void take(struct sim *sim, uint32_t index, const struct session_action *action)
{
    const struct sim_worker *worker = &sim->workers[index];
    const uint64_t base = action->box ? worker->places[action->box - 1] : 0;
    data_take(sim, action->offer, base + action->offset, action->token);
}

static void verdict(struct sim *sim, uint32_t index, const struct session_action *action)
{
    struct sim_worker *worker = &sim->workers[index];
    const struct message_receipt *receipt = &action->message.receipt;
    sim_tell(sim, "worker %u: push %llu ends: %s", index,
             (unsigned long long)receipt->name.sequence,
             receipt->verdict ? verdict_name(receipt->verdict) : "fate unknown");
    if (!worker->busy[action->buffer])
        sim_fail(sim, "worker %u hears a verdict on a push that it had heard of", index);
    check_heard(sim, index, receipt, worker->session.pushes[action->buffer].what.digest);
    worker->busy[action->buffer] = false;
    worker->verdicts += receipt->verdict != VERDICT_NONE;
    const uint32_t user = group_has(sim, index) ? 0 : index;
    if (sim->workers[user].phase == USER_WAITING) {
        sim->workers[user].phase = USER_IDLE;
        worker_think(sim, user, receipt->verdict == VERDICT_QUEUE_FULL ? 2 : 0.1);
    }
}

void worker_restart_later(struct sim *sim, uint32_t index)
{
    event_add(sim, (struct sim_event){.at_ns = sim->now_ns + event_delay(sim, 10),
                                      .kind = SIM_RESTART,
                                      .actor = actor_worker(index),
                                      .process = sim->actors[actor_worker(index)].process});
}

/* The process ends, in order or told so. */
void worker_exit(struct sim *sim, uint32_t index)
{
    sim->actors[actor_worker(index)].alive = false;
    control_break(sim, actor_worker(index), INT64_MAX);
    data_break_all(sim, index);
}

/* Told for good that it is out: it was replaced, or the job has ended. Nothing else may happen. */
static void failed(struct sim *sim, uint32_t index, const struct session_action *action)
{
    if (group_has(sim, index) &&
        (action->status == GRADWEIR_ERR_LOST || action->status == GRADWEIR_ERR_REFUSED)) {
        group_ends(sim);
        return;
    }
    const bool ended = action->status == GRADWEIR_ERR_STOPPED && sim->settings.drain;
    sim_tell(sim, "worker %u is out: %s", index, action->message.denied.text);
    if (action->status != GRADWEIR_ERR_FENCED && !ended)
        sim_fail(sim, "worker %u fails for good: %s", index, action->message.denied.text);
    sim->workers[index].out = true;
    worker_exit(sim, index);
}

static void left(struct sim *sim, uint32_t index)
{
    sim_tell(sim, "worker %u has left", index);
    worker_exit(sim, index);
    if (sim->quiet)
        sim->workers[index].gone = true;
    else
        worker_restart_later(sim, index);
}

static void pulled(struct sim *sim, uint32_t index, const struct session_action *action)
{
    struct sim_worker *worker = &sim->workers[index];
    const bool held = action->status == GRADWEIR_OK;
    if (!held && !worker->request.exact)
        sim_fail(sim, "worker %u is refused a version that it has not named", index);
    if (!held)
        sim->counts.not_held++;
    else if (!action->moved)
        boxes_unmoved(sim, index, action->version);
    else if (worker->request.boxes_count)
        boxes_check(sim, index, action->version);
    else
        check_pulled(sim, index, action->version);
    if (held && action->moved)
        worker->basis = action->version;
    worker->pulled_once = worker->pulled_once || held;
    worker->pulls++;
    worker->phase = USER_COMPUTING;
    worker_think(sim, index, 1);
}

static void carry_out(struct sim *sim, uint32_t index, const struct session_action *action)
{
    struct sim_worker *worker = &sim->workers[index];
    switch (action->kind) {
    case SESSION_SEND:
        if (action->message.kind == MESSAGE_DESCRIBE)
            check_described(sim, index, &action->message.describe);
        if (action->message.kind != MESSAGE_JOIN && action->message.kind != MESSAGE_RANK &&
            chance(&sim->random, 0.3)) {
            worker->has_old = true;
            worker->old = action->message;
        }
        control_to_coordinator(sim, actor_worker(index), &action->message);
        break;
    case SESSION_CONNECT: data_connect(sim, index, action->member); break;
    case SESSION_HANGUP: data_break(sim, worker->connections[action->member]); break;
    case SESSION_HEAD:
        if (action->head.kind == HEAD_DESCRIBE)
            words(sim, index, action);
        send_chunk(sim, index, action);
        break;
    case SESSION_LIST:
    case SESSION_CHUNK: send_chunk(sim, index, action); break;
    case SESSION_TAKE: take(sim, index, action); break;
    case SESSION_REFUSE: data_refuse(sim, action->offer); break;
    case SESSION_JOINED: sim_tell(sim, "worker %u is in", index); break;
    case SESSION_VERDICT: verdict(sim, index, action); break;
    case SESSION_PULLED: pulled(sim, index, action); break;
    case SESSION_SAY: sim_tell(sim, "worker %u: %s", index, action->message.denied.text); break;
    case SESSION_FAILED: failed(sim, index, action); break;
    case SESSION_LEFT: left(sim, index); break;
    }
}

void worker_step(struct sim *sim, uint32_t index, struct session_event event)
{
    struct sim_worker *worker = &sim->workers[index];
    if (!sim->actors[actor_worker(index)].alive || worker->out)
        return;
    event.now_ns = sim->now_ns + sim->actors[actor_worker(index)].skew_ns;
    session_step(&worker->session, &event, &sim->session_actions);
    /* None of these calls steps a session at once, so the actions stay. */
    for (uint32_t i = 0; i < sim->session_actions.count; i++)
        if (sim->actors[actor_worker(index)].alive)
            carry_out(sim, index, &sim->session_actions.items[i]);
    const int64_t next = session_next(&worker->session);
    if (event.kind == SESSION_TICK && next <= event.now_ns)
        sim_fail(sim, "worker %u's loop spins: its next tick is due in the past", index);
    server_wake(sim, actor_worker(index), next);
}

/* WANT is the shell's to answer; the rest is the core's. */
void worker_message(struct sim *sim, uint32_t index, const struct message *message)
{
    if (message->kind == MESSAGE_CALLED)
        return; /* a group hears it, which is the shell's */
    if (message->kind == MESSAGE_SWAPPED) {
        swaps_heard(sim, index, &message->swapped);
        return;
    }
    if (message->kind != MESSAGE_WANT) {
        worker_step(sim, index,
                    (struct session_event){.kind = SESSION_MESSAGE, .message = message});
        return;
    }
    struct message page = {.kind = MESSAGE_PAGE, .epoch = 1, .timeline = 1};
    uint8_t bytes[512];
    if (message->want.content == CONTENT_PARTS) {
        ASSERT(group_has(sim, index) && parts_bytes(sim->parts[index]) <= sizeof bytes);
        parts_encode(sim->parts[index], bytes);
        content_page(CONTENT_PARTS, bytes, parts_bytes(sim->parts[index]), 0, &page.page);
    } else {
        content_page(CONTENT_LAYOUT, sim->layout, sim->layout_bytes, 0, &page.page);
    }
    control_to_coordinator(sim, actor_worker(index), &page);
}

/* Where numbers are given again: a new process has a new name once the old one has left. */
static void name_anew(struct sim *sim, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];
    const uint32_t process = sim->actors[actor_worker(index)].process;
    if (sim->settings.order.numbers_max && process > 1 &&
        ledger_find(&sim->ledger, worker->identity) == WORKERS_MAX)
        snprintf(worker->identity, sizeof worker->identity, "w%u.%u", index, process);
}

/* A fresh process under the worker's identity. */
void worker_start(struct sim *sim, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];
    struct sim_actor *actor = &sim->actors[actor_worker(index)];
    actor->alive = true;
    actor->process++;
    actor->tick_ns = 0;
    actor->stopped_until_ns = 0;
    worker->out = worker->leaving = worker->pulled_once = false;
    worker->phase = USER_IDLE;
    memset(worker->busy, 0, sizeof worker->busy);
    struct session_options options = {.role = worker->reader ? ROLE_READER : ROLE_WORKER,
                                      .outstanding = worker->outstanding,
                                      .layout_hash = sim->model->hash,
                                      .elements = sim->model->elements,
                                      .moments = sim->model->moments,
                                      .model = sim->model,
                                      .resend_ns = sim->settings.resend_ns,
                                      .retry_ns = sim->settings.retry_ns};
    if (!group_has(sim, index)) /* ranks share one */
        name_anew(sim, index);
    memcpy(options.identity, worker->identity, sizeof options.identity);
    for (uint32_t i = 0; i < NONCE_BYTES; i++)
        options.nonce[i] = (uint8_t)random_next(&sim->random);
    if (group_has(sim, index))
        group_options(sim, index, &options);
    session_init(&worker->session, &options);
    if (sim->plant && session_plant(&worker->session, sim->plant))
        sim->planted = true;
    sim_tell(sim, "worker %u starts as process %u", index, actor->process);
    control_up_at(sim, actor_worker(index), sim->now_ns);
    swaps_start(sim, index);
    worker_think(sim, index, 1);
}
