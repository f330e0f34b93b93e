/* Words between two transports: greetings, credit, and what is said of blocks. One at a time, each
 * an active message that is nothing but its header. */
#include "common/transport_ucx.h"

#include <string.h>

static void control_done(void *request, ucs_status_t status, void *argument)
{
    struct ucx_peer *peer = argument;
    (void)status; /* a failure comes to the error callback as well */
    peer->control_busy = false;
    peer->ucx->tend = true;
    if (request)
        ucp_request_free(request);
}

static void control_post(struct ucx_peer *peer, unsigned kind, size_t bytes)
{
    ASSERT(!peer->control_busy);
    peer->control_busy = true;
    ucp_request_param_t params = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER,
        .cb.send = control_done,
        .user_data = peer,
    };
    ucs_status_ptr_t result =
        ucp_am_send_nbx(peer->endpoint, kind, &peer->control, sizeof peer->control.prefix + bytes,
                        NULL, 0, &params);
    if (UCS_PTR_IS_ERR(result))
        ucx_peer_fail(peer, GRADWEIR_ERR_LOST, ucs_status_string(UCS_PTR_STATUS(result)));
    if (!UCS_PTR_IS_PTR(result))
        control_done(NULL, UCS_OK, peer);
}

void ucx_control_send(struct ucx_peer *peer, unsigned kind, uint32_t credits)
{
    peer->control.prefix = (struct ucx_prefix){.magic = UCX_MAGIC, .credits = credits};
    control_post(peer, kind, 0);
}

void ucx_control_say(struct ucx_peer *peer, unsigned kind, const void *what, size_t bytes)
{
    ASSERT(bytes <= UCX_CONTROL_MAX);
    peer->control.prefix = (struct ucx_prefix){.magic = UCX_MAGIC, .credits = peer->owed};
    peer->owed = 0;
    if (bytes > 0)
        memcpy(peer->control.rest, what, bytes);
    control_post(peer, kind, bytes);
}

uint32_t ucx_credit_first(struct ucx_peer *peer)
{
    const struct transport_settings *settings = &peer->ucx->settings;
    const bool fewer = settings->along_max > 0 && settings->along_max < settings->offers_max;
    peer->granted = fewer ? settings->along_max : settings->offers_max;
    return peer->granted;
}

void ucx_credit_rest(struct ucx_peer *peer)
{
    const uint32_t rest = peer->ucx->settings.offers_max - peer->granted;
    if (rest == 0 || ucx_portion(&peer->ucx->base, peer->number) != UINT64_MAX)
        return;
    peer->granted += rest;
    peer->owed += rest;
}

/* A quarter at a time, but not each alone; or at once when the other side has none left. */
void ucx_credit_pay(struct ucx_peer *peer)
{
    const uint32_t all = peer->granted, some = all > 8 ? all / 4 : all > 1 ? 2 : 1;
    if (peer->owed == 0 || peer->control_busy ||
        (peer->owed < some && peer->held + peer->owed < all))
        return;
    uint32_t credits = peer->owed;
    peer->owed = 0;
    ucx_control_send(peer, UCX_AM_CREDIT, credits);
}

void ucx_credit_free(struct ucx_peer *peer)
{
    ASSERT(peer->held > 0);
    peer->held--;
    peer->owed++;
    if (peer->state == UCX_OPEN)
        ucx_credit_pay(peer);
}
