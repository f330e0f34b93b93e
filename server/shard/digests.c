/* Digests of what lies in the arena for long, so that memory that somebody else has changed is not
 * trained on. Kept up only in an arena that outlives its process and was made with options.digest;
 * looked at (digests_check.c) when a killed process' arena is gone on with.
 *
 *     states, a block each | parameter slots, a block each and the MOMENTS tail | average, a block
 *     each | the two arrays of moments | what never changes | of the tile's states as they were |
 *     kept records                              then, 32 bits each: chunks of the gradient slots
 *
 * A block's digest is written behind its tile's arithmetic, while its floats are in the cache. It
 * counts when they count: a tile that is done again brings its states' old digests back together
 * with the states, and of a version that is being written only the tiles that are done are looked
 * at. A gradient's chunk has the CRC32C with which it landed, which costs nothing. */
#include "server/shard/digests.h"

#include "common/checksum.h"

#include <string.h>

/* Where each kind begins in the table, in digests. */
struct places {
    uint64_t parameters, average, moments, fixed, redo, records, end;
};

bool digests_kept_up(const struct shard *shard)
{
    return shard->options.warm && shard->options.digest;
}

static struct places places_of(const struct shard *shard)
{
    struct places at;
    at.parameters = shard->states_count * shard->blocks;
    at.average = at.parameters + shard->options.member.parameter_slots * (shard->blocks + 1);
    at.moments = at.average + (shard->average ? shard->blocks : 0);
    at.fixed = at.moments + 2;
    at.redo = at.fixed + 1;
    at.records = at.redo + shard->states_count * (shard->tile / shard->block + 1);
    at.end = at.records + kept_places(shard);
    return at;
}

uint64_t digests_bytes(const struct shard *shard)
{
    return shard->options.warm
               ? places_of(shard).end * sizeof(uint64_t) +
                     (uint64_t)shard->options.member.slots * shard->chunks * sizeof(uint32_t)
               : 0;
}

static uint64_t *table(struct shard *shard)
{
    return at_offset(shard, shard->at.digests);
}

uint32_t *digests_chunks(struct shard *shard, uint32_t slot)
{
    uint32_t *sums = (uint32_t *)(table(shard) + places_of(shard).end);
    return sums + (uint64_t)slot * shard->chunks;
}

uint64_t digests_of_block(struct shard *shard, uint64_t floats, uint64_t block)
{
    const uint64_t begin = block * shard->block, rest = shard->elements - begin;
    return checksum_crc32c(0, at_offset(shard, floats + begin * sizeof(float)),
                           (rest < shard->block ? rest : shard->block) * sizeof(float));
}

/* The digests of the blocks of [begin, end) of an array at offset `floats`, from `digests` on. */
static void write_blocks(struct shard *shard, uint64_t floats, uint64_t *digests, uint64_t begin,
                         uint64_t end)
{
    ASSERT(begin % shard->block == 0);
    for (uint64_t block = begin / shard->block; block * shard->block < end; block++)
        digests[block] = digests_of_block(shard, floats, block);
}

uint64_t *digests_of_state(struct shard *shard, uint32_t state)
{
    return table(shard) + state * shard->blocks;
}

uint64_t *digests_of_parameters(struct shard *shard, uint32_t slot)
{
    return table(shard) + places_of(shard).parameters + slot * (shard->blocks + 1);
}

uint64_t digests_of_tail(struct shard *shard, uint32_t slot)
{
    return checksum_hash64(
        0, at_offset(shard, parameter_offset(shard, slot) + shard->elements * sizeof(float)),
        shard->moments_count * sizeof(struct moments));
}

uint64_t *digests_of_average(struct shard *shard)
{
    return table(shard) + places_of(shard).average;
}

static uint64_t moments_digest(struct shard *shard, uint32_t which)
{
    return checksum_hash64(0, moments_of(shard, which),
                           shard->moments_count * sizeof(struct moments));
}

static uint64_t fixed_digest(struct shard *shard)
{
    const uint64_t pieces = checksum_hash64(0, at_offset(shard, shard->at.pieces),
                                            shard->pieces_count * sizeof(struct arithmetic_range));
    const uint64_t groups = checksum_hash64(pieces, shard->groups, sizeof shard->groups);
    return checksum_hash64(groups, at_offset(shard, shard->at.layout), shard->layout_bytes);
}

static bool steps_states(const struct shard *shard)
{
    return shard->step.plan.algorithm != ARITHMETIC_LAMB || shard->step.phase == STEP_MOMENTS;
}

void digests_step(struct shard *shard, uint64_t begin, uint64_t end)
{
    if (!digests_kept_up(shard))
        return;
    for (uint32_t i = 0; i < shard->states_count && steps_states(shard); i++)
        write_blocks(shard, tile_state(shard, i, begin, true), digests_of_state(shard, i), begin,
                     end);
    if (shard->step.phase == STEP_APPLYING)
        write_blocks(shard, parameter_offset(shard, shard->step.to),
                     digests_of_parameters(shard, shard->step.to), begin, end);
}

void digests_ahead(struct shard *shard, uint64_t begin, uint64_t end)
{
    if (digests_kept_up(shard))
        write_blocks(shard, parameter_offset(shard, shard->ahead.to),
                     digests_of_parameters(shard, shard->ahead.to), begin, end);
}

void digests_average(struct shard *shard, uint64_t begin, uint64_t end)
{
    if (digests_kept_up(shard))
        write_blocks(shard, shard->at.average, digests_of_average(shard), begin, end);
}

void digests_parameters(struct shard *shard, uint32_t slot)
{
    if (digests_kept_up(shard))
        write_blocks(shard, parameter_offset(shard, slot), digests_of_parameters(shard, slot), 0,
                     shard->elements);
}

void digests_tail(struct shard *shard, uint32_t slot)
{
    if (digests_kept_up(shard))
        digests_of_parameters(shard, slot)[shard->blocks] = digests_of_tail(shard, slot);
}

void digests_moments(struct shard *shard, uint32_t which)
{
    if (digests_kept_up(shard))
        table(shard)[places_of(shard).moments + which] = moments_digest(shard, which);
}

void digests_chunk(struct shard *shard, uint32_t slot, uint64_t chunk, uint32_t crc)
{
    if (digests_kept_up(shard))
        digests_chunks(shard, slot)[chunk] = crc;
}

void digests_record(struct shard *shard, const struct record *kept)
{
    if (digests_kept_up(shard))
        table(shard)[places_of(shard).records + kept->index % kept_places(shard)] =
            checksum_hash64(0, kept, sizeof *kept);
}

void digests_redo(struct shard *shard, uint64_t begin, uint64_t end, bool back)
{
    const uint64_t first = begin / shard->block, room = shard->tile / shard->block + 1;
    const uint64_t blocks = (end - begin + shard->block - 1) / shard->block;
    if (!digests_kept_up(shard))
        return;
    for (uint32_t i = 0; i < shard->states_count; i++) {
        uint64_t *state = digests_of_state(shard, i) + first;
        uint64_t *copy = table(shard) + places_of(shard).redo + i * room;
        memcpy(back ? state : copy, back ? copy : state, blocks * sizeof *state);
    }
}

/* All states are zero then, so two blocks tell the digests of all. */
void digests_init(struct shard *shard)
{
    const uint64_t last = shard->blocks ? shard->blocks - 1 : 0;
    if (!digests_kept_up(shard))
        return;
    for (uint32_t i = 0; i < shard->states_count && shard->blocks > 0; i++) {
        uint64_t *digests = digests_of_state(shard, i);
        const uint64_t zeros = digests_of_block(shard, tile_state(shard, i, 0, false), 0);
        for (uint64_t block = 0; block < last; block++)
            digests[block] = zeros;
        digests[last] =
            digests_of_block(shard, tile_state(shard, i, last * shard->block, false), last);
    }
    digests_moments(shard, 0);
    digests_moments(shard, 1);
    table(shard)[places_of(shard).fixed] = fixed_digest(shard);
}

bool digests_fixed_same(struct shard *shard)
{
    return table(shard)[places_of(shard).fixed] == fixed_digest(shard);
}

bool digests_moments_same(struct shard *shard)
{
    const uint32_t now = shard->moments_now;
    return table(shard)[places_of(shard).moments + now] == moments_digest(shard, now);
}

bool digests_record_same(struct shard *shard, const struct record *kept)
{
    return table(shard)[places_of(shard).records + kept->index % kept_places(shard)] ==
           checksum_hash64(0, kept, sizeof *kept);
}
