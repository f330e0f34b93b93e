/* Life and death of a peer. Callbacks only mark; everything is carried out in ucx_peers_tend(),
 * outside of them.
 *
 * A peer's LOST is queued only when nothing of it is left in UCX: completions may come before or
 * after the error callback, and up to 90 ms after a forced close has returned. But a rendezvous
 * with a process that was killed, in either direction, may never end in UCX 1.13: what the close
 * has not ended after GIVE_UP_NS is told as lost. No byte of it moves any more, as the endpoint is
 * gone and what is left to do would be done by this side. */
#include "common/clock.h"
#include "common/transport_ucx.h"

#include <stdio.h>
#include <string.h>

#define GIVE_UP_NS (250 * CLOCK_MS)
#define PATIENT_NS (300 * CLOCK_MS) /* a greeting that has not come by then is late */

struct ucx_peer *ucx_peer_find(struct ucx *ucx, uint64_t number)
{
    uint32_t index = transport_index(number);
    if (index >= ucx->settings.peers_max)
        return NULL;
    struct ucx_peer *peer = &ucx->peers[index];
    return peer->state != UCX_FREE && peer->number == number ? peer : NULL;
}

struct ucx_peer *ucx_peer_of(struct ucx *ucx, ucp_ep_h endpoint)
{
    if (!endpoint)
        return NULL;
    if (ucx->peers[ucx->recent].endpoint == endpoint)
        return &ucx->peers[ucx->recent];
    for (uint32_t i = 0; i < ucx->settings.peers_max; i++) {
        if (ucx->peers[i].endpoint == endpoint) {
            ucx->recent = i;
            return &ucx->peers[i];
        }
    }
    return NULL;
}

void ucx_peer_fail(struct ucx_peer *peer, gradweir_status status, const char *what)
{
    if (peer->state == UCX_FREE || peer->state >= UCX_FAILED)
        return;
    bool unanswered = peer->connecting && status == GRADWEIR_ERR_LOST;
    peer->status = unanswered ? GRADWEIR_ERR_UNREACHABLE : status;
    snprintf(peer->reason, sizeof peer->reason, "%s: %s", peer->address, what);
    /* Who never said HELLO was never shown to the owner, and ends in silence. */
    if (peer->state == UCX_GREETING)
        peer->status = GRADWEIR_OK;
    peer->state = UCX_FAILED;
    peer->ucx->tend = true;
}

static void error_callback(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    struct ucx_peer *peer = argument;
    if (peer->endpoint != endpoint)
        return;
    /* Who is gone before greeting may have been hung up because we did not hear the greeting. */
    peer->unheard =
        peer->state == UCX_GREETING && deadline_passed(clock_now_ns(), peer->patient_ns);
    peer->ucx->death = true;
    ucx_peer_fail(peer, GRADWEIR_ERR_LOST, ucs_status_string(status));
}

void ucx_accept_callback(ucp_conn_request_h request, void *argument)
{
    struct ucx *ucx = argument;
    if (ucx->request_count == ucx->settings.peers_max) {
        ucp_listener_reject(ucx->listener, request);
        return;
    }
    ucx->requests[ucx->request_count++] = request;
    ucx->tend = true;
}

static struct ucx_peer *peer_new(struct ucx *ucx, enum ucx_state state, uint32_t deadline_ms)
{
    for (uint32_t i = 0; i < ucx->settings.peers_max; i++) {
        struct ucx_peer *peer = &ucx->peers[i];
        if (peer->state != UCX_FREE)
            continue;
        *peer = (struct ucx_peer){
            .ucx = ucx,
            .state = state,
            .number = transport_number(++ucx->serial, i),
            .deadline_ns = deadline_after(clock_now_ns(), deadline_ms * CLOCK_MS),
            .sends = &ucx->sends[(size_t)i * ucx->settings.in_flight_max],
            .offers = &ucx->offers[(size_t)i * ucx->settings.offers_max],
        };
        for (uint32_t j = ucx->settings.in_flight_max; j-- > 0;) {
            peer->sends[j] = (struct ucx_send){.peer = peer, .next = peer->free_sends};
            peer->free_sends = &peer->sends[j];
        }
        memset(peer->offers, 0, ucx->settings.offers_max * sizeof *peer->offers);
        return peer;
    }
    return NULL;
}

static ucs_status_t endpoint_open(struct ucx_peer *peer, ucp_ep_params_t *params)
{
    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler = (ucp_err_handler_t){.cb = error_callback, .arg = peer};
    return ucp_ep_create(peer->ucx->worker, params, &peer->endpoint);
}

gradweir_status ucx_connect(struct transport *transport, const char *address, uint32_t deadline_ms,
                            uint64_t token, uint64_t *number)
{
    struct ucx *ucx = (struct ucx *)transport;
    struct sockaddr_storage remote;
    socklen_t length;
    TRY(ucx_address_parse(address, &remote, &length));
    if (ucx->renewing)
        return fail(GRADWEIR_ERR_LOST, "%s: not now, the transport is made anew", address);
    struct ucx_peer *peer = peer_new(ucx, UCX_CONNECTING, deadline_ms);
    if (!peer)
        return fail(GRADWEIR_ERR_FULL, "%s: all %u peers are in use", address,
                    ucx->settings.peers_max);
    peer->token = token;
    peer->connecter = peer->connecting = true;
    snprintf(peer->address, sizeof peer->address, "%s", address);
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = {.addr = (struct sockaddr *)&remote, .addrlen = length},
    };
    ucs_status_t status = endpoint_open(peer, &params);
    if (status != UCS_OK) {
        peer->state = UCX_FREE;
        return fail(GRADWEIR_ERR_UNREACHABLE, "%s: %s", address, ucs_status_string(status));
    }
    ucx->tend = true;
    ucx_control_send(peer, UCX_AM_HELLO, ucx_credit_first(peer));
    *number = peer->number;
    return GRADWEIR_OK;
}

static void accept_one(struct ucx *ucx, ucp_conn_request_h request)
{
    struct ucx_peer *peer = peer_new(ucx, UCX_GREETING, ucx->settings.handshake_ms);
    if (!peer) {
        ucp_listener_reject(ucx->listener, request);
        return;
    }
    peer->patient_ns = clock_now_ns() + PATIENT_NS;
    ucp_conn_request_attr_t attributes = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};
    if (ucp_conn_request_query(request, &attributes) == UCS_OK)
        ucx_address_print(&attributes.client_address, peer->address, sizeof peer->address);
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                              .conn_request = request};
    /* A client that died meanwhile makes this fail; UCX has then destroyed the request. */
    if (endpoint_open(peer, &params) != UCS_OK)
        peer->state = UCX_FREE;
}

void ucx_hangup(struct transport *transport, uint64_t number)
{
    struct ucx_peer *peer = ucx_peer_find((struct ucx *)transport, number);
    if (peer)
        ucx_peer_fail(peer, GRADWEIR_ERR_STOPPED, "hung up by this side");
}

void ucx_peer_free(struct ucx_peer *peer)
{
    ASSERT(peer->state == UCX_GONE && peer->sending == 0 && peer->taking == 0);
    peer->state = UCX_FREE;
}

static void close_endpoint(struct ucx_peer *peer)
{
    ucx_offers_release(peer);
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucx_blocks_end(peer);
    ucp_ep_h endpoint = peer->endpoint;
    peer->endpoint = NULL; /* out of the tables first, closed once */
    ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &params);
    peer->closing = UCS_PTR_IS_PTR(request) ? request : NULL;
    peer->state = UCX_CLOSING;
    peer->give_up_ns = clock_now_ns() + GIVE_UP_NS;
}

static bool drained(struct ucx_peer *peer, uint64_t now_ns)
{
    if (peer->closing) {
        if (ucp_request_check_status(peer->closing) == UCS_INPROGRESS)
            return false;
        ucp_request_free(peer->closing);
        peer->closing = NULL;
    }
    if (peer->taking + peer->sending > 0 && deadline_passed(now_ns, peer->give_up_ns)) {
        ucx_takes_abandon(peer);
        ucx_sends_abandon(peer);
    }
    return peer->sending == 0 && peer->taking == 0 && !peer->control_busy;
}

static void bury(struct ucx_peer *peer)
{
    if (peer->status == GRADWEIR_OK) {
        peer->state = UCX_FREE;
        return;
    }
    peer->state = UCX_GONE;
    struct transport_event *event =
        transport_events_push(&peer->ucx->events, TRANSPORT_LOST, peer->number);
    event->status = peer->status;
    event->token = peer->token;
    snprintf(event->reason, sizeof event->reason, "%s", peer->reason);
}

static void silent(struct ucx_peer *peer)
{
    const bool greeting = peer->state == UCX_GREETING;
    ucx_peer_fail(peer, GRADWEIR_ERR_LOST, "no answer within the deadline");
    ucx_silence(peer->ucx, greeting);
}

/* Whether the peer wants to be tended again without a further cause. */
static bool tend(struct ucx_peer *peer, uint64_t now_ns)
{
    if (peer->state == UCX_CONNECTING || peer->state == UCX_GREETING) {
        if (deadline_passed(now_ns, peer->deadline_ns))
            silent(peer);
    }
    if (peer->state == UCX_OPEN) {
        ucx_credit_pay(peer);
        ucx_probe_pay(peer);
        ucx_blocks_pay(peer);
    }
    if (peer->state == UCX_FAILED) {
        if (peer->unheard)
            ucx_silence(peer->ucx, true);
        close_endpoint(peer);
    }
    if (peer->state == UCX_CLOSING && drained(peer, now_ns))
        bury(peer);
    return peer->state == UCX_CONNECTING || peer->state == UCX_GREETING ||
           peer->state == UCX_CLOSING;
}

bool ucx_peers_tend(struct ucx *ucx)
{
    if (!ucx->tend)
        return false;
    ucx->tend = false;
    uint64_t now_ns = clock_now_ns();
    bool again = false;
    for (uint32_t i = 0; i < ucx->request_count; i++) {
        accept_one(ucx, ucx->requests[i]);
        again = true;
    }
    ucx->request_count = 0;
    for (uint32_t i = 0; i < ucx->settings.peers_max; i++) {
        if (ucx->peers[i].state != UCX_FREE)
            again |= tend(&ucx->peers[i], now_ns);
    }
    again |= ucx_probe(ucx, now_ns);
    ucx->tend |= again;
    return true;
}

uint64_t ucx_peers_deadline(const struct ucx *ucx)
{
    uint64_t deadline_ns = DEADLINE_NEVER;
    for (uint32_t i = 0; ucx->tend && i < ucx->settings.peers_max; i++) {
        const struct ucx_peer *peer = &ucx->peers[i];
        uint64_t wanted_ns = DEADLINE_NEVER;
        if (peer->state == UCX_CONNECTING || peer->state == UCX_GREETING)
            wanted_ns = peer->deadline_ns;
        /* What a closed endpoint still does inside UCX need not wake its descriptor. */
        if (peer->state == UCX_CLOSING)
            wanted_ns = clock_now_ns() + CLOCK_MS;
        deadline_ns = wanted_ns < deadline_ns ? wanted_ns : deadline_ns;
    }
    if (ucx->probes && ucx->probe_ns < deadline_ns)
        deadline_ns = ucx->probe_ns;
    return deadline_ns;
}
