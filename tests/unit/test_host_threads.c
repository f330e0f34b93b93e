/* How many threads compute for a shard. */
#include "server/host_threads.h"

#include <criterion/criterion.h>

Test(host_threads, who_asks_gets_what_it_asks_for)
{
    cr_expect_eq(host_threads_of(1, 64, 1), 1);
    cr_expect_eq(host_threads_of(3, 2, 8), 3);
}

Test(host_threads, auto_shares_the_cores_and_leaves_few_alone)
{
    cr_expect_eq(host_threads_of(SETTING_WORD, 1, 1), 1);
    cr_expect_eq(host_threads_of(SETTING_WORD, 2, 1), 1);
    cr_expect_eq(host_threads_of(SETTING_WORD, 4, 1), 4);
    cr_expect_eq(host_threads_of(SETTING_WORD, 4, 3), 1);
    cr_expect_eq(host_threads_of(SETTING_WORD, 4, 64), 1);
    cr_expect_eq(host_threads_of(SETTING_WORD, 16, 2), 8);
    cr_expect_eq(host_threads_of(SETTING_WORD, 192, 8), 8);
}

Test(host_threads, coordinator_and_shards_share_one_where_a_worker_would_find_no_core)
{
    cr_expect(host_threads_share(1, 1));
    cr_expect(host_threads_share(2, 1));
    cr_expect_not(host_threads_share(3, 1));
    cr_expect(host_threads_share(3, 2));
    cr_expect_not(host_threads_share(4, 2));
}
