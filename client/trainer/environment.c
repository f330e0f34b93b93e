/* The list of environments. */
#include "client/trainer/environment.h"

#include <string.h>

static const struct environment *const environments[] = {
    &environment_cartpole,
    &environment_acrobot,
    &environment_mountain_car,
    &environment_pendulum,
};

const struct environment *environment_at(size_t i)
{
    return i < sizeof(environments) / sizeof(environments[0]) ? environments[i] : NULL;
}

const struct environment *environment_find(const char *name)
{
    for (size_t i = 0; environment_at(i) != NULL; i++)
        if (strcmp(environment_at(i)->name, name) == 0)
            return environment_at(i);
    return NULL;
}
