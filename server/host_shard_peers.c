/* Which transport and device each data-plane connection really uses: asked, not assumed. */
#include "server/host_shard_loop.h"

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
    log_line(loop->host->log, LOG_INFO, "transport", "shard %u: a peer's floats travel by %s",
             loop->host->index, text);
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
    memset(pulse->transport, 0, sizeof pulse->transport);
    strcpy(pulse->transport, text);
}
