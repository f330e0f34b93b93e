/* Pushes: a place, chunks to every member, a description as soon as there is one, a receipt. The
 * same bytes go again under the same name until there is one. */
#include "client/session.h"

#include <string.h>

/* Of the pushes without a verdict, the one with the lowest sequence beyond `after`, or NULL. The
 * coordinator takes names in order, so whatever goes over all pushes goes in this order. */
static struct session_push *next_push(struct session *session, uint64_t after)
{
    struct session_push *next = NULL;
    for (uint32_t i = 0; i < session->options.outstanding; i++) {
        struct session_push *push = &session->pushes[i];
        if ((push->state == PUSH_WANTS_PLACE || push->state == PUSH_SENDING) &&
            push->sequence > after && (!next || push->sequence < next->sequence))
            next = push;
    }
    return next;
}

static struct session_push *find(struct session *session, uint64_t sequence)
{
    struct session_push *push = sequence ? next_push(session, sequence - 1) : NULL;
    return push && push->sequence == sequence ? push : NULL;
}

static void ask(struct session *session, struct session_push *push)
{
    push->resend_ns = session->now_ns + session->options.resend_ns;
    if (!session->joined)
        return; /* said once it is in (again) */
    session_tell(session, MESSAGE_ASK)->ask.name = session_name(session, push->sequence);
}

/* Elder pushes first, and no more than SESSION_CHUNKS_AHEAD to one member, whatever the number of
 * pushes. */
static void send_more(struct session *session, uint32_t index)
{
    struct session_member *member = &session->members[index];
    struct session_push *push = next_push(session, 0);
    const uint32_t ahead =
        session->options.parts ? session_part_ahead(session) : SESSION_CHUNKS_AHEAD;
    while (push && member->state == MEMBER_OPEN && member->in_flight < ahead) {
        if (!session_chunk_ready(session, push, index))
            push = next_push(session, push->sequence);
        else if (session->options.parts)
            session_part_send(session, push, index);
        else
            session_chunk_send(session, push, index);
    }
}

static void send_all(struct session *session, struct session_push *push)
{
    push->resend_ns = session->now_ns + push->pause_ns;
    push->tries++;
    session_describe(session, push);
    for (uint32_t i = 0; i < session->members_count; i++)
        push->next[i] = 0;
    for (uint32_t i = 0; i < session->members_count; i++)
        send_more(session, i);
}

static void place(struct session *session, struct session_push *push, uint32_t slot,
                  uint64_t generation)
{
    push->slot = slot;
    push->generation = generation;
    push->state = PUSH_SENDING;
    push->pause_ns = session->options.resend_ns;
    send_all(session, push);
}

/* Its whole body is with all members, from before the coordinator changed: words are enough. */
static void held(struct session *session, struct session_push *push)
{
    push->state = PUSH_SENDING;
    push->pause_ns = session->options.resend_ns;
    push->resend_ns = session->now_ns + push->pause_ns;
    for (uint32_t i = 0; i < session->members_count; i++)
        push->next[i] = UINT64_MAX;
    session_describe_again(session, push);
}

static struct session_place *place_for(struct session *session, uint64_t sequence)
{
    return &session->places[sequence % OUTSTANDING_MAX];
}

/* Of a push to come. Several may be known: the verdicts on pushes that were under way together come
 * together, and each brings a place along. */
static void keep_place(struct session *session, const struct message_place *given)
{
    const uint64_t sequence = given->name.sequence;
    struct session_place *ahead = place_for(session, sequence);
    if (sequence <= session->sequence || sequence - session->sequence > OUTSTANDING_MAX ||
        (ahead->sequence == sequence && given->generation <= ahead->generation))
        return;
    *ahead = (struct session_place){
        .sequence = sequence, .generation = given->generation, .slot = given->slot};
}

void session_places_forget(struct session *session)
{
    memset(session->places, 0, sizeof session->places);
}

void session_push_start(struct session *session, const struct session_push_request *what)
{
    ASSERT(what->buffer < session->options.outstanding);
    struct session_push *push = &session->pushes[what->buffer];
    ASSERT(push->state == PUSH_FREE);
    session_wake(session);
    memset(push, 0, sizeof *push);
    push->what = *what;
    push->sequence = ++session->sequence;
    push->state = PUSH_WANTS_PLACE;
    const struct session_place *ahead = place_for(session, push->sequence);
    if (ahead->sequence == push->sequence && session->joined)
        place(session, push, ahead->slot, ahead->generation);
    else
        ask(session, push);
}

void session_push_place(struct session *session, const struct message_place *given)
{
    if (given->name.worker != session->worker || given->name.incarnation != session->incarnation)
        return;
    struct session_push *push = find(session, given->name.sequence);
    if (push && push->state == PUSH_WANTS_PLACE && push->generation == given->generation &&
        !push->what.filling) {
        held(session, push);
    } else if (push && push->state == PUSH_WANTS_PLACE) {
        place(session, push, given->slot, given->generation);
    } else if (push && given->generation > push->generation) { /* the old place had expired */
        place(session, push, given->slot, given->generation);
    } else if (!push) {
        keep_place(session, given);
    }
}

/* The verdict is told when nothing of the push is in flight or being made any more: only then is
 * the buffer free to be filled again. */
static void finish_if_quiet(struct session *session, struct session_push *push)
{
    for (uint32_t i = 0; i < MEMBERS_MAX; i++)
        if (push->in_flight[i])
            return;
    if (push->what.filling)
        return;
    struct session_action *action = session_act(session, SESSION_VERDICT);
    action->buffer = push->what.buffer;
    action->status = push->status;
    action->message.kind = MESSAGE_RECEIPT;
    action->message.receipt = push->receipt;
    action->message.receipt.name.sequence = push->sequence;
    push->state = PUSH_FREE;
}

static void finish(struct session *session, struct session_push *push,
                   const struct message_receipt *receipt, gradweir_status status)
{
    push->state = PUSH_ENDING;
    push->status = status;
    push->receipt = *receipt;
    push->resend_ns = INT64_MAX;
    finish_if_quiet(session, push);
}

void session_push_filled(struct session *session, const struct session_push_request *what)
{
    ASSERT(what->buffer < session->options.outstanding);
    struct session_push *push = &session->pushes[what->buffer];
    ASSERT(push->state != PUSH_FREE && push->what.filling);
    push->what.filling = what->filling;
    push->what.filled = what->filled;
    if (!what->filling) {
        push->what.norm = what->norm;
        push->what.digest = what->digest;
    }
    if (push->state == PUSH_ENDING)
        finish_if_quiet(session, push);
    if (push->state != PUSH_SENDING)
        return;
    session_describe(session, push);
    for (uint32_t i = 0; i < session->members_count; i++)
        send_more(session, i);
}

/* Whether QUEUE_FULL is the answer to the newest ask: if not, a later one has got the place. */
static bool has_no_place(struct session *session, const struct session_push *push)
{
    for (; push; push = next_push(session, push->sequence))
        if (push->state != PUSH_WANTS_PLACE)
            return false;
    return true;
}

/* A push that never had a place leaves its number free; who comes behind it moves up, for sequences
 * have no gaps. */
static void close_gap(struct session *session, uint64_t sequence)
{
    struct session_push *push = next_push(session, sequence);
    session_pull_alone(session, sequence);
    session->sequence--;
    for (; push; push = next_push(session, push->sequence + 1)) {
        push->sequence--;
        ask(session, push);
    }
}

static void end_push(struct session *session, struct session_push *push,
                     const struct message_receipt *receipt)
{
    const uint64_t sequence = push->sequence;
    if (receipt->verdict == VERDICT_QUEUE_FULL &&
        (push->generation != 0 || !has_no_place(session, push)))
        return; /* whose name had a place, that keeps its number and asks until it has another */
    if (receipt->verdict == VERDICT_ADMITTED && push->what.purpose == PURPOSE_FIRST) {
        session->first = true;
        session->unanswered = false; /* a JOINED that says otherwise may be from before */
    }
    if (receipt->verdict == VERDICT_CANCELLED && push->what.purpose == PURPOSE_FIRST)
        session_join(session); /* was somebody else first? JOINED tells */
    finish(session, push, receipt, GRADWEIR_OK);
    if (receipt->verdict == VERDICT_QUEUE_FULL)
        close_gap(session, sequence);
}

void session_push_receipt(struct session *session, const struct message_receipt *receipt)
{
    if (receipt->name.worker != session->worker ||
        receipt->name.incarnation != session->incarnation)
        return;
    if (receipt->whole > session->newest)
        session->newest = receipt->whole;
    struct session_push *push = find(session, receipt->name.sequence);
    if (push)
        end_push(session, push, receipt);
    if (receipt->next_sequence) {
        const struct message_place next = {.name = session_name(session, receipt->next_sequence),
                                           .slot = receipt->next_slot,
                                           .generation = receipt->next_generation};
        session_push_place(session, &next);
    }
}

/* Another incarnation: what had a place has lost its name, and its fate is not known; what had none
 * gets a new one. */
static void rename_push(struct session *session, struct session_push *push)
{
    const struct message_receipt none = {.verdict = VERDICT_NONE};
    if (push->state == PUSH_SENDING || push->generation != 0) {
        finish(session, push, &none, GRADWEIR_ERR_LOST);
    } else if (push->state == PUSH_WANTS_PLACE) {
        push->sequence = ++session->sequence;
        ask(session, push);
    }
}

/* Words may have been lost with the connection; bodies go another way. */
static void tell_again(struct session *session, struct session_push *push)
{
    push->resend_ns = session->now_ns + push->pause_ns;
    session_describe_again(session, push);
}

/* In again: the same incarnation goes on where it was. Another coordinator has perhaps closed its
 * places, so bodies wait until it has said. */
void session_push_rejoined(struct session *session, bool same_incarnation, bool same_epoch)
{
    if (!same_incarnation) {
        session->sequence = 0;
        session_pull_alone(session, 1);
    }
    if (!same_incarnation || !same_epoch)
        session_places_forget(session);
    uint64_t at = 0;
    for (struct session_push *push = next_push(session, at); push; push = next_push(session, at)) {
        at = push->sequence;
        if (same_incarnation && !same_epoch)
            push->state = PUSH_WANTS_PLACE;
        if (!same_incarnation)
            rename_push(session, push);
        else if (push->state == PUSH_WANTS_PLACE)
            ask(session, push);
        else if (push->state == PUSH_SENDING)
            tell_again(session, push);
    }
}

/* Its connection is (again) open: whatever it may lack goes once more. */
void session_push_peer(struct session *session, uint32_t member)
{
    for (uint32_t i = 0; i < session->options.outstanding; i++) {
        session->pushes[i].next[member] = 0;
        session->pushes[i].tries++;
    }
    send_more(session, member);
}

/* Its connection is gone, and all that was in flight on it. */
void session_push_lost(struct session *session, uint32_t member)
{
    session->members[member].in_flight = 0;
    for (uint32_t i = 0; i < session->options.outstanding; i++) {
        struct session_push *push = &session->pushes[i];
        push->in_flight[member] = 0;
        if (push->state == PUSH_ENDING)
            finish_if_quiet(session, push);
        else if (push->state == PUSH_SENDING && push->by == member + 1 && session->joined)
            session_describe_again(session,
                                   push); /* words, or a receipt, may have been lost with it */
    }
}

/* Bodies that move are a sign of life: resending waits from the last one. */
void session_push_sent(struct session *session, const struct session_event *event)
{
    const uint32_t buffer = (uint32_t)(event->token >> 32), member = (uint32_t)event->token;
    ASSERT(buffer < session->options.outstanding && member < MEMBERS_MAX);
    struct session_push *push = &session->pushes[buffer];
    if (push->in_flight[member] == 0)
        return;
    push->in_flight[member]--;
    session->members[member].in_flight--;
    if (push->state == PUSH_ENDING)
        finish_if_quiet(session, push);
    if (event->status != GRADWEIR_OK)
        return; /* PEER_LOST is on its way */
    if (push->state == PUSH_SENDING)
        push->resend_ns = session->now_ns + push->pause_ns;
    send_more(session, member);
}

static bool is_moving(const struct session *session, const struct session_push *push)
{
    for (uint32_t i = 0; i < session->members_count; i++)
        if (push->in_flight[i] || push->next[i] != UINT64_MAX)
            return true;
    return false;
}

/* No verdict for long: the description again, and the bodies too when all have left. Each time the
 * pause doubles, for a verdict may wait for others (mode = sync), and bodies are dear. */
static void send_again(struct session *session, struct session_push *push)
{
    if (is_moving(session, push)) {
        push->resend_ns = session->now_ns + push->pause_ns;
        session_describe_again(session, push);
        return;
    }
    if (push->pause_ns < SESSION_PAUSES_MAX * session->options.resend_ns)
        push->pause_ns *= 2;
    send_all(session, push);
}

void session_push_tick(struct session *session)
{
    for (struct session_push *push = next_push(session, 0); push;
         push = next_push(session, push->sequence)) {
        if (session->now_ns < push->resend_ns)
            continue;
        if (!session->up || !session->joined)
            push->resend_ns = session->now_ns + session->options.resend_ns;
        else if (push->state == PUSH_WANTS_PLACE)
            ask(session, push);
        else
            send_again(session, push);
    }
}
