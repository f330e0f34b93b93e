#include "tests/unit/order_bench.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct bench b;

static const int64_t SECOND = 1000000000;

static bool says(const char *sentence)
{
    static char text[32768];
    order_status(b.order, b.now_ns, text, sizeof text);
    return strstr(text, sentence) != NULL;
}

static void start(void)
{
    bench_init(&b);
    b.options.law.window = b.options.law.stride = 2;
    bench_start(&b, true);
    bench_join(&b, 1);
}

Test(order_waits, a_window_that_is_not_full_says_how_many_and_since_when)
{
    start();
    bench_tick(&b, 2 * SECOND);
    cr_assert(says("step 1 waits for 2 more of 2 gradients; the last came 2.0 s ago"));
    bench_push(&b, 0, 2);
    bench_log(&b);
    bench_tick(&b, 41 * SECOND / 10);
    cr_assert(says("step 1 waits for 1 more of 2 gradients; the last came 4.1 s ago"));
    bench_end(&b);
}

Test(order_waits, a_worker_without_a_place_is_named_and_so_is_the_shard_that_frees_none)
{
    bench_init(&b);
    b.options.queue = b.options.window_max = 1;
    bench_start(&b, true);
    bench_join(&b, 1);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    bench_ask(&b, 1, 1);
    bench_tick(&b, 3 * SECOND / 2);
    cr_assert(says("b waits for a place since 1.5 s: 1 of 1 are taken"));
    bench_end(&b);
    bench_init(&b);
    b.options.queue = b.options.window_max = 1;
    bench_start(&b, true);
    for (uint64_t sequence = 2; sequence < 4; sequence++) { /* each retires its slot */
        bench_push(&b, 0, sequence);
        bench_log(&b);
    }
    bench_ask(&b, 0, 4);
    const struct record_admit admit = bench_record(&b, RECORD_ADMIT)->admit;
    bench_say(&b, 1,
              &(struct message){.kind = MESSAGE_FREED, .freed = {admit.slot, admit.generation}});
    bench_tick(&b, SECOND);
    cr_assert(says("a waits for a place since 1.0 s: 2 of 2 slots close, shard 0 has not"));
    bench_end(&b);
}

Test(order_waits, a_landing_names_every_shard_that_lacks_the_gradient)
{
    start();
    struct message_place place;
    cr_assert(bench_place(&b, 1, 1, &place));
    const struct message_describe head = bench_head(&b, &place);
    bench_describe(&b, &head);
    bench_tick(&b, 41 * SECOND / 10);
    cr_assert(says("gradient 1 of b waits until it has landed on shard 0 since 4.1 s"));
    cr_assert(says("gradient 1 of b waits until it has landed on shard 1 since 4.1 s"));
    const struct message_landed body = bench_body(&head);
    bench_landed(&b, 0, &body);
    cr_assert(!says("landed on shard 0"));
    cr_assert(says("landed on shard 1"));
    bench_end(&b);
}

Test(order_waits, a_record_that_a_shard_has_not_logged_is_named_with_the_shard)
{
    start();
    bench_push(&b, 0, 2);
    bench_log_one(&b, 0);
    const uint64_t index = order_ledger(b.order)->index;
    bench_tick(&b, SECOND);
    char sentence[128];
    snprintf(sentence, sizeof sentence, "receipts wait for shard 1 to log record %llu since 1.0 s",
             (unsigned long long)index);
    cr_assert(says(sentence));
    cr_assert(!says("receipts wait for shard 0"));
    bench_end(&b);
}

Test(order_waits, sums_are_waited_for_by_the_shard_s_name)
{
    bench_init(&b);
    b.options.law.clip_average = 1;
    bench_start(&b, true);
    bench_push(&b, 0, 2);
    bench_log(&b);
    const struct model_range range = model_shard(b.model, 2, 0);
    struct message sums = {.kind = MESSAGE_SUMS};
    sums.sums = (struct message_sums){.version = 1,
                                      .round = 1,
                                      .first_block = range.first_block,
                                      .blocks = range.blocks,
                                      .nodes_count = 1,
                                      .nodes = {8}};
    bench_say(&b, 1, &sums);
    bench_tick(&b, 5 * SECOND);
    cr_assert(says("step 1 waits for the sums of shard 1 since 5.0 s"));
    cr_assert(!says("sums of shard 0"));
    bench_end(&b);
}

Test(order_waits, a_step_and_a_pinned_parameter_slot_are_told_apart)
{
    bench_init(&b);
    bench_start(&b, true);
    bench_push(&b, 0, 2);
    bench_log(&b);
    bench_say(&b, 2, &(struct message){.kind = MESSAGE_STEPPED, .stepped = {1}});
    bench_tick(&b, SECOND);
    cr_assert(says("version 1 waits for the step of shard 0 since 1.0 s"));
    cr_assert(!says("step of shard 1"));
    bench_say(&b, 1, &(struct message){.kind = MESSAGE_PULSE, .pulse = {.waiting = 1}});
    bench_tick(&b, 2 * SECOND);
    bench_say(&b, 1, &(struct message){.kind = MESSAGE_PULSE, .pulse = {.waiting = 1}});
    cr_assert(says("shard 0 waits for a reader to let go of a parameter slot since 2.0 s"));
    cr_assert(!says("step of shard 0"));
    bench_end(&b);
}

Test(order_waits, the_beginning_and_a_lost_shard_are_named)
{
    bench_init(&b);
    bench_start(&b, false);
    cr_assert(says("gradients wait for the first parameters"));
    bench_event(&b, ORDER_LOST, 2);
    bench_tick(&b, 2 * SECOND);
    cr_assert(says("everything waits for shard 1: it is not connected since 2.0 s"));
    bench_end(&b);
}

/* Windows that cannot fill. */

Test(order_waits, when_a_worker_leaves_the_stride_is_lowered_and_the_step_is_due_at_once)
{
    bench_init(&b);
    b.options.law.window = b.options.law.stride = 4;
    bench_start(&b, true);
    bench_join(&b, 1); /* two workers with two outstanding each: 4 */
    cr_assert_eq(order_ledger(b.order)->law.settings.stride, 4);
    bench_push(&b, 0, 2);
    bench_push(&b, 0, 3);
    bench_push(&b, 1, 1);
    cr_assert_eq(bench_records(&b, RECORD_STEP), 0);
    bench_say(&b, 102, &(struct message){.kind = MESSAGE_BYE, .bye = {.name = bench_name(1, 0)}});
    cr_assert_eq(order_ledger(b.order)->law.settings.stride, 2, "after a step with all 3");
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.cause, STEP_DUE);
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.entries_count, 3);
    cr_assert(says("\"stride\":2,\"stride_asked\":4"));
    bench_end(&b);
}

Test(order_waits, a_flush_comes_after_three_median_steps_when_nothing_else_is_said)
{
    bench_init(&b);
    b.options.law.window = b.options.law.stride = 2;
    b.options.flush_after_ns = 0;
    bench_start(&b, true);
    uint64_t sequence = 2;
    for (int i = 0; i < 9; i++) { /* steps 100 ms apart, but for one */
        bench_push(&b, 0, sequence++);
        bench_tick(&b, i == 4 ? SECOND / 4 : SECOND / 10);
        bench_push(&b, 0, sequence++);
        bench_log(&b);
        bench_stepped(&b, order_ledger(b.order)->law.version);
        for (uint64_t k = 1; k <= order_ledger(b.order)->index; k++)
            if (b.log[k].kind == RECORD_ADMIT)
                bench_freed(&b, b.log[k].admit.slot, b.log[k].admit.generation);
    }
    bench_push(&b, 0, sequence);
    const uint32_t steps = bench_records(&b, RECORD_STEP);
    const int64_t after_ns = order_next(b.order) - b.now_ns;
    cr_assert(after_ns == 3 * SECOND / 10, "%lld", (long long)after_ns);
    bench_tick(&b, after_ns - 1);
    cr_assert_eq(bench_records(&b, RECORD_STEP), steps);
    bench_tick(&b, 1);
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.cause, STEP_FLUSH);
    bench_end(&b);
}
