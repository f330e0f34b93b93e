/* The one pass of encoded.c for machines with AVX-512: what a compiler makes of the loops of
 * arithmetic_codecs.h encodes first and measures then; here each element is loaded once, and what
 * comes of it is stored, measured and folded into the checksum from registers. */
#ifndef GRADWEIR_COMMON_ENCODED_FOLD_H
#define GRADWEIR_COMMON_ENCODED_FOLD_H

#include "common/encoded.h"

#define ENCODED_FOLD ((size_t)256) /* elements at a time; a multiple of CODEC_BLOCK */

/* Whether this machine can, and this set of instructions may. */
bool encoded_fold_runs(const struct arithmetic *arithmetic);

/* encoded_sum() of n elements of a half or of int8, n > 0 a multiple of ENCODED_FOLD. */
uint32_t encoded_fold(const struct encoded *encoded, size_t n, uint32_t seed,
                      struct arithmetic_running *running);

#endif
