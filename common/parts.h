/* Parts: which share of a gradient each rank of a group holds. A group is one worker; the parts of
 * its ranks tile the model's parameters exactly once.
 *
 * A part is a slab of one tensor: elements `first` to `first + count` of one axis, everything of
 * the other axes. Of rows (axis 0) it is one run in the flat order of the model; of any other axis
 * it is strided: one run of count x (elements behind the axis) per index in front of it. Runs are
 * what travels: parts are laid out by pieces, each straight to its place in the slot, and nothing
 * is scattered on the other side. MOMENTS are rank 0's.
 *
 * Bytes of a rank's parts (CONTENT_PARTS), little-endian: u32 magic 0x54505747 ("GWPT"), u32 rank,
 * u32 ranks, u32 count; then each part as it lies in memory (24 bytes). */
#ifndef GRADWEIR_COMMON_PARTS_H
#define GRADWEIR_COMMON_PARTS_H

#include "common/message.h"
#include "common/model.h"

struct part {
    uint32_t tensor; /* number in the model, of a PARAMETER */
    uint32_t axis;   /* 0 for a scalar */
    uint64_t first, count;
};

/* Of one rank; a tensor that is not named: it has nothing of it. */
struct parts {
    uint32_t rank, ranks, count;
    struct part items[]; /* tensors rising */
};

/* Room for `count`; the caller frees it with free. NULL: no memory. */
struct parts *parts_new(uint32_t rank, uint32_t ranks, uint32_t count);

/* ERR_INVALID names rank, tensor and what is wrong: out of range, no such axis, named twice. */
gradweir_status parts_check(const struct parts *parts, const struct model *model);

/* Whether the parts of all ranks (each one checked) tile the parameters exactly once. ERR_MISMATCH
 * names the first tensors that do not, the indexes and the ranks. */
gradweir_status parts_tile(const struct parts *const *ranks, uint32_t count,
                           const struct model *model);

/* The first run of this rank at or after element `from`: [*begin, *end). Runs that touch are one,
 * as long as it is shorter than `enough`. False: there is none. */
bool parts_run(const struct parts *parts, const struct model *model, uint64_t from, uint64_t enough,
               uint64_t *begin, uint64_t *end);

/* A part within its tensor: `runs` runs of `width` elements, every `period`, from `first` on. */
struct part_runs {
    uint64_t first, width, period, runs;
};
struct part_runs part_runs(const struct part *part, const struct model_tensor *tensor);

size_t parts_bytes(const struct parts *parts);
void parts_encode(const struct parts *parts, uint8_t *bytes);
/* ERR_PROTOCOL for what parts_encode has not written; the caller frees *parts. */
gradweir_status parts_decode(const uint8_t *bytes, size_t size, struct parts **parts);

/* A gradient's digest from those of its ranks' shares, which come in the order of ranks: so it does
 * not depend on who came first. */
uint64_t parts_digest(const uint64_t *digests, uint32_t ranks);

#endif
