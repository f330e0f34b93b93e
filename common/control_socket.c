/* Makes sockets: contexts, options, monitors. */
#include "common/control_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct control_context {
    void *zmq;
    pthread_mutex_t mutex; /* around zap */
    struct control_zap *zap;
    atomic_uint monitors; /* made so far: their names must differ */
};

struct control_options control_defaults(void)
{
    return (struct control_options){
        .peers_max = 320, .queue_max = 1000, .heartbeat_ms = 200, .heartbeat_dead_ms = 600};
}

gradweir_status control_context_new(struct control_context **context)
{
    struct control_context *made = calloc(1, sizeof *made);
    if (made)
        made->zmq = zmq_ctx_new();
    if (!made || !made->zmq) {
        free(made);
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a ZeroMQ context");
    }
    pthread_mutex_init(&made->mutex, NULL);
    zmq_ctx_set(made->zmq, ZMQ_MAX_SOCKETS, 1023);
    *context = made;
    return GRADWEIR_OK;
}

/* The handler of keys waits on its socket until the context is shut. */
void control_context_free(struct control_context *context)
{
    if (!context)
        return;
    zmq_ctx_shutdown(context->zmq);
    control_zap_free(context->zap);
    zmq_ctx_term(context->zmq);
    pthread_mutex_destroy(&context->mutex);
    free(context);
}

gradweir_status control_take_keys(struct control *control, const struct control_options *options)
{
    struct control_context *context = control->context;
    pthread_mutex_lock(&context->mutex);
    const gradweir_status status =
        control_zap_allow(&context->zap, context->zmq, options, &control->domain);
    pthread_mutex_unlock(&context->mutex);
    return status;
}

void control_forget_keys(struct control *control)
{
    if (!control->domain)
        return;
    pthread_mutex_lock(&control->context->mutex);
    control_zap_forget(control->context->zap, control->domain);
    pthread_mutex_unlock(&control->context->mutex);
    control->domain = 0;
}

static void set(void *socket, int option, int value)
{
    const int result = zmq_setsockopt(socket, option, &value, sizeof value);
    ASSERT(result == 0);
}

static void set_options(void *socket, int type, const struct control_options *options)
{
    const int64_t largest = FRAME_BYTES_MAX;
    const int result = zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest);
    ASSERT(result == 0);
    set(socket, ZMQ_HANDSHAKE_IVL, 3000);
    set(socket, ZMQ_LINGER, 1000);
    set(socket, ZMQ_SNDHWM, (int)options->queue_max);
    set(socket, ZMQ_RCVHWM, (int)options->queue_max);
    set(socket, ZMQ_HEARTBEAT_IVL, (int)options->heartbeat_ms);
    set(socket, ZMQ_HEARTBEAT_TIMEOUT, (int)options->heartbeat_dead_ms);
    set(socket, ZMQ_HEARTBEAT_TTL, (int)options->heartbeat_dead_ms);
    set(socket, ZMQ_RECONNECT_IVL, 50);
    set(socket, ZMQ_RECONNECT_IVL_MAX, 200); /* a coordinator is back within a second */
    set(socket, ZMQ_TCP_KEEPALIVE, 1);
    if (type == ZMQ_ROUTER)
        set(socket, ZMQ_ROUTER_MANDATORY, 1);
    else
        set(socket, ZMQ_IMMEDIATE, 1);
}

static gradweir_status open_monitor(struct control_context *context, struct control *control)
{
    char name[64];
    snprintf(name, sizeof name, "inproc://monitor-%u", atomic_fetch_add(&context->monitors, 1));
    const int events = control->server
                           ? ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED
                           : ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_CLOSED;
    control->monitor = zmq_socket(context->zmq, ZMQ_PAIR);
    if (!control->monitor || zmq_socket_monitor(control->socket, name, events) != 0 ||
        zmq_connect(control->monitor, name) != 0)
        return fail(GRADWEIR_ERR_IO, "ZeroMQ monitor: %s", zmq_strerror(errno));
    set(control->monitor, ZMQ_LINGER, 0);
    size_t size = sizeof control->fds[0];
    if (zmq_getsockopt(control->socket, ZMQ_FD, &control->fds[0], &size) != 0 ||
        zmq_getsockopt(control->monitor, ZMQ_FD, &control->fds[1], &size) != 0)
        return fail(GRADWEIR_ERR_IO, "ZeroMQ descriptors: %s", zmq_strerror(errno));
    return GRADWEIR_OK;
}

static gradweir_status take_tables(struct control *control, uint32_t peers_max)
{
    control->peers_max = peers_max;
    control->peers = calloc(peers_max + 1, sizeof *control->peers);
    control->frames = calloc(peers_max + 1, FRAME_BYTES_MAX);
    if (control->server)
        control->fd_open = calloc(CONTROL_FDS_MAX, sizeof *control->fd_open);
    if (!control->peers || !control->frames || (control->server && !control->fd_open))
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %u control peers", peers_max);
    for (uint32_t i = 0; i <= peers_max; i++) {
        control->peers[i].frame = control->frames + (size_t)i * FRAME_BYTES_MAX;
        control->peers[i].fd = -1;
    }
    return wire_decoder_new(&control->decoder);
}

gradweir_status control_socket(struct control_context *context, int type,
                               const struct control_options *options, struct control **control)
{
    struct control *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a control socket");
    *control = made;
    made->context = context;
    made->zmq = context->zmq;
    made->log = options->log;
    made->server = type == ZMQ_ROUTER;
    made->socket = zmq_socket(context->zmq, type);
    if (!made->socket)
        return fail(GRADWEIR_ERR_IO, "ZeroMQ socket: %s", zmq_strerror(errno));
    set_options(made->socket, type, options);
    TRY(take_tables(made, made->server ? options->peers_max : 1));
    return open_monitor(context, made);
}
