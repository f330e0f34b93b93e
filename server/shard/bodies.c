/* What an answer to a PULL is made of. All of the range, or a piece of it that is one run of bytes
 * and travels as it lies, leaves from its slot; everything else (strided pieces, bfloat16) is
 * gathered into one of a few places, which is free again when the body has left. Who finds none
 * waits for one. No body holds more than one piece, so each lands where it belongs. */
#include "server/shard/shard_internal.h"

#include <assert.h>
#include <string.h>

static_assert(BODIES <= 32, "a bit per place");

struct piece_range pull_range(const struct shard *shard)
{
    return (struct piece_range){.first = shard->options.member.first,
                                .elements = shard->elements,
                                .moments = shard->moments_count};
}

struct piece *pull_list(struct shard *shard, uint32_t index)
{
    return (struct piece *)at_offset(shard, shard->at.lists) + (uint64_t)index * PIECES_MAX;
}

/* The next body of a pull: what of it comes from where. */
struct body {
    struct piece piece;
    bool floats, made;
    uint64_t room; /* the most it may hold, bytes as they lie */
};

static struct body next_body(struct shard *shard, const struct pull *pull, uint32_t index)
{
    const struct piece_range range = pull_range(shard);
    struct body body = {.room = pull->portion};
    if (pull->pieces == 0)
        return body;
    body.piece = pull_list(shard, index)[pull->piece];
    body.floats = piece_is_floats(&body.piece, &range);
    body.made = (pull->half && body.floats) || body.piece.lead < body.piece.length;
    if (body.made)
        body.room = (shard->body_room < pull->portion ? shard->body_room : pull->portion) *
                    (pull->half && body.floats ? 2 : 1);
    return body;
}

static uint32_t free_place(const struct shard *shard, const struct pull *pull)
{
    uint32_t place = 0;
    while (place < BODIES && shard->bodies_used >> place & 1)
        place++;
    return pull->made < BODIES_AHEAD ? place : BODIES;
}

/* `length` bytes of the piece, into the place; its offset in the arena. */
static uint64_t make(struct shard *shard, const struct pull *pull, const struct body *body,
                     uint32_t place, uint64_t length)
{
    const uint64_t offset = shard->at.bodies + place * ((shard->body_room + 63) / 64 * 64);
    const void *from = at_offset(shard, parameter_offset(shard, pull->parameters));
    if (pull->half && body->floats)
        piece_gather_half(&body->piece, from, pull->piece_at, length, at_offset(shard, offset));
    else
        piece_gather(&body->piece, from, pull->piece_at, length, at_offset(shard, offset));
    shard->bodies_used |= 1u << place;
    return offset;
}

static uint64_t lie_at(const struct shard *shard, const struct pull *pull, const struct body *body)
{
    const uint64_t within =
        pull->pieces ? body->piece.offset + pull->piece_at : pull->offset + pull->sent;
    return parameter_offset(shard, pull->parameters) + within;
}

static void tell_body(struct shard *shard, struct pull *pull, struct shard_action *action)
{
    const struct head_parameters head = {.kind = HEAD_PARAMETERS,
                                         .dtype = pull->half ? HEAD_BFLOAT16 : HEAD_FLOAT32,
                                         .flags = pull->pieces ? PULL_PIECES : 0,
                                         .session = pull->session,
                                         .timeline = shard->ledger.timeline,
                                         .ticket = pull->ticket,
                                         .version = shard->parameters[pull->parameters].version,
                                         .offset = pull->sent,
                                         .length = action->length,
                                         .total = pull->total};
    memcpy(&action->head, &head, sizeof head);
    action->peer = pull->peer;
    pull->sent += action->length;
    pull->in_flight++;
    shard->figures.bytes_out += action->length;
}

bool body_send(struct shard *shard, struct pull *pull, uint32_t index)
{
    const struct body body = next_body(shard, pull, index);
    const uint32_t place = body.made ? free_place(shard, pull) : 0;
    if (place == BODIES)
        return false;
    const uint64_t rest =
        pull->pieces ? body.piece.length - pull->piece_at : pull->total - pull->sent;
    const uint64_t length = rest < body.room ? rest : body.room;
    struct shard_action *action = act(shard, SHARD_REPLY);
    action->length = pull->half && body.floats ? length / 2 : length;
    action->offset =
        body.made ? make(shard, pull, &body, place, length) : lie_at(shard, pull, &body);
    action->token = token_make(TOKEN_PULL, pull->number,
                               (uint64_t)(body.made ? place + 1 : 0) * BODY_INDEXES + index);
    tell_body(shard, pull, action);
    pull->made += body.made;
    pull->piece_at += length;
    if (pull->pieces && pull->piece_at == body.piece.length) {
        pull->piece++;
        pull->piece_at = 0;
    }
    return true;
}

void body_sent(struct shard *shard, struct pull *pull, uint64_t token)
{
    const uint64_t place = token_low(token) / BODY_INDEXES;
    ASSERT(pull->in_flight && place <= BODIES);
    pull->in_flight--;
    if (place == 0)
        return;
    ASSERT(pull->made && shard->bodies_used >> (place - 1) & 1);
    pull->made--;
    shard->bodies_used &= ~(1u << (place - 1));
}
