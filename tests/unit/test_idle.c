/* Yields, looks, sleeps. */
#include "common/idle.h"

#include "common/clock.h"

#include <criterion/criterion.h>

Test(idle, sleeps_only_after_its_yields_found_nothing_and_counts_anew_then)
{
    struct idle idle = {.yields = 0};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < IDLE_YIELDS; i++)
            cr_assert(idle_again(&idle, false));
        cr_assert_not(idle_again(&idle, false));
    }
}

Test(idle, counts_anew_when_there_was_anything)
{
    struct idle idle = {.yields = 0};
    for (int i = 0; i < IDLE_YIELDS; i++)
        cr_assert(idle_again(&idle, false));
    cr_assert(idle_again(&idle, true));
    for (int i = 0; i < IDLE_YIELDS; i++)
        cr_assert(idle_again(&idle, false));
    cr_assert_not(idle_again(&idle, false));
}

/* Until it says "sleep". */
static uint64_t turns_ns(struct idle *idle)
{
    const uint64_t begin = clock_now_ns();
    while (idle_again(idle, false))
        ;
    return clock_now_ns() - begin;
}

Test(idle, looks_as_long_as_it_was_told)
{
    struct idle idle;
    idle_init(&idle, 3 * CLOCK_MS);
    for (int i = 0; i < 3; i++)
        cr_assert_geq(turns_ns(&idle), 3 * CLOCK_MS);
    idle_deinit(&idle);
}

Test(idle, what_was_found_ends_a_look)
{
    struct idle idle;
    idle_init(&idle, CLOCK_SECOND);
    for (int i = 0; i < 2 * IDLE_YIELDS; i++)
        cr_assert(idle_again(&idle, false));
    cr_assert_neq(idle.until_ns, 0);
    cr_assert(idle_again(&idle, true));
    cr_assert_eq(idle.until_ns, 0);
    cr_assert_eq(idle.crowd.found, 1);
    idle_deinit(&idle);
}

Test(idle, does_not_look_while_others_want_its_core)
{
    struct idle idle;
    idle_init(&idle, UINT64_MAX);
    idle.crowd.judge_ns = UINT64_MAX; /* nobody asks the kernel here */
    for (int i = 0; i < IDLE_YIELDS; i++)
        cr_assert(idle_again(&idle, false));
    cr_assert_not(idle_again(&idle, false));
    idle.crowd.may_look = true;
    cr_assert_geq(turns_ns(&idle), IDLE_LOOK_NS);
    cr_assert_eq(idle.crowd.looks, 1);
    idle_deinit(&idle);
}
