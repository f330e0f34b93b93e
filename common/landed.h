/* What is asked of floats that have just landed, in one pass while they are in the cache: is the
 * checksum right, are they finite, how large are they. The pass may bring them to their place, and
 * make a step of them. */
#ifndef GRADWEIR_COMMON_LANDED_H
#define GRADWEIR_COMMON_LANDED_H

#include "common/arithmetic.h"

/* Elements, as bytes of a codec. */
struct landing {
    const struct arithmetic *arithmetic;
    enum arithmetic_codec codec;
    const void *from;
    void *to;   /* where they are copied on the way; NULL: nowhere. Sums are of what is in `to`,
                   also when somebody else writes to `from` meanwhile */
    void *also; /* a second copy; NULL: none */
    bool past;  /* `to` is written past the caches, where the machine can: it is not read soon */

    /* A step that is made ahead, from the same floats, in the same pass: what work->parameters are
     * becomes work->parameters_next, for the elements from `at` on, as arithmetic->step makes it of
     * a window of one gradient. Of the plan: SGD, one entry, whose slot does not matter; of `work`,
     * its sources do not. INT8: `at` begins a block. plan NULL: no step. */
    const struct arithmetic_plan *plan;
    const struct arithmetic_work *work;
    uint64_t at;
};

/* The CRC32C of n elements, continued from seed (0 starts), and their measure, continued in
 * running: landed_sum() of a, then of b, are the sums of a and b in a row. A running measure is
 * that of one block: pieces in order, each but the block's last a multiple of ARITHMETIC_LANES
 * (int8: CODEC_BLOCK) elements; arithmetic_running_end tells it. running NULL: the checksum alone.
 */
uint32_t landed_sum(const struct landing *landing, size_t n, uint32_t seed,
                    struct arithmetic_running *running);

/* The same over whole blocks and a last one that may be short, from a block's begin on:
 * sums[b] is block b's sum of squares, for arithmetic_blocks(n) blocks; *largest_bits is raised to
 * the largest magnitude. */
uint32_t landed_blocks(const struct landing *landing, size_t n, double *sums,
                       uint32_t *largest_bits);

#endif
