/* Receives: an offered body is taken into its place, refused, or given up. */
#include "common/transport_ucx.h"

#include <string.h>

static void release(struct ucx_offer *offer, enum ucx_offer_state state)
{
    if (offer->lent)
        ucx_loan_over(offer->peer, offer->block);
    else
        ucx_data_release(offer);
    offer->state = state;
}

static struct ucx_offer *offer_find(struct ucx *ucx, uint64_t number)
{
    uint64_t index = number & ((1u << 24) - 1);
    if (number == 0 || index >= (uint64_t)ucx->settings.peers_max * ucx->settings.offers_max)
        return NULL;
    struct ucx_offer *found = &ucx->offers[index];
    return found->state == UCX_OFFER_HELD && found->number == number ? found : NULL;
}

static void landed(struct ucx_offer *offer, gradweir_status status)
{
    struct transport_event *event =
        transport_events_push(&offer->peer->ucx->events, TRANSPORT_LANDED, offer->peer->number);
    event->status = status;
    event->offer = offer->number;
    event->token = offer->token;
    event->length = offer->length;
    offer->state = UCX_OFFER_FREE;
}

static void take_done(void *request, ucs_status_t status, size_t length, void *argument)
{
    struct ucx_offer *offer = argument;
    struct ucx_peer *peer = offer->peer;
    if (request != offer->request) { /* given up; its place serves others */
        peer->ucx->abandoned--;
        ucp_request_free(request);
        return;
    }
    bool whole = status == UCS_OK && length == offer->length;
    peer->taking--;
    landed(offer, whole ? GRADWEIR_OK : GRADWEIR_ERR_LOST);
    if (!whole)
        ucx_peer_fail(peer, GRADWEIR_ERR_LOST, ucs_status_string(status));
    if (request)
        ucp_request_free(request);
}

/* What did not stay at its sender is here. */
static const void *body_of(const struct ucx_offer *offer)
{
    if (offer->lent)
        return offer->lent;
    return offer->rendezvous ? NULL : offer->data;
}

const void *ucx_body(struct transport *transport, uint64_t number)
{
    const struct ucx_offer *offer = offer_find((struct ucx *)transport, number);
    return offer && offer->peer->state == UCX_OPEN ? body_of(offer) : NULL;
}

gradweir_status ucx_take(struct transport *transport, uint64_t number, void *place, uint32_t memory,
                         uint64_t token)
{
    struct ucx *ucx = (struct ucx *)transport;
    struct ucx_offer *offer = offer_find(ucx, number);
    if (!offer || offer->peer->state != UCX_OPEN)
        return fail(GRADWEIR_ERR_LOST, "the offered body is gone");
    if (!place || memory > ucx->settings.memories_max)
        return fail(GRADWEIR_ERR_INVALID, "%s: no place for an offered body", offer->peer->address);
    offer->token = token;
    offer->state = UCX_OFFER_TAKEN;
    const void *body = body_of(offer);
    if (body) {
        memcpy(place, body, offer->length);
        release(offer, UCX_OFFER_TAKEN);
        landed(offer, GRADWEIR_OK);
        return GRADWEIR_OK;
    }
    ucp_request_param_t params = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = take_done,
        .user_data = offer,
    };
    ucx_memory_use(ucx, memory, &params);
    offer->peer->taking++;
    void *data = offer->data;
    offer->data = NULL;
    offer->request = NULL;
    ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(ucx->worker, data, place, offer->length, &params);
    if (UCS_PTR_IS_ERR(request))
        take_done(NULL, UCS_PTR_STATUS(request), 0, offer);
    else
        offer->request = request; /* NO_IMM_CMPL: never done before this */
    return GRADWEIR_OK;
}

void ucx_refuse(struct transport *transport, uint64_t number)
{
    struct ucx_offer *offer = offer_find((struct ucx *)transport, number);
    if (!offer || offer->peer->state != UCX_OPEN)
        return;
    release(offer, UCX_OFFER_FREE);
    ucx_credit_free(offer->peer);
}

void ucx_offers_release(struct ucx_peer *peer)
{
    for (uint32_t i = 0; i < peer->ucx->settings.offers_max; i++) {
        if (peer->offers[i].state == UCX_OFFER_HELD)
            release(&peer->offers[i], UCX_OFFER_DEAD);
    }
}

void ucx_takes_abandon(struct ucx_peer *peer)
{
    for (uint32_t i = 0; i < peer->ucx->settings.offers_max; i++) {
        struct ucx_offer *offer = &peer->offers[i];
        if (offer->state != UCX_OFFER_TAKEN)
            continue;
        offer->request = NULL;
        peer->taking--;
        peer->ucx->abandoned++;
        landed(offer, GRADWEIR_ERR_LOST);
    }
    ASSERT(peer->taking == 0);
}
