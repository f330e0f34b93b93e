/* Carries out what the session says, and brings back what came of it. */
#include "client/client_direct.h"
#include "client/client_encode.h"

#include "common/clock.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

static const uint64_t chunk_mark = UINT64_C(1)
                                   << 63; /* in tokens of sends that the session counts */

/* Out. */

static void not_sent(void *context, const struct outbox_item *item, gradweir_status status)
{
    struct gradweir_client *client = context;
    (void)status; /* PEER_LOST says it too */
    transport_room_back(client->transport, item->peer, item->body);
    if (item->token & chunk_mark)
        client_event(client, &(struct session_event){.kind = SESSION_SENT,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .token = item->token & ~chunk_mark,
                                                     .status = GRADWEIR_ERR_LOST});
}

gradweir_status client_outbox(struct gradweir_client *client)
{
    client->outbox =
        (struct outbox){.transport = client->transport, .lost = not_sent, .context = client};
    return outbox_init(&client->outbox, HEADS_WAITING_MAX);
}

static void send_head(struct gradweir_client *client, const struct session_action *action)
{
    outbox_put(&client->outbox, &(struct outbox_item){.peer = client->peers[action->member],
                                                      .heads = {action->head},
                                                      .heads_count = 1});
}

static void send_list(struct gradweir_client *client, const struct session_action *action)
{
    struct outbox_item item = {
        .peer = client->peers[action->member], .heads = {action->head}, .heads_count = 1};
    client_pull_list(client, action->member, &item);
    outbox_put(&client->outbox, &item);
}

static void send_chunk(struct gradweir_client *client, const struct session_action *action)
{
    const uint8_t *lent = client->lent[action->buffer];
    const uint8_t *made = client_room_use(client, action);
    uint32_t memory = lent || made ? 0 : client->memories[action->buffer];
    const uint8_t *far = client_direct_body(client, action->buffer, &memory);
    const uint8_t *body = far ? far : lent ? lent : client->buffers[action->buffer];
    struct outbox_item item = {.peer = client->peers[action->member],
                               .heads_count = 1,
                               .body = made ? made : body + action->offset,
                               .length = action->length,
                               .token = action->token | chunk_mark,
                               .memory = memory};
    struct head_chunk head;
    memcpy(&head, &action->head, sizeof head);
    uint32_t crc;
    if (client_encode_crc(client, action->buffer, action->offset, action->length, &crc) !=
        GRADWEIR_OK) { /* its connection begins anew, and everything goes over that */
        transport_room_back(client->transport, item.peer, item.body);
        transport_hangup(client->transport, item.peer);
        return;
    }
    head.crc = crc;
    memcpy(&item.heads[0], &head, sizeof head);
    outbox_put(&client->outbox, &item);
}

static void joined(struct gradweir_client *client)
{
    client->joined = true;
    client_tell(client, GRADWEIR_EVENT_JOINED, GRADWEIR_OK,
                "joined %s as worker %u.%llu, %u shards", client->address, client->session.worker,
                (unsigned long long)client->session.incarnation, client->session.members_count);
    client_send_report(client);
}

static void carry_out(struct gradweir_client *client, const struct session_action *action)
{
    switch (action->kind) {
    case SESSION_SEND: control_send(client->control, CONTROL_SERVER, &action->message); break;
    case SESSION_CONNECT: client_connect(client, action->member); break;
    case SESSION_HANGUP:
        if (client->peers[action->member])
            transport_hangup(client->transport, client->peers[action->member]);
        break;
    case SESSION_HEAD: send_head(client, action); break;
    case SESSION_LIST: send_list(client, action); break;
    case SESSION_CHUNK: send_chunk(client, action); break;
    case SESSION_TAKE: client_take(client, action); break;
    case SESSION_REFUSE: transport_refuse(client->transport, action->offer); break;
    case SESSION_JOINED: joined(client); break;
    case SESSION_VERDICT: client_verdict(client, action); break;
    case SESSION_PULLED: client_pulled(client, action); break;
    case SESSION_SAY:
        log_line(&client->log, LOG_WARN, "client", "%s", action->message.denied.text);
        break;
    case SESSION_FAILED: client_failed(client, action); break;
    case SESSION_LEFT: client->left = true; break;
    }
}

static void step_once(struct gradweir_client *client, const struct session_event *event)
{
    session_step(&client->session, event, &client->actions);
    for (uint32_t i = 0; i < client->actions.count; i++)
        carry_out(client, &client->actions.items[i]);
}

/* News that arise while actions are carried out wait until these are done. */
void client_event(struct gradweir_client *client, const struct session_event *event)
{
    if (client->stepping) {
        ASSERT(client->deferred_count < SESSION_ACTIONS_MAX); /* at most one per action */
        client->deferred[client->deferred_count++] = *event;
        return;
    }
    client->stepping = true;
    step_once(client, event);
    while (client->deferred_count) {
        const struct session_event next = client->deferred[0];
        memmove(client->deferred, client->deferred + 1,
                --client->deferred_count * sizeof *client->deferred);
        step_once(client, &next);
    }
    client->stepping = false;
}

/* In. */

static void message_came(struct gradweir_client *client, const struct message *message)
{
    switch (message->kind) {
    case MESSAGE_WANT:
        if (message->want.content == CONTENT_LAYOUT)
            client_send_layout(client);
        if (message->want.content == CONTENT_PARTS)
            client_send_parts(client);
        return;
    case MESSAGE_PAGE: content_add(client->assembler, &message->page); return;
    case MESSAGE_SWAPPED: client_swapped(client, &message->swapped); return;
    case MESSAGE_CALLED: client->called |= message->called.waiting; return;
    case MESSAGE_TUNED:
        client->tuned = true;
        client->tuned_answer = message->tuned;
        return;
    default: break;
    }
    if (client->bound)
        client_event(client, &(struct session_event){.kind = SESSION_MESSAGE,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .message = message});
    else if (message->kind == MESSAGE_DENIED) {
        client->failed = (gradweir_status)message->denied.status;
        memcpy(client->failed_text, message->denied.text, sizeof client->failed_text);
    }
}

static bool turn_control(struct gradweir_client *client)
{
    bool any = false;
    struct control_event *event;
    while ((event = control_poll(client->control))) {
        any = true;
        if (event->kind == CONTROL_MESSAGE) {
            message_came(client, &event->message);
            continue;
        }
        client->up = event->kind == CONTROL_UP;
        if (!client->session.leaving)
            client_tell(client, client->up ? GRADWEIR_EVENT_CONNECTED : GRADWEIR_EVENT_LOST,
                        client->up ? GRADWEIR_OK : GRADWEIR_ERR_LOST, "coordinator %s: %s",
                        client->address, client->up ? "connected" : "connection lost");
        if (client->bound)
            client_event(client,
                         &(struct session_event){.kind = client->up ? SESSION_UP : SESSION_DOWN,
                                                 .now_ns = (int64_t)clock_now_ns()});
    }
    const char *reason = control_refused(client->control);
    if (reason && reason != client->turned_away)
        client_tell(client, GRADWEIR_EVENT_REFUSED, GRADWEIR_ERR_REFUSED, "%s turns us away: %s",
                    client->address, reason);
    client->turned_away = reason;
    return any;
}

static uint32_t member_of(const struct gradweir_client *client, uint64_t peer)
{
    for (uint32_t i = 0; i < MEMBERS_MAX; i++)
        if (client->peers[i] == peer)
            return i;
    return MEMBERS_MAX;
}

static void say_lane(struct gradweir_client *client, uint32_t member)
{
    char text[TRANSPORT_TEXT_SIZE] = "?";
    (void)transport_describe(client->transport, client->peers[member], text, sizeof text);
    client_tell(client, GRADWEIR_EVENT_SHARD_CONNECTED, GRADWEIR_OK, "shard %u at %s: %s", member,
                client->session.members[member].where.address, text);
}

static void say_lost(struct gradweir_client *client, uint32_t member, const char *reason)
{
    if (!client->session.leaving && client->session.members[member].state == MEMBER_OPEN)
        client_tell(client, GRADWEIR_EVENT_SHARD_LOST, GRADWEIR_ERR_LOST, "shard %u at %s: %s",
                    member, client->session.members[member].where.address, reason);
}

static void lost(struct gradweir_client *client, const struct transport_event *event,
                 uint32_t member)
{
    say_lost(client, member, event->reason);
    outbox_flush(&client->outbox); /* its tokens come back first */
    client->peers[member] = 0;
    client_event(client, &(struct session_event){.kind = SESSION_PEER_LOST,
                                                 .now_ns = (int64_t)clock_now_ns(),
                                                 .member = member});
}

static void connected(struct gradweir_client *client, uint32_t member)
{
    say_lane(client, member);
    client_connected(client, member);
    client_event(client, &(struct session_event){.kind = SESSION_CONNECTED,
                                                 .now_ns = (int64_t)clock_now_ns(),
                                                 .member = member});
}

static void offered(struct gradweir_client *client, const struct transport_event *event,
                    uint32_t member)
{
    struct head_any head = {.kind = 0};
    uint32_t bodied;
    const uint32_t heads = outbox_heads(event, &bodied);
    for (uint32_t i = 0; i < heads || i == 0; i++) {
        if (heads)
            memcpy(&head, event->head + i * HEAD_BYTES, HEAD_BYTES);
        client_event(client, &(struct session_event){.kind = SESSION_OFFERED,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .member = member,
                                                     .head = &head,
                                                     .offer = i == bodied ? event->offer : 0,
                                                     .length = i == bodied ? event->length : 0});
    }
}

static void chunk_sent(struct gradweir_client *client, const struct transport_event *event)
{
    if (event->token & chunk_mark)
        client_event(client, &(struct session_event){.kind = SESSION_SENT,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .token = event->token & ~chunk_mark,
                                                     .status = event->status});
}

static void transport_told(struct gradweir_client *client, const struct transport_event *event)
{
    const uint32_t member = member_of(client, event->peer);
    if (event->kind == TRANSPORT_LANDED)
        client_landed(client, event);
    else if (event->kind == TRANSPORT_SENT)
        chunk_sent(client, event);
    else if (member == MEMBERS_MAX && event->kind == TRANSPORT_OFFERED && event->length)
        transport_refuse(client->transport, event->offer);
    else if (member == MEMBERS_MAX)
        return;
    else if (event->kind == TRANSPORT_LOST)
        lost(client, event, member);
    else if (event->kind == TRANSPORT_CONNECTED)
        connected(client, member);
    else if (event->kind == TRANSPORT_OFFERED)
        offered(client, event, member);
}

bool client_at_once(void *context, const struct transport_event *event)
{
    struct gradweir_client *client = context;
    client->handed = true;
    transport_told(client, event);
    return true;
}

static bool turn_transport(struct gradweir_client *client)
{
    struct transport_event events[32];
    client->handed = false;
    const size_t count = transport_poll(client->transport, events, 32);
    for (size_t i = 0; i < count; i++)
        transport_told(client, &events[i]);
    return count > 0 || client->handed;
}

bool client_turn(struct gradweir_client *client)
{
    bool any = turn_control(client);
    if (client->bound) {
        any |= turn_transport(client);
        const int64_t now_ns = (int64_t)clock_now_ns();
        if (now_ns >= session_next(&client->session))
            client_event(client, &(struct session_event){.kind = SESSION_TICK, .now_ns = now_ns});
        outbox_flush(&client->outbox);
    }
    control_flush(client->control);
    return any;
}

void client_sleep(struct gradweir_client *client, uint64_t deadline_ns)
{
    if ((client->transport && transport_arm(client->transport) != GRADWEIR_OK) ||
        control_ready(client->control))
        return;
    int fds[2];
    struct pollfd wait[3];
    nfds_t count = 0;
    const size_t control_count = control_fds(client->control, fds);
    for (size_t i = 0; i < control_count; i++)
        wait[count++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    if (client->transport)
        wait[count++] = (struct pollfd){.fd = transport_fd(client->transport), .events = POLLIN};
    const int64_t next = client->bound ? session_next(&client->session) : INT64_MAX;
    if (next >= 0 && (uint64_t)next < deadline_ns)
        deadline_ns = (uint64_t)next;
    const int timeout_ms = deadline_poll_ms(clock_now_ns(), deadline_ns);
    poll(wait, count, timeout_ms < 0 || timeout_ms > 200 ? 200 : timeout_ms);
}

gradweir_status client_wait_until(struct gradweir_client *client, client_ready ready, uint64_t what,
                                  uint64_t deadline_ns)
{
    for (idle_anew(&client->idle);;) {
        const bool any = client_turn(client);
        if (ready(client, what))
            return GRADWEIR_OK;
        if (client->failed != GRADWEIR_OK)
            return fail(client->failed, "%s: %s", client->address, client->failed_text);
        if (deadline_passed(clock_now_ns(), deadline_ns))
            break;
        if (!idle_again(&client->idle, any))
            client_sleep(client, deadline_ns);
    }
    char text[256] = "";
    if (client->bound)
        session_waiting(&client->session, text, sizeof text);
    if (!client->up && control_refused(client->control))
        return fail(GRADWEIR_ERR_REFUSED, "%s turns us away: %s", client->address,
                    control_refused(client->control));
    if (!client->up)
        return fail(GRADWEIR_ERR_UNREACHABLE, "nobody answers at %s", client->address);
    return fail(GRADWEIR_ERR_TIMEOUT, "%s: %s", client->address,
                text[0] ? text : "no answer from the coordinator");
}
