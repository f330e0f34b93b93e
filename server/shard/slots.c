/* Gradients that land: generations, chunks, closing.
 *
 *     free --first chunk--> landing --all chunks, measured--> told --CLOSE applied--> free
 *                              |                                        ^
 *                              +------------- CLOSE, nothing in flight -+
 *
 * Chunks are measured as they land; a SCAN of the whole is for what was not, or is not finite.
 *
 * A generation that was closed never lands again: its late chunks are refused by number. */
#include "server/shard/digests.h"
#include "server/shard/shard_internal.h"

#include "common/codec.h"

#include <math.h>
#include <string.h>

static uint64_t *bits_of(struct shard *shard, uint32_t slot)
{
    return at_offset(shard, shard->at.bits + (uint64_t)slot * shard->bit_words * sizeof(uint64_t));
}

static bool bit(const uint64_t *bits, uint64_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

bool slot_has_chunk(struct shard *shard, uint32_t slot, uint64_t chunk)
{
    return bit(bits_of(shard, slot), chunk);
}

static void tell_scan(const struct shard *shard, struct message_landed *landed,
                      const struct shard_event *scan)
{
    if (scan->not_finite != UINT64_MAX)
        landed->not_finite = shard->options.member.first + scan->not_finite;
    else
        memcpy(&landed->magnitude, &scan->largest_bits, sizeof scan->largest_bits);
    landed->sum_squares = isfinite(scan->sum_squares) ? scan->sum_squares : 0;
}

static void say_landed(struct shard *shard, uint32_t index, const struct shard_event *scan)
{
    struct slot *slot = &shard->slots[index];
    struct message *message = tell(shard, MESSAGE_LANDED);
    message->landed = (struct message_landed){.slot = index,
                                              .generation = slot->generation,
                                              .name = slot->name,
                                              .digest = slot->digest,
                                              .intact = !slot->bad,
                                              .not_finite = UINT64_MAX};
    slot->told = true;
    if (scan)
        tell_scan(shard, &message->landed, scan);
    slot->landed = message->landed;
}

/* The tail of MOMENTS is judged here: a NaN count would poison all that follow. Its elements are
 * numbered behind the model's. */
static uint64_t moments_not_finite(struct shard *shard, uint32_t index)
{
    const char *tail = at_offset(shard, slot_place(shard, index) +
                                            codec_bytes(slot_codec(shard, index), shard->elements));
    for (uint64_t i = 0; i < shard->moments_count; i++) {
        struct moments moments;
        memcpy(&moments, tail + i * sizeof moments, sizeof moments);
        if (!isfinite(moments.count) || !isfinite(moments.mean) || !isfinite(moments.m2) ||
            moments.count < 0 || moments.m2 < 0)
            return shard->elements + i;
    }
    return UINT64_MAX;
}

void slot_complete(struct shard *shard, uint32_t index)
{
    struct slot *slot = &shard->slots[index];
    if (slot->bad || slot->told || slot->scanning || slot->closing)
        return;
    struct shard_event scan = {.largest_bits = slot->largest_bits, .not_finite = UINT64_MAX};
    if (landing_measured(shard, index)) {
        scan.sum_squares = landing_sum(shard, index);
        scan.not_finite = moments_not_finite(shard, index);
        say_landed(shard, index, &scan);
        return;
    }
    slot->scanning = true;
    struct shard_action *action = act(shard, SHARD_SCAN);
    action->codec = slot_codec(shard, index);
    action->offset = slot_place(shard, index);
    action->end = shard->elements;
    action->token = token_make(TOKEN_SCAN, slot->generation & UINT32_MAX, index);
}

void slot_scanned(struct shard *shard, const struct shard_event *event)
{
    const uint32_t index = (uint32_t)token_low(event->token);
    struct slot *slot = &shard->slots[index];
    struct shard_event scan = *event;
    KEEP(shard, *slot);
    slot->scanning = false;
    if (!slot->closing) {
        if (scan.not_finite == UINT64_MAX)
            scan.not_finite = moments_not_finite(shard, index);
        say_landed(shard, index, &scan);
    }
    slots_free_due(shard);
}

void slot_mark_bad(struct shard *shard, uint32_t index)
{
    struct slot *slot = &shard->slots[index];
    if (slot->bad || slot->told)
        return;
    slot->bad = true;
    say_landed(shard, index, NULL);
}

/* Whether this head may open or continue the slot's use at all. */
static bool belongs(struct shard *shard, const struct head_chunk *head,
                    const struct session *session)
{
    if (head->epoch != shard->promise.epoch || head->slot >= shard->options.member.slots ||
        shard->ledger.workers[session->worker].role == ROLE_READER)
        return false;
    struct slot *slot = &shard->slots[head->slot];
    if ((head->generation <= slot->freed && !shard->plant.generation_ignored) || slot->closing)
        return false;
    if (slot->generation == 0)
        return !slot_says_first(shard, head) || (!shard->has_first && !slots_first(shard));
    if (slot->first && shard->has_first)
        return false; /* where it would land is a parameter slot again */
    return slot->generation == head->generation && slot->name.worker == session->worker &&
           slot->name.incarnation == session->incarnation;
}

static void open_slot(struct shard *shard, const struct head_chunk *head,
                      const struct session *session)
{
    struct slot *slot = &shard->slots[head->slot];
    const uint64_t freed = slot->freed;
    const bool whole = session->ranks == 0;
    *slot = (struct slot){.freed = freed,
                          .generation = head->generation,
                          .name = {.worker = session->worker,
                                   .incarnation = session->incarnation,
                                   .sequence = head->sequence},
                          .ranks = session->ranks,
                          .first = slot_says_first(shard, head),
                          .basis = whole ? head->basis : 0};
    memset(bits_of(shard, head->slot), 0, shard->bit_words * sizeof(uint64_t));
    if (!whole)
        shares_open(shard, head->slot);
}

/* The first chunk that has the digest seals the gradient; chunks that left before may come after.
 */
static bool seal(struct slot *slot, const struct head_chunk *head)
{
    if (!(head->flags & CHUNK_SEALED))
        return head->digest == 0;
    if (slot->sealed)
        return slot->digest == head->digest;
    slot->sealed = true;
    slot->digest = head->digest;
    return true;
}

static void complete_if_whole(struct shard *shard, uint32_t index)
{
    const struct slot *slot = &shard->slots[index];
    if (slot->sealed && slot->received == slot_bytes(shard, index))
        slot_complete(shard, index);
}

static bool right_shape(const struct shard *shard, const struct head_chunk *head, uint64_t length)
{
    const uint64_t chunk = slot_chunk_bytes(shard, head->slot),
                   bytes = slot_bytes(shard, head->slot);
    if (head->dtype != (uint8_t)slot_codec(shard, head->slot))
        return false;
    if (bytes == 0)
        return length == 0 && head->offset == 0 && head->length == 0;
    if (head->offset % chunk || head->offset >= bytes || head->length != length)
        return false;
    const uint64_t rest = bytes - head->offset;
    return length == (rest < chunk ? rest : chunk);
}

static void refuse(struct shard *shard, const struct shard_event *event)
{
    shard->figures.heads_dropped++;
    if (event->length)
        act(shard, SHARD_REFUSE)->offer = event->offer;
}

static void take(struct shard *shard, const struct head_chunk *head,
                 const struct shard_event *event)
{
    struct slot *slot = &shard->slots[head->slot];
    uint64_t *bits = bits_of(shard, head->slot);
    const uint64_t chunk = head->offset / slot_chunk_bytes(shard, head->slot);
    if (slot->told || bit(bits, chunk)) { /* sent again although it is here: no fault */
        act(shard, SHARD_REFUSE)->offer = event->offer;
        return;
    }
    KEEP(shard, bits[chunk / 64]);
    bits[chunk / 64] |= UINT64_C(1) << (chunk % 64);
    slot->in_flight++;
    ahead_guess(shard, head->slot);
    struct shard_action *action = act(shard, SHARD_TAKE);
    action->offer = event->offer;
    action->offset = slot_place(shard, head->slot) + head->offset;
    action->length = event->length;
    action->token = token_make(TOKEN_CHUNK, head->crc, chunk * SLOTS_MAX + head->slot);
}

void slot_chunk(struct shard *shard, const struct shard_event *event)
{
    struct head_chunk head;
    memcpy(&head, event->head, sizeof head);
    const struct session *session = session_find(shard, head.session, event->peer);
    if (!session || (session->ranks > 0) != (head.kind == HEAD_PART) ||
        !belongs(shard, &head, session)) {
        refuse(shard, event);
        return;
    }
    struct slot *slot = &shard->slots[head.slot];
    KEEP(shard, *slot);
    if (slot->generation == 0)
        open_slot(shard, &head, session);
    if (slot->ranks != session->ranks) {
        refuse(shard, event);
        slot_mark_bad(shard, head.slot);
        return;
    }
    if (slot->ranks > 0) {
        share_piece(shard, &head, session->rank, event);
        return;
    }
    slot->peer = event->peer;
    const bool same = slot->name.sequence == head.sequence && slot->basis == head.basis;
    if (!same || !right_shape(shard, &head, event->length) || !seal(slot, &head)) {
        refuse(shard, event);
        slot_mark_bad(shard, head.slot);
        return;
    }
    if (event->length)
        take(shard, &head, event);
    complete_if_whole(shard, head.slot);
}

void slot_landed(struct shard *shard, const struct shard_event *event)
{
    const uint32_t index = (uint32_t)(token_low(event->token) % SLOTS_MAX);
    const uint64_t chunk = token_low(event->token) / SLOTS_MAX;
    struct slot *slot = &shard->slots[index];
    uint64_t *bits = bits_of(shard, index);
    ASSERT(slot->in_flight > 0 && bit(bits, chunk));
    KEEP(shard, *slot);
    slot->in_flight--;
    if (event->status != GRADWEIR_OK) {
        KEEP(shard, bits[chunk / 64]);
        bits[chunk / 64] &= ~(UINT64_C(1) << (chunk % 64)); /* it may come again */
    } else {
        slot->received += event->length;
        landing_count(slot, event);
        ahead_landed(shard, chunk, event);
        shard->figures.bytes_in += event->length;
        digests_chunk(shard, index, chunk, event->crc);
        if (event->crc != (uint32_t)token_high(event->token) && !shard->plant.checksum_ignored) {
            shard->figures.checksum_failures++;
            slot_mark_bad(shard, index);
        }
    }
    complete_if_whole(shard, index);
    slots_free_due(shard);
}

static void free_slot(struct shard *shard, uint32_t index)
{
    struct slot *slot = &shard->slots[index];
    const uint64_t generation = slot->close_generation;
    KEEP(shard, *slot);
    *slot = (struct slot){.freed = generation};
    tell(shard, MESSAGE_FREED)->freed =
        (struct message_freed){.slot = index, .generation = generation};
}

bool slot_unquiet(const struct shard *shard, const struct slot *slot)
{
    return slot->unquiet && shard->now_ns < shard->quiet_until_ns && !shard->plant.quiet_off;
}

void slots_free_due(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++) {
        const struct slot *slot = &shard->slots[i];
        if (slot->closing && slot->in_flight == 0 && !slot->scanning &&
            !slot_unquiet(shard, slot) && shard->applied >= slot->close_after)
            free_slot(shard, i);
    }
}

/* The connection to the coordinator was lost, and perhaps some LANDED with it. */
void slots_say_again(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++)
        if (shard->slots[i].told && !shard->slots[i].closing)
            tell(shard, MESSAGE_LANDED)->landed = shard->slots[i].landed;
}

void slot_close(struct shard *shard, const struct message_close *close)
{
    if (close->slot >= shard->options.member.slots)
        return;
    struct slot *slot = &shard->slots[close->slot];
    if (close->generation <= slot->freed) { /* said twice: so is the answer */
        tell(shard, MESSAGE_FREED)->freed =
            (struct message_freed){.slot = close->slot, .generation = close->generation};
        return;
    }
    if (slot->generation > close->generation)
        return;
    KEEP(shard, *slot);
    slot->closing = true;
    slot->close_generation = close->generation;
    slot->close_after = close->after;
    slots_free_due(shard);
}

/* A CLOSE names a record of its own coordinator's log. What no shard has logged when the next one
 * begins may never have been written, and another record stands at that place; if it was, the
 * next one says CLOSE again. */
void slots_promised(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++) {
        struct slot *slot = &shard->slots[i];
        if (!slot->closing || slot->close_after <= shard->ledger.index || shard->plant.stale_close)
            continue;
        KEEP(shard, *slot);
        slot->closing = false;
    }
}

/* The killed process' peers, measurements and bodies under way are gone. Where bodies were under
 * way nobody knows which of them came to rest: all chunks are taken anew. */
void slots_forget(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++) {
        struct slot *slot = &shard->slots[i];
        const bool torn = slot->in_flight > 0;
        if (torn && !slot->told)
            slot->received = slot->measured = slot->largest_bits = 0;
        if (slot->generation == 0 || (torn && !slot->told))
            memset(bits_of(shard, i), 0, shard->bit_words * sizeof(uint64_t));
        shares_forget(shard, i, torn && !slot->told);
        slot->unquiet |= torn;
        slot->in_flight = 0;
        slot->peer = 0;
        slot->scanning = false;
    }
}

/* What was complete and not yet measured is measured now. */
void slots_revive(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++)
        if (shard->slots[i].generation && shard->slots[i].received == slot_bytes(shard, i)) {
            KEEP(shard, shard->slots[i]);
            if (shard->slots[i].ranks)
                shares_complete(shard, i);
            else
                complete_if_whole(shard, i);
        }
}

int64_t slots_next(const struct shard *shard)
{
    if (shard->quiet_until_ns <= shard->now_ns)
        return INT64_MAX;
    for (uint32_t i = 0; i < shard->options.member.slots; i++)
        if (shard->slots[i].unquiet && shard->slots[i].closing)
            return shard->quiet_until_ns;
    return INT64_MAX;
}
