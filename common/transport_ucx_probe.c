/* After a death the others are asked to say something.
 *
 * Who is killed in the middle of an entry of our ring (transport_ucx_renew.c) leaves us deaf to all
 * that write into it, and they need not notice: they may have nothing to say but bodies, and wait
 * for an answer. So a peer's death is followed by PINGs to the others. Any message that was sent
 * after it will do; when none comes, twice, we are deaf and are made anew. One who computes and
 * does not turn cannot answer either: then everybody connects again for nothing, which costs
 * moments.
 *
 * A peer on another machine comes by another way and proves nothing about the ring; where some are
 * near and some far, only the greetings tell. */
#include "common/clock.h"
#include "common/transport_ucx.h"

enum { PROBES = 2 };

#define ASK_NS   (350 * CLOCK_MS)
#define DRAIN_NS (20 * CLOCK_MS) /* what came before the death is read within */

static void ask(struct ucx *ucx, uint64_t now_ns)
{
    bool any = false;
    for (uint32_t i = 0; i < ucx->settings.peers_max; i++) {
        struct ucx_peer *peer = &ucx->peers[i];
        if (peer->state != UCX_OPEN)
            continue;
        peer->ping_owed = any = true;
        ucx_probe_pay(peer);
    }
    ucx->probe_ns = now_ns + ASK_NS;
    if (!any)
        ucx->probes = 0;
}

void ucx_probe_pay(struct ucx_peer *peer)
{
    if (peer->control_busy || !(peer->pong_owed || peer->ping_owed))
        return;
    const bool pong = peer->pong_owed;
    if (pong)
        peer->pong_owed = false;
    else
        peer->ping_owed = false;
    ucx_control_send(peer, pong ? UCX_AM_PONG : UCX_AM_PING, 0);
}

void ucx_probe_heard(struct ucx *ucx)
{
    if (ucx->probes && clock_now_ns() >= ucx->probe_from_ns)
        ucx->probes = 0;
}

bool ucx_probe(struct ucx *ucx, uint64_t now_ns)
{
    if (ucx->death && !ucx->renewing) {
        ucx->probes = PROBES;
        ucx->probe_from_ns = now_ns + DRAIN_NS;
        ask(ucx, now_ns);
    }
    ucx->death = false;
    if (ucx->probes == 0)
        return false;
    if (!deadline_passed(now_ns, ucx->probe_ns))
        return true;
    if (--ucx->probes > 0)
        ask(ucx, now_ns);
    else
        ucx_renew_begin(ucx);
    return true;
}
