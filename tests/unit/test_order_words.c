/* Descriptions that come by way of a shard, and where their receipts go. */
#include "tests/unit/order_bench.h"

#include <criterion/criterion.h>

static struct bench b;

static struct order_figures figures(void)
{
    struct order_figures f;
    order_figures(b.order, &f);
    return f;
}

static void start(void)
{
    bench_init(&b);
    bench_start(&b, true);
}

static void end(void)
{
    bench_end(&b);
}

TestSuite(order_words, .init = start, .fini = end);

Test(order_words, words_by_way_of_a_shard_are_answered_by_way_of_it)
{
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    const struct message_describe head = bench_head(&b, &place);
    const struct message_landed body = bench_body(&head);
    bench_say(&b, 2, &(struct message){.kind = MESSAGE_DESCRIBE, .describe = head});
    bench_landed(&b, 0, &body);
    bench_landed(&b, 1, &body);
    cr_assert_eq(bench_record(&b, RECORD_ADMIT)->admit.name.sequence, 2);
    bench_log_one(&b, 0);
    cr_assert_null(bench_sent(&b, 2, MESSAGE_RECEIPT, 0));
    bench_log_one(&b, 1);
    cr_assert_null(bench_sent(&b, 101, MESSAGE_RECEIPT, 0));
    const struct message *sent = bench_sent(&b, 2, MESSAGE_RECEIPT, 0);
    cr_assert_not_null(sent);
    cr_assert(sent->receipt.verdict == VERDICT_ADMITTED && sent->receipt.next_sequence == 3);
    bench_describe(&b, &head); /* asked over its own connection: answered there */
    cr_assert_not_null(bench_sent(&b, 101, MESSAGE_RECEIPT, 0));
}

Test(order_words, words_by_way_of_a_shard_count_for_who_takes_part)
{
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    struct message_describe head = bench_head(&b, &place);
    const uint64_t before = figures().foreign;
    head.name.incarnation++;
    bench_say(&b, 2, &(struct message){.kind = MESSAGE_DESCRIBE, .describe = head});
    head.name.worker = WORKERS_MAX - 1;
    bench_say(&b, 2, &(struct message){.kind = MESSAGE_DESCRIBE, .describe = head});
    cr_assert_eq(figures().foreign, before + 2);
}

/* What a receipt says of the next place, where the worker has one that it has not used yet. */
static uint64_t next_beside_an_unused_one(uint32_t queue)
{
    struct message_place place, unused;
    bench_end(&b);
    bench_init(&b);
    b.options.queue = queue;
    bench_start(&b, true);
    cr_assert(bench_place(&b, 0, 2, &place) && bench_place(&b, 0, 3, &unused));
    const struct message_describe head = bench_head(&b, &place);
    const struct message_landed body = bench_body(&head);
    bench_describe(&b, &head);
    bench_landed(&b, 0, &body);
    bench_landed(&b, 1, &body);
    bench_log(&b);
    return bench_sent(&b, 101, MESSAGE_RECEIPT, 0)->receipt.next_sequence;
}

Test(order_words, a_second_unused_place_comes_only_while_most_of_the_queue_is_free)
{
    cr_assert_eq(next_beside_an_unused_one(8), 4);
    cr_assert_eq(next_beside_an_unused_one(2), 0);
}
