/* Checksum and measure by turns, over pieces small enough to be read twice from the first cache. */
#include "common/landed.h"

#include "common/checksum.h"
#include "common/codec.h"

#define PIECE ((size_t)1024) /* elements; a multiple of ARITHMETIC_LANES and CODEC_BLOCK */

uint32_t landed_sum(const struct arithmetic *arithmetic, enum arithmetic_codec codec,
                    const void *data, size_t n, uint32_t seed, struct arithmetic_running *running)
{
    const unsigned char *at = data;
    while (n > 0) {
        const size_t some = n < PIECE ? n : PIECE;
        seed = checksum_crc32c(seed, at, codec_bytes(codec, some));
        if (running != NULL)
            arithmetic->measure_on(codec, at, some, running);
        at += codec_bytes(codec, some);
        n -= some;
    }
    return seed;
}

uint32_t landed_blocks(const struct arithmetic *arithmetic, enum arithmetic_codec codec,
                       const void *data, size_t n, double *sums, uint32_t *largest_bits)
{
    const unsigned char *at = data;
    uint32_t crc = 0;
    for (size_t block = 0; n > 0; block++) {
        const size_t some = n < ARITHMETIC_BLOCK ? n : ARITHMETIC_BLOCK;
        struct arithmetic_running running = {.largest_bits = *largest_bits};
        struct arithmetic_measure measured;
        crc = landed_sum(arithmetic, codec, at, some, crc, &running);
        arithmetic_running_end(&running, &measured);
        sums[block] = measured.sum_squares;
        *largest_bits = measured.largest_bits;
        at += codec_bytes(codec, some);
        n -= some;
    }
    return crc;
}
