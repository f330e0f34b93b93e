/* A step in tiles that can be done again. What a tile of optimizer state becomes is written beside
 * what it was, so nothing has to be copied aside: each state has room for one tile more than it
 * has, as places in a ring, and a step moves every tile by one place, into the one that the tile
 * before it has just left:
 *
 *     place       0   1   2   3            places: the tiles and one; turn: place of tile 0
 *     version 5   A   B   C   .            turn 0
 *     half way    .   b   C   a            a is done, b is being made: B is still there
 *     version 6   b   c   .   a            turn 3
 *
 * The place of the tile before was read a moment ago, so it is in the cache: this costs no more
 * memory traffic than stepping in place, which is what a shard does that is not warm. One word
 * tells how far the step is:
 *
 *     busy (1) | phase (3) | version's low bits (20) | elements before this are done (40)
 *
 *     word = {busy, next}     the device may write the tile at `next`
 *     … the device is done
 *     word = {end}            the tile is done, and what it was made of is waste
 *
 * Partial sums of a window by stacks (the backs) are written in place, and copied aside before.
 * Killed while busy: the tile is done again. Parameters go from one slot to another and averages to
 * a place of their own: those are simply written again. A word of another version or phase says
 * that this one has not begun. The word is written only while the journal is empty, so that no
 * undoing ever goes behind it. */
#include "server/shard/digests.h"
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

/* LAMB steps its state in a phase of its own. */
static enum step_phase writes_states(const struct shard *shard)
{
    return shard->step.plan.algorithm == ARITHMETIC_LAMB ? STEP_MOMENTS : STEP_APPLYING;
}

static bool moves(const struct shard *shard)
{
    return shard->places > shard->tiles && !shard->plant.redo_off;
}

uint64_t tile_state(const struct shard *shard, uint32_t state, uint64_t begin, bool next)
{
    const uint64_t tile = shard->tile ? begin / shard->tile : 0;
    const uint64_t turn = shard->turn + (next && moves(shard) ? shard->places - 1 : 0);
    const uint64_t place = shard->places ? (tile + turn) % shard->places : 0;
    return shard->at.states + state * shard->state_ring + place * shard->tile_stride -
           tile * shard->tile * sizeof(float);
}

bool tile_stepped(const struct shard *shard, uint64_t begin)
{
    const enum step_phase phase = shard->step.phase;
    if (phase == writes_states(shard))
        return begin < tile_next(shard);
    return phase > writes_states(shard) && phase <= STEP_APPLYING;
}

void tiles_turn(struct shard *shard)
{
    if (!moves(shard))
        return;
    KEEP(shard, shard->turn);
    shard->turn = (shard->turn + shard->places - 1) % shard->places;
}

/* The tile of the backs, which are written in place. Fronts need no copy: they are made of
 * gradients alone, and where they are made they are not read. */
static void copy_back(struct shard *shard, bool undo)
{
    const uint64_t begin = tile_next(shard), bytes = (tile_end(shard) - begin) * sizeof(float);
    void *back = at_offset(shard, shard->at.back + begin * sizeof(float));
    void *copy = at_offset(shard, shard->at.redo);
    if (stacks_written(shard) && !shard->plant.stacks_redo_off)
        memcpy(undo ? back : copy, undo ? copy : back, bytes);
}

void tile_begin(struct shard *shard)
{
    if (shard->options.warm && shard->step.phase == writes_states(shard))
        digests_redo(shard, tile_next(shard), tile_end(shard), false);
    if (shard->options.warm && !shard->plant.redo_off)
        copy_back(shard, false);
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
    if (shard->step.phase == writes_states(shard))
        digests_redo(shard, tile_next(shard), tile_end(shard), true);
    if (!shard->plant.redo_off)
        copy_back(shard, true);
    publish(shard, word_of(shard, tile_next(shard)));
}
