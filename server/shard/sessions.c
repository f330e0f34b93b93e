/* Data-plane sessions: who may send gradients and pull parameters over which connection. */
#include "server/shard/shard_internal.h"

#include <string.h>

struct session *session_find(struct shard *shard, uint32_t number, uint64_t peer)
{
    struct session *sessions = sessions_of(shard);
    for (uint32_t i = 0; i < shard->options.sessions_max; i++)
        if (sessions[i].peer == peer && sessions[i].number == number && number != 0)
            return &sessions[i];
    return NULL;
}

static void answer(struct shard *shard, uint64_t peer, gradweir_status status, uint32_t number)
{
    struct head_welcome head = {.kind = status == GRADWEIR_OK ? HEAD_WELCOME : HEAD_DENY,
                                .level = PROTOCOL_VERSION,
                                .session = number,
                                .status = status,
                                .epoch = shard->promise.epoch,
                                .version = shard->whole};
    struct shard_action *action = act(shard, SHARD_REPLY);
    action->peer = peer;
    memcpy(&action->head, &head, sizeof head);
}

void session_end(struct shard *shard, struct session *session, bool hang_up)
{
    if (hang_up)
        act(shard, SHARD_HANGUP)->peer = session->peer;
    pull_peer_lost(shard, session->peer);
    *session = (struct session){0};
    shard->figures.sessions--;
}

static gradweir_status judge(const struct shard *shard, const struct head_hello *head)
{
    if (head->level < PROTOCOL_OLDEST || head->level > PROTOCOL_VERSION ||
        head->job != shard->options.member.job)
        return GRADWEIR_ERR_MISMATCH;
    if (head->worker >= WORKERS_MAX || head->ranks == 1 || head->ranks > RANKS_MAX ||
        head->rank >= (head->ranks ? head->ranks : 1))
        return GRADWEIR_ERR_INVALID;
    if (head->epoch > shard->promise.epoch || head->timeline > shard->ledger.timeline)
        return GRADWEIR_ERR_AGAIN; /* its news has not come here yet */
    if (head->epoch < shard->promise.epoch || head->timeline < shard->ledger.timeline)
        return GRADWEIR_ERR_MISMATCH;
    const struct entry *entry = &shard->entries[head->worker];
    if (!entry->known || head->incarnation > entry->incarnation)
        return GRADWEIR_ERR_AGAIN;
    if (head->incarnation < entry->incarnation)
        return GRADWEIR_ERR_FENCED;
    return memcmp(head->pass, entry->pass, sizeof head->pass) == 0 ? GRADWEIR_OK
                                                                   : GRADWEIR_ERR_REFUSED;
}

/* The old connection of a worker (or an old use of this connection) ends first. */
static struct session *open_session(struct shard *shard, const struct head_hello *head,
                                    uint64_t peer)
{
    struct session *sessions = sessions_of(shard), *free = NULL;
    for (uint32_t i = 0; i < shard->options.sessions_max; i++) {
        struct session *session = &sessions[i];
        const bool same = session->worker == head->worker && session->rank == head->rank;
        if (session->peer && (same || session->peer == peer))
            session_end(shard, session, session->peer != peer);
        if (!session->peer && !free)
            free = session;
    }
    return free;
}

/* A body of the worker's old connection may still move, or fail. Until it has, a chunk sent again
 * would be taken for a repeat, and nobody would send it a third time. */
static bool old_bodies_move(struct shard *shard, const struct head_hello *head, uint64_t peer)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++)
        if (shard->slots[i].in_flight && shard->slots[i].name.worker == head->worker &&
            (shard->slots[i].ranks ? shares_move(shard, i, head->rank, peer)
                                   : shard->slots[i].peer != peer))
            return true;
    return false;
}

void session_hello(struct shard *shard, const struct shard_event *event)
{
    struct head_hello head;
    memcpy(&head, event->head, sizeof head);
    const gradweir_status status = judge(shard, &head);
    if (status != GRADWEIR_OK) {
        shard->figures.heads_dropped += status != GRADWEIR_ERR_AGAIN;
        answer(shard, event->peer, status, 0);
        return;
    }
    struct session *session = open_session(shard, &head, event->peer);
    const bool moves = old_bodies_move(shard, &head, event->peer);
    if (!session || moves) {
        answer(shard, event->peer, moves ? GRADWEIR_ERR_AGAIN : GRADWEIR_ERR_FULL, 0);
        return;
    }
    *session = (struct session){.peer = event->peer,
                                .number = ++shard->session_numbers,
                                .worker = head.worker,
                                .rank = head.rank,
                                .ranks = head.ranks,
                                .incarnation = head.incarnation};
    shard->figures.sessions++;
    answer(shard, event->peer, GRADWEIR_OK, session->number);
}

void session_peer_lost(struct shard *shard, uint64_t peer)
{
    struct session *sessions = sessions_of(shard);
    for (uint32_t i = 0; i < shard->options.sessions_max; i++)
        if (sessions[i].peer == peer && peer != 0)
            session_end(shard, &sessions[i], false);
}

void session_left(struct shard *shard, uint32_t worker, uint64_t incarnation)
{
    struct session *sessions = sessions_of(shard);
    if (shard->entries[worker].incarnation == incarnation) {
        KEEP(shard, shard->entries[worker].known);
        shard->entries[worker].known = false;
    }
    for (uint32_t i = 0; i < shard->options.sessions_max; i++)
        if (sessions[i].peer && sessions[i].worker == worker &&
            sessions[i].incarnation == incarnation)
            session_end(shard, &sessions[i], true);
}
