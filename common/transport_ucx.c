/* The UCX backend: one context, one worker, one listener, for one thread. Opens, listens, polls,
 * sleeps, closes. */
#include "common/transport_ucx.h"

#include "common/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void ucx_close(struct transport *transport);

gradweir_status ucx_worker_open(struct ucx *ucx)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucs_status_t status = ucp_worker_create(ucx->context, &params, &ucx->worker);
    if (status != UCS_OK)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "ucx: no worker over lanes '%s', devices '%s': %s",
                    ucx->settings.lanes, ucx->settings.devices, ucs_status_string(status));
    return ucx_handlers_set(ucx);
}

gradweir_status ucx_worker_watch(struct ucx *ucx)
{
    int worker_fd = -1;
    ucs_status_t status = ucp_worker_get_efd(ucx->worker, &worker_fd);
    if (status != UCS_OK)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "ucx: no event descriptor: %s",
                    ucs_status_string(status));
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(ucx->fd, EPOLL_CTL_ADD, worker_fd, &event) != 0)
        return fail(GRADWEIR_ERR_IO, "ucx: event descriptors: %s", strerror(errno));
    return GRADWEIR_OK;
}

static gradweir_status descriptor_open(struct ucx *ucx)
{
    ucx->fd = epoll_create1(EPOLL_CLOEXEC);
    ucx->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (ucx->fd < 0 || ucx->timer_fd < 0 ||
        epoll_ctl(ucx->fd, EPOLL_CTL_ADD, ucx->timer_fd, &event) != 0)
        return fail(GRADWEIR_ERR_IO, "ucx: event descriptors: %s", strerror(errno));
    return ucx_worker_watch(ucx);
}

static gradweir_status tables_open(struct ucx *ucx)
{
    const struct transport_settings *settings = &ucx->settings;
    size_t peers = settings->peers_max;
    ucx->peers = calloc(peers, sizeof *ucx->peers);
    ucx->sends = calloc(peers * settings->in_flight_max, sizeof *ucx->sends);
    ucx->offers = calloc(peers * settings->offers_max, sizeof *ucx->offers);
    ucx->memories = calloc(settings->memories_max, sizeof *ucx->memories);
    ucx->requests = calloc(peers, sizeof(ucp_conn_request_h));
    if (!ucx->peers || !ucx->sends || !ucx->offers || !ucx->memories || !ucx->requests)
        return fail(GRADWEIR_ERR_NO_MEMORY, "ucx: no memory for %zu peers", peers);
    return transport_events_init(&ucx->events, settings);
}

static gradweir_status parts_open(struct ucx *ucx)
{
    TRY(tables_open(ucx));
    TRY(ucx_context_open(ucx));
    TRY(ucx_worker_open(ucx));
    return descriptor_open(ucx);
}

static gradweir_status ucx_open(const struct transport_settings *settings,
                                struct transport **transport)
{
    struct ucx *ucx = calloc(1, sizeof *ucx);
    if (!ucx)
        return fail(GRADWEIR_ERR_NO_MEMORY, "ucx: no memory");
    *ucx = (struct ucx){.base = {.functions = &transport_ucx_functions},
                        .settings = *settings,
                        .fd = -1,
                        .timer_fd = -1};
    gradweir_status status = parts_open(ucx);
    if (status != GRADWEIR_OK) {
        ucx_close(&ucx->base);
        return status;
    }
    *transport = &ucx->base;
    return GRADWEIR_OK;
}

/* UCX says only "busy" or "error"; a bind of our own gives errno's text. */
static gradweir_status bind_probe(const char *text, const struct sockaddr_storage *address,
                                  socklen_t length)
{
    int probe = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int yes = 1;
    if (probe >= 0)
        setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    bool bound = probe >= 0 && bind(probe, (const struct sockaddr *)address, length) == 0;
    int error = errno;
    if (probe >= 0)
        close(probe);
    if (!bound)
        return fail(GRADWEIR_ERR_IO, "cannot listen on %s: %s", text, strerror(error));
    return GRADWEIR_OK;
}

gradweir_status ucx_listen_at(struct ucx *ucx, const char *text)
{
    struct sockaddr_storage address;
    socklen_t length;
    TRY(ucx_address_parse(text, &address, &length));
    TRY(bind_probe(text, &address, length));
    ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {.addr = (struct sockaddr *)&address, .addrlen = length},
        .conn_handler = {.cb = ucx_accept_callback, .arg = ucx},
    };
    ucs_status_t status = ucp_listener_create(ucx->worker, &params, &ucx->listener);
    if (status != UCS_OK) {
        ucx->listener = NULL;
        const char *why = status == UCS_ERR_BUSY ? strerror(EADDRINUSE) : ucs_status_string(status);
        return fail(GRADWEIR_ERR_IO, "cannot listen on %s: %s", text, why);
    }
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    if (ucp_listener_query(ucx->listener, &attributes) != UCS_OK)
        return fail(GRADWEIR_ERR_IO, "ucx: the listener on %s does not say where it is", text);
    ucx_address_print(&attributes.sockaddr, ucx->address, sizeof ucx->address);
    return GRADWEIR_OK;
}

static gradweir_status ucx_listen(struct transport *transport)
{
    struct ucx *ucx = (struct ucx *)transport;
    if (ucx->listener)
        return fail(GRADWEIR_ERR_STATE, "already listening on %s", ucx->address);
    return ucx_listen_at(ucx, ucx->settings.bind_address);
}

/* Enough to drain a burst, few enough to come back to the owner. */
#define PROGRESS_MAX 64

static bool progress(struct ucx *ucx)
{
    bool moved = false;
    ucx->handed = ucx->sated = false;
    for (int i = 0; i < PROGRESS_MAX && !ucx->sated && ucp_worker_progress(ucx->worker) != 0; i++)
        moved = true;
    ucx_peers_tend(ucx);
    ucx_renew(ucx);
    return moved;
}

static size_t ucx_poll(struct transport *transport, struct transport_event *events, size_t max)
{
    struct ucx *ucx = (struct ucx *)transport;
    if (ucx->events.count == 0)
        progress(ucx);
    size_t n = 0;
    while (n < max) {
        const struct transport_event *event = transport_events_pop(&ucx->events);
        if (!event)
            break;
        events[n] = *event;
        ucx_event_polled(ucx, &events[n]);
        n++;
    }
    return n;
}

static void timer_set(struct ucx *ucx)
{
    uint64_t deadline_ns = ucx_peers_deadline(ucx);
    if (deadline_ns == DEADLINE_NEVER)
        deadline_ns = 0; /* disarms */
    if (deadline_ns == 0 && !ucx->timer_set)
        return;
    ucx->timer_set = deadline_ns != 0;
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(deadline_ns / CLOCK_SECOND),
                                           .tv_nsec = (long)(deadline_ns % CLOCK_SECOND)}};
    int failed = timerfd_settime(ucx->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    ASSERT(failed == 0);
}

static gradweir_status ucx_arm(struct transport *transport)
{
    struct ucx *ucx = (struct ucx *)transport;
    progress(ucx);
    if (ucx->events.count > 0 || ucx->handed)
        return GRADWEIR_ERR_AGAIN;
    ucs_status_t status = ucp_worker_arm(ucx->worker);
    if (status != UCS_OK)
        return GRADWEIR_ERR_AGAIN;
    timer_set(ucx);
    return GRADWEIR_OK;
}

static int ucx_fd(const struct transport *transport)
{
    return ((const struct ucx *)transport)->fd;
}

static const char *ucx_address(const struct transport *transport)
{
    return ((const struct ucx *)transport)->address;
}

static bool alone(const struct ucx *ucx)
{
    for (uint32_t i = 0; i < ucx->settings.peers_max; i++) {
        if (ucx->peers[i].state != UCX_FREE && ucx->peers[i].state != UCX_GONE)
            return false;
    }
    return true;
}

#define CLOSE_WITHIN (5 * CLOCK_SECOND)

/* A worker must never be destroyed while requests are in it; rather leak it. */
static bool everybody_gone(struct ucx *ucx)
{
    uint64_t deadline_ns = clock_now_ns() + CLOSE_WITHIN;
    ucx->settings.at_once = NULL;
    while (!alone(ucx)) {
        for (uint32_t i = 0; i < ucx->settings.peers_max; i++)
            ucx_peer_fail(&ucx->peers[i], GRADWEIR_ERR_STOPPED, "closed");
        struct transport_event events[16];
        ucx_poll(&ucx->base, events, sizeof events / sizeof events[0]);
        if (deadline_passed(clock_now_ns(), deadline_ns))
            return false;
    }
    return true;
}

static void ucx_close(struct transport *transport)
{
    struct ucx *ucx = (struct ucx *)transport;
    if (ucx->listener)
        ucp_listener_destroy(ucx->listener);
    ucx->listener = NULL;
    bool clean = !ucx->worker || !ucx->peers || (everybody_gone(ucx) && ucx->abandoned == 0);
    if (ucx->fd >= 0)
        close(ucx->fd);
    if (ucx->timer_fd >= 0)
        close(ucx->timer_fd);
    if (!clean)
        return;
    for (uint32_t i = 0; ucx->memories && i < ucx->settings.memories_max; i++) {
        if (ucx->memories[i].handle)
            ucx_memory_unmap(transport, i + 1);
    }
    if (ucx->worker)
        ucp_worker_destroy(ucx->worker);
    if (ucx->context)
        ucp_cleanup(ucx->context);
    transport_events_deinit(&ucx->events);
    free(ucx->requests);
    free(ucx->memories);
    free(ucx->offers);
    free(ucx->sends);
    free(ucx->peers);
    free(ucx);
}

const struct transport_functions transport_ucx_functions = {
    .name = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .listen = ucx_listen,
    .connect = ucx_connect,
    .hangup = ucx_hangup,
    .room = ucx_room,
    .room_back = ucx_room_back,
    .send = ucx_send,
    .body = ucx_body,
    .take = ucx_take,
    .refuse = ucx_refuse,
    .poll = ucx_poll,
    .memory_map = ucx_memory_map,
    .memory_unmap = ucx_memory_unmap,
    .knows = ucx_knows,
    .arm = ucx_arm,
    .fd = ucx_fd,
    .address = ucx_address,
    .portion = ucx_portion,
    .describe = ucx_describe,
};
