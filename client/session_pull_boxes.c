/* Pulls of boxes: what of each box a member holds, and where its bodies belong. Pieces are worked
 * out when they are needed, so nothing is kept of them but how far each member is. */
#include "client/session.h"

static struct piece_range range_of(const struct session *session, uint32_t index)
{
    const struct member *where = &session->members[index].where;
    const bool last = index + 1 == session->members_count;
    return (struct piece_range){.first = where->first,
                                .elements = where->count,
                                .moments = last ? session->options.moments : 0};
}

uint32_t session_pull_pieces(const struct session *session, uint32_t member, struct piece *pieces)
{
    const struct piece_range range = range_of(session, member);
    uint32_t count = 0;
    uint64_t before;
    ASSERT(session->pull.boxes_count <= PIECES_MAX);
    for (uint32_t i = 0; i < session->pull.boxes_count; i++)
        count += piece_of(&session->pull.boxes[i], session->options.model, &range, &pieces[count],
                          &before);
    return count;
}

uint64_t session_pull_owed(const struct session *session, uint32_t member, uint64_t *wire)
{
    const struct piece_range range = range_of(session, member);
    uint64_t owed = 0, before;
    struct piece piece;
    *wire = 0;
    for (uint32_t i = 0; i < session->pull.boxes_count; i++) {
        if (!piece_of(&session->pull.boxes[i], session->options.model, &range, &piece, &before))
            continue;
        owed += piece.length;
        *wire += piece_wire(&piece, &range, session->pull.half);
    }
    return owed;
}

/* Bodies come in the order of the pieces, and none holds more than one. */
uint64_t session_pull_room(struct session *session, uint32_t member, uint64_t *offset)
{
    const struct piece_range range = range_of(session, member);
    struct session_pull_part *part = &session->parts[member];
    struct piece piece;
    uint64_t before;
    for (; part->box < session->pull.boxes_count; part->box++) {
        const struct part *box = &session->pull.boxes[part->box];
        if (!piece_of(box, session->options.model, &range, &piece, &before))
            continue;
        const uint64_t wire = piece_wire(&piece, &range, session->pull.half);
        if (part->box_offered < wire) {
            *offset = (wire < piece.length ? before / 2 : before) + part->box_offered;
            return wire - part->box_offered;
        }
        part->box_offered = 0;
    }
    return 0;
}
