/* Words that travel with the floats: a worker's DESCRIBE on its way to the coordinator, and the
 * RECEIPT on its way back. A small gradient costs no other connection then. */
#include "server/shard/shard_internal.h"

#include <string.h>

void describe_came(struct shard *shard, const struct shard_event *event)
{
    struct head_describe head;
    memcpy(&head, event->head, sizeof head);
    const struct session *session = session_find(shard, head.session, event->peer);
    if (!session || session->ranks > 0 || head.epoch != shard->promise.epoch ||
        head.slot >= SLOTS_MAX) {
        shard->figures.heads_dropped++;
        return;
    }
    tell(shard, MESSAGE_DESCRIBE)->describe =
        (struct message_describe){.name = {.worker = session->worker,
                                           .incarnation = session->incarnation,
                                           .sequence = head.sequence},
                                  .slot = head.slot,
                                  .generation = head.generation,
                                  .purpose = PURPOSE_GRADIENT,
                                  .basis = head.basis,
                                  .samples = head.samples,
                                  .norm = head.norm,
                                  .layout_hash = shard->layout_hash,
                                  .digest = head.digest};
}

static const struct session *session_of(struct shard *shard, const struct name *name)
{
    const struct session *sessions = sessions_of(shard);
    for (uint32_t i = 0; i < shard->options.sessions_max; i++)
        if (sessions[i].peer && sessions[i].ranks == 0 && sessions[i].worker == name->worker &&
            sessions[i].incarnation == name->incarnation)
            return &sessions[i];
    return NULL;
}

/* Whose session is over asks again over its control connection. */
void receipt_came(struct shard *shard, const struct message_receipt *receipt)
{
    const struct session *session = session_of(shard, &receipt->name);
    if (!session || receipt->verdict != VERDICT_ADMITTED)
        return;
    struct head_receipt head = {.kind = HEAD_RECEIPT,
                                .session = session->number,
                                .epoch = shard->promise.epoch,
                                .staleness = (uint32_t)receipt->staleness,
                                .sequence = receipt->name.sequence,
                                .index = receipt->index,
                                .version = receipt->version,
                                .whole = receipt->whole,
                                .weight = receipt->weight};
    if (receipt->next_sequence > receipt->name.sequence) {
        head.next = (uint16_t)(receipt->next_sequence - receipt->name.sequence);
        head.next_slot = receipt->next_slot;
        head.next_generation = receipt->next_generation;
    }
    struct shard_action *action = act(shard, SHARD_REPLY);
    action->peer = session->peer;
    memcpy(&action->head, &head, sizeof head);
}
