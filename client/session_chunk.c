/* A body in chunks, member by member. They leave while the rest of the body is still made: norm and
 * digest are known at its end, and then come the description, and the last chunk of each range,
 * which seals it. */
#include "client/session.h"

#include <string.h>

bool session_chunk_ready(const struct session *session, const struct session_push *push,
                         uint32_t index)
{
    const struct session_span span = session_span(session, push, index);
    if (push->state != PUSH_SENDING || push->next[index] == UINT64_MAX)
        return false;
    if (!push->what.filling)
        return true;
    const uint64_t end = (push->next[index] + 1) * session_chunk(session, push);
    return !session->options.parts && end < span.bytes && span.offset + end <= push->what.filled;
}

void session_chunk_send(struct session *session, struct session_push *push, uint32_t index)
{
    const struct session_member *member = &session->members[index];
    const struct session_span span = session_span(session, push, index);
    const uint64_t chunk = session_chunk(session, push), offset = push->next[index] * chunk;
    const uint64_t rest = span.bytes - offset;
    struct head_chunk head = {.kind = HEAD_CHUNK,
                              .dtype = (uint8_t)session_codec(session, push->what.purpose),
                              .flags = push->what.filling ? 0 : CHUNK_SEALED,
                              .session = member->number,
                              .epoch = session->epoch,
                              .slot = push->slot,
                              .generation = push->generation,
                              .sequence = push->sequence,
                              .basis = push->what.basis,
                              .digest = push->what.filling ? 0 : push->what.digest,
                              .offset = offset};
    head.length = (uint32_t)(rest < chunk ? rest : chunk);
    struct session_action *action = session_act(session, span.bytes ? SESSION_CHUNK : SESSION_HEAD);
    action->member = index;
    action->buffer = push->what.buffer;
    if (session->plant.other_bytes && push->tries > 1)
        action->buffer = (push->what.buffer + 1) % OUTSTANDING_MAX;
    action->offset = span.offset + offset;
    action->length = head.length;
    action->token = (uint64_t)push->what.buffer << 32 | index;
    memcpy(&action->head, &head, sizeof head);
    if (span.bytes) {
        push->in_flight[index]++;
        session->members[index].in_flight++;
    }
    push->next[index]++;
    if (push->next[index] * chunk >= span.bytes)
        push->next[index] = UINT64_MAX;
}
