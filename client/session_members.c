/* A worker's members: connecting, HELLO, what breaks and what moves. */
#include "client/session.h"

#include <string.h>

void session_member_hello(struct session *session, uint32_t index)
{
    struct session_member *member = &session->members[index];
    struct head_hello head = {.kind = HEAD_HELLO,
                              .level = PROTOCOL_VERSION,
                              .worker = session->worker,
                              .epoch = session->epoch,
                              .timeline = session->timeline,
                              .job = session->job,
                              .incarnation = session->incarnation};
    memcpy(head.pass, session->pass, sizeof head.pass);
    if (session->options.parts) {
        head.rank = (uint8_t)session->options.parts->rank;
        head.ranks = (uint8_t)session->options.parts->ranks;
    }
    struct session_action *action = session_act(session, SESSION_HEAD);
    action->member = index;
    memcpy(&action->head, &head, sizeof head);
    member->state = MEMBER_GREETING;
    member->retry_ns = INT64_MAX;
}

static void connect_member(struct session *session, uint32_t index)
{
    session->members[index].state = MEMBER_CONNECTING;
    session_act(session, SESSION_CONNECT)->member = index;
}

/* When the next try is due; each that fails doubles the pause. */
static void try_later(struct session *session, struct session_member *member)
{
    const int64_t longest_ns = SESSION_RETRIES_MAX * session->options.retry_ns;
    if (member->pause_ns == 0)
        member->pause_ns = session->options.retry_ns;
    member->retry_ns = session->now_ns + member->pause_ns;
    member->pause_ns = member->pause_ns < longest_ns / 2 ? 2 * member->pause_ns : longest_ns;
}

static bool is_same(const struct member *a, const struct member *b)
{
    return a->first == b->first && a->count == b->count && strcmp(a->address, b->address) == 0;
}

static void hang_up(struct session *session, uint32_t index)
{
    session_act(session, SESSION_HANGUP)->member = index;
    session->members[index].state = MEMBER_CONNECTING; /* anew, once PEER_LOST has come */
}

/* Open sessions are greeted again when what they are bound to has changed. */
void session_members_told(struct session *session, const struct message_joined *joined, bool greet)
{
    session->members_count = joined->members_count;
    for (uint32_t i = 0; i < joined->members_count; i++) {
        struct session_member *member = &session->members[i];
        const bool same = is_same(&member->where, &joined->members[i]);
        const bool last = i + 1 == joined->members_count;
        member->where = joined->members[i];
        const uint64_t tail = last ? session->options.moments * sizeof(double) * 3 : 0;
        member->offset = member->where.first * sizeof(float);
        member->bytes = member->where.count * sizeof(float) + tail;
        member->gradient.offset = codec_bytes(session->codec, member->where.first);
        member->gradient.bytes = codec_bytes(session->codec, member->where.count) + tail;
        if (member->state != MEMBER_AWAY && !same)
            hang_up(session, i);
        else if (member->state == MEMBER_OPEN && greet)
            session_member_hello(session, i);
        else if (member->state == MEMBER_AWAY)
            connect_member(session, i);
    }
}

void session_member_answered(struct session *session, const struct session_event *event)
{
    struct session_member *member = &session->members[event->member];
    struct head_welcome head;
    memcpy(&head, event->head, sizeof head);
    if (member->state != MEMBER_GREETING) {
        session->strange++;
    } else if (head.kind == HEAD_WELCOME) {
        member->state = MEMBER_OPEN;
        member->pause_ns = 0;
        member->number = head.session;
        if (head.version > session->newest)
            session->newest = head.version;
        session_push_peer(session, event->member);
        session_pull_peer(session, event->member);
    } else {
        try_later(session, member);
        if (head.status != GRADWEIR_ERR_AGAIN && session->joined)
            session_join(session); /* fenced, or a pass of before: the coordinator knows */
    }
}

void session_member_lost(struct session *session, uint32_t index)
{
    struct session_member *member = &session->members[index];
    member->state = MEMBER_AWAY;
    member->number = 0;
    /* Away for long: perhaps it moved, and we did not hear it. JOINED says where everybody is. */
    if (session->joined && member->pause_ns == SESSION_RETRIES_MAX * session->options.retry_ns)
        session_join(session);
    try_later(session, member);
    session_push_lost(session, index);
    session_pull_lost(session, index);
}

/* Its floats are with another process now. */
void session_member_moved(struct session *session, const struct message_moved *moved)
{
    if (moved->shard >= session->members_count) {
        session->strange++;
        return;
    }
    struct session_member *member = &session->members[moved->shard];
    memcpy(member->where.address, moved->address, sizeof moved->address);
    member->pause_ns = 0;
    if (member->state == MEMBER_AWAY)
        member->retry_ns = session->now_ns;
    else
        hang_up(session, moved->shard);
}

/* What is due: a connection, or a HELLO. */
void session_members_tick(struct session *session)
{
    for (uint32_t i = 0; i < session->members_count && !session->resting; i++) {
        struct session_member *member = &session->members[i];
        if (session->now_ns < member->retry_ns)
            continue;
        if (member->state == MEMBER_AWAY)
            connect_member(session, i);
        else if (member->state == MEMBER_GREETING)
            session_member_hello(session, i);
    }
}

int64_t session_members_next(const struct session *session)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < session->members_count && !session->resting; i++) {
        const struct session_member *member = &session->members[i];
        const bool waits = member->state == MEMBER_AWAY || member->state == MEMBER_GREETING;
        if (waits && member->retry_ns < next)
            next = member->retry_ns;
    }
    return next;
}
