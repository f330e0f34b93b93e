/* The one pass of landed.c by folding, for machines that multiply 512 bits without carries: each
 * float is loaded once, stored, folded into the checksum, measured and stepped on, all in
 * registers.
 */
#ifndef GRADWEIR_COMMON_LANDED_FOLD_H
#define GRADWEIR_COMMON_LANDED_FOLD_H

#include "common/landed.h"

#define LANDED_FOLD ((size_t)64) /* elements at a time; a multiple of ARITHMETIC_LANES */

/* Whether this machine can, and this set of instructions may. */
bool landed_fold_runs(const struct arithmetic *arithmetic);

/* landed_sum() of n floats, n > 0 a multiple of LANDED_FOLD. Where it is to step on: all of them
 * lie in one range, whose group is not frozen. */
uint32_t landed_fold(const struct landing *landing, size_t n, uint32_t seed,
                     struct arithmetic_running *running);

#endif
