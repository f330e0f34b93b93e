/* Which transport and device each data-plane connection really uses: asked, not assumed. */
#include "server/host_shard_loop.h"

#include <stdio.h>
#include <string.h>

void shard_loop_peer(struct shard_loop *loop, uint64_t peer, bool there)
{
    const uint64_t old = there ? 0 : peer;
    for (uint32_t i = 0; i < loop->peers_max; i++) {
        if (loop->peers[i].peer != old)
            continue;
        loop->peers[i] = (struct shard_peer){.peer = there ? peer : 0};
        return;
    }
}

/* How many peers have come this way, with this one; 1 for a way beyond those that are counted. */
static uint64_t count_way(struct shard_loop *loop, const char *text)
{
    for (uint32_t i = 0; i < SHARD_WAYS_MAX; i++) {
        struct shard_way *way = &loop->ways[i];
        if (way->peers == 0)
            snprintf(way->text, sizeof way->text, "%s", text);
        if (strcmp(way->text, text) == 0)
            return ++way->peers;
    }
    return 1;
}

/* Connections are many and their ways few: the first is said, then the tenth, the hundredth, ... */
static void say_way(struct shard_loop *loop, const char *text)
{
    const uint64_t peers = count_way(loop, text);
    uint64_t round = peers;
    while (round % 10 == 0)
        round /= 10;
    if (round == 1)
        log_line(loop->host->log, LOG_INFO, "transport",
                 "shard %u: floats travel by %s (%llu peer%s so far)", loop->host->index, text,
                 (unsigned long long)peers, peers == 1 ? "" : "s");
}

static void describe(struct shard_loop *loop, struct shard_peer *peer)
{
    char text[TRANSPORT_TEXT_SIZE];
    if (transport_describe(loop->transport, peer->peer, text, sizeof text) != GRADWEIR_OK)
        return;
    peer->told = true;
    const bool posix = strstr(text, "posix") != NULL, tcp = strstr(text, "tcp") != NULL;
    loop->posix |= posix;
    loop->tcp |= tcp && !posix;
    loop->other |= !posix && !tcp;
    say_way(loop, text);
}

void shard_loop_describe(struct shard_loop *loop, struct message_pulse *pulse)
{
    for (uint32_t i = 0; i < loop->peers_max; i++)
        if (loop->peers[i].peer && !loop->peers[i].told)
            describe(loop, &loop->peers[i]);
    const char *text = loop->posix && loop->tcp ? "posix+tcp"
                       : loop->posix            ? "posix"
                       : loop->tcp              ? "tcp"
                       : loop->other            ? "other"
                                                : "none";
    const char *memory = !loop->device_sums ? "" : loop->mirror.memory ? " resident" : " mapped";
    memset(pulse->transport, 0, sizeof pulse->transport);
    snprintf(pulse->transport, sizeof pulse->transport, "%s%s", text, memory);
}
