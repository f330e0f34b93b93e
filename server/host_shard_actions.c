/* Carries out what the shard's core says, and brings back what came of it. */
#include "server/host_shard_mirror.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

static void not_sent(void *context, const struct outbox_item *item, gradweir_status status);

gradweir_status shard_loop_tables(struct shard_loop *loop)
{
    const struct transport_settings *transport = &loop->host->options->transport;
    loop->actions.max = shard_actions_max(loop->shard);
    loop->takes_max = transport->peers_max * transport->offers_max;
    const uint32_t replies_max = transport->peers_max * 64;
    loop->jobs_max = loop->member.slots + 8;
    loop->actions.items = calloc(loop->actions.max, sizeof *loop->actions.items);
    loop->reply_sums = calloc(REPLY_SUMS, sizeof *loop->reply_sums);
    loop->takes = calloc(loop->takes_max + 1, sizeof *loop->takes);
    loop->outbox = (struct outbox){.transport = loop->transport, .lost = not_sent, .context = loop};
    loop->jobs = calloc(loop->jobs_max, sizeof *loop->jobs);
    loop->scan_sums = calloc(loop->member.count / MODEL_BLOCK_MIN + 2, sizeof *loop->scan_sums);
    loop->peers_max = transport->peers_max;
    loop->deferred_max = loop->takes_max + replies_max;
    loop->deferred = calloc(loop->deferred_max, sizeof *loop->deferred);
    if (!loop->deferred || !loop->actions.items || !loop->takes || !loop->reply_sums ||
        !loop->jobs || !loop->scan_sums || outbox_init(&loop->outbox, replies_max) != GRADWEIR_OK)
        return fail(GRADWEIR_ERR_NO_MEMORY, "shard %u: no memory for its tables",
                    loop->member.shard);
    for (uint32_t i = 0; i < loop->takes_max; i++)
        loop->takes[i].next_free = i + 1;
    return GRADWEIR_OK;
}

void shard_loop_tables_free(struct shard_loop *loop)
{
    free(loop->actions.items);
    free(loop->deferred);
    free(loop->takes);
    free(loop->reply_sums);
    outbox_deinit(&loop->outbox);
    free(loop->jobs);
    free(loop->scan_sums);
}

/* Bodies into the arena. */

static void take_at_hand(struct shard_loop *loop, const struct shard_action *action,
                         const void *body)
{
    struct shard_event told = {
        .kind = SHARD_LANDED, .token = action->token, .length = action->length};
    shard_copy_body(loop->shard, loop->arithmetic, action->offset, body, &told);
    shard_mirror_landed(loop, action->offset, action->length);
    transport_refuse(loop->transport, action->offer);
    told.now_ns = (int64_t)clock_now_ns();
    shard_loop_event(loop, &told);
}

static void take(struct shard_loop *loop, const struct shard_action *action)
{
    const void *body = transport_body(loop->transport, action->offer);
    if (body) {
        take_at_hand(loop, action, body);
        return;
    }
    const uint32_t i = loop->takes_free;
    ASSERT(i < loop->takes_max);
    struct shard_take *entry = &loop->takes[i];
    void *place = shard_address(loop->shard, action->offset);
    const gradweir_status status =
        transport_take(loop->transport, action->offer, place, loop->arena_memory, i + 1);
    if (status != GRADWEIR_OK) {
        shard_loop_event(loop, &(struct shard_event){.kind = SHARD_LANDED,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .token = action->token,
                                                     .status = status});
        return;
    }
    loop->takes_free = entry->next_free;
    *entry = (struct shard_take){
        .token = action->token, .offset = action->offset, .length = action->length};
}

static void landed(struct shard_loop *loop, const struct transport_event *event)
{
    const uint32_t i = (uint32_t)event->token - 1;
    ASSERT(i < loop->takes_max);
    const struct shard_take entry = loop->takes[i];
    loop->takes[i].next_free = loop->takes_free;
    loop->takes_free = i;
    struct shard_event told = {.kind = SHARD_LANDED,
                               .now_ns = (int64_t)clock_now_ns(),
                               .peer = event->peer,
                               .token = entry.token,
                               .length = event->length,
                               .status = event->status};
    if (event->status == GRADWEIR_OK) {
        shard_measure_body(loop->shard, loop->arithmetic, entry.offset, &told);
        shard_mirror_landed(loop, entry.offset, event->length);
    }
    shard_loop_event(loop, &told);
}

/* Bodies out of the arena. */

static void sent(struct shard_loop *loop, uint64_t token, gradweir_status status)
{
    if (token == 0)
        return;
    shard_loop_event(loop, &(struct shard_event){.kind = SHARD_SENT,
                                                 .now_ns = (int64_t)clock_now_ns(),
                                                 .token = token,
                                                 .status = status});
}

/* A peer for which so much waits does not read. */
static void not_sent(void *context, const struct outbox_item *item, gradweir_status status)
{
    struct shard_loop *loop = context;
    if (status == GRADWEIR_ERR_AGAIN)
        transport_hangup(loop->transport, item->peer);
    sent(loop, item->token, status);
}

static void reply(struct shard_loop *loop, const struct shard_action *action)
{
    struct outbox_item item = {.peer = action->peer,
                               .heads = {action->head},
                               .heads_count = 1,
                               .memory = loop->arena_memory,
                               .body = shard_address(loop->shard, action->offset),
                               .length = action->length,
                               .token = action->token};
    if (action->head.kind == HEAD_PARAMETERS) {
        struct head_parameters head;
        memcpy(&head, &action->head, sizeof head);
        head.crc = shard_loop_reply_sum(loop, &head, action->offset, action->length);
        memcpy(&item.heads[0], &head, sizeof head);
    }
    outbox_put(&loop->outbox, &item);
}

/* The transport. */

static void offered(struct shard_loop *loop, const struct transport_event *event)
{
    struct head_any head = {.kind = 0};
    uint32_t bodied;
    const uint32_t heads = outbox_heads(event, &bodied);
    const uint64_t portion = transport_portion(loop->transport, event->peer);
    for (uint32_t i = 0; i < heads || i == 0; i++) {
        if (heads)
            memcpy(&head, event->head + i * HEAD_BYTES, HEAD_BYTES);
        shard_loop_event(loop, &(struct shard_event){.kind = SHARD_OFFERED,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .peer = event->peer,
                                                     .head = &head,
                                                     .portion = portion,
                                                     .offer = i == bodied ? event->offer : 0,
                                                     .length = i == bodied ? event->length : 0});
    }
}

static void transport_told(struct shard_loop *loop, const struct transport_event *event)
{
    if (!loop->shard && event->kind == TRANSPORT_OFFERED)
        transport_hangup(loop->transport, event->peer); /* too early: it will come again */
    if (!loop->shard && event->kind != TRANSPORT_ACCEPTED)
        return;
    switch (event->kind) {
    case TRANSPORT_OFFERED: offered(loop, event); break;
    case TRANSPORT_LANDED: landed(loop, event); break;
    case TRANSPORT_SENT: sent(loop, event->token, event->status); break;
    case TRANSPORT_LOST:
        shard_loop_peer(loop, event->peer, false);
        shard_loop_event(loop, &(struct shard_event){.kind = SHARD_PEER_LOST,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .peer = event->peer,
                                                     .status = event->status});
        break;
    case TRANSPORT_ACCEPTED: shard_loop_peer(loop, event->peer, true); break;
    case TRANSPORT_CONNECTED:
    case TRANSPORT_WRITABLE: break;
    }
}

static bool guesses(const struct shard_loop *loop)
{
    return loop->shard && shard_guesses(loop->shard);
}

bool shard_loop_at_once(void *context, const struct transport_event *event)
{
    struct shard_loop *loop = context;
    loop->handed = true;
    transport_told(loop, event);
    return !(loop->complete && guesses(loop));
}

bool shard_loop_transport(struct shard_loop *loop)
{
    struct transport_event events[SHARD_EVENTS_MAX];
    loop->handed = loop->complete = false;
    size_t all = 0, count;
    const bool one_by_one = guesses(loop);
    do {
        count = transport_poll(loop->transport, events, one_by_one ? 1 : SHARD_EVENTS_MAX);
        for (size_t i = 0; i < count; i++)
            transport_told(loop, &events[i]);
        all += count;
    } while (one_by_one && count > 0 && all < SHARD_EVENTS_MAX && !loop->complete);
    return all > 0 || loop->handed;
}

static void send_message(struct shard_loop *loop, struct message *message)
{
    loop->complete |= message->kind == MESSAGE_LANDED;
    if (message->kind == MESSAGE_PULSE)
        shard_loop_describe(loop, &message->pulse);
    control_send(loop->control, CONTROL_SERVER, message);
}

/* A new coordinator has sealed us: rare, so the room is taken for it alone. */
static void send_content(struct shard_loop *loop, const struct shard_action *action)
{
    const size_t room = shard_content_max(loop->shard);
    uint8_t *bytes = malloc(room);
    if (!bytes) {
        log_line(loop->host->log, LOG_ERROR, "shard", "no memory for what a coordinator asks for");
        return;
    }
    const size_t count = shard_content(loop->shard, bytes, room);
    struct message page = action->message;
    page.kind = MESSAGE_PAGE;
    for (uint32_t i = 0; i < content_pages(count); i++) {
        content_page(CONTENT_SEALED, bytes, count, i, &page.page);
        control_send(loop->control, CONTROL_SERVER, &page);
    }
    free(bytes);
}

static void carry_out(struct shard_loop *loop, struct shard_action *action)
{
    switch (action->kind) {
    case SHARD_SEND: send_message(loop, &action->message); break;
    case SHARD_REPLY: reply(loop, action); break;
    case SHARD_TAKE: take(loop, action); break;
    case SHARD_REFUSE: transport_refuse(loop->transport, action->offer); break;
    case SHARD_HANGUP: transport_hangup(loop->transport, action->peer); break;
    case SHARD_SCAN:
    case SHARD_AVERAGE:
    case SHARD_STEP: shard_loop_queue(loop, action); break;
    case SHARD_KEEP:
        shard_loop_record_body(loop, action->token, action->offset, action->length);
        break;
    case SHARD_CONTENT: send_content(loop, action); break;
    case SHARD_SAY:
        log_line(loop->host->log, LOG_INFO, "shard", "%s", action->message.denied.text);
        break;
    }
}

static void step_once(struct shard_loop *loop, const struct shard_event *event)
{
    loop->actions.count = 0;
    shard_step(loop->shard, event, &loop->actions);
    shard_loop_record(loop);
    for (uint32_t i = 0; i < loop->actions.count; i++)
        carry_out(loop, &loop->actions.items[i]);
}

/* Carrying out may have news for the core at once (a take that fails): they wait until the actions
 * of this step are done, so that these keep their order. Such events carry no pointers. */
void shard_loop_event(struct shard_loop *loop, const struct shard_event *event)
{
    if (loop->stepping) {
        ASSERT(loop->deferred_count < loop->deferred_max);
        loop->deferred[loop->deferred_count++] = *event;
        return;
    }
    loop->stepping = true;
    step_once(loop, event);
    for (uint32_t i = 0; i < loop->deferred_count; i++) {
        const struct shard_event next = loop->deferred[i];
        step_once(loop, &next);
    }
    loop->deferred_count = 0;
    loop->stepping = false;
}
