/* What a body is measured by while it is still in the cache: its checksum and, of a chunk, whether
 * it is finite, its largest magnitude, its sum of squares. Sums are kept per block of a chunk and
 * added in the order of blocks once the gradient is whole, so it does not matter in which order
 * chunks came. They are dead until the slot's `measured` counts them. */
#include "common/checksum.h"
#include "common/codec.h"
#include "common/landed.h"
#include "server/shard/shard_internal.h"

#include <string.h>

/* The sums of one chunk. */
static double *sums_of(struct shard *shard, uint32_t slot, uint64_t chunk)
{
    double *all = at_offset(shard, shard->at.chunk_sums);
    return all + ((uint64_t)slot * shard->chunks + chunk) * shard->chunk_blocks;
}

/* Elements of a body that begins at `offset` of the range; behind them comes the tail of MOMENTS.
 */
static uint64_t elements_of(const struct shard *shard, enum arithmetic_codec codec, uint64_t offset,
                            uint64_t length)
{
    const uint64_t all = codec_bytes(codec, shard->elements);
    if (offset >= all)
        return 0;
    return codec_elements(codec, length < all - offset ? length : all - offset);
}

/* The same pass steps on what has landed, at that offset of the range. */
static void step_ahead(struct shard *shard, uint64_t offset, struct landing *landing,
                       struct arithmetic_work *work)
{
    ahead_work(shard, work);
    landing->plan = &shard->ahead.plan;
    landing->work = work;
    landing->at = codec_elements(landing->codec, offset);
}

/* from: where the body lies, when it is to be copied on the way; or NULL. */
static void measure(struct shard *shard, const struct arithmetic *arithmetic, uint64_t offset,
                    const unsigned char *from, struct shard_event *landed)
{
    unsigned char *body = shard_address(shard, offset);
    const uint64_t chunk = token_low(landed->token) / SLOTS_MAX;
    const uint32_t slot = (uint32_t)(token_low(landed->token) % SLOTS_MAX);
    const bool is_chunk = token_kind(landed->token) == TOKEN_CHUNK;
    const enum arithmetic_codec codec = is_chunk ? slot_codec(shard, slot) : ARITHMETIC_F32;
    const uint64_t n =
        is_chunk ? elements_of(shard, codec, offset - slot_place(shard, slot), landed->length) : 0;
    const uint64_t bytes = codec_bytes(codec, n);
    const bool steps = n > 0 && ahead_lands(shard, slot);
    uint32_t crc = 0, largest = 0;
    struct landing landing = {.arithmetic = arithmetic,
                              .codec = codec,
                              .from = from ? from : body,
                              .to = from ? body : NULL,
                              .past = shard_streams(shard)};
    struct arithmetic_work work;
    if (steps)
        step_ahead(shard, offset - slot_place(shard, slot), &landing, &work);
    if (n > 0)
        crc = landed_blocks(&landing, n, sums_of(shard, slot, chunk), &largest);
    if (steps)
        ahead_stepped(shard, landing.at, landing.at + n);
    if (from)
        memcpy(body + bytes, from + bytes, landed->length - bytes);
    landed->crc = checksum_crc32c(crc, body + bytes, landed->length - bytes);
    landed->measured = is_chunk;
    landed->ahead = steps ? shard->ahead.number : 0;
    landed->largest_bits = largest;
}

void shard_measure_body(struct shard *shard, const struct arithmetic *arithmetic, uint64_t offset,
                        struct shard_event *landed)
{
    measure(shard, arithmetic, offset, NULL, landed);
}

void shard_copy_body(struct shard *shard, const struct arithmetic *arithmetic, uint64_t offset,
                     const void *from, struct shard_event *landed)
{
    measure(shard, arithmetic, offset, from, landed);
}

void landing_count(struct slot *slot, const struct shard_event *event)
{
    if (!event->measured)
        return;
    slot->measured += event->length;
    if (event->largest_bits > slot->largest_bits)
        slot->largest_bits = event->largest_bits;
}

bool landing_measured(const struct shard *shard, uint32_t slot)
{
    return shard->elements == 0 || (shard->slots[slot].measured == slot_bytes(shard, slot) &&
                                    arithmetic_finite(shard->slots[slot].largest_bits));
}

double landing_sum(struct shard *shard, uint32_t slot)
{
    double sum = 0;
    const uint64_t length = slot_chunk_bytes(shard, slot);
    for (uint64_t chunk = 0; chunk * length < slot_bytes(shard, slot); chunk++) {
        const size_t blocks =
            arithmetic_blocks(elements_of(shard, slot_codec(shard, slot), chunk * length, length));
        for (size_t i = 0; i < blocks; i++)
            sum += sums_of(shard, slot, chunk)[i];
    }
    return sum;
}
