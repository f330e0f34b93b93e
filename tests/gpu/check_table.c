/* All cases of all kernels. tests/gpu/kernels_have_cases.c shows that none is without. */
#include "tests/gpu/check.h"

const struct check *const check_tables[] = {
    checks_codec, checks_checksum, checks_feedback,    checks_step,   checks_stacks, checks_sums,
    checks_learn, checks_layers,   checks_environment, checks_engine, NULL,
};
