/* A step in tiles that can be done again. Optimizer state is stepped in place, so before a tile is
 * touched its state is copied aside; one word tells how far the step is:
 *
 *     busy (1) | phase (3) | version's low bits (20) | elements before this are done (40)
 *
 *     word = {next}           nothing of the tile at `next` has been touched
 *     copy the tile's state
 *     word = {busy, next}     the copy is whole; the device may write
 *     … the device is done
 *     word = {end}            the tile is done, its copy is waste
 *
 * Killed while busy: the copy goes back and the tile is done again. Parameters go from one slot to
 * another and averages to a place of their own: those are simply written again. A word of another
 * version or phase says that this one has not begun. The word is written only while the journal is
 * empty, so that no undoing ever goes behind it. */
#include "server/shard/shard_internal.h"

#include <stdatomic.h>
#include <string.h>

#define BUSY     (UINT64_C(1) << 63)
#define NEXT_MAX ((UINT64_C(1) << 40) - 1)

static uint64_t word_of(const struct shard *shard, uint64_t next)
{
    const uint64_t version = shard->step.record.version & ((1u << 20) - 1);
    return (uint64_t)shard->step.phase << 60 | version << 40 | next;
}

static void publish(struct shard *shard, uint64_t word)
{
    ASSERT(shard->journal.used == 0);
    atomic_signal_fence(memory_order_seq_cst);
    shard->tile_word = word;
    atomic_signal_fence(memory_order_seq_cst);
}

void tile_none(struct shard *shard)
{
    publish(shard, 0);
}

uint64_t tile_next(const struct shard *shard)
{
    const uint64_t word = shard->tile_word & ~BUSY;
    return (word & ~NEXT_MAX) == word_of(shard, 0) ? word & NEXT_MAX : 0;
}

uint64_t tile_end(const struct shard *shard)
{
    const uint64_t end = tile_next(shard) + shard->tile;
    return end < shard->elements ? end : shard->elements;
}

bool tile_busy(const struct shard *shard)
{
    return shard->tile_word >> 63 && (shard->tile_word & ~BUSY & ~NEXT_MAX) == word_of(shard, 0);
}

/* The tile of one array that is written in place: there, and in the i-th copy. */
static void copy_array(struct shard *shard, uint64_t array, uint32_t i, bool undo)
{
    const uint64_t begin = tile_next(shard), bytes = (tile_end(shard) - begin) * sizeof(float);
    void *state = at_offset(shard, array + begin * sizeof(float));
    void *copy = at_offset(shard, shard->at.redo + i * shard->tile * sizeof(float));
    memcpy(undo ? state : copy, undo ? copy : state, bytes);
}

/* LAMB steps its state in a phase of its own. Fronts need no copy: they are made of gradients
 * alone, and where they are made they are not read. */
static void tile_copy(struct shard *shard, bool undo)
{
    const enum step_phase writes =
        shard->step.plan.algorithm == ARITHMETIC_LAMB ? STEP_MOMENTS : STEP_APPLYING;
    for (uint32_t i = 0; i < shard->states_count && shard->step.phase == writes; i++)
        copy_array(shard, shard->at.states + i * shard->state_stride, i, undo);
    if (shard->step.phase == writes)
        digests_redo(shard, tile_next(shard), tile_end(shard), undo);
    if (stacks_written(shard) && !shard->plant.stacks_redo_off)
        copy_array(shard, shard->at.back, shard->states_count, undo);
}

void tile_begin(struct shard *shard)
{
    if (shard->options.warm && !shard->plant.redo_off)
        tile_copy(shard, false);
    publish(shard, word_of(shard, tile_next(shard)) | BUSY);
}

void tile_done(struct shard *shard)
{
    publish(shard, word_of(shard, tile_end(shard)));
}

void tile_undo(struct shard *shard)
{
    if (!tile_busy(shard))
        return;
    if (!shard->plant.redo_off)
        tile_copy(shard, true);
    publish(shard, word_of(shard, tile_next(shard)));
}
