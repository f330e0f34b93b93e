/* A rank's share, piece by piece: each a run of elements that lie in a row in the model, so that it
 * goes straight from the send buffer to its place in the slot. Pieces go in the order of the model,
 * each with the count of bytes that went before: the shard keeps one number per rank and knows
 * repeats from news. */
#include "client/session.h"

#include <string.h>

struct piece {
    uint64_t offset, length; /* bytes of the member's range */
};

/* The first piece at or behind `from`, bytes of the member's range; false: there is none. */
static bool find(const struct session *session, uint32_t index, uint64_t from, struct piece *piece)
{
    const struct session_options *options = &session->options;
    const struct session_member *member = &session->members[index];
    const uint64_t first = member->where.first, floats = member->where.count * sizeof(float);
    uint64_t begin, end;
    if (from < floats &&
        parts_run(options->parts, options->model, first + from / sizeof(float),
                  session->chunk_bytes / sizeof(float), &begin, &end) &&
        begin < first + member->where.count) {
        const uint64_t most = begin + session->chunk_bytes / sizeof(float);
        end = end < first + member->where.count ? end : first + member->where.count;
        end = end < most ? end : most;
        *piece = (struct piece){(begin - first) * sizeof(float), (end - begin) * sizeof(float)};
        return true;
    }
    if (options->parts->rank != 0) /* MOMENTS are rank 0's */
        return false;
    const uint64_t offset = from > floats ? from : floats;
    const uint64_t rest = member->bytes > offset ? member->bytes - offset : 0;
    *piece = (struct piece){offset, rest < session->chunk_bytes ? rest : session->chunk_bytes};
    return rest > 0;
}

/* All members' pieces must fit into the actions of one step. */
uint32_t session_part_ahead(const struct session *session)
{
    const uint32_t fair = SESSION_ACTIONS_MAX / 2 / session->members_count;
    return fair < SESSION_PIECES_AHEAD ? fair : SESSION_PIECES_AHEAD;
}

static struct head_chunk head_of(const struct session *session, const struct session_push *push,
                                 uint32_t index, const struct piece *piece)
{
    return (struct head_chunk){.kind = HEAD_PART,
                               .dtype = HEAD_FLOAT32,
                               .session = session->members[index].number,
                               .epoch = session->epoch,
                               .slot = push->slot,
                               .generation = push->generation,
                               .sequence = push->sequence,
                               .basis = push->before[index],
                               .digest = push->what.digest,
                               .offset = piece->offset,
                               .length = (uint32_t)piece->length};
}

void session_part_send(struct session *session, struct session_push *push, uint32_t index)
{
    struct session_member *member = &session->members[index];
    struct piece piece, next;
    if (push->next[index] == 0)
        push->before[index] = 0;
    if (!find(session, index, push->next[index], &piece))
        piece = (struct piece){0, 0}; /* nothing for this member: it must hear that */
    const uint64_t behind = piece.offset + piece.length;
    const bool more = piece.length > 0 && find(session, index, behind, &next);
    struct head_chunk head = head_of(session, push, index, &piece);
    head.flags = more ? 0 : PART_LAST;
    struct session_action *action =
        session_act(session, piece.length ? SESSION_CHUNK : SESSION_HEAD);
    action->member = index;
    action->buffer = push->what.buffer;
    action->offset = member->offset + piece.offset;
    action->length = piece.length;
    action->token = (uint64_t)push->what.buffer << 32 | index;
    memcpy(&action->head, &head, sizeof head);
    if (piece.length) {
        push->in_flight[index]++;
        member->in_flight++;
    }
    push->before[index] += piece.length;
    push->next[index] = more ? behind : UINT64_MAX;
}
