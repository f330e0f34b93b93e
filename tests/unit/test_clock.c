#include "common/clock.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <string.h>

Test(clock, monotonic_time_does_not_go_back)
{
    uint64_t before_ns = clock_now_ns();
    for (unsigned i = 0; i < 1000; i++) {
        const uint64_t now_ns = clock_now_ns();
        cr_assert_geq(now_ns, before_ns);
        before_ns = now_ns;
    }
}

Test(clock, deadlines_do_not_wrap_and_never_stays_never)
{
    cr_assert_eq(deadline_after(5, 7), 12);
    cr_assert_eq(deadline_after(5, UINT64_MAX - 3), DEADLINE_NEVER);
    cr_assert_eq(deadline_after(5, DEADLINE_NEVER), DEADLINE_NEVER);
    cr_assert(!deadline_passed(UINT64_MAX, DEADLINE_NEVER));
    cr_assert(deadline_passed(12, 12));
    cr_assert(!deadline_passed(11, 12));
}

Test(clock, poll_waits_are_rounded_up_and_bounded)
{
    cr_assert_eq(deadline_poll_ms(10, DEADLINE_NEVER), -1);
    cr_assert_eq(deadline_poll_ms(10, 10), 0);
    cr_assert_eq(deadline_poll_ms(10, 11), 1);
    cr_assert_eq(deadline_poll_ms(0, 2 * CLOCK_MS), 2);
    cr_assert_eq(deadline_poll_ms(0, DEADLINE_NEVER - 1), INT_MAX);
}

Test(clock, a_wall_name_is_fit_for_a_file)
{
    char name[16];
    clock_wall_name(name, sizeof name);
    cr_assert_eq(strlen(name), 15);
    cr_assert_eq(name[8], '-');
}
