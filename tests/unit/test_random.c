#include "common/random.h"

#include <criterion/criterion.h>
#include <string.h>

Test(random, gives_the_published_sequence)
{
    /* The first outputs of xoshiro256++ from state {1, 2, 3, 4}: computed by hand for the first,
     * rotl(1 + 4, 23) + 1, and known from the reference implementation for the next two. */
    struct random random = {{1, 2, 3, 4}};
    cr_assert_eq(random_next(&random), UINT64_C(41943041));
    cr_assert_eq(random_next(&random), UINT64_C(58720359));
    cr_assert_eq(random_next(&random), UINT64_C(3588806011781223));
}

Test(random, streams_of_one_seed_differ_and_repeat)
{
    struct random a, b, c, again;
    random_split(&a, 7, "worker", 0);
    random_split(&b, 7, "worker", 1);
    random_split(&c, 7, "network", 0);
    random_split(&again, 7, "worker", 0);
    const uint64_t first = random_next(&a);
    cr_assert_neq(first, random_next(&b));
    cr_assert_neq(first, random_next(&c));
    cr_assert_eq(first, random_next(&again));
}

Test(random, numbers_below_a_bound_are_even)
{
    struct random random;
    unsigned seen[6] = {0};
    random_init(&random, 1);
    for (unsigned i = 0; i < 60000; i++)
        seen[random_below(&random, 6)]++;
    for (unsigned i = 0; i < 6; i++)
        cr_assert(seen[i] > 9600 && seen[i] < 10400, "%u came %u times", i, seen[i]);
    cr_assert_eq(random_below(&random, 1), 0);
}

Test(random, uniform_numbers_stay_in_their_interval_and_centre_on_a_half)
{
    struct random random;
    double sum = 0;
    random_init(&random, 2);
    for (unsigned i = 0; i < 10000; i++) {
        const double u = random_uniform(&random);
        cr_assert(u >= 0.0 && u < 1.0);
        sum += u;
    }
    cr_assert(sum > 4900 && sum < 5100);
}

Test(random, entropy_does_not_repeat)
{
    unsigned char a[16], b[16];
    cr_assert_eq(random_entropy(a, sizeof a), GRADWEIR_OK);
    cr_assert_eq(random_entropy(b, sizeof b), GRADWEIR_OK);
    cr_assert_neq(memcmp(a, b, sizeof a), 0);
}
