/* Who is connected: numbers for routing ids, and which of them are lost.
 *
 * A ROUTER does not say that a connection broke. Its monitor does, by file descriptor, and every
 * frame names the descriptor that it came by. Descriptors are used again, and a connection may be
 * gone before its first frame is read; so the monitor's last word on each descriptor is kept, and
 * of two peers on one descriptor the older one (routing ids count up) is gone. */
#include "common/control_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct control_peer *control_peer_find(struct control *control, uint32_t number)
{
    /* A number holds index and generation, so that an old number is known as old. */
    struct control_peer *peer = &control->peers[number % (control->peers_max + 1)];
    return number != 0 && peer->number == number ? peer : NULL;
}

void control_peer_break(struct control *control, struct control_peer *peer)
{
    if (!peer->broken)
        control->broken_count++;
    peer->broken = true;
}

static void forget(struct control *control, struct control_peer *peer)
{
    control->broken_count -= peer->broken;
    control->unflushed -= peer->frame_count > 0;
    if (peer->link) {
        control_link_close(peer->link, false);
        peer->link = NULL;
        control->links--;
    }
    peer->broken = false;
    peer->frame_count = 0;
    peer->number = 0;
}

void control_drop(struct control *control, uint32_t number)
{
    struct control_peer *peer = control_peer_find(control, number);
    if (peer && control->server)
        forget(control, peer);
}

uint32_t control_peer_take_broken(struct control *control)
{
    for (uint32_t i = 1; control->broken_count && i <= control->peers_max; i++) {
        struct control_peer *peer = &control->peers[i];
        const uint32_t number = peer->number;
        if (!number || !peer->broken)
            continue;
        forget(control, peer);
        return number;
    }
    return 0;
}

/* The number that libzmq counts up for each connection. */
static uint32_t routing_number(const uint8_t *routing)
{
    return (uint32_t)routing[1] << 24 | (uint32_t)routing[2] << 16 | (uint32_t)routing[3] << 8 |
           routing[4];
}

static void settle(struct control *control, struct control_peer *peer)
{
    if (peer->fd < 0)
        return;
    if (peer->fd < CONTROL_FDS_MAX && !control->fd_open[peer->fd])
        control_peer_break(control, peer);
    for (uint32_t i = 1; i <= control->peers_max; i++) {
        struct control_peer *other = &control->peers[i];
        if (!other->number || other == peer || other->fd != peer->fd)
            continue;
        const uint32_t ahead = routing_number(peer->routing) - routing_number(other->routing);
        control_peer_break(control, ahead <= INT32_MAX ? other : peer);
    }
}

/* Only the ZAP handler's word counts: without it a peer may claim any User-Id. */
static void take_identity(const struct control *control, struct control_peer *peer,
                          zmq_msg_t *message)
{
    const char *identity =
        control->domain && peer->fd >= 0 ? zmq_msg_gets(message, "User-Id") : NULL;
    snprintf(peer->identity, sizeof peer->identity, "%s", identity ? identity : "");
}

static void number_peer(const struct control *control, struct control_peer *peer)
{
    peer->generation = (peer->generation + 1) % (UINT32_MAX / (control->peers_max + 1));
    peer->number = peer->generation * (control->peers_max + 1) + (uint32_t)(peer - control->peers);
    peer->broken = false;
    peer->frame_count = 0;
}

gradweir_status control_peer_link(struct control *server, struct control_link *link)
{
    for (uint32_t i = server->peers_max; i >= 1; i--) {
        struct control_peer *peer = &server->peers[i];
        if (peer->number)
            continue;
        number_peer(server, peer);
        memset(peer->routing, 0xff, sizeof peer->routing); /* nobody's at ZeroMQ */
        peer->fd = -1;
        peer->identity[0] = 0;
        peer->link = link;
        server->links++;
        return GRADWEIR_OK;
    }
    return fail(GRADWEIR_ERR_FULL, "%u peers are connected and no more are allowed",
                server->peers_max);
}

struct control_peer *control_link_peer(struct control *server, const struct control_link *link)
{
    for (uint32_t i = 1; i <= server->peers_max; i++)
        if (server->peers[i].number && server->peers[i].link == link)
            return &server->peers[i];
    ASSERT(!"a link whose server end is open has a peer");
    return NULL;
}

void control_links_close(struct control *control)
{
    if (control->link)
        control_link_close(control->link, true);
    for (uint32_t i = 1; control->links && i <= control->peers_max; i++)
        if (control->peers[i].link)
            forget(control, &control->peers[i]);
}

uint32_t control_peer_of(struct control *control, const uint8_t *routing, zmq_msg_t *message)
{
    struct control_peer *free_peer = NULL;
    if (routing[0] != 0) {
        fail(GRADWEIR_ERR_PROTOCOL, "its sender chose a routing id for himself");
        return 0;
    }
    for (uint32_t i = control->peers_max; i >= 1; i--) {
        struct control_peer *peer = &control->peers[i];
        if (!peer->number)
            free_peer = peer;
        else if (memcmp(peer->routing, routing, ROUTING_BYTES) == 0)
            return peer->number;
    }
    /* A connection is known as open before its first frame is believed. */
    control_watch(control);
    if (!free_peer) {
        fail(GRADWEIR_ERR_FULL, "%u peers are connected and no more are allowed",
             control->peers_max);
        return 0;
    }
    number_peer(control, free_peer);
    memcpy(free_peer->routing, routing, ROUTING_BYTES);
    free_peer->fd = zmq_msg_get(message, ZMQ_SRCFD);
    take_identity(control, free_peer, message);
    settle(control, free_peer);
    return free_peer->number;
}

const char *control_identity(const struct control *control, uint32_t number)
{
    const struct control_peer *peer = &control->peers[number % (control->peers_max + 1)];
    return number != 0 && peer->number == number ? peer->identity : "";
}

static void server_event(struct control *control, uint16_t kind, int32_t fd)
{
    if (fd >= 0 && fd < CONTROL_FDS_MAX)
        control->fd_open[fd] = kind == ZMQ_EVENT_ACCEPTED;
    if (kind != ZMQ_EVENT_DISCONNECTED)
        return;
    for (uint32_t i = 1; i <= control->peers_max; i++)
        if (control->peers[i].number && control->peers[i].fd == fd)
            control_peer_break(control, &control->peers[i]);
}

static void client_event(struct control *control, uint16_t kind)
{
    const bool up = kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    if (kind == ZMQ_EVENT_CLOSED) { /* an attempt that found nobody */
        control->refused = NULL;
        control->refusals = 0;
        return;
    }
    if (kind != ZMQ_EVENT_DISCONNECTED && !up)
        control_refused_now(control, kind);
    if (up) {
        control->refused = NULL;
        control->refusals = 0;
        control->retry_owed = false;
    }
    control->lost_owed |= !up && control->connected;
    control->up_owed = up;
    control->connected = up;
}

void control_watch(struct control *control)
{
    for (;;) {
        uint8_t event[6];
        if (zmq_recv(control->monitor, event, sizeof event, ZMQ_DONTWAIT) != sizeof event) {
            control->monitor_quiet = errno == EAGAIN;
            return;
        }
        char address[CONTROL_TEXT];
        zmq_recv(control->monitor, address, sizeof address, ZMQ_DONTWAIT);
        uint16_t kind;
        int32_t value;
        memcpy(&kind, event, sizeof kind);
        memcpy(&value, event + 2, sizeof value);
        if (control->server)
            server_event(control, kind, value);
        else
            client_event(control, kind);
    }
}
