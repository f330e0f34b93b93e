/* The table of collective backends, and what their options mean. The one #ifdef of each backend is
 * here. */
#include "common/collective.h"

#include "common/clock.h"

#include <string.h>

static const struct collective_functions *const backends[] = {
#ifdef GRADWEIR_GLOO
    &collective_gloo,
#endif
#ifdef GRADWEIR_NCCL
    &collective_nccl,
#endif
    NULL, /* there may be none at all */
};

const struct collective_functions *collective_at(size_t i)
{
    return i < sizeof backends / sizeof *backends ? backends[i] : NULL;
}

const struct collective_functions *collective_find(const char *name)
{
    for (size_t i = 0; collective_at(i) != NULL; i++)
        if (strcmp(collective_at(i)->name, name) == 0)
            return collective_at(i);
    return NULL;
}

struct collective_options collective_defaults(void)
{
    return (struct collective_options){
        .backend = "gloo",
        .ranks = 1,
        .address = "127.0.0.1",
        .timeout_ns = 60 * CLOCK_SECOND,
        .patience_ns = 5 * CLOCK_SECOND,
    };
}
