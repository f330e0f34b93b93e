/* Ways to the shards: where each is, and how long a try may take. */
#include "client/client_internal.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>

/* As given, or at the coordinator's host when the shard listens on all its addresses. */
static void reach(const char *coordinator, const char *given, char *address, size_t size)
{
    const char *scheme = strstr(coordinator, "://");
    coordinator = scheme ? scheme + 3 : coordinator;
    const char *port = strrchr(given, ':'), *end = strrchr(coordinator, ':');
    const bool everywhere = strncmp(given, "0.0.0.0:", 8) == 0 || strncmp(given, "[::]:", 5) == 0;
    if (everywhere && end)
        snprintf(address, size, "%.*s%s", (int)(end - coordinator), coordinator, port);
    else
        snprintf(address, size, "%s", given);
}

/* The first try waits long. A shard that was here is back within moments or not at all, so tries
 * begin short, and grow in case it is the way that is slow. */
static uint32_t patience_ms(struct gradweir_client *client, uint32_t member)
{
    enum { LONG_MS = 2000, SHORT_MS = 400 };
    const uint32_t tries = client->connects[member]++;
    if (!client->was_connected[member] || tries > 4)
        return LONG_MS;
    return SHORT_MS << (tries / 2);
}

void client_connect(struct gradweir_client *client, uint32_t member)
{
    char address[sizeof client->address + ADDRESS_MAX];
    reach(client->address, client->session.members[member].where.address, address, sizeof address);
    if (transport_connect(client->transport, address, patience_ms(client, member), member,
                          &client->peers[member]) == GRADWEIR_OK)
        return;
    client->peers[member] = 0;
    client_event(client, &(struct session_event){.kind = SESSION_PEER_LOST,
                                                 .now_ns = (int64_t)clock_now_ns(),
                                                 .member = member});
}

void client_connected(struct gradweir_client *client, uint32_t member)
{
    client->was_connected[member] = true;
    client->connects[member] = 0;
}
