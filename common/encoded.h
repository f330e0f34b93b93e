/* What is asked of floats as they become the bytes that travel, in one pass: encode them, measure
 * what came of them, and sum it. */
#ifndef GRADWEIR_COMMON_ENCODED_H
#define GRADWEIR_COMMON_ENCODED_H

#include "common/arithmetic.h"

struct encoded {
    const struct arithmetic *arithmetic;
    enum arithmetic_codec codec;
    const float *from;
    float *rest; /* error feedback (arithmetic.h: encode_rest); NULL: none */
    void *to;
};

/* arithmetic->encode_on of n elements, and the CRC32C of what it has written, continued from seed
 * (0 starts): bit by bit what one after the other would give. Pieces in a row as for encode_on:
 * each but the last a multiple of ARITHMETIC_LANES (int8: CODEC_BLOCK) elements. */
uint32_t encoded_sum(const struct encoded *encoded, size_t n, uint32_t seed,
                     struct arithmetic_running *running);

#endif
