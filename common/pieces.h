/* Pieces: which bytes of a shard's range a PULL wants, for whoever needs some boxes of some tensors
 * and not the whole model (reshard on pull).
 *
 * A box is a struct part: elements `first` to `first + count` of one axis of one tensor, everything
 * of the other axes; or PIECES_ALL, all parameters. Its elements, in the order of the model, are
 * the box itself row by row, so whatever a shard holds of a box is one run of bytes of the box: one
 * piece, which needs no scattering where it lands.
 *
 *     range of the shard    ...xxx|.....xxxxx|.....xxxxx|.....xx...
 *                              ^  ^          ^
 *                         offset  |<- width->|<- period ->|      length: all the x
 *                              lead: of the first run
 *
 * Bytes are of the range as it lies in the shard: float32, then 24 bytes a MOMENTS element. What
 * travels of parameters as bfloat16 is half as much. On the wire a piece is as it lies in memory,
 * little-endian. */
#ifndef GRADWEIR_COMMON_PIECES_H
#define GRADWEIR_COMMON_PIECES_H

#include "common/model.h"
#include "common/parts.h"

#define PIECES_ALL UINT32_MAX /* as part.tensor: all parameters, as one long vector */

enum { PIECES_MAX = 1024 }; /* of one PULL */

struct piece {
    uint64_t offset; /* of its first byte within the range */
    uint64_t length; /* bytes in all */
    uint64_t lead;   /* of the first run: at most width, and length */
    uint64_t width;  /* of every further run, but that the last may be shorter */
    uint64_t period; /* from the beginning of one run to that of the next */
};

/* A shard's range: parameters [first, first + elements), and all MOMENTS behind them, or none. */
struct piece_range {
    uint64_t first, elements, moments;
};

/* ERR_INVALID, naming tensor, axis and what is allowed. Other than a part to push a box may be of
 * MOMENTS. */
gradweir_status box_check(const struct part *box, const struct model *model);

/* Whether two boxes (checked) share an element. */
bool box_meets(const struct part *a, const struct part *b);

/* Elements and bytes of a box (checked); half is true: parameters as bfloat16. */
uint64_t box_elements(const struct part *box, const struct model *model);
uint64_t box_bytes(const struct part *box, const struct model *model, bool half);

/* What the range holds of a box, and how many bytes of the box (as they lie in the range) come
 * before that. False: nothing. */
bool piece_of(const struct part *box, const struct model *model, const struct piece_range *range,
              struct piece *piece, uint64_t *before);

/* Whether a list that anybody may have sent makes sense for this range: every run inside one of its
 * two sections, no more bytes in all than the range has, and exactly `total`. */
bool pieces_sound(const struct piece *pieces, uint32_t count, const struct piece_range *range,
                  uint64_t total);

/* Of parameters, which may travel as bfloat16; else of MOMENTS. */
bool piece_is_floats(const struct piece *piece, const struct piece_range *range);

/* Bytes of it that travel. */
uint64_t piece_wire(const struct piece *piece, const struct piece_range *range, bool half);

/* Where byte `at` (below length) lies in the range, and how many follow there in a row. */
uint64_t piece_find(const struct piece *piece, uint64_t at, uint64_t *row);

/* Bytes `at` to `at + length` of the piece, gathered from the range at `body`: as they are, or
 * rounded to bfloat16 (to nearest even) into length / 2 bytes. */
void piece_gather(const struct piece *piece, const void *body, uint64_t at, uint64_t length,
                  void *to);
void piece_gather_half(const struct piece *piece, const void *body, uint64_t at, uint64_t length,
                       void *to);

#endif
