/* Joins the job, hands events to who knows them. */
#include "client/session.h"

#include <stdio.h>
#include <string.h>

struct session_action *session_act(struct session *session, enum session_action_kind kind)
{
    ASSERT(session->out->count < SESSION_ACTIONS_MAX);
    struct session_action *action = &session->out->items[session->out->count++];
    memset(action, 0, offsetof(struct session_action, message));
    action->kind = kind;
    return action;
}

struct message *session_tell(struct session *session, enum message_kind kind)
{
    struct message *message = &session_act(session, SESSION_SEND)->message;
    message->kind = kind;
    message->epoch = session->epoch;
    message->timeline = session->timeline;
    return message;
}

void session_init(struct session *session, const struct session_options *options)
{
    memset(session, 0, sizeof *session);
    session->options = *options;
    session->epoch = session->timeline = 1;
    session->join_ns = INT64_MAX;
}

enum arithmetic_codec session_codec(const struct session *session, uint32_t purpose)
{
    return purpose == PURPOSE_FIRST ? ARITHMETIC_F32 : session->codec;
}

uint64_t session_chunk(const struct session *session, const struct session_push *push)
{
    return codec_chunk(session_codec(session, push->what.purpose), session->chunk_bytes);
}

struct session_span session_span(const struct session *session, const struct session_push *push,
                                 uint32_t index)
{
    const struct session_member *member = &session->members[index];
    return push->what.purpose == PURPOSE_FIRST
               ? (struct session_span){.offset = member->offset, .bytes = member->bytes}
               : member->gradient;
}

static void fail_for_good(struct session *session, gradweir_status status, const char *text)
{
    session->failed = true;
    session->join_ns = INT64_MAX;
    struct session_action *action = session_act(session, SESSION_FAILED);
    action->status = status;
    snprintf(action->message.denied.text, TEXT_MAX, "%s", text);
}

void session_join(struct session *session)
{
    if (session->failed || session->resting)
        return;
    const struct parts *parts = session->options.parts;
    session->join_ns = session->now_ns + session->options.resend_ns;
    if (parts)
        session_tell(session, MESSAGE_RANK)->rank =
            (struct message_rank){.rank = parts->rank,
                                  .ranks = parts->ranks,
                                  .incarnation = session->incarnation,
                                  .instance = session->options.instance};
    struct message *message = session_tell(session, MESSAGE_JOIN);
    message->join = (struct message_join){.protocol_oldest = PROTOCOL_OLDEST,
                                          .protocol_newest = PROTOCOL_VERSION,
                                          .role = parts ? ROLE_RANK : session->options.role,
                                          .layout_hash = session->options.layout_hash,
                                          .outstanding_max = session->options.outstanding};
    memcpy(message->join.identity, session->options.identity, IDENTITY_MAX);
    memcpy(message->join.nonce, session->options.nonce, NONCE_BYTES);
}

void session_wake(struct session *session)
{
    const bool rested = session->resting;
    session->resting = false;
    if (rested)
        session_join(session);
}

/* The others of a round (mode = sync) waited too long for us: we are out, and come in again once
 * there is something to push or to pull. What is under way learns its fate then. */
static void taken_out(struct session *session, const char *text)
{
    bool busy = session->pulling || !session->joined;
    for (uint32_t i = 0; i < session->options.outstanding; i++)
        busy = busy || session->pushes[i].state != PUSH_FREE;
    snprintf(session_act(session, SESSION_SAY)->message.denied.text, TEXT_MAX, "%s", text);
    session->joined = false;
    session_places_forget(session);
    session->resting = true;
    if (busy)
        session_wake(session);
}

static void denied(struct session *session, const struct message_denied *denied)
{
    if (denied->status == GRADWEIR_ERR_AGAIN)
        taken_out(session, denied->text);
    else
        fail_for_good(session, (gradweir_status)denied->status, denied->text);
}

static void say_bye(struct session *session)
{
    session_tell(session, MESSAGE_BYE)->bye.name =
        (struct name){.worker = session->worker, .incarnation = session->incarnation};
}

static bool sound(const struct session *session, const struct message_joined *joined)
{
    uint64_t next = 0;
    if (joined->members_count == 0 || joined->members_count > MEMBERS_MAX)
        return false;
    for (uint32_t i = 0; i < joined->members_count; i++) {
        if (joined->members[i].first != next ||
            joined->members[i].count > session->options.elements - next)
            return false;
        next += joined->members[i].count;
    }
    return next == session->options.elements && joined->chunk_bytes >= sizeof(float) &&
           joined->chunk_bytes <= UINT32_MAX && codec_name(joined->gradient_dtype) != NULL &&
           (session->incarnation == 0 || joined->gradient_dtype == session->codec);
}

static void came_in(struct session *session, const struct message *message)
{
    const struct message_joined *joined = &message->joined;
    if (!sound(session, joined)) {
        fail_for_good(session, GRADWEIR_ERR_PROTOCOL,
                      "the coordinator's members do not tile the model that was bound, or its "
                      "gradient_dtype has changed");
        return;
    }
    if (!session->unanswered && message->epoch == session->epoch &&
        joined->worker == session->worker && joined->incarnation < session->incarnation) {
        session->strange++; /* late: a newer one has come over this connection */
        return;
    }
    if (session->options.parts && session->incarnation != joined->incarnation &&
        (session->incarnation != 0 || joined->last_sequence > 0)) {
        fail_for_good(session, GRADWEIR_ERR_LOST,
                      "this group has been taken out: its ranks no longer agree on what was under "
                      "way; start all of them anew");
        return;
    }
    session->join_ns = INT64_MAX;
    const bool same_epoch = session->epoch == message->epoch;
    const bool same =
        session->worker == joined->worker && session->incarnation == joined->incarnation;
    const bool same_timeline = session->timeline == message->timeline;
    /* A later one may only be late: it was said before the first parameters came. */
    if (session->unanswered && session->first && !joined->first && same_timeline) {
        fail_for_good(session, GRADWEIR_ERR_LOST,
                      "the servers have begun anew: the parameters of this job are lost");
        return;
    }
    session->unanswered = false;
    session->epoch = message->epoch;
    session->older = 0;
    session->timeline = message->timeline;
    session->worker = joined->worker;
    session->incarnation = joined->incarnation;
    session->job = joined->job;
    session->first = joined->first;
    session->chunk_bytes = joined->chunk_bytes;
    session->codec = (enum arithmetic_codec)joined->gradient_dtype;
    session->magnitude_max = joined->magnitude_max;
    session->joined = true;
    if (session->leaving) { /* the farewell went to nobody: it named an incarnation of before */
        say_bye(session);
        return;
    }
    if (joined->version > session->newest || !same_timeline)
        session->newest = joined->version;
    const bool greet = !same || !same_epoch || !same_timeline ||
                       memcmp(session->pass, joined->pass, sizeof session->pass) != 0;
    memcpy(session->pass, joined->pass, sizeof session->pass);
    session_members_told(session, joined, greet);
    if (!same_timeline)
        session_pull_anew(session);
    session_push_rejoined(session, same, same_epoch);
    session_act(session, SESSION_JOINED);
}

static void offered(struct session *session, const struct session_event *event)
{
    switch (event->head->kind) {
    case HEAD_WELCOME:
    case HEAD_DENY: session_member_answered(session, event); break;
    case HEAD_RECEIPT: session_push_admitted(session, event); break;
    case HEAD_PARAMETERS:
    case HEAD_GONE: session_pull_offered(session, event); return;
    default: session->strange++; break;
    }
    if (event->length)
        session_act(session, SESSION_REFUSE)->offer = event->offer;
}

/* The servers keep the connection open until they hear that this was read. */
static void stopped(struct session *session)
{
    say_bye(session);
    if (session->leaving)
        session_act(session, SESSION_LEFT);
    else if (!session->failed)
        fail_for_good(session, GRADWEIR_ERR_STOPPED, "the servers have shut down in order");
}

static void message_came(struct session *session, const struct message *message)
{
    if (message->epoch < session->epoch) {
        session->strange++;
        session->older = message->epoch;
        return;
    }
    switch (message->kind) {
    case MESSAGE_JOINED: came_in(session, message); break;
    case MESSAGE_DENIED: denied(session, &message->denied); break;
    case MESSAGE_REJOIN: session_join(session); break;
    case MESSAGE_STOP: stopped(session); break;
    case MESSAGE_BYE: session_act(session, SESSION_LEFT); break;
    case MESSAGE_MOVED: session_member_moved(session, &message->moved); break;
    case MESSAGE_WHOLE:
        if (message->whole.version > session->newest)
            session->newest = message->whole.version;
        break;
    case MESSAGE_PLACE: session_push_place(session, &message->place); break;
    case MESSAGE_RECEIPT:
        session->unanswered = false;
        session_push_receipt(session, &message->receipt);
        break;
    default: session->strange++; break;
    }
}

/* A JOIN over a connection of before may come after the one over the new connection, and take the
 * answer along. */
static void tick(struct session *session)
{
    if (session->now_ns >= session->join_ns)
        session_join(session);
    session_members_tick(session);
    session_push_tick(session);
    session_pull_tick(session);
}

static void leave(struct session *session)
{
    session->leaving = true;
    if (!session->up || !session->joined) {
        session_act(session, SESSION_LEFT);
        return;
    }
    say_bye(session);
}

void session_step(struct session *session, const struct session_event *event,
                  struct session_actions *actions)
{
    actions->count = 0;
    session->out = actions;
    session->now_ns = event->now_ns;
    switch (event->kind) {
    case SESSION_UP:
        session->up = session->unanswered = true;
        session_join(session);
        break;
    case SESSION_DOWN:
        session->up = session->joined = false;
        session->join_ns = INT64_MAX;
        if (session->leaving) /* farewell may be lost: who leaves does not come back for it */
            session_act(session, SESSION_LEFT);
        break;
    case SESSION_MESSAGE: message_came(session, event->message); break;
    case SESSION_CONNECTED: session_member_hello(session, event->member); break;
    case SESSION_PEER_LOST: session_member_lost(session, event->member); break;
    case SESSION_OFFERED: offered(session, event); break;
    case SESSION_LANDED: session_pull_landed(session, event); break;
    case SESSION_SENT: session_push_sent(session, event); break;
    case SESSION_PUSH: session_push_start(session, &event->push); break;
    case SESSION_FILLED: session_push_filled(session, &event->push); break;
    case SESSION_PULL: session_pull_start(session, &event->pull, event->after); break;
    case SESSION_BYE: leave(session); break;
    case SESSION_TICK: tick(session); break;
    }
    session->out = NULL;
}

int64_t session_next(const struct session *session)
{
    const int64_t pull_ns = session_pull_next(session);
    const int64_t member_ns = session_members_next(session);
    int64_t next = pull_ns < session->join_ns ? pull_ns : session->join_ns;
    next = member_ns < next ? member_ns : next;
    for (uint32_t i = 0; i < session->options.outstanding; i++)
        if (session->pushes[i].state != PUSH_FREE && session->pushes[i].resend_ns < next)
            next = session->pushes[i].resend_ns;
    return next;
}

bool session_plant(struct session *session, const char *name)
{
    if (strcmp(name, "other-bytes-on-retry") != 0)
        return false;
    return session->plant.other_bytes = true;
}

void session_waiting(const struct session *session, char *text, size_t size)
{
    text[0] = 0;
    if (!session->up) {
        snprintf(text, size, "the coordinator does not answer");
        return;
    }
    if (!session->joined && session->older) {
        snprintf(text, size, "who answers is the coordinator of epoch %u, and epoch %u has begun",
                 session->older, session->epoch);
        return;
    }
    if (!session->joined) {
        snprintf(text, size, "the coordinator has not taken us in yet (are all shards there?)");
        return;
    }
    for (uint32_t i = 0; i < session->members_count; i++)
        if (session->members[i].state != MEMBER_OPEN) {
            snprintf(text, size, "no connection to shard %u at %s", i,
                     session->members[i].where.address);
            return;
        }
    for (uint32_t i = 0; i < session->options.outstanding; i++) {
        const struct session_push *push = &session->pushes[i];
        if (push->state == PUSH_WANTS_PLACE)
            snprintf(text, size, "push %llu waits for a free slot",
                     (unsigned long long)push->sequence);
        else if (push->state == PUSH_SENDING)
            snprintf(text, size, "push %llu waits for its verdict",
                     (unsigned long long)push->sequence);
    }
    for (uint32_t i = 0; session->pulling && i < session->members_count; i++)
        if (!session->parts[i].complete) {
            snprintf(text, size, "shard %u at %s has not sent version %llu or newer", i,
                     session->members[i].where.address, (unsigned long long)session->pull_version);
            return;
        }
}
