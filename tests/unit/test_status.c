#include "common/status.h"

#include <criterion/criterion.h>
#include <signal.h>

Test(status, fail_keeps_the_reason_and_returns_the_status)
{
    cr_assert_eq(fail(GRADWEIR_ERR_LOST, "%s is gone", "worker-3"), GRADWEIR_ERR_LOST);
    cr_assert_str_eq(fail_reason(), "worker-3 is gone");
}

Test(status, a_reason_may_quote_the_one_before)
{
    fail(GRADWEIR_ERR_LOST, "inner");
    fail(GRADWEIR_ERR_LOST, "outer: %s", fail_reason());
    cr_assert_str_eq(fail_reason(), "outer: inner");
}

Test(status, a_failed_assert_ends_the_process, .signal = SIGABRT)
{
    ASSERT(1 + 1 == 3);
}
