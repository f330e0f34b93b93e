/* Copy, checksum and measure by turns, over pieces small enough to be read again from the first
 * cache; of floats in one turn where the machine can (landed_fold.c). */
#include "common/landed.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/landed_fold.h"

#include <string.h>

#define PIECE ((size_t)1024) /* elements; a multiple of ARITHMETIC_LANES and CODEC_BLOCK */

static void advance(struct landing *landing, size_t n)
{
    const size_t bytes = codec_bytes(landing->codec, n);
    landing->from = (const unsigned char *)landing->from + bytes;
    if (landing->to != NULL)
        landing->to = (unsigned char *)landing->to + bytes;
    if (landing->also != NULL)
        landing->also = (unsigned char *)landing->also + bytes;
}

static uint32_t sum_piece(const struct landing *landing, size_t n, uint32_t seed,
                          struct arithmetic_running *running)
{
    const size_t bytes = codec_bytes(landing->codec, n);
    const void *at = landing->to != NULL ? landing->to : landing->from;
    if (landing->to != NULL)
        memcpy(landing->to, landing->from, bytes);
    if (landing->also != NULL)
        memcpy(landing->also, at, bytes);
    if (running != NULL)
        landing->arithmetic->measure_on(landing->codec, at, n, running);
    return checksum_crc32c(seed, at, bytes);
}

uint32_t landed_sum(const struct landing *landing, size_t n, uint32_t seed,
                    struct arithmetic_running *running)
{
    struct landing rest = *landing;
    if (landing->codec == ARITHMETIC_F32 && running != NULL && n >= LANDED_FOLD &&
        landed_fold_runs(landing->arithmetic)) {
        const size_t folded = n - n % LANDED_FOLD;
        seed = landed_fold(&rest, folded, seed, running);
        advance(&rest, folded);
        n -= folded;
    }
    while (n > 0) {
        const size_t some = n < PIECE ? n : PIECE;
        seed = sum_piece(&rest, some, seed, running);
        advance(&rest, some);
        n -= some;
    }
    return seed;
}

uint32_t landed_blocks(const struct landing *landing, size_t n, double *sums,
                       uint32_t *largest_bits)
{
    struct landing rest = *landing;
    uint32_t crc = 0;
    for (size_t block = 0; n > 0; block++) {
        const size_t some = n < ARITHMETIC_BLOCK ? n : ARITHMETIC_BLOCK;
        struct arithmetic_running running = {.largest_bits = *largest_bits};
        struct arithmetic_measure measured;
        crc = landed_sum(&rest, some, crc, &running);
        arithmetic_running_end(&running, &measured);
        sums[block] = measured.sum_squares;
        *largest_bits = measured.largest_bits;
        advance(&rest, some);
        n -= some;
    }
    return crc;
}
