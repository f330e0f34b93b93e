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
