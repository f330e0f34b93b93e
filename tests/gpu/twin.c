#include "tests/gpu/twin.h"

#include "tests/gpu/device_memory.h"

#include <stdlib.h>
#include <string.h>

const char *const memory_host_text =
    "the CPU's twins of the kernels: a test of this check, not of a GPU";

bool twin_planted(const char *name)
{
    static const char *planted;
    static bool asked;
    if (!asked) /* once: it is asked for every element */
        planted = getenv("GRADWEIR_PLANT");
    asked = true;
    return planted != NULL && strcmp(planted, name) == 0;
}
