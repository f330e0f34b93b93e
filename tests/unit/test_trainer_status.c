#include "client/trainer/train_status.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>

/* Four workers: each offered first parameters, one offer won, one gradient was refused. */
static const struct train_status servers = {
    .known = true, .pushes = 104, .admitted = 100, .refused = 4};
static const struct learner_counts workers = {.pushes = 100, .admitted = 99, .refused = 1};

Test(train_status, an_audit_of_two_sides_that_agree_is_whole)
{
    cr_expect(train_status_audit(&servers, &workers, 4));
}

Test(train_status, the_sums_of_an_audit_add_up_for_who_reads_them, .init = cr_redirect_stdout)
{
    cr_expect(train_status_audit(&servers, &workers, 4));
    fflush(stdout);
    cr_expect_stdout_eq_str(
        "audit: 104 pushes at the servers, offers of first parameters among them, = 100 admitted + "
        "4 refused: whole; workers heard 100 verdicts on gradients = 99 admitted + 1 refused, and "
        "made 4 offers of first parameters = 1 admitted + 3 refused; queue at most 0\n");
}

Test(train_status, a_verdict_that_no_worker_heard_fails_the_audit)
{
    struct train_status doubled = servers;
    doubled.pushes++;
    doubled.admitted++;
    cr_expect_not(train_status_audit(&doubled, &workers, 4));
    cr_expect_not(train_status_audit(&doubled, &workers, 5));
    cr_expect_not(train_status_audit(&servers, &workers, 3));
}

Test(train_status, a_push_without_a_verdict_fails_the_audit)
{
    struct train_status open = servers;
    open.refused--;
    cr_expect_not(train_status_audit(&open, &workers, 4));
}

Test(train_status, a_lost_worker_leaves_nothing_to_compare_with)
{
    struct train_status more = servers;
    more.pushes += 9;
    more.admitted += 9;
    cr_expect(train_status_audit(&more, &workers, 0));
}
