#include "client/trainer/train_status.h"

#include <criterion/criterion.h>

/* Four workers: each offered first parameters, one offer won, one gradient was refused. */
static const struct train_status servers = {
    .known = true, .pushes = 104, .admitted = 100, .refused = 4};
static const struct learner_counts workers = {.pushes = 100, .admitted = 99, .refused = 1};

Test(train_status, an_audit_of_two_sides_that_agree_is_whole)
{
    cr_expect(train_status_audit(&servers, &workers, 4));
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
