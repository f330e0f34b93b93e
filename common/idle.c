/* Yields before looks before sleeps. */
#include "common/idle.h"

#include "common/clock.h"

#include <sched.h>

void idle_init(struct idle *idle, uint64_t look_ns)
{
    const bool by_itself = look_ns == UINT64_MAX;
    *idle = (struct idle){.by_itself = by_itself, .look_ns = by_itself ? IDLE_LOOK_NS : look_ns};
}

void idle_deinit(struct idle *idle)
{
    crowd_source_close(&idle->source);
}

void idle_anew(struct idle *idle)
{
    idle->yields = 0;
    idle->until_ns = 0;
}

/* Where the kernel does not say, it is not asked again. */
static bool may_look(struct idle *idle, uint64_t now_ns)
{
    struct crowd_times times;
    if (!idle->by_itself)
        return idle->look_ns > 0;
    if (crowd_asks(&idle->crowd, now_ns)) {
        if (!crowd_source_read(&idle->source, &times)) {
            idle->by_itself = false;
            idle->look_ns = 0;
            return false;
        }
        crowd_told(&idle->crowd, now_ns, times);
    }
    return idle->crowd.may_look;
}

/* The look under way goes on, or one begins. */
static bool looks(struct idle *idle)
{
    if (idle->look_ns == 0)
        return false;
    const uint64_t now_ns = clock_now_ns();
    if (idle->until_ns)
        return now_ns < idle->until_ns;
    if (!may_look(idle, now_ns))
        return false;
    idle->until_ns = now_ns + idle->look_ns;
    idle->crowd.looks++;
    return true;
}

bool idle_again(struct idle *idle, bool any)
{
    if (any) {
        idle->crowd.found += idle->until_ns != 0;
        idle_anew(idle);
        return true;
    }
    if (idle->yields < IDLE_YIELDS || looks(idle)) {
        idle->yields += idle->yields < IDLE_YIELDS;
        sched_yield();
        return true;
    }
    idle_anew(idle);
    return false;
}
