/* Who may come in: the ZAP handler (ZeroMQ RFC 27), a thread that compares the key of each CURVE
 * handshake with the tables of the listeners of its context. CURVE alone lets every key in. A name
 * stands behind each key; it becomes the connection's identity, and a name may have two keys while
 * they are changed. */
#include "common/control_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ZAP_DOMAINS_MAX = 16, ZAP_PART_MAX = 256, KEY_BYTES = 32, TEST_PATIENCE_MS = 3000 };

struct allowed {
    uint8_t key[KEY_BYTES];
    char name[IDENTITY_MAX];
};

struct domain {
    struct allowed *allowed;
    uint32_t count;
};

struct control_zap {
    void *socket;
    pthread_t thread;
    pthread_mutex_t mutex; /* around domains */
    struct domain domains[ZAP_DOMAINS_MAX + 1];
};

/* A request: version, request id, domain, address, routing id, mechanism, credentials. */
enum { VERSION, REQUEST, DOMAIN, ADDRESS, ROUTING, MECHANISM, CREDENTIALS, PARTS };

struct part {
    uint8_t bytes[ZAP_PART_MAX + 1]; /* and a NUL */
    size_t count;
};

/* False when the context ends. Longer parts than any of ours are cut and then fit nothing. */
static bool receive(void *socket, struct part parts[PARTS], bool *whole)
{
    int more = 1;
    size_t count = 0;
    for (; more; count++) {
        struct part spare, *part = count < PARTS ? &parts[count] : &spare;
        int length;
        do
            length = zmq_recv(socket, part->bytes, ZAP_PART_MAX, 0);
        while (length < 0 && errno == EINTR);
        if (length < 0)
            return false;
        part->count = length < ZAP_PART_MAX ? (size_t)length : ZAP_PART_MAX;
        part->bytes[part->count] = 0;
        size_t size = sizeof more;
        zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size);
    }
    *whole = count == PARTS;
    return true;
}

void control_zap_domain_name(uint32_t domain, char name[32])
{
    snprintf(name, 32, "gradweir-%u", domain);
}

static bool is_text(const struct part *part, const char *text)
{
    return strcmp((const char *)part->bytes, text) == 0 && part->count == strlen(text);
}

static bool find_name(struct control_zap *zap, const struct part parts[PARTS], char *name)
{
    bool found = false;
    if (!is_text(&parts[VERSION], "1.0") || !is_text(&parts[MECHANISM], "CURVE") ||
        parts[CREDENTIALS].count != KEY_BYTES)
        return false;
    pthread_mutex_lock(&zap->mutex);
    for (uint32_t i = 1; i <= ZAP_DOMAINS_MAX; i++) {
        char domain_name[32];
        control_zap_domain_name(i, domain_name);
        if (!is_text(&parts[DOMAIN], domain_name))
            continue;
        for (uint32_t k = 0; k < zap->domains[i].count; k++)
            if (memcmp(zap->domains[i].allowed[k].key, parts[CREDENTIALS].bytes, KEY_BYTES) == 0) {
                memcpy(name, zap->domains[i].allowed[k].name, IDENTITY_MAX);
                found = true;
            }
    }
    pthread_mutex_unlock(&zap->mutex);
    return found;
}

static void answer(void *socket, const struct part *request, bool good, const char *name)
{
    const char *code = good ? "200" : "400", *text = good ? "OK" : "this key is not in the table";
    zmq_send(socket, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(socket, request->bytes, request->count, ZMQ_SNDMORE);
    zmq_send(socket, code, 3, ZMQ_SNDMORE);
    zmq_send(socket, text, strlen(text), ZMQ_SNDMORE);
    zmq_send(socket, name, strlen(name), ZMQ_SNDMORE);
    zmq_send(socket, "", 0, 0);
}

static void *handle(void *context)
{
    struct control_zap *zap = context;
    static const struct part nothing;
    struct part parts[PARTS];
    bool whole;
    for (;;) {
        for (size_t i = 0; i < PARTS; i++)
            parts[i] = nothing;
        if (!receive(zap->socket, parts, &whole))
            break;
        char name[IDENTITY_MAX] = "";
        const bool good = whole && find_name(zap, parts, name);
        answer(zap->socket, &parts[REQUEST], good, name);
    }
    zmq_close(zap->socket);
    return NULL;
}

static gradweir_status start(void *zmq, struct control_zap **zap)
{
    struct control_zap *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the table of keys");
    pthread_mutex_init(&made->mutex, NULL);
    made->socket = zmq_socket(zmq, ZMQ_REP);
    if (made->socket && zmq_bind(made->socket, "inproc://zeromq.zap.01") == 0 &&
        pthread_create(&made->thread, NULL, handle, made) == 0) {
        *zap = made;
        return GRADWEIR_OK;
    }
    const gradweir_status status =
        fail(GRADWEIR_ERR_IO, "cannot start the check of keys: %s", zmq_strerror(errno));
    if (made->socket)
        zmq_close(made->socket);
    pthread_mutex_destroy(&made->mutex);
    free(made);
    return status;
}

void control_zap_free(struct control_zap *zap)
{
    if (!zap)
        return;
    pthread_join(zap->thread, NULL);
    pthread_mutex_destroy(&zap->mutex);
    for (uint32_t i = 1; i <= ZAP_DOMAINS_MAX; i++)
        free(zap->domains[i].allowed);
    free(zap);
}

static gradweir_status read_table(const struct control_options *options, struct allowed *allowed)
{
    for (uint32_t i = 0; i < options->allowed_count; i++) {
        const char *key = options->allowed[i], *name = options->allowed_names[i];
        if (!name || !*name || strlen(name) >= IDENTITY_MAX)
            return fail(GRADWEIR_ERR_INVALID, "key %u: its name has 1 to %d characters", i,
                        IDENTITY_MAX - 1);
        if (!key || strlen(key) != 40 || !zmq_z85_decode(allowed[i].key, key))
            return fail(GRADWEIR_ERR_INVALID, "the key of %s is not Z85 of 40 characters", name);
        memcpy(allowed[i].name, name, strlen(name) + 1);
        for (uint32_t k = 0; k < i; k++)
            if (memcmp(allowed[k].key, allowed[i].key, KEY_BYTES) == 0)
                return fail(GRADWEIR_ERR_INVALID, "%s and %s have the same key", allowed[k].name,
                            name);
    }
    return GRADWEIR_OK;
}

gradweir_status control_zap_allow(struct control_zap **zap, void *zmq,
                                  const struct control_options *options, uint32_t *domain)
{
    if (!*zap)
        TRY(start(zmq, zap));
    struct allowed *allowed = calloc((size_t)options->allowed_count + 1, sizeof *allowed);
    if (!allowed)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the table of keys");
    gradweir_status status = read_table(options, allowed);
    uint32_t i = 1;
    pthread_mutex_lock(&(*zap)->mutex);
    while (i <= ZAP_DOMAINS_MAX && (*zap)->domains[i].allowed)
        i++;
    if (status == GRADWEIR_OK && i > ZAP_DOMAINS_MAX)
        status = fail(GRADWEIR_ERR_FULL, "%d listeners with keys are open", ZAP_DOMAINS_MAX);
    if (status == GRADWEIR_OK) {
        (*zap)->domains[i] = (struct domain){.allowed = allowed, .count = options->allowed_count};
        *domain = i;
    }
    pthread_mutex_unlock(&(*zap)->mutex);
    if (status != GRADWEIR_OK)
        free(allowed);
    return status;
}

void control_zap_forget(struct control_zap *zap, uint32_t domain)
{
    pthread_mutex_lock(&zap->mutex);
    free(zap->domains[domain].allowed);
    zap->domains[domain] = (struct domain){0};
    pthread_mutex_unlock(&zap->mutex);
}

/* What becomes of the first handshake, as the monitor tells it; 0 when nothing does. */
static uint16_t first_outcome(void *monitor)
{
    uint8_t event[6], address[CONTROL_TEXT];
    uint16_t kind;
    zmq_setsockopt(monitor, ZMQ_RCVTIMEO, &(int){TEST_PATIENCE_MS}, sizeof(int));
    do {
        if (zmq_recv(monitor, event, sizeof event, 0) != sizeof event)
            return 0;
        zmq_recv(monitor, address, sizeof address, 0);
        memcpy(&kind, event, sizeof kind);
    } while (kind == ZMQ_EVENT_DISCONNECTED);
    return kind;
}

static gradweir_status judge(uint16_t outcome, const char *endpoint)
{
    if (outcome == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
        return GRADWEIR_OK;
    if (outcome == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
        return fail(GRADWEIR_ERR_STATE, "%s lets a stranger's key in", endpoint);
    return fail(GRADWEIR_ERR_STATE, "%s did not turn a stranger's key away within %d ms", endpoint,
                TEST_PATIENCE_MS);
}

gradweir_status control_zap_test(void *zmq, const char *endpoint, const char *server_public)
{
    char public_key[41], secret_key[41];
    static const char name[] = "inproc://gradweir-zap-test";
    const int events = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                       ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                       ZMQ_EVENT_DISCONNECTED;
    TRY(control_keys(public_key, secret_key));
    void *stranger = zmq_socket(zmq, ZMQ_DEALER), *monitor = zmq_socket(zmq, ZMQ_PAIR);
    gradweir_status status;
    if (stranger && monitor && zmq_setsockopt(stranger, ZMQ_LINGER, &(int){0}, sizeof(int)) == 0 &&
        zmq_setsockopt(stranger, ZMQ_IPV6, &(int){strchr(endpoint, '[') != NULL}, sizeof(int)) ==
            0 &&
        zmq_setsockopt(stranger, ZMQ_CURVE_SECRETKEY, secret_key, 41) == 0 &&
        zmq_setsockopt(stranger, ZMQ_CURVE_PUBLICKEY, public_key, 41) == 0 &&
        zmq_setsockopt(stranger, ZMQ_CURVE_SERVERKEY, server_public, 41) == 0 &&
        zmq_socket_monitor(stranger, name, events) == 0 && zmq_connect(monitor, name) == 0 &&
        zmq_connect(stranger, endpoint) == 0)
        status = judge(first_outcome(monitor), endpoint);
    else
        status = fail(GRADWEIR_ERR_IO, "cannot test the check of keys at %s: %s", endpoint,
                      zmq_strerror(errno));
    if (stranger) {
        zmq_socket_monitor(stranger, NULL, 0);
        zmq_close(stranger);
    }
    if (monitor)
        zmq_close(monitor);
    return status;
}
