#ifndef GRADWEIR_TESTS_GPU_TWIN_H
#define GRADWEIR_TESTS_GPU_TWIN_H

#include "gpu/kernels.h"

#include <stdbool.h>

/* Whether the check was started with --plant name (environment GRADWEIR_PLANT): the twin then has
 * this flaw. */
bool twin_planted(const char *name);

#endif
