/* Messages: sends, offers and credit. One active message per message; prefix and head travel as its
 * header.
 *
 * A body of rendezvous_bytes or more stays at its sender until it is taken, and so over TCP does
 * one of more than UCX_PORTION. A shorter one comes along: the owner looks at it at once, where the
 * network has put it, or it is copied aside; the credit that the receiver grants (offers_max)
 * bounds how much of that there can be. */
#include "common/transport_ucx.h"

#include "common/unpace.h"

#include <string.h>

static void writable_check(struct ucx_peer *peer)
{
    if (peer->state != UCX_OPEN || !peer->blocked || peer->writable_queued || peer->credits == 0 ||
        peer->in_flight == peer->ucx->settings.in_flight_max)
        return;
    peer->blocked = false;
    peer->writable_queued = true;
    transport_events_push(&peer->ucx->events, TRANSPORT_WRITABLE, peer->number);
}

static void send_over(struct ucx_send *send, gradweir_status status)
{
    send->posted = send->lent = false;
    struct ucx_peer *peer = send->peer;
    struct transport_event *event =
        transport_events_push(&peer->ucx->events, TRANSPORT_SENT, peer->number);
    event->status = status;
    event->token = send->token;
    send->sending = false;
    send->request = NULL;
    send->next = peer->free_sends;
    peer->free_sends = send;
    peer->sending--;
}

void ucx_send_settle(struct ucx_send *send)
{
    if (!send->posted && !send->lent)
        send_over(send, send->status);
}

static void send_done(void *request, ucs_status_t status, void *argument)
{
    struct ucx_send *send = argument;
    struct ucx_peer *peer = send->peer;
    if (request && request != send->request) { /* given up; its place serves others */
        peer->ucx->abandoned--;
        ucp_request_free(request);
        return;
    }
    send->request = NULL;
    send->posted = false;
    if (status != UCS_OK) {
        send->status = GRADWEIR_ERR_LOST;
        send->lent = false; /* nobody knows of it */
    }
    ucx_send_settle(send);
    if (status != UCS_OK)
        ucx_peer_fail(peer, GRADWEIR_ERR_LOST, ucs_status_string(status));
    if (request)
        ucp_request_free(request);
}

void ucx_sends_abandon(struct ucx_peer *peer)
{
    for (uint32_t i = 0; i < peer->ucx->settings.in_flight_max; i++) {
        if (!peer->sends[i].sending)
            continue;
        peer->ucx->abandoned += peer->sends[i].posted;
        send_over(&peer->sends[i], GRADWEIR_ERR_LOST);
    }
    ASSERT(peer->sending == 0);
}

static gradweir_status send_check(const struct ucx *ucx, const struct ucx_peer *peer,
                                  const struct transport_message *message)
{
    if (!peer || peer->state >= UCX_FAILED)
        return fail(GRADWEIR_ERR_LOST, "this peer is gone%s%s", peer ? ": " : "",
                    peer ? peer->reason : "");
    if (peer->state != UCX_OPEN)
        return fail(GRADWEIR_ERR_STATE, "%s: send before CONNECTED or ACCEPTED", peer->address);
    if (message->head_length > TRANSPORT_HEAD_MAX || message->memory > ucx->settings.memories_max ||
        (message->length > 0 && !message->body) || (message->head_length > 0 && !message->head))
        return fail(GRADWEIR_ERR_INVALID,
                    "%s: a message with a head of %u bytes, a body of %llu bytes, memory %u",
                    peer->address, message->head_length, (unsigned long long)message->length,
                    message->memory);
    return GRADWEIR_OK;
}

void ucx_memory_use(const struct ucx *ucx, uint32_t memory, ucp_request_param_t *params)
{
    if (memory == 0 || !ucx->memories[memory - 1].handle)
        return;
    params->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params->memh = ucx->memories[memory - 1].handle;
    if (!ucx_memory_is_far(ucx, memory))
        return;
    params->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params->memory_type = UCS_MEMORY_TYPE_CUDA;
}

/* The loan is behind the head. */
static struct ucx_send *send_new(struct ucx_peer *peer, const struct transport_message *message)
{
    struct ucx_send *send = peer->free_sends;
    struct ucx_loan loan;
    peer->free_sends = send->next;
    peer->in_flight++;
    peer->sending++;
    peer->credits--;
    send->sending = send->posted = true;
    send->status = GRADWEIR_OK;
    send->token = message->token;
    send->prefix = (struct ucx_prefix){.magic = UCX_MAGIC, .credits = peer->owed};
    peer->owed = 0;
    if (message->head_length > 0)
        memcpy(send->head, message->head, message->head_length);
    send->lent = ucx_loan_make(send, message, &loan);
    if (send->lent)
        memcpy(send->head + message->head_length, &loan, sizeof loan);
    return send;
}

/* Whether the body stays here until it is taken. Short ones in a GPU's memory do, too: nobody
 * copies them behind their head. */
static bool waits(struct ucx_peer *peer, const struct transport_message *message)
{
    struct ucx *ucx = peer->ucx;
    if (message->length == 0)
        return false;
    if (ucx_memory_is_far(ucx, message->memory))
        return true;
    return message->length >= ucx->settings.rendezvous_bytes &&
           (message->length > UCX_PORTION || ucx_portion(&ucx->base, peer->number) != UCX_PORTION);
}

gradweir_status ucx_send(struct transport *transport, uint64_t number,
                         const struct transport_message *message)
{
    struct ucx *ucx = (struct ucx *)transport;
    struct ucx_peer *peer = ucx_peer_find(ucx, number);
    TRY(send_check(ucx, peer, message));
    if (peer->credits == 0 || peer->in_flight == ucx->settings.in_flight_max) {
        peer->blocked = true;
        return GRADWEIR_ERR_AGAIN;
    }
    if (!peer->unpaced && message->length >= ucx->settings.rendezvous_bytes) {
        peer->unpaced = true;
        unpace(ucx->fd);
    }
    struct ucx_send *send = send_new(peer, message);
    const bool rendezvous = !send->lent && waits(peer, message);
    const size_t header =
        sizeof send->prefix + message->head_length + (send->lent ? sizeof(struct ucx_loan) : 0);
    ucp_request_param_t params = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags =
            UCP_AM_SEND_FLAG_REPLY | (rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER),
        .cb.send = send_done,
        .user_data = send,
    };
    if (!send->lent)
        ucx_memory_use(ucx, message->memory, &params);
    ucs_status_ptr_t result = ucp_am_send_nbx(
        peer->endpoint, send->lent ? UCX_AM_LOAN : UCX_AM_DATA, &send->prefix, header,
        send->lent ? NULL : message->body, send->lent ? 0 : message->length, &params);
    if (UCS_PTR_IS_PTR(result))
        send->request = result; /* its callback comes from a later progress */
    else
        send_done(NULL, UCS_PTR_STATUS(result), send);
    return GRADWEIR_OK;
}

static struct ucx_offer *offer_new(struct ucx_peer *peer)
{
    for (uint32_t i = 0; i < peer->ucx->settings.offers_max; i++) {
        if (peer->offers[i].state == UCX_OFFER_FREE)
            return &peer->offers[i];
    }
    return NULL;
}

struct ucx_arrival {
    const void *header;
    size_t header_length;
    void *data;
    size_t length;
    const ucp_am_recv_param_t *param;
};

/* Shows a message to the owner. UCX keeps the data for us when the answer is UCS_INPROGRESS. */
static ucs_status_t offer(struct ucx_peer *peer, const struct ucx_arrival *arrival,
                          const struct ucx_loan *loan)
{
    struct ucx *ucx = peer->ucx;
    uint64_t number = 0;
    struct ucx_offer *slot = NULL;
    const uint64_t length = loan ? loan->length : arrival->length;
    if (length > 0) {
        slot = offer_new(peer);
        ASSERT(slot);
        /* The index finds the slot again; peers_max * offers_max stays below 2^24. */
        number = ++ucx->serial << 24 | (uint64_t)(slot - ucx->offers);
        *slot =
            (struct ucx_offer){.peer = peer,
                               .state = UCX_OFFER_HELD,
                               .rendezvous = arrival->param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV,
                               .number = number,
                               .length = length,
                               .data = arrival->data};
        if (loan) {
            slot->block = loan->block;
            slot->lent = peer->view.memory + loan->block * UCX_BLOCK_BYTES;
        }
    }
    peer->held++;
    struct transport_event *event =
        transport_events_push(&ucx->events, TRANSPORT_OFFERED, peer->number);
    event->offer = number;
    event->length = length;
    event->head_length =
        (uint32_t)(arrival->header_length - sizeof(struct ucx_prefix) - (loan ? sizeof *loan : 0));
    memcpy(event->head, (const unsigned char *)arrival->header + sizeof(struct ucx_prefix),
           event->head_length);
    if (loan || length == 0)
        return UCS_OK;
    return slot->rendezvous ? UCS_INPROGRESS : ucx_came_along(slot);
}

static void greeted(struct ucx_peer *peer, unsigned kind, uint32_t credits)
{
    peer->ucx->tend = true; /* there may be blocks to offer */
    if (kind == UCX_AM_HELLO && peer->state == UCX_GREETING) {
        transport_events_push(&peer->ucx->events, TRANSPORT_ACCEPTED, peer->number);
        peer->state = UCX_OPEN;
        peer->credits = credits;
        ucx_control_send(peer, UCX_AM_WELCOME, ucx_credit_first(peer));
        ucx_credit_rest(peer);
    } else if (kind == UCX_AM_WELCOME && peer->state == UCX_CONNECTING) {
        struct transport_event *event =
            transport_events_push(&peer->ucx->events, TRANSPORT_CONNECTED, peer->number);
        event->token = peer->token;
        peer->state = UCX_OPEN;
        peer->connecting = false;
        peer->credits = credits;
        ucx_credit_rest(peer);
    } else {
        ucx_peer_fail(peer, GRADWEIR_ERR_PROTOCOL, "a greeting out of turn");
    }
}

/* Why the peer is to be hung up, or NULL. */
static const char *wrong(const struct ucx_peer *peer, unsigned kind,
                         const struct ucx_arrival *arrival, struct ucx_prefix *prefix)
{
    const size_t loan = kind == UCX_AM_LOAN ? sizeof(struct ucx_loan) : 0;
    if (arrival->header_length < sizeof *prefix + loan ||
        arrival->header_length > sizeof *prefix + loan + TRANSPORT_HEAD_MAX)
        return "a head of impossible length";
    memcpy(prefix, arrival->header, sizeof *prefix);
    if (prefix->magic != UCX_MAGIC)
        return "not a peer of this version";
    bool greeting = kind == UCX_AM_HELLO || kind == UCX_AM_WELCOME;
    if (!greeting && peer->state != UCX_OPEN)
        return "a message before the greeting";
    if ((kind == UCX_AM_DATA || kind == UCX_AM_LOAN) &&
        peer->held == peer->ucx->settings.offers_max)
        return "more messages than it was given credit for";
    return NULL;
}

/* Of blocks and loans. */
static ucs_status_t said(struct ucx_peer *peer, unsigned kind, const struct ucx_arrival *arrival)
{
    const unsigned char *what = (const unsigned char *)arrival->header + sizeof(struct ucx_prefix);
    const size_t bytes = arrival->header_length - sizeof(struct ucx_prefix);
    struct ucx_loan loan;
    const char *why = NULL;
    if (kind == UCX_AM_BLOCKS)
        why = ucx_blocks_heard(peer, what, bytes);
    else if (kind == UCX_AM_SEEN)
        why = ucx_seen_heard(peer, bytes);
    else if (kind == UCX_AM_COPIED)
        why = ucx_copied_heard(peer, what, bytes);
    else if (kind == UCX_AM_LOAN)
        why = ucx_loan_heard(peer, what + bytes - sizeof loan, &loan);
    if (why)
        ucx_peer_fail(peer, GRADWEIR_ERR_PROTOCOL, why);
    else if (kind == UCX_AM_LOAN)
        return offer(peer, arrival, &loan);
    return UCS_OK;
}

static ucs_status_t arrived(struct ucx *ucx, unsigned kind, const struct ucx_arrival *arrival)
{
    bool named = arrival->param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
    struct ucx_peer *peer = named ? ucx_peer_of(ucx, arrival->param->reply_ep) : NULL;
    if (!peer || peer->state >= UCX_FAILED)
        return UCS_OK;
    ucx->silent = 0;
    ucx_probe_heard(ucx);
    struct ucx_prefix prefix = {0};
    const char *why = wrong(peer, kind, arrival, &prefix);
    if (why) {
        ucx_peer_fail(peer, GRADWEIR_ERR_PROTOCOL, why);
        return UCS_OK;
    }
    if (kind == UCX_AM_HELLO || kind == UCX_AM_WELCOME) {
        greeted(peer, kind, prefix.credits);
        return UCS_OK;
    }
    peer->pong_owed |= kind == UCX_AM_PING;
    ucx->tend |= kind == UCX_AM_PING;
    peer->credits += prefix.credits;
    writable_check(peer);
    return kind == UCX_AM_DATA ? offer(peer, arrival, NULL) : said(peer, kind, arrival);
}

static ucs_status_t on_message(void *argument, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param)
{
    const struct ucx_handler *handler = argument;
    return arrived(handler->ucx, handler->kind,
                   &(struct ucx_arrival){header, header_length, data, length, param});
}

gradweir_status ucx_handlers_set(struct ucx *ucx)
{
    for (unsigned kind = UCX_AM_HELLO; kind < UCX_AM_KINDS; kind++) {
        ucx->handlers[kind] = (struct ucx_handler){.ucx = ucx, .kind = kind};
        ucp_am_handler_param_t params = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                          UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            .id = kind,
            .flags = UCP_AM_FLAG_WHOLE_MSG,
            .cb = on_message,
            .arg = &ucx->handlers[kind],
        };
        ucs_status_t status = ucp_worker_set_am_recv_handler(ucx->worker, &params);
        if (status != UCS_OK)
            return fail(GRADWEIR_ERR_UNSUPPORTED, "ucx: active messages: %s",
                        ucs_status_string(status));
    }
    return GRADWEIR_OK;
}

/* Limits count until the owner has seen the event, so that the ring of events cannot overflow. */
void ucx_event_polled(struct ucx *ucx, const struct transport_event *event)
{
    struct ucx_peer *peer = ucx_peer_find(ucx, event->peer);
    ASSERT(peer);
    switch (event->kind) {
    case TRANSPORT_SENT: peer->in_flight--; break;
    case TRANSPORT_LANDED: ucx_credit_free(peer); break;
    case TRANSPORT_WRITABLE: peer->writable_queued = false; break;
    case TRANSPORT_OFFERED:
        if (event->length == 0)
            ucx_credit_free(peer);
        break;
    case TRANSPORT_LOST: ucx_peer_free(peer); return;
    case TRANSPORT_CONNECTED:
    case TRANSPORT_ACCEPTED: break;
    }
    writable_check(peer);
}
