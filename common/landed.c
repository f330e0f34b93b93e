/* Copy, checksum, measure and step by turns, over pieces small enough to be read again from the
 * first cache; in one turn where the machine can (landed_fold.c, landed_codes.c). */
#include "common/landed.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/landed_codes.h"
#include "common/landed_fold.h"

#include <string.h>

#define PIECE   ((size_t)1024) /* elements; a multiple of ARITHMETIC_LANES and CODEC_BLOCK */
#define STEPPED (4 * PIECE)    /* stepped on together: calling it costs something */

static void advance(struct landing *landing, size_t n)
{
    const size_t bytes = codec_bytes(landing->codec, n);
    landing->from = (const unsigned char *)landing->from + bytes;
    if (landing->to != NULL)
        landing->to = (unsigned char *)landing->to + bytes;
    if (landing->also != NULL)
        landing->also = (unsigned char *)landing->also + bytes;
    landing->at += n;
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

/* The step of n elements that have just been summed, and lie where they were summed. */
static void step_piece(const struct landing *landing, size_t n)
{
    if (landing->plan == NULL)
        return;
    struct arithmetic_work work = *landing->work;
    const void *piece = landing->to != NULL ? landing->to : landing->from;
    work.sources = (struct arithmetic_sources){
        /* element `at` of any slot is this piece */
        .base = (const void *)((uintptr_t)piece - codec_bytes(landing->codec, (size_t)landing->at)),
        .codec = landing->codec};
    landing->arithmetic->step(landing->plan, &work, (size_t)landing->at, (size_t)landing->at + n);
}

static uint32_t sum_pieces(struct landing *rest, size_t n, uint32_t seed,
                           struct arithmetic_running *running)
{
    while (n > 0) {
        const size_t together = n < STEPPED ? n : STEPPED;
        const struct landing begin = *rest;
        for (size_t some, left = together; left > 0; left -= some) {
            some = left < PIECE ? left : PIECE;
            seed = sum_piece(rest, some, seed, running);
            advance(rest, some);
        }
        step_piece(&begin, together);
        n -= together;
    }
    return seed;
}

/* Elements that are folded at a time; 0: this is not done by folding. */
static size_t grain_of(const struct landing *landing)
{
    if (!landed_fold_runs(landing->arithmetic) ||
        (landing->codec != ARITHMETIC_F32 && landing->also != NULL))
        return 0;
    return landing->codec == ARITHMETIC_F32 ? LANDED_FOLD : LANDED_CODES;
}

static uint32_t fold(const struct landing *landing, size_t n, uint32_t seed,
                     struct arithmetic_running *running)
{
    return landing->codec == ARITHMETIC_F32 ? landed_fold(landing, n, seed, running)
                                            : landed_codes(landing, n, seed, running);
}

/* How many of n elements, a multiple of the grain, can be folded in one go, and whether they are
 * stepped on in registers: those of one range. Where tensors meet within a grain, or nothing is to
 * change, the step is made behind. */
static size_t fold_run(const struct landing *landing, size_t n, bool *steps)
{
    const size_t grain = grain_of(landing);
    *steps = false;
    if (landing->plan == NULL)
        return n;
    const size_t i = arithmetic_range_at(landing->work, landing->at);
    const struct arithmetic_range *range = &landing->work->ranges[i];
    const uint64_t rest = range->end - landing->at;
    const size_t run = rest < n ? (size_t)(rest - rest % grain) : n;
    *steps = run > 0 && !landing->plan->groups[range->group].frozen;
    return run > 0 ? run : grain;
}

static uint32_t fold_runs(struct landing *rest, size_t n, uint32_t seed,
                          struct arithmetic_running *running)
{
    for (size_t run; n > 0; n -= run) {
        bool steps;
        run = fold_run(rest, n, &steps);
        struct landing one = *rest;
        if (!steps)
            one.plan = NULL;
        seed = fold(&one, run, seed, running);
        if (!steps)
            step_piece(rest, run);
        advance(rest, run);
    }
    return seed;
}

uint32_t landed_sum(const struct landing *landing, size_t n, uint32_t seed,
                    struct arithmetic_running *running)
{
    struct landing rest = *landing;
    const size_t grain = running != NULL ? grain_of(landing) : 0;
    const size_t folded = grain > 0 ? n - n % grain : 0;
    seed = fold_runs(&rest, folded, seed, running);
    return sum_pieces(&rest, n - folded, seed, running);
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
