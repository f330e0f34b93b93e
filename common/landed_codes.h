/* The one pass of landed.c over encoded bodies, where landed_fold_runs: what has been
 * loaded is copied, folded into the checksum, measured and stepped on. */
#ifndef GRADWEIR_COMMON_LANDED_CODES_H
#define GRADWEIR_COMMON_LANDED_CODES_H

#include "common/landed.h"

#define LANDED_CODES ((size_t)256) /* elements at a time; a multiple of CODEC_BLOCK */

/* landed_sum() of n elements of a half or of int8, n > 0 a multiple of LANDED_CODES, `also` NULL.
 * Where it is to step on: all of them lie in one range, whose group is not frozen. */
uint32_t landed_codes(const struct landing *landing, size_t n, uint32_t seed,
                      struct arithmetic_running *running);

#endif
