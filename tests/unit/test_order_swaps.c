/* Rounds of ranks. Peers 110 + r are ranks of "z". */
#include "tests/unit/order_bench.h"

#include <criterion/criterion.h>
#include <string.h>

static struct bench bench;

static void start(void)
{
    bench_init(&bench);
    bench_start(&bench, true);
}

static void end(void)
{
    bench_end(&bench);
}

TestSuite(order_swaps, .init = start, .fini = end);

static struct message swap_of(uint32_t rank, uint32_t ranks)
{
    struct message message = {.kind = MESSAGE_SWAP};
    message.swap = (struct message_swap){.identity = "z",
                                         .rank = rank,
                                         .ranks = ranks,
                                         .instance = 70 + rank,
                                         .patience_ms = 1000,
                                         .bytes = 1,
                                         .data = {(uint8_t)(40 + rank)}};
    return message;
}

static void say(const struct message *message)
{
    bench_say(&bench, 110 + message->swap.rank, message);
}

static const struct message_swapped *told(uint32_t rank, uint32_t n)
{
    const struct message *message = bench_sent(&bench, 110 + rank, MESSAGE_SWAPPED, n);
    return message ? &message->swapped : NULL;
}

static uint64_t meet(uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++) {
        const struct message message = swap_of(r, ranks);
        say(&message);
    }
    cr_assert(told(0, 0) && told(0, 0)->status == GRADWEIR_OK);
    return told(0, 0)->meeting;
}

Test(order_swaps, all_ranks_get_the_bytes_of_all_once_all_are_here)
{
    const struct message first = swap_of(0, 3), second = swap_of(1, 3), third = swap_of(2, 3);
    say(&first);
    say(&second);
    cr_assert(!told(0, 0) && !told(1, 0));
    say(&third);
    for (uint32_t r = 0; r < 3; r++)
        for (uint32_t n = 0; n < 3; n++) {
            const struct message_swapped *swapped = told(r, n);
            cr_assert(swapped && swapped->status == GRADWEIR_OK && swapped->meeting != 0);
            cr_assert(swapped->here == 7 && swapped->asked == 7 && swapped->rank == n);
            cr_assert(swapped->bytes == 1 && swapped->data[0] == 40 + n);
            cr_assert(swapped->instance == 70 + r);
        }
    cr_assert(!told(0, 3));
}

Test(order_swaps, a_round_is_closed_at_the_patience_of_the_first_and_tells_who_came)
{
    const struct message first = swap_of(0, 3), third = swap_of(2, 3);
    say(&first);
    bench_tick(&bench, 900000000);
    say(&third);
    cr_assert(order_next(bench.order) <= bench.now_ns + 100000000);
    bench_tick(&bench, 101000000);
    cr_assert(told(0, 1) && told(2, 1) && !told(0, 2));
    cr_assert(told(0, 0)->here == 5 && told(0, 0)->asked == 7);
}

Test(order_swaps, whoever_asks_again_gets_the_same_answer_and_whoever_comes_late_is_told)
{
    const uint64_t meeting = meet(2);
    const struct message again = swap_of(0, 2);
    say(&again);
    cr_assert(told(0, 1) && told(0, 1)->meeting == meeting && told(0, 1)->here == 3);
    struct message round = swap_of(0, 2);
    round.swap.meeting = meeting;
    round.swap.round = 1;
    round.swap.asked = 1;
    say(&round);
    cr_assert(told(0, 0) && told(0, 0)->here == 1);
    round.swap.rank = 1;
    round.swap.asked = 2;
    say(&round);
    cr_assert(told(1, 0) && told(1, 0)->status == GRADWEIR_ERR_LOST && !told(0, 0));
}

/* Else it would be told that nobody but it has come, and take the others for dead. */
Test(order_swaps, whoever_comes_late_is_told_even_when_the_round_is_long_forgotten)
{
    struct message round = swap_of(0, 2), late = swap_of(1, 2);
    const uint64_t meeting = meet(2);
    round.swap.meeting = late.swap.meeting = meeting;
    round.swap.asked = 1;
    late.swap.asked = 2;
    for (uint32_t i = 1; i <= 40; i++) {
        round.swap.round = i;
        say(&round);
        cr_assert(told(0, 0) && told(0, 0)->status == GRADWEIR_OK);
    }
    for (uint32_t i = 1; i <= 40; i += 3) {
        late.swap.round = i;
        say(&late);
        cr_assert(told(1, 0) && told(1, 0)->status == GRADWEIR_ERR_LOST);
        cr_assert(told(1, 0)->meeting == meeting && told(1, 0)->round == i);
        cr_assert_eq(told(1, 0)->instance, 71);
    }
    late.swap.round = 41;
    say(&late);
    cr_assert(told(1, 0) && told(1, 0)->status == GRADWEIR_OK);
}

Test(order_swaps, two_processes_under_one_rank_and_ranks_that_count_otherwise_are_told)
{
    struct message message = swap_of(0, 2);
    say(&message);
    message.swap.instance = 99;
    bench_say(&bench, 150, &message);
    const struct message *answer = bench_sent(&bench, 150, MESSAGE_SWAPPED, 0);
    cr_assert(answer && answer->swapped.status == GRADWEIR_ERR_INVALID);
    cr_assert(!told(0, 0));
    message = swap_of(1, 3);
    say(&message);
    cr_assert(told(0, 0) && told(0, 0)->status == GRADWEIR_ERR_MISMATCH);
    cr_assert(told(1, 0) && told(1, 0)->status == GRADWEIR_ERR_MISMATCH);
    (void)meet(2);
}

Test(order_swaps, a_rank_that_dies_while_it_waits_is_not_here_and_may_come_again)
{
    struct message message = swap_of(0, 2);
    say(&message);
    bench_event(&bench, ORDER_LOST, 110);
    message = swap_of(1, 2);
    say(&message);
    cr_assert(!told(1, 0));
    message = swap_of(0, 2);
    message.swap.instance = 99;
    say(&message);
    cr_assert(told(0, 1) && told(1, 1) && told(0, 0)->here == 3);
}

Test(order_swaps, ranks_that_know_who_is_left_wait_for_these_alone)
{
    struct message message = swap_of(2, 4); /* is new, and would wait for all four */
    say(&message);
    for (uint32_t r = 0; r < 2; r++) {
        message = swap_of(r, 4);
        message.swap.asked = 7;
        say(&message);
    }
    cr_assert(told(2, 2) && told(2, 0)->here == 7 && told(2, 0)->asked == 7);
    message = swap_of(0, 4);
    message.swap.asked = 7;
    message.swap.instance = 98;
    say(&message);
    bench_tick(&bench, 1000000000);
    cr_assert(told(0, 0) && told(0, 0)->here == 1 && told(0, 0)->asked == 1);
}

Test(order_swaps, a_running_worker_hears_who_waits)
{
    struct message message = swap_of(2, 4);
    memcpy(message.swap.identity, "a", 2);
    say(&message);
    const struct message *called = bench_sent(&bench, 101, MESSAGE_CALLED, 0);
    cr_assert(called && called->called.waiting == 4);
}

Test(order_swaps, one_worker_opens_four_rounds_and_all_thirty_two)
{
    struct message message = swap_of(0, 2);
    for (uint32_t i = 0; i < 5; i++) {
        message.swap.meeting = 1 + i;
        message.swap.round = 1;
        message.swap.asked = 3;
        say(&message);
        cr_assert((told(0, 0) != NULL) == (i == 4));
    }
    cr_assert(told(0, 0)->status == GRADWEIR_ERR_FULL);
    for (uint32_t i = 0; i < 29; i++) {
        message.swap.identity[1] = (char)('a' + i / 4);
        message.swap.meeting = 1 + i;
        say(&message);
        cr_assert((told(0, 0) != NULL) == (i == 28));
    }
    cr_assert(told(0, 0)->status == GRADWEIR_ERR_FULL);
}

Test(order_swaps, what_makes_no_sense_is_dropped_and_counted)
{
    struct order_figures before, after;
    order_figures(bench.order, &before);
    struct message bad[7];
    for (uint32_t i = 0; i < 7; i++)
        bad[i] = swap_of(0, 2);
    bad[0].swap.rank = 2;
    bad[1].swap.identity[0] = 0;
    bad[2].swap.asked = 4;
    bad[3].swap.asked = 2;
    bad[4].swap.round = 1;
    bad[5].swap.meeting = 5;
    bad[6].swap.ranks = 0;
    for (uint32_t i = 0; i < 7; i++) {
        bench_say(&bench, 110, &bad[i]);
        cr_assert(bench.actions.count == 0, "%u", i);
    }
    order_figures(bench.order, &after);
    cr_assert(after.foreign == before.foreign + 7);
}
