/* Yields before sleeps. */
#include "common/idle.h"

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
