/* A rank's share, piece by piece: each a run of elements that lie in a row in the model, so that it
 * goes straight from the send buffer to its place in the slot. Pieces go in the order of the model,
 * each with the count of bytes that went before: the shard keeps one number per rank and knows
 * repeats from news. */
#include "client/session.h"

#include <string.h>

struct stretch {
    uint64_t offset, length; /* bytes of the member's range */
};

/* The first piece at or behind `from`, bytes of the member's range; false: there is none. Pieces of
 * int8 are whole blocks: where a share would cut one, bind has said no. */
static bool find(const struct session *session, const struct session_push *push, uint32_t index,
                 uint64_t from, struct stretch *piece)
{
    const struct session_options *options = &session->options;
    const struct session_member *member = &session->members[index];
    const enum arithmetic_codec codec = session_codec(session, push->what.purpose);
    const uint64_t first = member->where.first, all = session_span(session, push, index).bytes;
    const uint64_t elements = codec_bytes(codec, member->where.count);
    const uint64_t most = codec_elements(codec, session_chunk(session, push));
    uint64_t begin, end;
    if (from < elements &&
        parts_run(options->parts, options->model, first + codec_elements(codec, from), most, &begin,
                  &end) &&
        begin < first + member->where.count) {
        end = end < first + member->where.count ? end : first + member->where.count;
        end = end < begin + most ? end : begin + most;
        piece->offset = codec_bytes(codec, begin - first);
        piece->length = codec_bytes(codec, end - first) - piece->offset;
        return true;
    }
    if (options->parts->rank != 0) /* MOMENTS are rank 0's */
        return false;
    const uint64_t offset = from > elements ? from : elements;
    const uint64_t rest = all > offset ? all - offset : 0;
    const uint64_t chunk = session_chunk(session, push);
    *piece = (struct stretch){offset, rest < chunk ? rest : chunk};
    return rest > 0;
}

/* All members' pieces must fit into the actions of one step. */
uint32_t session_part_ahead(const struct session *session)
{
    const uint32_t fair = SESSION_ACTIONS_MAX / 2 / session->members_count;
    return fair < SESSION_PIECES_AHEAD ? fair : SESSION_PIECES_AHEAD;
}

static struct head_chunk head_of(const struct session *session, const struct session_push *push,
                                 uint32_t index, const struct stretch *piece)
{
    return (struct head_chunk){.kind = HEAD_PART,
                               .dtype = (uint8_t)session_codec(session, push->what.purpose),
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
    struct stretch piece, next;
    if (push->next[index] == 0)
        push->before[index] = 0;
    if (!find(session, push, index, push->next[index], &piece))
        piece = (struct stretch){0, 0}; /* nothing for this member: it must hear that */
    const uint64_t behind = piece.offset + piece.length;
    const bool more = piece.length > 0 && find(session, push, index, behind, &next);
    struct head_chunk head = head_of(session, push, index, &piece);
    head.flags = more ? 0 : PART_LAST;
    struct session_action *action =
        session_act(session, piece.length ? SESSION_CHUNK : SESSION_HEAD);
    action->member = index;
    action->buffer = push->what.buffer;
    action->offset = session_span(session, push, index).offset + piece.offset;
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
