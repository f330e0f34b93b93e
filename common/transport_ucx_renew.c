/* A UCX worker that hears nobody any more is replaced.
 *
 * Over shared memory all peers of a worker write into one ring of its. Who is killed in the middle
 * of an entry leaves it unfinished for good, and UCX waits for it: no later entry is read, whoever
 * wrote it. Connections still begin (by TCP), but no greeting arrives. So when greetings stay away
 * one after the other, and not one message came from anybody meanwhile, every peer is hung up and
 * worker and listener are made anew; owners see LOST and connect again. Memory stays registered: it
 * belongs to the context. */
#include "common/transport_ucx.h"

#include <sys/epoll.h>

enum { SILENT_CONNECTS = 2, SILENT_GREETINGS = 3 };

void ucx_silence(struct ucx *ucx, bool greeting)
{
    ucx->silent++;
    if (ucx->silent >= (greeting ? SILENT_GREETINGS : SILENT_CONNECTS) && !ucx->renewing)
        ucx_renew_begin(ucx);
}

void ucx_renew_begin(struct ucx *ucx)
{
    ucx->renewing = true;
    ucx->probes = 0;
    ucx->relisten = ucx->listener != NULL;
    for (uint32_t i = 0; i < ucx->request_count; i++)
        ucp_listener_reject(ucx->listener, ucx->requests[i]);
    ucx->request_count = 0;
    if (ucx->listener)
        ucp_listener_destroy(ucx->listener);
    ucx->listener = NULL;
    for (uint32_t i = 0; i < ucx->settings.peers_max; i++)
        ucx_peer_fail(&ucx->peers[i], GRADWEIR_ERR_LOST, "nobody is heard any more: made anew");
}

static bool all_gone(const struct ucx *ucx)
{
    for (uint32_t i = 0; i < ucx->settings.peers_max; i++)
        if (ucx->peers[i].state != UCX_FREE && ucx->peers[i].state != UCX_GONE)
            return false;
    return true;
}

/* The old one goes, unless requests are in it that it never ends. */
static bool replace(struct ucx *ucx)
{
    const ucp_worker_h old = ucx->worker;
    int old_fd = -1;
    if (ucp_worker_get_efd(old, &old_fd) != UCS_OK || ucx_worker_open(ucx) != GRADWEIR_OK) {
        ucx->worker = old;
        return false;
    }
    epoll_ctl(ucx->fd, EPOLL_CTL_DEL, old_fd, NULL);
    if (ucx->abandoned == 0)
        ucp_worker_destroy(old);
    ucx->abandoned = 0;
    return ucx_worker_watch(ucx) == GRADWEIR_OK;
}

void ucx_renew(struct ucx *ucx)
{
    if (!ucx->renewing || !all_gone(ucx))
        return;
    if (!ucx->replaced && !(ucx->replaced = replace(ucx)))
        return;
    if (ucx->relisten && ucx_listen_at(ucx, ucx->address) != GRADWEIR_OK)
        return;
    ucx->renewing = ucx->relisten = ucx->replaced = false;
    ucx->silent = 0;
}
