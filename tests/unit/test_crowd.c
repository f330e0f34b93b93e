/* Who may look for messages instead of sleeping. */
#include "common/crowd.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define MS UINT64_C(1000000)

/* A thread that wants a core all the time, and has to wait for it `waits` of 1000. */
struct thread {
    uint64_t now_ns;
    struct crowd_times times;
    struct crowd crowd;
};

static void live(struct thread *thread, uint64_t ns, uint64_t waits)
{
    thread->now_ns += ns;
    thread->times.waited_ns += ns / 1000 * waits;
    thread->times.ran_ns += ns / 1000 * (1000 - waits);
    thread->crowd.looks += 100;
    thread->crowd.found += 100;
    if (crowd_asks(&thread->crowd, thread->now_ns))
        crowd_told(&thread->crowd, thread->now_ns, thread->times);
}

/* Of so many turns of a millisecond, those that began with leave to look. */
static unsigned looked(struct thread *thread, unsigned turns, uint64_t waits)
{
    unsigned n = 0;
    for (unsigned i = 0; i < turns; i++) {
        n += thread->crowd.may_look;
        live(thread, MS, waits);
    }
    return n;
}

Test(crowd, nobody_looks_before_the_kernel_was_asked)
{
    struct crowd crowd = {.looks = 0};
    cr_assert_not(crowd.may_look);
    cr_assert(crowd_asks(&crowd, 1));
}

Test(crowd, who_has_his_core_alone_looks_for_ever)
{
    struct thread thread = {.now_ns = 5 * MS};
    live(&thread, MS, 0);
    cr_assert_eq(looked(&thread, 10000, 0), 10000);
    cr_assert_eq(looked(&thread, 10000, 1000 / CROWD_PARTS - 2), 10000,
                 "a little waiting is usual");
}

Test(crowd, who_waits_for_his_core_looks_for_one_trial_in_fifty)
{
    struct thread thread = {.now_ns = 5 * MS};
    live(&thread, MS, 500);
    const unsigned first = looked(&thread, 500, 500), later = looked(&thread, 10000, 500);
    cr_assert_leq(first, 60, "%u of 500 ms", first);
    cr_assert_leq(later, 10000 / 50, "%u of 10,000 ms", later);
    cr_assert_geq(later, 100, "but it goes on trying: %u", later);
}

Test(crowd, what_others_took_is_given_back_within_a_second)
{
    struct thread thread = {.now_ns = 5 * MS};
    live(&thread, MS, 900);
    looked(&thread, 5000, 900);
    looked(&thread, 510, 0);
    cr_assert_eq(looked(&thread, 5000, 0), 5000);
}

Test(crowd, a_crowd_that_comes_and_goes_is_met_with_long_rests)
{
    struct thread thread = {.now_ns = 5 * MS};
    unsigned n = 0;
    for (int i = 0; i < 100; i++) {
        n += looked(&thread, 30, 400);
        n += looked(&thread, 30, 0);
    }
    cr_assert_leq(n, 6000 / 4, "%u of 6,000 ms", n);
}

Test(crowd, looks_that_find_nothing_are_given_up)
{
    struct crowd crowd = {.looks = 0};
    struct crowd_times times = {.ran_ns = 0};
    crowd_told(&crowd, 1, times);
    cr_assert(crowd.may_look);
    crowd.looks = 100;
    crowd.found = 100 / CROWD_VAIN - 1;
    times.ran_ns += 10 * MS;
    crowd_told(&crowd, 1 + 10 * MS, times);
    cr_assert_not(crowd.may_look);
    cr_assert_not(crowd_asks(&crowd, 1 + 10 * MS + CROWD_REST_MIN_NS - 1));
    cr_assert(crowd_asks(&crowd, 1 + 10 * MS + CROWD_REST_MIN_NS));
}

Test(crowd, a_few_looks_in_vain_say_nothing)
{
    struct crowd crowd = {.looks = 0};
    struct crowd_times times = {.ran_ns = 0};
    crowd_told(&crowd, 1, times);
    crowd.looks = CROWD_LOOKS_MIN - 1;
    times.ran_ns += MS;
    crowd_told(&crowd, 1 + 10 * MS, times);
    cr_assert(crowd.may_look);
}

Test(crowd, who_is_never_idle_rests_while_others_wait_elsewhere)
{
    struct crowd crowd = {.looks = 0};
    struct crowd_times times = {.pressed_ns = 77000 * MS};
    crowd_told(&crowd, MS, times);
    times.ran_ns += 10 * MS;
    times.pressed_ns += 3 * MS;
    crowd_told(&crowd, 11 * MS, times);
    cr_assert(crowd.may_look);
    times.ran_ns += 10 * MS;
    times.pressed_ns += 4 * MS;
    crowd_told(&crowd, 21 * MS, times);
    cr_assert_not(crowd.may_look);
}

Test(crowd, another_threads_times_are_no_evidence)
{
    struct crowd crowd = {.looks = 0};
    crowd_told(&crowd, 1, (struct crowd_times){.ran_ns = 900 * MS, .waited_ns = 100 * MS});
    crowd_told(&crowd, 1 + 10 * MS, (struct crowd_times){.ran_ns = MS, .waited_ns = 90 * MS});
    cr_assert(crowd.may_look);
    crowd_told(&crowd, 1 + 20 * MS, (struct crowd_times){.ran_ns = 2 * MS, .waited_ns = 98 * MS});
    cr_assert_not(crowd.may_look);
}

Test(crowd, the_kernels_numbers_are_read_again_and_again)
{
    struct crowd_source source = {.fd = -1};
    struct crowd_times before, after;
    if (!crowd_source_read(&source, &before))
        cr_skip_test("one core, or no such file: then nobody looks");
    volatile uint64_t work = 0;
    for (int i = 0; i < 20000000; i++)
        work = work + (uint64_t)i;
    cr_assert_gt(work, 0);
    cr_assert(crowd_source_read(&source, &after));
    cr_assert_gt(after.ran_ns, before.ran_ns);
    cr_assert_geq(after.waited_ns, before.waited_ns);
    crowd_source_close(&source);
    crowd_source_close(&source);
}

static bool kernel_says(uint64_t *pressed_us)
{
    unsigned long long total = 0;
    FILE *file = fopen("/proc/pressure/cpu", "re");
    const bool said =
        file && fscanf(file, "some avg10=%*f avg60=%*f avg300=%*f total=%llu", &total) == 1;
    if (file)
        fclose(file);
    *pressed_us = total;
    return said;
}

Test(crowd, how_long_anybody_waited_is_the_kernels_first_total)
{
    struct crowd_source source = {.fd = -1};
    struct crowd_times times;
    uint64_t before, after;
    const bool told = kernel_says(&before);
    if (!crowd_source_read(&source, &times))
        cr_skip_test("one core, or no such file: then nobody looks");
    kernel_says(&after);
    cr_assert_geq(times.pressed_ns, before * 1000);
    cr_assert_leq(times.pressed_ns, after * 1000);
    cr_assert_eq(times.pressed_ns > 0, told && after > 0, "where the kernel does not say: 0");
    crowd_source_close(&source);
}
