#include "tests/unit/order_bench.h"

#include <criterion/criterion.h>
#include <string.h>

static struct bench b;

static const int64_t SECOND = 1000000000;

static void start(uint32_t workers)
{
    bench_init(&b);
    b.options.sync = true;
    b.options.round_patience_ns = 60 * SECOND;
    bench_start(&b, true);
    for (uint32_t i = 1; i < workers; i++)
        bench_join(&b, i);
}

static bool status_says(const char *sentence)
{
    static char text[32768];
    order_status(b.order, b.now_ns, text, sizeof text);
    return strstr(text, sentence) != NULL;
}

Test(order_rounds, too_few_slots_for_one_gradient_of_each_are_refused_by_name)
{
    const char *const names[] = {"queue is 7", "window_max 7"};
    for (int i = 0; i < 2; i++) {
        bench_init(&b);
        b.options.sync = true;
        *(i == 0 ? &b.options.queue : &b.options.window_max) = 7;
        cr_assert_eq(order_new(&b.options, &b.order), GRADWEIR_ERR_INVALID);
        cr_assert_not_null(strstr(fail_reason(), "mode = sync"));
        cr_assert_not_null(strstr(fail_reason(), names[i]), "%s", fail_reason());
        b.options.sync = false;
        cr_assert_eq(order_new(&b.options, &b.order), GRADWEIR_OK);
        bench_end(&b);
    }
}

Test(order_rounds, arrival_in_any_order_is_admitted_in_worker_order)
{
    for (uint32_t first = 0; first < 4; first++) {
        start(4);
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t worker = (first * 3 + i * 3) % 4;
            cr_assert_eq(bench_records(&b, RECORD_ADMIT), 0);
            bench_push(&b, worker, worker == 0 ? 2 : 1);
        }
        const uint64_t last = order_ledger(b.order)->index;
        for (uint32_t i = 0; i < 4; i++)
            cr_assert_eq(b.log[last - 4 + i].admit.name.worker, i);
        cr_assert_eq(b.log[last].kind, RECORD_STEP);
        cr_assert_eq(b.log[last].step.entries_count, 4);
        bench_end(&b);
    }
}

Test(order_rounds, who_stops_pushing_is_named_and_then_taken_out_and_told_so)
{
    start(3);
    bench_push(&b, 0, 2);
    bench_push(&b, 2, 1);
    bench_tick(&b, 41 * SECOND / 10);
    cr_assert(status_says("the round of version 1 waits for b since 4.1 s"));
    cr_assert_leq(order_next(b.order), b.now_ns + 60 * SECOND - 41 * SECOND / 10);
    bench_tick(&b, 55 * SECOND);
    cr_assert_eq(bench_records(&b, RECORD_LEAVE), 0);
    bench_tick(&b, SECOND);
    cr_assert_eq(bench_record(&b, RECORD_LEAVE)->leave.cause, LEAVE_ROUND);
    cr_assert_eq(bench_record(&b, RECORD_LEAVE)->leave.worker, 1);
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.entries_count, 2, "the others go on");
    const struct message *denied = bench_sent(&b, 102, MESSAGE_DENIED, 0);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_AGAIN);
    cr_assert_not_null(strstr(denied->denied.text, "round_patience"));
    cr_assert_eq(bench_count(&b, ORDER_SAY), 2, "who, and the new stride");
    bench_ask(&b, 1, 1);
    cr_assert_not_null(bench_sent(&b, 102, MESSAGE_REJOIN, 0));
    bench_join(&b, 1);
    cr_assert_eq(bench_sent(&b, 102, MESSAGE_JOINED, 0)->joined.incarnation, 2, "and it is back");
    cr_assert_eq(order_ledger(b.order)->law.settings.stride, 3);
    bench_end(&b);
}

Test(order_rounds, nobody_is_taken_out_for_a_shard_s_fault_or_before_its_own_patience)
{
    start(2);
    bench_push(&b, 0, 2);
    bench_event(&b, ORDER_LOST, 2);
    bench_tick(&b, 100 * SECOND);
    bench_tick(&b, 1);
    cr_assert_eq(bench_records(&b, RECORD_LEAVE), 0, "its gradient could not land");
    struct message message = {.kind = MESSAGE_ENLIST};
    message.enlist = (struct message_enlist){.protocol_oldest = PROTOCOL_SERVERS,
                                             .protocol_newest = PROTOCOL_SERVERS,
                                             .job = 9,
                                             .shard = 1,
                                             .address = "127.0.0.1:1",
                                             .epoch = 1,
                                             .index = order_ledger(b.order)->index,
                                             .hash = order_ledger(b.order)->hash};
    bench_say(&b, 2, &message);
    bench_tick(&b, 30 * SECOND);
    bench_join(&b, 2);
    bench_tick(&b, 30 * SECOND);
    cr_assert_eq(bench_records(&b, RECORD_LEAVE), 1);
    cr_assert_eq(bench_record(&b, RECORD_LEAVE)->leave.worker, 1, "the newcomer has not waited");
    cr_assert_eq(bench_records(&b, RECORD_STEP), 0);
    bench_push(&b, 2, 1);
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.entries_count, 2);
    bench_end(&b);
}

Test(order_rounds, a_worker_that_leaves_or_is_lost_does_not_hold_the_round)
{
    start(3);
    bench_push(&b, 0, 2);
    bench_push(&b, 1, 1);
    bench_event(&b, ORDER_LOST, 103);
    bench_tick(&b, b.options.lease_ns);
    cr_assert_eq(bench_record(&b, RECORD_LEAVE)->leave.cause, LEAVE_LEASE);
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.entries_count, 2);
    bench_end(&b);
}

Test(order_rounds, window_and_stride_cannot_be_tuned)
{
    start(2);
    bench_say(&b, 300, &(struct message){.kind = MESSAGE_TUNE_ASK, .tune_ask = {"stride", "1"}});
    cr_assert_eq(bench_sent(&b, 300, MESSAGE_TUNED, 0)->tuned.status, GRADWEIR_ERR_INVALID);
    bench_end(&b);
}
