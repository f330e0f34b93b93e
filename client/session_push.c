/* Pushes: a place, a description beside the first chunk, chunks to every member, a receipt. The
 * same bytes go again under the same name until there is one. */
#include "client/session.h"

#include <string.h>

static struct session_push *find(struct session *session, uint64_t sequence)
{
    for (uint32_t i = 0; i < session->options.outstanding; i++)
        if (session->pushes[i].state != PUSH_FREE && session->pushes[i].sequence == sequence)
            return &session->pushes[i];
    return NULL;
}

static struct name name_of(const struct session *session, uint64_t sequence)
{
    return (struct name){
        .worker = session->worker, .incarnation = session->incarnation, .sequence = sequence};
}

static void ask(struct session *session, struct session_push *push)
{
    push->resend_ns = session->now_ns + session->options.resend_ns;
    session_tell(session, MESSAGE_ASK)->ask.name = name_of(session, push->sequence);
}

static void describe(struct session *session, const struct session_push *push)
{
    session_tell(session, MESSAGE_DESCRIBE)->describe =
        (struct message_describe){.name = name_of(session, push->sequence),
                                  .slot = push->slot,
                                  .generation = push->generation,
                                  .purpose = push->what.purpose,
                                  .basis = push->what.basis,
                                  .samples = push->what.samples,
                                  .norm = push->what.norm,
                                  .layout_hash = session->options.layout_hash,
                                  .digest = push->what.digest};
}

/* One chunk of member's range, from the session's idea of where it lies. */
static void send_chunk(struct session *session, struct session_push *push, uint32_t index)
{
    const struct session_member *member = &session->members[index];
    const uint64_t offset = push->next[index] * session->chunk_bytes;
    const uint64_t rest = member->bytes - offset;
    struct head_chunk head = {.kind = HEAD_CHUNK,
                              .dtype = HEAD_FLOAT32,
                              .session = member->number,
                              .epoch = session->epoch,
                              .slot = push->slot,
                              .generation = push->generation,
                              .sequence = push->sequence,
                              .basis = push->what.basis,
                              .digest = push->what.digest,
                              .offset = offset};
    head.length = (uint32_t)(rest < session->chunk_bytes ? rest : session->chunk_bytes);
    struct session_action *action =
        session_act(session, member->bytes ? SESSION_CHUNK : SESSION_HEAD);
    action->member = index;
    action->buffer = push->what.buffer;
    action->offset = member->offset + offset;
    action->length = head.length;
    action->token = (uint64_t)push->what.buffer << 32 | index;
    memcpy(&action->head, &head, sizeof head);
    push->in_flight[index] += member->bytes > 0;
    push->next[index]++;
    if (push->next[index] * session->chunk_bytes >= member->bytes)
        push->next[index] = UINT64_MAX;
}

static void send_more(struct session *session, struct session_push *push, uint32_t index)
{
    while (push->state == PUSH_SENDING && session->members[index].state == MEMBER_OPEN &&
           push->next[index] != UINT64_MAX && push->in_flight[index] < SESSION_CHUNKS_AHEAD)
        send_chunk(session, push, index);
}

static void send_all(struct session *session, struct session_push *push)
{
    push->resend_ns = session->now_ns + session->options.resend_ns;
    describe(session, push);
    for (uint32_t i = 0; i < session->members_count; i++) {
        push->next[i] = 0;
        send_more(session, push, i);
    }
}

static void place(struct session *session, struct session_push *push, uint32_t slot,
                  uint64_t generation)
{
    push->slot = slot;
    push->generation = generation;
    push->state = PUSH_SENDING;
    send_all(session, push);
}

void session_push_start(struct session *session, const struct session_push_request *what)
{
    ASSERT(what->buffer < session->options.outstanding);
    struct session_push *push = &session->pushes[what->buffer];
    ASSERT(push->state == PUSH_FREE);
    memset(push, 0, sizeof *push);
    push->what = *what;
    push->sequence = ++session->sequence;
    push->state = PUSH_WANTS_PLACE;
    if (session->place_sequence == push->sequence)
        place(session, push, session->place_slot, session->place_generation);
    else
        ask(session, push);
}

void session_push_place(struct session *session, const struct message_place *given)
{
    if (given->name.worker != session->worker || given->name.incarnation != session->incarnation)
        return;
    struct session_push *push = find(session, given->name.sequence);
    if (push && push->state == PUSH_WANTS_PLACE) {
        place(session, push, given->slot, given->generation);
    } else if (push && given->generation > push->generation) { /* the old place had expired */
        place(session, push, given->slot, given->generation);
    } else if (!push && given->name.sequence == session->sequence + 1) {
        session->place_sequence = given->name.sequence;
        session->place_slot = given->slot;
        session->place_generation = given->generation;
    }
}

static void finish(struct session *session, struct session_push *push,
                   const struct message_receipt *receipt, gradweir_status status)
{
    struct session_action *action = session_act(session, SESSION_VERDICT);
    action->buffer = push->what.buffer;
    action->status = status;
    action->message.kind = MESSAGE_RECEIPT;
    action->message.receipt = *receipt;
    action->message.receipt.name.sequence = push->sequence;
    push->state = PUSH_FREE;
    push->resend_ns = INT64_MAX;
}

/* What never had a place needs no name: those behind it move up, for places come in a row. */
static void give_number_back(struct session *session, uint64_t sequence)
{
    session->sequence--;
    for (uint32_t i = 0; i < session->options.outstanding; i++) {
        struct session_push *push = &session->pushes[i];
        if (push->state != PUSH_WANTS_PLACE || push->sequence < sequence)
            continue;
        push->sequence--;
        ask(session, push);
    }
}

void session_push_receipt(struct session *session, const struct message_receipt *receipt)
{
    if (receipt->name.worker != session->worker ||
        receipt->name.incarnation != session->incarnation)
        return;
    if (receipt->whole > session->newest)
        session->newest = receipt->whole;
    struct session_push *push = find(session, receipt->name.sequence);
    if (push) {
        if (receipt->verdict == VERDICT_ADMITTED && push->what.purpose == PURPOSE_FIRST)
            session->first = true;
        finish(session, push, receipt, GRADWEIR_OK);
        if (receipt->verdict == VERDICT_QUEUE_FULL)
            give_number_back(session, receipt->name.sequence);
    }
    if (receipt->next_sequence) {
        const struct message_place next = {.name = name_of(session, receipt->next_sequence),
                                           .slot = receipt->next_slot,
                                           .generation = receipt->next_generation};
        session_push_place(session, &next);
    }
}

/* In again: the same incarnation goes on where it was; a new one has lost its names. */
void session_push_rejoined(struct session *session, bool same_incarnation)
{
    if (!same_incarnation) {
        session->sequence = 0;
        session->place_sequence = 0;
    }
    for (uint32_t i = 0; i < session->options.outstanding; i++) {
        struct session_push *push = &session->pushes[i];
        if (push->state == PUSH_FREE)
            continue;
        if (!same_incarnation && push->state == PUSH_WANTS_PLACE) {
            push->sequence = ++session->sequence;
            ask(session, push);
        } else if (!same_incarnation) {
            const struct message_receipt none = {.verdict = VERDICT_NONE};
            finish(session, push, &none, GRADWEIR_ERR_LOST);
        } else if (push->state == PUSH_WANTS_PLACE) {
            ask(session, push);
        } else {
            send_all(session, push);
        }
    }
}

void session_push_peer(struct session *session, uint32_t member)
{
    for (uint32_t i = 0; i < session->options.outstanding; i++) {
        struct session_push *push = &session->pushes[i];
        if (push->state != PUSH_SENDING)
            continue;
        push->next[member] = 0;
        send_more(session, push, member);
    }
}

void session_push_sent(struct session *session, const struct session_event *event)
{
    const uint32_t buffer = (uint32_t)(event->token >> 32), member = (uint32_t)event->token;
    ASSERT(buffer < session->options.outstanding && member < MEMBERS_MAX);
    struct session_push *push = &session->pushes[buffer];
    if (push->in_flight[member])
        push->in_flight[member]--;
    if (event->status == GRADWEIR_OK)
        send_more(session, push, member);
}

void session_push_tick(struct session *session)
{
    for (uint32_t i = 0; i < session->options.outstanding; i++) {
        struct session_push *push = &session->pushes[i];
        if (push->state == PUSH_FREE || session->now_ns < push->resend_ns)
            continue;
        push->resend_ns = session->now_ns + session->options.resend_ns;
        if (!session->up || !session->joined)
            continue;
        if (push->state == PUSH_WANTS_PLACE)
            ask(session, push);
        else
            send_all(session, push);
    }
}
