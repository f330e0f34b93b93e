/* What the tests of a shard's step on the processor and on a GPU have in common: three groups, the
 * last of them frozen, and tensors of all groups. */
#ifndef GRADWEIR_UNIT_STEP_CASE_H
#define GRADWEIR_UNIT_STEP_CASE_H

#include "common/arithmetic.h"

enum { STEP_CASE_TENSORS = 4 };

/* The groups' numbers, as at the seventh step. */
void step_case_groups(struct arithmetic_plan *plan);

/* Tensor t is [borders[t], borders[t + 1]) and of group t % 3; ratios are LAMB's. */
void step_case_tensors(const uint64_t borders[STEP_CASE_TENSORS + 1],
                       struct arithmetic_range *ranges, float *ratios);

#endif
