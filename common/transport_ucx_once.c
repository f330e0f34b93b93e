/* Bodies that came along with their heads. Where UCX has received them they are good only until its
 * callback returns: the owner is told at once, and does what he wants with them there
 * (settings.at_once); else they are copied aside. */
#include "common/transport_ucx.h"

#include <stdlib.h>
#include <string.h>

void ucx_data_release(struct ucx_offer *offer)
{
    if (offer->rendezvous)
        ucp_am_data_release(offer->peer->ucx->worker, offer->data);
    else if (offer->copied)
        free(offer->data);
    offer->data = NULL;
}

/* A body that came along, and is gone when UCX's callback returns. */
static void copy_aside(struct ucx_offer *offer)
{
    void *copy = malloc(offer->length);
    if (copy)
        memcpy(copy, offer->data, offer->length);
    else
        ucx_peer_fail(offer->peer, GRADWEIR_ERR_LOST, "no memory for a body of its");
    offer->data = copy;
    offer->copied = true;
}

/* Everything that waits, in its order; the last of it is of a body that came along. */
static void hand_out(struct ucx *ucx)
{
    ucx->handed = true;
    for (;;) {
        const struct transport_event *event = transport_events_pop(&ucx->events);
        if (!event)
            return;
        const struct transport_event copy = *event; /* its place may serve another one */
        ucx_event_polled(ucx, &copy);
        ucx->sated |= !ucx->settings.at_once(ucx->settings.at_once_context, &copy);
    }
}

ucs_status_t ucx_came_along(struct ucx_offer *offer)
{
    struct ucx *ucx = offer->peer->ucx;
    const uint64_t number = offer->number;
    if (ucx->settings.at_once)
        hand_out(ucx);
    if (offer->state == UCX_OFFER_HELD && offer->number == number)
        copy_aside(offer);
    return UCS_OK;
}
