/* Pulls: every member that holds something of it is asked for the newest version; when they answer
 * with different ones, those behind are asked for the highest. Nothing is handed out before all
 * have the same.
 *
 * A pull may ride with a push: it is sent at once, and members answer when they have logged the
 * verdict and are through with the step that it made due.
 *
 * Only what is newer than a version: as long as nothing newer is known, PULL says NEWER, and GONE
 * means that nothing is. When all say so, nothing has moved. */
#include "client/session.h"

#include <string.h>

/* Nobody has told of anything newer than what the caller has. */
static bool is_probe(const struct session *session)
{
    return session->pull.newer && session->pull_version <= session->pull.version;
}

static void fill_head(const struct session *session, uint32_t index, uint64_t owed,
                      struct head_pull *head)
{
    const struct session_pull_part *part = &session->parts[index];
    const bool boxes = session->pull.boxes_count > 0;
    *head = (struct head_pull){.kind = HEAD_PULL,
                               .dtype = session->pull.half ? HEAD_BFLOAT16 : HEAD_FLOAT32,
                               .session = session->members[index].number,
                               .epoch = session->epoch,
                               .timeline = session->timeline,
                               .ticket = part->ticket,
                               .version = session->pull_version,
                               .length = boxes ? owed : UINT64_MAX};
    head->flags = boxes ? PULL_PIECES : 0;
    if (part->exact) {
        head->flags |= PULL_EXACT;
    } else if (session->pull_after) {
        head->flags |= PULL_AFTER;
        head->after = session->pull_after;
    } else if (is_probe(session)) {
        head->flags |= PULL_NEWER;
    }
}

static void ask(struct session *session, uint32_t index, bool exact)
{
    struct session_pull_part *part = &session->parts[index];
    const struct session_member *member = &session->members[index];
    const bool boxes = session->pull.boxes_count > 0;
    const uint32_t in_flight = part->in_flight;
    uint64_t owed = member->bytes, wire = member->bytes;
    if (boxes)
        owed = session_pull_owed(session, index, &wire);
    *part = (struct session_pull_part){.exact = exact,
                                       .apart = boxes && owed == 0,
                                       .complete = boxes && owed == 0,
                                       .ticket = ++session->tickets,
                                       .total = wire,
                                       .in_flight = in_flight,
                                       .retry_ns = INT64_MAX};
    if (member->state != MEMBER_OPEN || part->apart)
        return;      /* session_pull_peer asks once it is */
    if (in_flight) { /* bodies of an older ask may still land: not before they have */
        part->retry_ns = session->now_ns + session->options.retry_ns;
        return;
    }
    struct head_pull head;
    part->asked = true;
    struct session_action *action = session_act(session, boxes ? SESSION_LIST : SESSION_HEAD);
    action->member = index;
    fill_head(session, index, owed, &head);
    memcpy(&action->head, &head, sizeof head);
}

static void ask_all(struct session *session, uint64_t version)
{
    session->pull_version = version;
    for (uint32_t i = 0; i < session->members_count; i++)
        ask(session, i, session->pull.exact);
}

static uint64_t version_wanted(const struct session *session)
{
    const struct session_pull_request *pull = &session->pull;
    const bool named = pull->exact || (pull->newer && pull->version > session->newest);
    return named ? pull->version : session->newest;
}

void session_pull_start(struct session *session, const struct session_pull_request *request,
                        bool after)
{
    ASSERT(!session->pulling && (request->boxes_count == 0 || session->options.model));
    session_wake(session);
    session->pulling = true;
    session->pull_refused = false;
    session->pull = *request;
    session->pull_after = after && !request->exact && !request->newer ? session->sequence : 0;
    ask_all(session, version_wanted(session));
}

void session_pull_anew(struct session *session)
{
    session->pull_after = 0;
    if (session->pulling && !session->pull_refused)
        ask_all(session, version_wanted(session));
}

void session_pull_alone(struct session *session, uint64_t sequence)
{
    if (session->pull_after >= sequence && session->pull_after > 0)
        session_pull_anew(session);
}

void session_pull_peer(struct session *session, uint32_t member)
{
    if (session->pulling && !session->pull_refused && !session->parts[member].complete)
        ask(session, member, session->parts[member].exact);
}

static void end_refused(struct session *session)
{
    for (uint32_t i = 0; i < session->members_count; i++)
        if (session->parts[i].in_flight)
            return;
    session->pulling = false;
    struct session_action *action = session_act(session, SESSION_PULLED);
    action->status = GRADWEIR_ERR_REFUSED;
    action->version = session->newest;
}

/* The version that was named is held no more. What is on its way still lands in the caller's
 * memory, and is the end only then. */
static void refused(struct session *session, uint64_t newest)
{
    session->pull_refused = true;
    if (newest > session->newest)
        session->newest = newest;
    for (uint32_t i = 0; i < session->members_count; i++) {
        session->parts[i].asked = false;
        session->parts[i].retry_ns = INT64_MAX;
    }
    end_refused(session);
}

void session_pull_lost(struct session *session, uint32_t member)
{
    session->parts[member].asked = false;
    session->parts[member].in_flight = 0;
    if (session->pulling && session->pull_refused)
        end_refused(session);
}

static bool all_complete(const struct session *session)
{
    for (uint32_t i = 0; i < session->members_count; i++)
        if (!session->parts[i].complete)
            return false;
    return true;
}

static void complete(struct session *session, uint32_t index)
{
    session->parts[index].complete = true;
    if (!all_complete(session))
        return;
    uint64_t highest = 0;
    bool same = true;
    for (uint32_t i = 0; i < session->members_count; i++)
        if (!session->parts[i].apart && session->parts[i].version > highest)
            highest = session->parts[i].version;
    session->pull_version = highest;
    for (uint32_t i = 0; i < session->members_count && !is_probe(session); i++) {
        if (session->parts[i].apart || session->parts[i].version == highest)
            continue;
        same = false;
        ask(session, i, true);
    }
    if (!same)
        return;
    session->pulling = false;
    if (highest > session->newest)
        session->newest = highest;
    struct session_action *action = session_act(session, SESSION_PULLED);
    action->version = highest;
    action->moved = !is_probe(session);
}

/* Nothing newer is there: that is an answer, unless others know better. */
static void none_newer(struct session *session, uint32_t index, uint64_t version)
{
    session->parts[index].version = version;
    session->parts[index].asked = false;
    complete(session, index);
}

/* What was asked for is not there: a little later, something newer. */
static void gone(struct session *session, uint32_t index, const struct head_parameters *head)
{
    const bool exact = session->parts[index].exact;
    session->pull_after = 0; /* it has waited long enough */
    if (session->pull.exact && head->version != session->pull_version) {
        refused(session, head->version);
    } else if (exact && !session->pull.exact) {
        ask_all(session,
                head->version > session->pull_version ? head->version : session->pull_version);
    } else if (is_probe(session) && head->version <= session->pull_version) {
        none_newer(session, index, head->version);
    } else {
        session->parts[index].asked = false;
        session->parts[index].retry_ns = session->now_ns + session->options.retry_ns;
    }
}

/* Bodies of one ask come in order and leave no hole. */
static bool fits(const struct session *session, const struct session_event *event,
                 const struct head_parameters *head)
{
    const struct session_pull_part *part = &session->parts[event->member];
    const uint64_t bytes = part->total;
    const bool begun = part->received > 0 || part->in_flight > 0;
    return head->length == event->length && head->total == bytes && head->offset == part->offered &&
           head->length <= bytes - head->offset && (head->length > 0 || bytes == 0) &&
           head->version >= session->pull_version &&
           (!part->exact || head->version == session->pull_version) &&
           (!begun || head->version == part->version);
}

void session_pull_offered(struct session *session, const struct session_event *event)
{
    struct session_pull_part *part = &session->parts[event->member];
    struct head_parameters head;
    memcpy(&head, event->head, sizeof head);
    const bool boxes = session->pull.boxes_count > 0;
    const bool expected = session->pulling && part->asked && !part->complete &&
                          head.ticket == part->ticket && head.timeline == session->timeline;
    if (expected && head.kind == HEAD_GONE) {
        gone(session, event->member, &head);
        return;
    }
    uint64_t offset = session->members[event->member].offset + head.offset;
    if (!expected || head.kind != HEAD_PARAMETERS || !fits(session, event, &head) ||
        (boxes && session_pull_room(session, event->member, &offset) < head.length)) {
        session->strange++;
        if (event->length)
            session_act(session, SESSION_REFUSE)->offer = event->offer;
        return;
    }
    part->version = head.version;
    if (event->length == 0) {
        complete(session, event->member);
        return;
    }
    part->in_flight++;
    part->offered += event->length;
    part->box_offered += event->length;
    struct session_action *action = session_act(session, SESSION_TAKE);
    action->member = event->member;
    action->offer = event->offer;
    action->box = boxes ? part->box + 1 : 0;
    action->offset = offset;
    action->length = event->length;
    action->token = (uint64_t)head.crc << 32 | (part->ticket & 0xffffff) << 8 | event->member;
}

void session_pull_landed(struct session *session, const struct session_event *event)
{
    const uint32_t member = event->token & 0xff;
    struct session_pull_part *part = &session->parts[member];
    if (part->in_flight)
        part->in_flight--;
    if (session->pulling && session->pull_refused)
        end_refused(session);
    if (!session->pulling || (event->token >> 8 & 0xffffff) != (part->ticket & 0xffffff) ||
        !part->asked)
        return;
    if (event->status != GRADWEIR_OK)
        return; /* its connection is going: asked again when there is a new one */
    if (event->crc != (uint32_t)(event->token >> 32)) {
        ask(session, member, part->exact);
        return;
    }
    part->received += event->length;
    if (part->received == part->total)
        complete(session, member);
}

void session_pull_tick(struct session *session)
{
    for (uint32_t i = 0; session->pulling && i < session->members_count; i++)
        if (session->now_ns >= session->parts[i].retry_ns && !session->parts[i].complete)
            ask(session, i, session->parts[i].exact);
}

int64_t session_pull_next(const struct session *session)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; session->pulling && i < session->members_count; i++)
        if (!session->parts[i].complete && session->parts[i].retry_ns < next)
            next = session->parts[i].retry_ns;
    return next;
}
