/* In which numbers the body of a slot is, and so how long it is and where it lies: a gradient in
 * the job's codec, in the slot; first parameters in float32, in the last of the parameter slots
 * where the slot is too small for them (first_offset). */
#include "common/codec.h"
#include "server/shard/shard_internal.h"

enum arithmetic_codec slot_codec(const struct shard *shard, uint32_t slot)
{
    return shard->slots[slot].first ? ARITHMETIC_F32 : shard->codec;
}

uint64_t slot_bytes(const struct shard *shard, uint32_t slot)
{
    return shard->slots[slot].first ? shard->body_bytes : shard->gradient_bytes;
}

uint64_t slot_place(const struct shard *shard, uint32_t slot)
{
    return shard->slots[slot].first ? first_offset(shard, slot) : slot_offset(shard, slot);
}

uint64_t slot_chunk_bytes(const struct shard *shard, uint32_t slot)
{
    return codec_chunk(slot_codec(shard, slot), shard->options.chunk_bytes);
}

bool slots_first(const struct shard *shard)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++)
        if (shard->slots[i].first)
            return true;
    return false;
}

/* A parameter slot is lent to first parameters until they are applied and nothing more can land
 * there. Their slot may stay closing for longer than that: until a record is applied that may
 * itself wait for a parameter slot. */
bool slots_lent(const struct shard *shard)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++) {
        const struct slot *slot = &shard->slots[i];
        if (slot->first &&
            (!shard->has_first || slot->in_flight || slot->scanning || slot_unquiet(shard, slot)))
            return true;
    }
    return false;
}

/* First parameters, as far as a head says so. */
bool slot_says_first(const struct shard *shard, const struct head_chunk *head)
{
    return shard->codec != ARITHMETIC_F32 && head->dtype == HEAD_FLOAT32;
}
