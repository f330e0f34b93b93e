/* The table of transport backends, the settings they share, and the one way to sleep on a
 * transport. */
#include "common/transport.h"

#include "common/transport_memory.h"
#ifdef GRADWEIR_UCX
#include "common/transport_ucx.h"
#endif

#include <poll.h>
#include <string.h>

static const struct transport_functions *const backends[] = {
#ifdef GRADWEIR_UCX
    &transport_ucx_functions,
#endif
    &transport_memory_functions,
};

struct transport_settings transport_defaults(void)
{
    return (struct transport_settings){
        .backend = "ucx",
        .lanes = "auto",
        .devices = "",
        .bind_address = "127.0.0.1:0",
        .peers_max = 64,
        .in_flight_max = 32,
        .offers_max = 32,
        .memories_max = 64,
        .rendezvous_bytes = 64 * 1024,
        .handshake_ms = 5000,
        .keepalive_s = 3,
    };
}

static gradweir_status check(const char *name, uint64_t value, uint64_t least, uint64_t most)
{
    if (value < least || value > most)
        return fail(GRADWEIR_ERR_INVALID, "transport: %s = %llu is not in %llu to %llu", name,
                    (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
    return GRADWEIR_OK;
}

gradweir_status transport_open(const struct transport_settings *settings,
                               struct transport **transport)
{
    if (!settings->backend || !settings->lanes || !settings->devices || !settings->bind_address)
        return fail(GRADWEIR_ERR_INVALID, "transport: a text setting is missing");
    TRY(check("peers_max", settings->peers_max, 1, 4096));
    TRY(check("in_flight_max", settings->in_flight_max, 1, 1024));
    TRY(check("offers_max", settings->offers_max, 1, 1024));
    TRY(check("memories_max", settings->memories_max, 1, 65536));
    TRY(check("rendezvous_bytes", settings->rendezvous_bytes, 0, 1 << 20));
    TRY(check("handshake_ms", settings->handshake_ms, 1, 600000));
    TRY(check("keepalive_s", settings->keepalive_s, 1, 3600));
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        if (strcmp(backends[i]->name, settings->backend) == 0)
            return backends[i]->open(settings, transport);
    }
    return fail(GRADWEIR_ERR_INVALID,
                "transport: this build has no backend '%s' (there are ucx and memory)",
                settings->backend);
}

void transport_wait(struct transport *transport, int timeout_ms)
{
    if (transport_arm(transport) != GRADWEIR_OK)
        return;
    struct pollfd ready = {.fd = transport_fd(transport), .events = POLLIN};
    poll(&ready, 1, timeout_ms);
}
