/* Encode, measure and checksum by turns over pieces that stay in the first cache, or in one turn
 * where the machine can (encoded_fold.c). */
#include "common/encoded.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/encoded_fold.h"

#define PIECE ((size_t)1024) /* elements; a multiple of ARITHMETIC_LANES and CODEC_BLOCK */

static void advance(struct encoded *encoded, size_t n)
{
    encoded->from += n;
    encoded->to = (unsigned char *)encoded->to + codec_bytes(encoded->codec, n);
    if (encoded->rest != NULL)
        encoded->rest += n;
}

uint32_t encoded_sum(const struct encoded *encoded, size_t n, uint32_t seed,
                     struct arithmetic_running *running)
{
    struct encoded left = *encoded;
    if (left.codec != ARITHMETIC_F32 && n >= ENCODED_FOLD && encoded_fold_runs(left.arithmetic)) {
        const size_t folded = n - n % ENCODED_FOLD;
        seed = encoded_fold(&left, folded, seed, running);
        advance(&left, folded);
        n -= folded;
    }
    for (size_t some; n > 0; n -= some, advance(&left, some)) {
        some = n < PIECE ? n : PIECE;
        left.arithmetic->encode_on(left.codec, left.from, some, left.rest, left.to, running);
        seed = checksum_crc32c(seed, left.to, (size_t)codec_bytes(left.codec, some));
    }
    return seed;
}
