#include "tests/gpu/twin.h"

#include <stdlib.h>
#include <string.h>

bool twin_planted(const char *name)
{
    const char *planted = getenv("GRADWEIR_PLANT");
    return planted != NULL && strcmp(planted, name) == 0;
}
