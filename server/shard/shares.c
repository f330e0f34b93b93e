/* Gradients that come in shares: several ranks of one worker fill one slot, each over a session of
 * its own. What counts as here is exact without a bit per element: each rank sends the pieces of
 * its share in the order of the model, and says with each how many bytes went before. So one number
 * per rank tells what is taken: a piece below it is a repeat, one at it is the next, one beyond it
 * says that something was lost on the way. A body that fails sends that rank, and it alone, back to
 * the start of its share; the bytes it brings again are the same.
 *
 * The coordinator has seen the parts tile the model. Here the gradient is whole when every rank has
 * said its last and their bytes add up to the range; else it is torn. */
#include "server/shard/shard_internal.h"

#include "common/parts.h"

#include <string.h>

struct share *shares_of(struct shard *shard, uint32_t slot)
{
    return (struct share *)at_offset(shard, shard->at.shares) + (uint64_t)slot * RANKS_MAX;
}

static uint64_t taken(struct shard *shard, uint32_t slot)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < shard->slots[slot].ranks; r++)
        sum += shares_of(shard, slot)[r].seen ? shares_of(shard, slot)[r].taken : 0;
    return sum;
}

static bool all_here(struct shard *shard, uint32_t index)
{
    for (uint32_t r = 0; r < shard->slots[index].ranks; r++) {
        const struct share *share = &shares_of(shard, index)[r];
        if (!share->seen || !share->last || share->in_flight || share->failed)
            return false;
    }
    return true;
}

static uint64_t digest_of(struct shard *shard, uint32_t index)
{
    uint64_t digests[RANKS_MAX];
    for (uint32_t r = 0; r < RANKS_MAX; r++)
        digests[r] = shares_of(shard, index)[r].digest;
    return parts_digest(digests, shard->slots[index].ranks);
}

void shares_complete(struct shard *shard, uint32_t index)
{
    struct slot *slot = &shard->slots[index];
    if (slot->bad || slot->told || !all_here(shard, index))
        return;
    slot->digest = digest_of(shard, index);
    if (slot->received == slot_bytes(shard, index))
        slot_complete(shard, index);
    else
        slot_mark_bad(shard, index);
}

/* Where elements, or blocks of them, begin and end is the worker's to keep: what does not fit is
 * still bytes of this slot, and told by the digest. */
static bool right_shape(struct shard *shard, const struct head_chunk *head, uint64_t length)
{
    const uint64_t bytes = slot_bytes(shard, head->slot);
    const bool whole = head->dtype != HEAD_FLOAT32 || (head->offset % 4 == 0 && length % 4 == 0);
    return head->dtype == (uint8_t)slot_codec(shard, head->slot) && whole &&
           head->length == length && length <= slot_chunk_bytes(shard, head->slot) &&
           length <= bytes && head->offset <= bytes - length &&
           (length > 0 || (head->flags & PART_LAST));
}

static void take(struct shard *shard, const struct head_chunk *head, uint32_t rank,
                 const struct shard_event *event)
{
    struct slot *slot = &shard->slots[head->slot];
    struct share *share = &shares_of(shard, head->slot)[rank];
    share->taken += event->length;
    share->end = head->offset + event->length;
    share->last |= (head->flags & PART_LAST) != 0;
    if (event->length == 0) {
        shares_complete(shard, head->slot);
        return;
    }
    share->in_flight++;
    slot->in_flight++;
    struct shard_action *action = act(shard, SHARD_TAKE);
    action->offer = event->offer;
    action->offset = slot_place(shard, head->slot) + head->offset;
    action->length = event->length;
    action->token = token_make(TOKEN_SHARE, head->crc, rank * SLOTS_MAX + head->slot);
}

static void refuse_body(struct shard *shard, const struct shard_event *event)
{
    if (event->length)
        act(shard, SHARD_REFUSE)->offer = event->offer;
}

void share_piece(struct shard *shard, const struct head_chunk *head, uint32_t rank,
                 const struct shard_event *event)
{
    struct slot *slot = &shard->slots[head->slot];
    struct share *share = &shares_of(shard, head->slot)[rank];
    const uint64_t before = head->basis;
    KEEP(shard, *share);
    if (!share->seen)
        *share = (struct share){.seen = true, .digest = head->digest};
    const bool same = slot->name.sequence == head->sequence && share->digest == head->digest &&
                      right_shape(shard, head, event->length);
    if (!same) {
        refuse_body(shard, event);
        slot_mark_bad(shard, head->slot);
        return;
    }
    if (share->in_flight == 0)
        share->peer = event->peer;
    if (slot->told || share->failed || share->last || share->peer != event->peer ||
        before != share->taken) { /* a repeat, or one that comes again once all is at rest */
        shard->figures.heads_dropped += !slot->told && before > share->taken;
        refuse_body(shard, event);
        return;
    }
    if (head->offset < share->end ||
        event->length > slot_bytes(shard, head->slot) - taken(shard, head->slot)) {
        refuse_body(shard, event);
        slot_mark_bad(shard, head->slot);
        return;
    }
    take(shard, head, rank, event);
}

/* A body failed: its rank begins anew once nothing of it moves. */
static void anew(struct slot *slot, struct share *share)
{
    slot->received -= share->received;
    share->taken = share->end = share->received = 0;
    share->failed = share->last = false;
}

void share_landed(struct shard *shard, const struct shard_event *event)
{
    const uint32_t index = (uint32_t)(token_low(event->token) % SLOTS_MAX);
    struct slot *slot = &shard->slots[index];
    struct share *share = &shares_of(shard, index)[token_low(event->token) / SLOTS_MAX];
    ASSERT(slot->in_flight > 0 && share->in_flight > 0);
    KEEP(shard, *slot);
    KEEP(shard, *share);
    slot->in_flight--;
    share->in_flight--;
    if (event->status != GRADWEIR_OK) {
        share->failed = true;
    } else {
        slot->received += event->length;
        share->received += event->length;
        shard->figures.bytes_in += event->length;
        if (event->crc != (uint32_t)token_high(event->token) && !shard->plant.checksum_ignored) {
            shard->figures.checksum_failures++;
            slot_mark_bad(shard, index);
        }
    }
    if (share->failed && share->in_flight == 0)
        anew(slot, share);
    shares_complete(shard, index);
    slots_free_due(shard);
}

void shares_open(struct shard *shard, uint32_t slot)
{
    for (uint32_t r = 0; r < RANKS_MAX; r++) {
        KEEP(shard, shares_of(shard, slot)[r].seen);
        shares_of(shard, slot)[r].seen = false;
    }
}

bool shares_move(struct shard *shard, uint32_t slot, uint32_t rank, uint64_t peer)
{
    const struct share *share = &shares_of(shard, slot)[rank];
    return share->seen && share->in_flight && share->peer != peer;
}

/* torn: what landed is not known, so all of it comes anew. */
void shares_forget(struct shard *shard, uint32_t slot, bool torn)
{
    for (uint32_t r = 0; r < RANKS_MAX; r++) {
        struct share *share = &shares_of(shard, slot)[r];
        if (torn || shard->slots[slot].ranks <= r || shard->slots[slot].generation == 0 ||
            !share->seen)
            memset(share, 0, sizeof *share);
        share->in_flight = 0;
        share->failed = false;
        share->peer = 0;
    }
}
