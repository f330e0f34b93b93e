#include "common/wire.h"
#include "tests/unit/heir_bench.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct bench b;
static struct heir h;
static const int64_t SECOND = 1000000000;

static void start(uint32_t gradients)
{
    heir_job(&b, 1, gradients);
}

static void end(void)
{
    heir_end(&h);
    bench_end(&b);
}

static struct order_figures figures(void)
{
    struct order_figures f;
    order_figures(h.bench.order, &f);
    return f;
}

Test(take_over_tries, with_no_log_anywhere_a_new_job_begins_above_all_promises)
{
    start(0);
    heir_init(&h, &b);
    for (uint32_t i = 0; i < 2; i++) {
        h.shards[i].cold = true;
        h.shards[i].promise = i ? 0 : 3; /* one took memory, and then nothing came */
        h.shards[i].index = 0;
    }
    h.shards[0].cold = false;
    heir_enlist(&h, 0);
    heir_enlist(&h, 1);
    cr_assert(figures().acting && figures().epoch == 4);
    bench_join_as(&h.bench, 101, 'a', 1);
    const struct message *want = bench_sent(&h.bench, 101, MESSAGE_WANT, 0);
    cr_assert(want && want->epoch == 4);
    end();
}

Test(take_over_tries, who_is_refused_tries_higher_after_a_pause_of_chance)
{
    int64_t least = INT64_MAX, most = 0;
    start(1);
    for (uint32_t seed = 1; seed <= 20; seed++) {
        heir_init(&h, &b);
        order_free(h.bench.order);
        h.bench.options.seed = seed;
        cr_assert_eq(order_new(&h.bench.options, &h.bench.order), GRADWEIR_OK);
        heir_enlist(&h, 0);
        heir_enlist(&h, 1);
        heir_answer(&h, 0);
        if (seed % 2)
            heir_sealed(&h, 1, 2, 9); /* another has the same epoch */
        else
            heir_sealed(&h, 1, 2 + seed, 9);
        cr_assert_eq(heir_sent_else(&h, MESSAGE_SEAL), 0);
        heir_answer(&h, 0);
        heir_answer(&h, 1);
        cr_assert(!figures().acting, "a try that was refused is over");
        const int64_t pause = order_next(h.bench.order) - h.bench.now_ns;
        cr_assert(pause >= 50 * SECOND / 1000 && pause <= 500 * SECOND / 1000);
        least = pause < least ? pause : least;
        most = pause > most ? pause : most;
        bench_tick(&h.bench, pause);
        const uint32_t next = seed % 2 ? 3 : 3 + seed;
        cr_assert(bench_sent(&h.bench, 1, MESSAGE_SEAL, 0)->epoch == next &&
                  bench_sent(&h.bench, 2, MESSAGE_SEAL, 0)->epoch == next);
        heir_end(&h);
    }
    cr_assert_gt(most - least, 100 * SECOND / 1000);
    bench_end(&b);
}

Test(take_over_tries, a_seal_that_is_not_answered_is_said_again)
{
    start(1);
    heir_init(&h, &b);
    heir_enlist(&h, 0);
    heir_enlist(&h, 1);
    heir_answer(&h, 0);
    bench_tick(&h.bench, order_next(h.bench.order) - h.bench.now_ns);
    cr_assert_null(bench_sent(&h.bench, 1, MESSAGE_SEAL, 0));
    cr_assert_eq(bench_sent(&h.bench, 2, MESSAGE_SEAL, 0)->epoch, 2);
    bench_event(&h.bench, ORDER_LOST, 1); /* and what it had said is void with its connection */
    heir_answer(&h, 1);
    cr_assert(!figures().acting);
    heir_enlist(&h, 0);
    cr_assert_eq(bench_sent(&h.bench, 1, MESSAGE_SEAL, 0)->epoch, 2);
    heir_answer(&h, 0);
    cr_assert(figures().acting);
    end();
}

Test(take_over_tries, a_coordinator_of_an_epoch_that_is_over_ends)
{
    for (int how = 0; how < 3; how++) {
        start(1);
        heir_init(&h, &b);
        heir_take_over(&h);
        struct message message = {.kind = MESSAGE_LOGGED};
        h.bench.epoch = 5;
        if (how == 1)
            message.kind = MESSAGE_SEALED;
        if (how == 2) {
            bench_event(&h.bench, ORDER_LOST, 1);
            h.shards[0].promise = 5;
            heir_enlist(&h, 0);
        } else {
            bench_say(&h.bench, 1, &message);
        }
        cr_assert_eq(heir_exit(&h), GRADWEIR_ERR_FENCED);
        cr_assert_null(bench_sent(&h.bench, 1, MESSAGE_STOP, 0));
        bench_tick(&h.bench, SECOND);
        cr_assert_eq(h.bench.actions.count, 0);
        end();
    }
}

/* The second shard's answer is odd in one way or another. */
static void answer_oddly(int how)
{
    struct record *last = &h.bench.log[order_ledger(b.order)->index];
    struct message page = {.kind = MESSAGE_PAGE};
    switch (how) {
    case 0: /* the settings are not those that the job began with */ heir_answer(&h, 1); break;
    case 1: /* too far behind for what the other has kept */
        h.shards[1].index -= 6;
        heir_answer(&h, 1);
        break;
    case 2: /* its newest record is another */
        cr_assert_eq(last->kind, RECORD_STEP);
        last->step.cause = STEP_FLUSH;
        heir_answer(&h, 1);
        last->step.cause = STEP_DUE;
        break;
    case 3: /* no content at all */
        heir_sealed(&h, 1, 2, 2);
        content_page(CONTENT_SEALED, (const uint8_t *)"gradients", 9, 0, &page.page);
        bench_say(&h.bench, 2, &page);
        break;
    }
}

Test(take_over_tries, what_cannot_be_taken_over_ends_the_coordinator_with_a_reason_and_not_the_job)
{
    static const int want[] = {GRADWEIR_ERR_MISMATCH, GRADWEIR_ERR_LOST, GRADWEIR_ERR_MISMATCH,
                               GRADWEIR_ERR_PROTOCOL};
    for (int how = 0; how < 4; how++) {
        start(12);
        heir_init(&h, &b);
        order_free(h.bench.order);
        h.bench.options.queue += how == 0;
        cr_assert_eq(order_new(&h.bench.options, &h.bench.order), GRADWEIR_OK);
        h.bench.options.ring = how == 1 ? 4 : 64; /* in what the shards tell */
        heir_enlist(&h, 0);
        heir_enlist(&h, 1);
        heir_answer(&h, 0);
        answer_oddly(how);
        cr_assert_eq(heir_exit(&h), want[how], "%d", how);
        cr_assert_null(bench_sent(&h.bench, 1, MESSAGE_STOP, 0));
        cr_assert_null(bench_sent(&h.bench, 1, MESSAGE_DENIED, 0));
        end();
    }
}

Test(take_over_tries, a_candidate_that_is_told_to_drain_leaves_the_job_alone)
{
    start(1);
    heir_init(&h, &b);
    heir_enlist(&h, 0);
    bench_event(&h.bench, ORDER_DRAIN, 0);
    cr_assert_eq(heir_exit(&h), GRADWEIR_OK);
    cr_assert_null(bench_sent(&h.bench, 1, MESSAGE_STOP, 0));
    end();
}
