/* Messages within one process. Heads arrive and bodies move in the receiver's poll(), in the order
 * of its peers; so one thread that drives both ends sees the same run every time. A broken link
 * ends both of its ends at once. */
#include "common/transport_memory_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void wake(struct memory *memory)
{
    uint64_t one = 1;
    ssize_t written = write(memory->fd, &one, sizeof one);
    ASSERT(written == sizeof one || errno == EAGAIN);
}

struct transport_event *memory_tell(struct memory_peer *peer, enum transport_event_kind kind)
{
    wake(peer->owner);
    return transport_events_push(&peer->owner->events, kind, peer->number);
}

struct memory_peer *memory_peer_find(struct memory *memory, uint64_t number)
{
    uint32_t index = transport_index(number);
    if (number == 0 || index >= memory->settings.peers_max || memory->peers[index].number != number)
        return NULL;
    return memory->peers[index].state == MEMORY_PEER_FREE ? NULL : &memory->peers[index];
}

static void sent(struct memory_peer *peer, struct memory_message *message, gradweir_status status)
{
    struct transport_event *event = memory_tell(peer, TRANSPORT_SENT);
    event->status = status;
    event->token = message->token;
    message->state = MESSAGE_FREE;
}

static void landed(struct memory_peer *receiver, const struct memory_message *message,
                   gradweir_status status)
{
    struct transport_event *event = memory_tell(receiver, TRANSPORT_LANDED);
    event->status = status;
    event->offer = message->offer;
    event->token = message->take_token;
    event->length = message->length;
}

/* Everything that this end has sent is over; `receiver` hears of what it had taken. */
static void messages_end(struct memory_peer *peer, struct memory_peer *receiver)
{
    for (uint32_t i = 0; i < peer->owner->settings.in_flight_max; i++) {
        struct memory_message *message = &peer->messages[i];
        if (message->state == MESSAGE_TAKEN)
            landed(receiver, message, GRADWEIR_ERR_LOST);
        if (message->state != MESSAGE_FREE)
            sent(peer, message, GRADWEIR_ERR_LOST);
    }
}

void memory_lost(struct memory_peer *peer, gradweir_status status, const char *reason)
{
    peer->state = MEMORY_PEER_GONE;
    peer->other = NULL;
    struct transport_event *event = memory_tell(peer, TRANSPORT_LOST);
    event->status = status;
    event->token = peer->token;
    snprintf(event->reason, sizeof event->reason, "%s", reason);
}

void memory_link_break(struct memory_peer *peer, gradweir_status status, const char *reason)
{
    struct memory_peer *other = peer->other;
    messages_end(peer, other);
    messages_end(other, peer);
    memory_lost(peer, status, reason);
    memory_lost(other, GRADWEIR_ERR_LOST, "memory: the connection is broken");
}

static void writable_check(struct memory_peer *peer)
{
    if (peer->state != MEMORY_PEER_OPEN || !peer->blocked || peer->writable_queued ||
        peer->in_flight == peer->owner->settings.in_flight_max ||
        peer->other->held == peer->other->owner->settings.offers_max)
        return;
    peer->blocked = false;
    peer->writable_queued = true;
    memory_tell(peer, TRANSPORT_WRITABLE);
}

/* The receiver has done with one message. */
static void credit_free(struct memory_peer *receiver)
{
    ASSERT(receiver->held > 0);
    receiver->held--;
    if (receiver->other)
        writable_check(receiver->other);
}

static bool countdown_hits(struct transport_memory_hub *hub)
{
    return hub->countdown > 0 && --hub->countdown == 0;
}

static struct memory_message *message_next(struct memory_peer *sender,
                                           enum memory_message_state state)
{
    struct memory_message *next = NULL;
    for (uint32_t i = 0; i < sender->owner->settings.in_flight_max; i++) {
        struct memory_message *message = &sender->messages[i];
        if (message->state == state && (!next || message->order < next->order))
            next = message;
    }
    return next;
}

static void head_arrives(struct memory_peer *receiver, struct memory_message *message)
{
    struct transport_event *event = memory_tell(receiver, TRANSPORT_OFFERED);
    event->length = message->length;
    event->head_length = message->head_length;
    memcpy(event->head, message->head, message->head_length);
    message->state = MESSAGE_OFFERED;
    message->offer =
        transport_number(++receiver->owner->hub->serial, transport_index(receiver->number));
    if (message->length > 0)
        event->offer = message->offer;
    else
        sent(receiver->other, message, GRADWEIR_OK);
}

static void body_moves(struct memory_peer *receiver, struct memory_message *message)
{
    uint64_t step = receiver->owner->hub->step_bytes, rest = message->length - message->moved;
    uint64_t n = step == 0 || step > rest ? rest : step;
    memcpy(message->place + message->moved, message->body + message->moved, n);
    message->moved += n;
    wake(receiver->owner);
    if (message->moved < message->length)
        return;
    landed(receiver, message, GRADWEIR_OK);
    sent(receiver->other, message, GRADWEIR_OK);
}

/* One move for one peer: the head that waits longest, else the body that waits longest. */
static bool peer_moves(struct memory_peer *receiver)
{
    struct memory_message *head = message_next(receiver->other, MESSAGE_QUEUED);
    struct memory_message *body = head ? NULL : message_next(receiver->other, MESSAGE_TAKEN);
    if (!head && !body)
        return false;
    if (countdown_hits(receiver->owner->hub)) {
        memory_link_break(receiver, GRADWEIR_ERR_LOST, "memory: broken as the test asked");
        return false;
    }
    if (head)
        head_arrives(receiver, head);
    else
        body_moves(receiver, body);
    return head != NULL;
}

static void event_polled(struct memory *memory, const struct transport_event *event)
{
    struct memory_peer *peer = memory_peer_find(memory, event->peer);
    ASSERT(peer);
    if (event->kind == TRANSPORT_LANDED || (event->kind == TRANSPORT_OFFERED && event->length == 0))
        credit_free(peer);
    if (event->kind == TRANSPORT_SENT)
        peer->in_flight--;
    if (event->kind == TRANSPORT_WRITABLE)
        peer->writable_queued = false;
    if (event->kind == TRANSPORT_LOST)
        peer->state = MEMORY_PEER_FREE;
    writable_check(peer);
}

size_t memory_poll(struct transport *transport, struct transport_event *events, size_t max)
{
    struct memory *memory = (struct memory *)transport;
    uint64_t woken;
    pthread_mutex_lock(&memory->hub->lock);
    ssize_t got = read(memory->fd, &woken, sizeof woken);
    ASSERT(got == sizeof woken || errno == EAGAIN);
    for (uint32_t i = 0; i < memory->settings.peers_max; i++) {
        while (memory->peers[i].state == MEMORY_PEER_OPEN && peer_moves(&memory->peers[i]))
            ;
    }
    size_t n = 0;
    for (struct transport_event *event; n < max && (event = transport_events_pop(&memory->events));
         n++) {
        events[n] = *event;
        event_polled(memory, &events[n]);
    }
    pthread_mutex_unlock(&memory->hub->lock);
    return n;
}

static const unsigned char *body_of(const struct memory *memory,
                                    const struct transport_message *message)
{
    return message->memory & MEMORY_IS_CUDA ? memory->hub->reach(message->body, message->length)
                                            : message->body;
}

static gradweir_status message_add(struct memory *memory, uint64_t number,
                                   const struct transport_message *message)
{
    struct memory_peer *peer = memory_peer_find(memory, number);
    if (!peer || peer->state != MEMORY_PEER_OPEN)
        return fail(GRADWEIR_ERR_LOST, "this peer is gone");
    if (message->head_length > TRANSPORT_HEAD_MAX || (message->length > 0 && !message->body) ||
        (message->head_length > 0 && !message->head))
        return fail(GRADWEIR_ERR_INVALID, "a message with a head of %u bytes, a body of %llu bytes",
                    message->head_length, (unsigned long long)message->length);
    if (peer->in_flight == memory->settings.in_flight_max ||
        peer->other->held == peer->other->owner->settings.offers_max) {
        peer->blocked = true;
        return GRADWEIR_ERR_AGAIN;
    }
    struct memory_message *slot = peer->messages;
    while (slot->state != MESSAGE_FREE)
        slot++;
    *slot = (struct memory_message){.state = MESSAGE_QUEUED,
                                    .order = ++peer->sent,
                                    .token = message->token,
                                    .body = body_of(memory, message),
                                    .length = message->length,
                                    .head_length = message->head_length};
    if (message->head_length > 0)
        memcpy(slot->head, message->head, message->head_length);
    peer->in_flight++;
    peer->other->held++;
    wake(peer->other->owner);
    return GRADWEIR_OK;
}

gradweir_status memory_send(struct transport *transport, uint64_t peer,
                            const struct transport_message *message)
{
    struct memory *memory = (struct memory *)transport;
    pthread_mutex_lock(&memory->hub->lock);
    gradweir_status status = message_add(memory, peer, message);
    pthread_mutex_unlock(&memory->hub->lock);
    return status;
}

static struct memory_message *offer_find(struct memory *memory, uint64_t offer,
                                         struct memory_peer **receiver)
{
    uint32_t index = transport_index(offer);
    if (offer == 0 || index >= memory->settings.peers_max ||
        memory->peers[index].state != MEMORY_PEER_OPEN)
        return NULL;
    *receiver = &memory->peers[index];
    struct memory_peer *sender = (*receiver)->other;
    for (uint32_t i = 0; i < sender->owner->settings.in_flight_max; i++) {
        if (sender->messages[i].state == MESSAGE_OFFERED && sender->messages[i].offer == offer)
            return &sender->messages[i];
    }
    return NULL;
}

/* Bodies are copied once anyway. */
gradweir_status memory_room(struct transport *transport, uint64_t peer, uint64_t length,
                            void **room)
{
    (void)transport;
    (void)peer;
    (void)length;
    (void)room;
    return GRADWEIR_ERR_UNSUPPORTED;
}

void memory_room_back(struct transport *transport, uint64_t peer, const void *room)
{
    (void)transport;
    (void)peer;
    (void)room;
}

/* Bodies stay in memory that their sender may give up, in another thread, while it is read. */
const void *memory_body(struct transport *transport, uint64_t offer)
{
    (void)transport;
    (void)offer;
    return NULL;
}

gradweir_status memory_take(struct transport *transport, uint64_t offer, void *place,
                            uint32_t mapped, uint64_t token)
{
    struct memory *memory = (struct memory *)transport;
    (void)mapped;
    struct memory_peer *receiver = NULL;
    pthread_mutex_lock(&memory->hub->lock);
    struct memory_message *message = offer_find(memory, offer, &receiver);
    if (message && place) {
        message->state = MESSAGE_TAKEN;
        message->place = place;
        message->take_token = token;
        wake(memory);
    }
    pthread_mutex_unlock(&memory->hub->lock);
    if (!message)
        return fail(GRADWEIR_ERR_LOST, "the offered body is gone");
    if (!place)
        return fail(GRADWEIR_ERR_INVALID, "no place for an offered body");
    return GRADWEIR_OK;
}

void memory_refuse(struct transport *transport, uint64_t offer)
{
    struct memory *memory = (struct memory *)transport;
    struct memory_peer *receiver = NULL;
    pthread_mutex_lock(&memory->hub->lock);
    struct memory_message *message = offer_find(memory, offer, &receiver);
    if (message) {
        sent(receiver->other, message, GRADWEIR_OK);
        credit_free(receiver);
    }
    pthread_mutex_unlock(&memory->hub->lock);
}
