/* Yields before sleeps. */
#include "common/idle.h"

#include <sched.h>

bool idle_again(struct idle *idle, bool any)
{
    if (any || idle->yields == IDLE_YIELDS) {
        idle->yields = 0;
        return any;
    }
    idle->yields++;
    sched_yield();
    return true;
}
