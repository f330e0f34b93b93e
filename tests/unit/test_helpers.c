/* Helpers: every piece is done once, whoever does it, and nobody is waited for who has not begun.
 */
#include "common/helpers.h"

#include <criterion/criterion.h>
#include <stdatomic.h>

enum { PIECES = 200 };

struct tally {
    atomic_int done[PIECES];
    atomic_int all;
};

static void count(void *context, size_t i)
{
    struct tally *tally = context;
    atomic_fetch_add(&tally->done[i], 1);
    atomic_fetch_add(&tally->all, 1);
}

static void work(struct helpers *helpers, size_t pieces, struct tally *tally)
{
    size_t i;
    for (i = 0; i < PIECES; i++)
        atomic_store(&tally->done[i], 0);
    atomic_store(&tally->all, 0);
    helpers_begin(helpers, count, tally, pieces);
    while (helpers_take(helpers, &i)) {
        count(tally, i);
        helpers_did(helpers);
    }
    while (!helpers_done(helpers))
        ;
}

Test(helpers, every_piece_of_every_work_is_done_once)
{
    static const uint32_t counts[] = {1, 2, 7, 20};
    static struct tally tally;
    for (size_t k = 0; k < 8; k++) {
        struct helpers *helpers;
        cr_assert_eq(helpers_new(counts[k / 2], k % 2 == 1, &helpers), GRADWEIR_OK);
        for (size_t pieces = 0; pieces <= PIECES; pieces += 1 + pieces / 3) {
            work(helpers, pieces, &tally);
            cr_assert_eq(atomic_load(&tally.all), (int)pieces);
            for (size_t i = 0; i < PIECES; i++)
                cr_assert_eq(atomic_load(&tally.done[i]), i < pieces);
        }
        helpers_free(helpers);
    }
}

Test(helpers, may_be_ended_with_work_that_nobody_has_taken)
{
    static struct tally tally;
    for (int i = 0; i < 50; i++) {
        struct helpers *helpers;
        cr_assert_eq(helpers_new(3, false, &helpers), GRADWEIR_OK);
        helpers_begin(helpers, count, &tally, PIECES);
        helpers_free(helpers);
        for (size_t k = 0; k < PIECES; k++)
            cr_assert_leq(atomic_load(&tally.done[k]), i + 1);
    }
    helpers_free(NULL);
}
