/* Keys of one socket, or the leave to do without them, and what follows when the server says no. */
#include "common/control_internal.h"

#include "common/clock.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool on_loopback(const char *address)
{
    return (strncmp(address, "127.", 4) == 0 && address[strspn(address, "0123456789.")] == ':') ||
           strncmp(address, "[::1]:", 6) == 0 || strncmp(address, "localhost:", 10) == 0 ||
           strncmp(address, "inproc://", 9) == 0;
}

static gradweir_status set_key(void *socket, int option, const char *name, const char *key)
{
    if (!key || strlen(key) != 40 || zmq_setsockopt(socket, option, key, 41) != 0)
        return fail(GRADWEIR_ERR_INVALID, "%s is not a Z85 key of 40 characters", name);
    return GRADWEIR_OK;
}

static gradweir_status my_public_key(const struct control_options *options, char public_key[41])
{
    if (!options->secret_key || strlen(options->secret_key) != 40 ||
        zmq_curve_public(public_key, options->secret_key) != 0)
        return fail(GRADWEIR_ERR_INVALID, "the secret key is not a Z85 key of 40 characters");
    if (options->public_key && strcmp(options->public_key, public_key) != 0)
        return fail(GRADWEIR_ERR_INVALID, "the public key does not belong to the secret key");
    return GRADWEIR_OK;
}

static gradweir_status guard(struct control *control, const struct control_options *options)
{
    char name[32];
    TRY(control_take_keys(control, options));
    control_zap_domain_name(control->domain, name);
    const int as_server = 1;
    if (zmq_setsockopt(control->socket, ZMQ_CURVE_SERVER, &as_server, sizeof as_server) != 0 ||
        zmq_setsockopt(control->socket, ZMQ_ZAP_DOMAIN, name, strlen(name)) != 0)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "keys: %s", zmq_strerror(errno));
    return GRADWEIR_OK;
}

/* libzmq takes the port modulo 65536, and would listen elsewhere without a word. */
static gradweir_status check_port(const struct control *control, const char *address)
{
    const char *colon = strrchr(address, ':');
    const char *port = colon ? colon + 1 : "";
    const size_t digits = strspn(port, "0123456789");
    const bool any = control->server && strcmp(port, "*") == 0;
    if (any || (digits > 0 && digits <= 5 && !port[digits] && strtoul(port, NULL, 10) <= 65535))
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_INVALID,
                "\"%.150s\" is no address: host:port is wanted, port 0 to 65535", address);
}

/* A name that nobody has is not off loopback, it is nowhere. Asked for only where the address is
 * refused anyway, for it may take a while. */
static gradweir_status check_name(const char *address)
{
    char name[CONTROL_TEXT];
    struct addrinfo *found = NULL;
    snprintf(name, sizeof name, "%.*s", (int)(strrchr(address, ':') - address), address);
    if (!isalpha((unsigned char)name[0]))
        return GRADWEIR_OK;
    const int error = getaddrinfo(name, NULL, NULL, &found);
    if (error)
        return fail(GRADWEIR_ERR_INVALID, "\"%.150s\" does not resolve: %s", address,
                    gai_strerror(error));
    freeaddrinfo(found);
    return GRADWEIR_OK;
}

gradweir_status control_security(struct control *control, const struct control_options *options,
                                 const char *address)
{
    char public_key[41];
    /* IPv6 sockets take both families, but then tell every address in the longer form. */
    const int ipv6 = address[0] == '[' || isalpha((unsigned char)address[0]);
    const int result = zmq_setsockopt(control->socket, ZMQ_IPV6, &ipv6, sizeof ipv6);
    ASSERT(result == 0);
    if (!control->server && strncmp(address, "inproc://", 9) == 0)
        return GRADWEIR_OK;
    TRY(check_port(control, address));
    if (!options->secret_key) {
        if (options->insecure || on_loopback(address))
            return GRADWEIR_OK;
        TRY(check_name(address));
        return fail(GRADWEIR_ERR_INVALID,
                    "%s is not a loopback address: give keys (%s), or say insecure (%s) if the "
                    "whole network is trusted",
                    address, control->server ? "--keys DIR" : "identity and keys",
                    control->server ? "--insecure on" : "insecure = 1");
    }
    control->has_keys = true;
    TRY(my_public_key(options, public_key));
    TRY(set_key(control->socket, ZMQ_CURVE_SECRETKEY, "the secret key", options->secret_key));
    if (control->server)
        return guard(control, options);
    TRY(set_key(control->socket, ZMQ_CURVE_PUBLICKEY, "the public key", public_key));
    return set_key(control->socket, ZMQ_CURVE_SERVERKEY, "the server's key", options->server_key);
}

/* A listener for all addresses is tried by way of loopback. */
gradweir_status control_try_stranger(struct control *control, const struct control_options *options)
{
    char public_key[41], endpoint[CONTROL_TEXT];
    if (!control->domain)
        return GRADWEIR_OK;
    TRY(my_public_key(options, public_key));
    const char *address = control->address;
    const char *port = strrchr(address, ':');
    if (strncmp(address, "0.0.0.0:", 8) == 0)
        snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1%s", port);
    else if (strncmp(address, "[::]:", 5) == 0)
        snprintf(endpoint, sizeof endpoint, "tcp://[::1]%s", port);
    else
        snprintf(endpoint, sizeof endpoint, "tcp://%.180s", address);
    return control_zap_test(control->zmq, endpoint, public_key);
}

static const char *refusal(const struct control *control, uint16_t kind)
{
    if (kind == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
        return "our key is not in its table of keys";
    if (kind == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        return control->has_keys
                   ? "it does not understand us: the server's key that we have is not "
                     "its own, it has no keys, or it is no server"
                   : "it hangs up before it has said what it is";
    return control->has_keys ? "its handshake with our keys failed: it has no keys, or is no server"
                             : "we have no keys, and it wants some, or is no server";
}

void control_refused_now(struct control *control, uint16_t kind)
{
    if (!control->retry_owed && kind != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
        control->retry_ns = deadline_after(clock_now_ns(), CONTROL_RETRY_MS * CLOCK_MS);
        control->retry_owed = true;
    }
    /* A server that dies during a handshake looks like one that does not understand us, once. */
    const bool sure = kind != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
    control->refusals += sure ? CONTROL_REFUSALS_SURE : control->has_keys;
    control->refused = refusal(control, kind);
    log_repeating(control->log, &control->log_limit, LOG_WARN, "control", "%s turned us away: %s",
                  control->address, control->refused);
}

void control_retry(struct control *control)
{
    if (!control->retry_owed || !deadline_passed(clock_now_ns(), control->retry_ns))
        return;
    control->retry_owed = false;
    control->socket_quiet = false;
    zmq_disconnect(control->socket, control->endpoint);
    zmq_connect(control->socket, control->endpoint);
}

bool control_refused_surely(const struct control *control)
{
    return control->refused && control->refusals >= CONTROL_REFUSALS_SURE;
}

const char *control_refused(const struct control *control)
{
    return control->refused;
}

gradweir_status control_keys(char public_key[41], char secret_key[41])
{
    if (zmq_curve_keypair(public_key, secret_key) != 0)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "ZeroMQ was built without CURVE: %s",
                    zmq_strerror(errno));
    return GRADWEIR_OK;
}

bool control_key_good(const char *key)
{
    uint8_t bytes[32];
    return strlen(key) == 40 && zmq_z85_decode(bytes, key) != NULL;
}
