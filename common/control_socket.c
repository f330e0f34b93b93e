/* Makes sockets: contexts, options, addresses, keys. */
#include "common/control_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct control_context {
    void *zmq;
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
    zmq_ctx_set(made->zmq, ZMQ_MAX_SOCKETS, 1023);
    *context = made;
    return GRADWEIR_OK;
}

void control_context_free(struct control_context *context)
{
    if (context)
        zmq_ctx_term(context->zmq);
    free(context);
}

void *control_zmq(struct control_context *context)
{
    return context->zmq;
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
    set(socket, ZMQ_LINGER, 200);
    set(socket, ZMQ_SNDHWM, (int)options->queue_max);
    set(socket, ZMQ_RCVHWM, (int)options->queue_max);
    set(socket, ZMQ_HEARTBEAT_IVL, (int)options->heartbeat_ms);
    set(socket, ZMQ_HEARTBEAT_TIMEOUT, (int)options->heartbeat_dead_ms);
    set(socket, ZMQ_HEARTBEAT_TTL, (int)options->heartbeat_dead_ms);
    set(socket, ZMQ_RECONNECT_IVL, 50);
    set(socket, ZMQ_RECONNECT_IVL_MAX, 1000);
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
    const int events = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    control->monitor = zmq_socket(context->zmq, ZMQ_PAIR);
    if (!control->monitor || zmq_socket_monitor(control->socket, name, events) != 0 ||
        zmq_connect(control->monitor, name) != 0)
        return fail(GRADWEIR_ERR_IO, "ZeroMQ monitor: %s", zmq_strerror(errno));
    set(control->monitor, ZMQ_LINGER, 0);
    return GRADWEIR_OK;
}

static gradweir_status take_tables(struct control *control, uint32_t peers_max)
{
    control->peers_max = peers_max;
    control->peers = calloc(peers_max + 1, sizeof *control->peers);
    control->frames = calloc(peers_max + 1, FRAME_BYTES_MAX);
    if (!control->peers || !control->frames)
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
    made->server = type == ZMQ_ROUTER;
    made->socket = zmq_socket(context->zmq, type);
    if (!made->socket)
        return fail(GRADWEIR_ERR_IO, "ZeroMQ socket: %s", zmq_strerror(errno));
    set_options(made->socket, type, options);
    TRY(take_tables(made, made->server ? options->peers_max : 1));
    return open_monitor(context, made);
}

static bool on_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 ||
           strncmp(address, "localhost:", 10) == 0 || strncmp(address, "inproc://", 9) == 0;
}

static gradweir_status set_key(void *socket, int option, const char *name, const char *key)
{
    if (!key || strlen(key) != 40 || zmq_setsockopt(socket, option, key, 41) != 0)
        return fail(GRADWEIR_ERR_INVALID, "%s is not a Z85 key of 40 characters", name);
    return GRADWEIR_OK;
}

gradweir_status control_security(struct control_context *context, void *socket, bool server,
                                 const struct control_options *options, const char *address)
{
    (void)context;
    /* IPv6 sockets take both families, but then tell every address in the longer form. */
    set(socket, ZMQ_IPV6, address[0] == '[' || isalpha((unsigned char)address[0]));
    if (options->secret_key) {
        if (server)
            return fail(GRADWEIR_ERR_UNSUPPORTED,
                        "this version cannot check the keys of those who come in, so it does not "
                        "take keys: listen on loopback or say insecure");
        TRY(set_key(socket, ZMQ_CURVE_SECRETKEY, "secret key", options->secret_key));
        TRY(set_key(socket, ZMQ_CURVE_PUBLICKEY, "public key", options->public_key));
        return set_key(socket, ZMQ_CURVE_SERVERKEY, "server key", options->server_key);
    }
    if (!options->insecure && !on_loopback(address))
        return fail(GRADWEIR_ERR_INVALID,
                    "%s is not a loopback address: without keys say insecure, if the whole network "
                    "is trusted",
                    address);
    return GRADWEIR_OK;
}

gradweir_status control_keys(char public_key[41], char secret_key[41])
{
    if (zmq_curve_keypair(public_key, secret_key) != 0)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "ZeroMQ was built without CURVE: %s",
                    zmq_strerror(errno));
    return GRADWEIR_OK;
}
