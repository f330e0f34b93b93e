/* Frames between peers: in, out, and who is lost. */
#include "common/control_internal.h"

#include "common/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gradweir_status control_listen(struct control_context *context,
                               const struct control_options *options, const char *listen,
                               const char *inproc, struct control **control)
{
    char endpoint[CONTROL_TEXT], bound[CONTROL_TEXT];
    size_t size = sizeof bound;
    struct control *made = NULL;
    snprintf(endpoint, sizeof endpoint, "tcp://%s", listen);
    gradweir_status status = control_socket(context, ZMQ_ROUTER, options, &made);
    if (status == GRADWEIR_OK)
        status = control_security(made, options, listen);
    if (status == GRADWEIR_OK && zmq_bind(made->socket, endpoint) != 0)
        status = fail(errno == EINVAL || errno == ENODEV ? GRADWEIR_ERR_INVALID : GRADWEIR_ERR_IO,
                      "cannot listen on %s: %s", listen, zmq_strerror(errno));
    if (status == GRADWEIR_OK) {
        zmq_getsockopt(made->socket, ZMQ_LAST_ENDPOINT, bound, &size);
        snprintf(made->address, sizeof made->address, "%s", bound + strlen("tcp://"));
    }
    if (status == GRADWEIR_OK)
        status = control_try_stranger(made, options);
    if (status == GRADWEIR_OK && inproc && zmq_bind(made->socket, inproc) != 0)
        status = fail(GRADWEIR_ERR_IO, "cannot listen on %s: %s", inproc, zmq_strerror(errno));
    if (status == GRADWEIR_OK) {
        *control = made;
        return GRADWEIR_OK;
    }
    control_close(made);
    return status;
}

gradweir_status control_connect(struct control_context *context,
                                const struct control_options *options, const char *address,
                                struct control **control)
{
    char endpoint[CONTROL_TEXT];
    struct control *made = NULL;
    const bool has_scheme = strstr(address, "://") != NULL;
    snprintf(endpoint, sizeof endpoint, "%s%s", has_scheme ? "" : "tcp://", address);
    const char *bare = strncmp(endpoint, "tcp://", 6) == 0 ? endpoint + 6 : endpoint;
    gradweir_status status = control_socket(context, ZMQ_DEALER, options, &made);
    if (status == GRADWEIR_OK)
        status = control_security(made, options, bare);
    if (status == GRADWEIR_OK && zmq_connect(made->socket, endpoint) != 0)
        status =
            fail(GRADWEIR_ERR_INVALID, "%s is no address to connect to: %s (host:port is wanted)",
                 address, zmq_strerror(errno));
    if (status != GRADWEIR_OK) {
        control_close(made);
        return status;
    }
    made->peers[CONTROL_SERVER].number = CONTROL_SERVER;
    made->up_owed = made->connected = strncmp(endpoint, "inproc://", 9) == 0;
    snprintf(made->address, sizeof made->address, "%s", address);
    snprintf(made->endpoint, sizeof made->endpoint, "%s", endpoint);
    *control = made;
    return GRADWEIR_OK;
}

void control_close(struct control *control)
{
    if (!control)
        return;
    control_links_close(control);
    if (control->socket) {
        control_flush(control);
        /* A full monitor would hold ZeroMQ's IO thread, and with it the lock that this needs. */
        control_watch(control);
        zmq_socket_monitor(control->socket, NULL, 0);
    }
    if (control->monitor)
        zmq_close(control->monitor);
    if (control->incoming_open)
        zmq_msg_close(&control->incoming);
    if (control->socket)
        zmq_close(control->socket);
    control_forget_keys(control);
    wire_decoder_free(control->decoder);
    free(control->fd_open);
    free(control->peers);
    free(control->frames);
    free(control);
}

/* In. */

static bool take_routing(struct control *control, uint8_t *routing)
{
    uint8_t bytes[256];
    const int count = zmq_recv(control->socket, bytes, sizeof bytes, ZMQ_DONTWAIT);
    if (count < 0)
        return false;
    memset(routing, 0xff, ROUTING_BYTES);
    if (count == ROUTING_BYTES &&
        bytes[0] == 0) /* ids are given by us; one chosen by a peer is not known */
        memcpy(routing, bytes, ROUTING_BYTES);
    return true;
}

static void skip_rest(struct control *control)
{
    while (zmq_msg_more(&control->incoming)) {
        zmq_msg_close(&control->incoming);
        zmq_msg_init(&control->incoming);
        if (zmq_msg_recv(&control->incoming, control->socket, ZMQ_DONTWAIT) < 0)
            break;
    }
}

static void drop_incoming(struct control *control)
{
    skip_rest(control);
    zmq_msg_close(&control->incoming);
    control->incoming_open = false;
}

/* Counts what cannot be used and says why, at most once a second. */
static void refuse(struct control *control, const char *reason)
{
    control->bad_frames++;
    log_repeating(control->log, &control->log_limit, LOG_WARN, "control",
                  "%s: a frame from peer %u is dropped: %s", control->address,
                  control->incoming_peer, reason);
    drop_incoming(control);
}

/* libzmq asks the kernel (twice) at every receive that finds nothing. A socket that was read dry
 * has its next frame only after its descriptor became readable, unless another call on it meanwhile
 * took that news: then it must be read dry again. So one poll stands for both sockets. */
static void read_dry(struct control *control)
{
    control->socket_quiet = errno == EAGAIN;
    if (++control->dry % CONTROL_WATCH_EACH == 0)
        control->monitor_quiet = false;
}

/* Whether the socket may have something. A loop that is busy with other things asks at every turn,
 * and the kernel is asked every 50 us; one that was about to sleep gets its answer at once. */
static bool look(struct control *control)
{
    if (!control->socket_quiet)
        return true;
    const uint64_t now_ns = clock_now_ns();
    if (!control->look_owed && now_ns - control->looked_ns < CONTROL_LOOK_NS)
        return false;
    control->look_owed = false;
    control->looked_ns = now_ns;
    struct pollfd wait[2] = {{.fd = control->fds[0], .events = POLLIN},
                             {.fd = control->fds[1], .events = POLLIN}};
    if (poll(wait, 2, 0) == 0)
        return false;
    control->socket_quiet = wait[0].revents == 0;
    control->monitor_quiet = control->monitor_quiet && wait[1].revents == 0;
    return !control->socket_quiet;
}

/* The next frame into `incoming`; false when there is none. */
static bool receive(struct control *control)
{
    uint8_t routing[ROUTING_BYTES];
    if (control->server && !take_routing(control, routing)) {
        read_dry(control);
        return false;
    }
    zmq_msg_init(&control->incoming);
    if (zmq_msg_recv(&control->incoming, control->socket, ZMQ_DONTWAIT) < 0) {
        read_dry(control);
        zmq_msg_close(&control->incoming);
        return false;
    }
    control->incoming_open = true;
    control->incoming_at = 0;
    if (++control->received % CONTROL_WATCH_EACH == 0)
        control_watch(control);
    control->incoming_peer = CONTROL_SERVER;
    if (control->server)
        control->incoming_peer = control_peer_of(control, routing, &control->incoming);
    if (control->incoming_peer == 0)
        refuse(control, fail_reason());
    else if (zmq_msg_more(&control->incoming))
        refuse(control, "it has several parts");
    return true;
}

static struct control_event *told(struct control *control, enum control_event_kind kind,
                                  uint32_t peer)
{
    control->event.kind = kind;
    control->event.peer = peer;
    return &control->event;
}

/* The next message of the open frame, or NULL when it is used up or bad. */
static struct control_event *next_message(struct control *control)
{
    const uint8_t *bytes = zmq_msg_data(&control->incoming);
    const size_t rest = zmq_msg_size(&control->incoming) - control->incoming_at;
    size_t used;
    if (rest == 0 || !control_peer_find(control, control->incoming_peer)) {
        drop_incoming(control);
        return NULL;
    }
    if (wire_decode(control->decoder, bytes + control->incoming_at, rest, &used,
                    &control->event.message) != GRADWEIR_OK) {
        refuse(control, fail_reason());
        return NULL;
    }
    control->incoming_at += used;
    return told(control, CONTROL_MESSAGE, control->incoming_peer);
}

static struct control_event *next_lost(struct control *control)
{
    control->received = 0;
    const uint32_t number = control_peer_take_broken(control);
    return number ? told(control, CONTROL_LOST, number) : NULL;
}

/* What has come by links, from one peer after the other. */
static struct control_event *next_by_link(struct control *control)
{
    if (control->link)
        return control_link_next(control->link, true, control->decoder, &control->event.message)
                   ? told(control, CONTROL_MESSAGE, CONTROL_SERVER)
                   : NULL;
    uint32_t left = control->links;
    for (uint32_t i = control->peers_max; left && i >= 1; i--) { /* they are the last ones */
        const struct control_peer *peer = &control->peers[i];
        if (!peer->number || !peer->link)
            continue;
        left--;
        if (control_link_next(peer->link, false, control->decoder, &control->event.message))
            return told(control, CONTROL_MESSAGE, peer->number);
    }
    return NULL;
}

static struct control_event *client_change(struct control *control)
{
    if (control->lost_owed) {
        control->lost_owed = false;
        control->unflushed = 0;
        control->peers[CONTROL_SERVER].frame_count = 0;
        return told(control, CONTROL_LOST, CONTROL_SERVER);
    }
    if (!control->up_owed)
        return NULL;
    control->up_owed = false;
    return told(control, CONTROL_UP, CONTROL_SERVER);
}

struct control_event *control_poll(struct control *control)
{
    struct control_event *linked = next_by_link(control);
    if (linked)
        return linked;
    if (control->link)
        return client_change(control);
    for (;;) {
        if (control->incoming_open) {
            struct control_event *event = next_message(control);
            if (event)
                return event;
            continue;
        }
        if (control->received >= CONTROL_DRAIN_MAX && control->broken_count)
            return next_lost(control);
        if (look(control) && receive(control))
            continue;
        if (!control->monitor_quiet)
            control_watch(control);
        if (!control->server)
            control_retry(control);
        return control->server ? next_lost(control) : client_change(control);
    }
}

/* Out. */

static void flush_peer(struct control *control, struct control_peer *peer)
{
    if (peer->frame_count == 0)
        return;
    control->socket_quiet = false;
    if (control->server &&
        zmq_send(control->socket, peer->routing, ROUTING_BYTES, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
        if (errno != EAGAIN)
            control_peer_break(control, peer);
        return;
    }
    if (zmq_send(control->socket, peer->frame, peer->frame_count, ZMQ_DONTWAIT) < 0)
        return;
    peer->frame_count = 0;
    control->unflushed--;
}

void control_flush(struct control *control)
{
    for (uint32_t i = 1; control->unflushed && i <= control->peers_max; i++)
        if (control->peers[i].number)
            flush_peer(control, &control->peers[i]);
}

gradweir_status control_send(struct control *control, uint32_t number,
                             const struct message *message)
{
    struct control_peer *peer = control_peer_find(control, number);
    if (!peer || peer->broken)
        return fail(GRADWEIR_ERR_LOST, "control peer %u is gone", number);
    if (peer->link)
        return control_link_put(peer->link, control->server, message);
    for (int attempt = 0; attempt < 2; attempt++) {
        size_t written;
        if (wire_encode(message, peer->frame + peer->frame_count,
                        FRAME_BYTES_MAX - peer->frame_count, &written) == GRADWEIR_OK) {
            control->unflushed += peer->frame_count == 0;
            peer->frame_count += written;
            return GRADWEIR_OK;
        }
        flush_peer(control, peer);
    }
    if (control->server)
        control_peer_break(control, peer);
    return fail(GRADWEIR_ERR_FULL, "control peer %u does not take its messages", number);
}

/* Sleeping. */

static bool has_events(void *socket)
{
    int events = 0;
    size_t size = sizeof events;
    zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size);
    return events & ZMQ_POLLIN;
}

static bool link_waits(const struct control *control)
{
    if (control->link)
        return control_link_waits(control->link, true);
    for (uint32_t i = control->peers_max, left = control->links; left && i >= 1; i--) {
        const struct control_peer *peer = &control->peers[i];
        if (!peer->number || !peer->link)
            continue;
        left--;
        if (control_link_waits(peer->link, false))
            return true;
    }
    return false;
}

bool control_ready(struct control *control)
{
    control->look_owed = true;
    if (link_waits(control))
        return true;
    if (control->link)
        return control->up_owed || control->lost_owed;
    return control->incoming_open || control->broken_count || control->up_owed ||
           control->lost_owed || (!control->socket_quiet && has_events(control->socket)) ||
           (!control->monitor_quiet && has_events(control->monitor));
}

size_t control_fds(struct control *control, int fds[2])
{
    memcpy(fds, control->fds, sizeof control->fds);
    return control->link ? 0 : 2;
}

const char *control_address(const struct control *control)
{
    return control->address;
}

uint64_t control_bad_frames(const struct control *control)
{
    return control->bad_frames;
}
