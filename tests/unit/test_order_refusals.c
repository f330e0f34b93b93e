#include "tests/unit/order_bench.h"

#include <criterion/criterion.h>
#include <string.h>

static struct bench b;

/* NULL when peer is not denied. */
static const struct message *join_with(uint32_t peer, uint32_t oldest, uint32_t newest)
{
    struct message message = {.kind = MESSAGE_JOIN};
    message.join = (struct message_join){.protocol_oldest = oldest,
                                         .protocol_newest = newest,
                                         .identity = {'z'},
                                         .nonce = {9},
                                         .role = ROLE_WORKER,
                                         .layout_hash = b.model->hash,
                                         .outstanding_max = 1};
    bench_say(&b, peer, &message);
    return bench_sent(&b, peer, MESSAGE_DENIED, 0);
}

Test(order_refusals, who_speaks_only_other_protocols_is_denied_and_leaves_no_record)
{
    bench_init(&b);
    bench_start(&b, true);
    const uint32_t joins = bench_records(&b, RECORD_JOIN);
    const struct message *denied = join_with(102, PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 2);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_MISMATCH);
    cr_assert(strstr(denied->denied.text, "you speak protocol 2 to 3, the coordinator 1 to 1"),
              "%s", denied->denied.text);
    denied = join_with(103, 0, PROTOCOL_OLDEST - 1);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_MISMATCH);
    cr_assert_eq(bench_records(&b, RECORD_JOIN), joins);
    cr_assert_null(join_with(104, PROTOCOL_VERSION, PROTOCOL_VERSION + 5), "ours is among them");
    cr_assert_eq(bench_records(&b, RECORD_JOIN), joins + 1);
    bench_end(&b);
}

/* NULL when it is taken. */
static const char *enlist_with(uint32_t peer, uint32_t oldest, uint32_t newest)
{
    struct message message = {.kind = MESSAGE_ENLIST};
    message.enlist = (struct message_enlist){.protocol_oldest = oldest,
                                             .protocol_newest = newest,
                                             .job = 9,
                                             .shard = 1,
                                             .address = "127.0.0.1:1",
                                             .epoch = 1,
                                             .index = order_ledger(b.order)->index,
                                             .hash = order_ledger(b.order)->hash};
    bench_say(&b, peer, &message);
    const struct message *denied = bench_sent(&b, peer, MESSAGE_DENIED, 0);
    cr_assert(!denied || denied->denied.status == GRADWEIR_ERR_MISMATCH);
    return denied ? denied->denied.text : NULL;
}

/* PROTOCOL 1 to 1 is what shards said before servers had a number of their own. */
Test(order_refusals, a_shard_whose_build_makes_other_bits_is_denied_before_it_is_told_anything)
{
    bench_init(&b);
    bench_start(&b, true);
    bench_event(&b, ORDER_LOST, 2);
    const char *why = enlist_with(51, 1, 1);
    cr_assert(why && strstr(why, "this shard is of an older build than the coordinator"), "%s",
              why);
    why = enlist_with(52, PROTOCOL_SERVERS + 1, PROTOCOL_SERVERS + 1);
    cr_assert(why && strstr(why, "of a newer build"), "%s", why);
    cr_assert(strstr(why, "run all servers of a job from one build"), "%s", why);
    cr_assert_not_null(enlist_with(53, 1, PROTOCOL_SERVERS), "who makes both is not to be had");
    cr_assert_null(enlist_with(54, PROTOCOL_SERVERS, PROTOCOL_SERVERS));
    bench_end(&b);
}

static const char *said(void)
{
    for (uint32_t i = 0; i < b.actions.count; i++)
        if (b.actions.items[i].kind == ORDER_SAY)
            return b.actions.items[i].message.denied.text;
    return NULL;
}

static void push_with_norm(uint64_t sequence, double norm)
{
    struct message_place place;
    cr_assert(bench_place(&b, 0, sequence, &place));
    struct message_describe head = bench_head(&b, &place);
    head.norm = norm;
    bench_describe(&b, &head);
    const struct message_landed body = bench_body(&head);
    bench_landed(&b, 0, &body);
    bench_landed(&b, 1, &body);
}

Test(order_refusals, a_norm_that_the_shards_do_not_measure_is_said_once_and_by_name)
{
    struct order_figures figures;
    bench_init(&b);
    bench_start(&b, true);
    push_with_norm(2, 2.0); /* two shards with a sum of squares of 2 each */
    cr_assert_null(said());
    bench_log(&b);
    push_with_norm(3, 1e38);
    cr_assert(said() && strstr(said(), "worker a says a norm of 1e+38"));
    order_figures(b.order, &figures);
    cr_assert_gt(figures.sum_mismatch_max, 0.9);
    bench_end(&b);
}

/* It keeps its number, for bodies may have been sent under it; so others that come and go must not
 * have the place for ever. */
Test(order_refusals, who_has_lost_a_place_waits_for_another_where_others_are_turned_away)
{
    struct message_place lost, second, third;
    bench_init(&b);
    b.options.overflow_reject = true;
    b.options.queue = 2;
    bench_start(&b, true);
    bench_join(&b, 1);
    bench_join(&b, 2);
    cr_assert(bench_place(&b, 0, 2, &lost));
    bench_tick(&b, b.options.place_patience_ns + 1);
    cr_assert(bench_place(&b, 1, 1, &second));
    cr_assert(bench_sent(&b, 0, MESSAGE_CLOSE, 0), "nobody had used the first one");
    bench_freed(&b, lost.slot, lost.generation);
    cr_assert(bench_place(&b, 2, 1, &third));
    const struct message_describe late = bench_head(&b, &lost);
    bench_describe(&b, &late);
    cr_assert_null(bench_sent(&b, 101, MESSAGE_RECEIPT, 0));
    const struct message_describe head = bench_head(&b, &second);
    bench_describe(&b, &head);
    const struct message_landed body = bench_body(&head);
    for (uint32_t i = 0; i < b.options.shards; i++)
        bench_landed(&b, i, &body);
    const struct message *place = bench_sent(&b, 101, MESSAGE_PLACE, 0);
    cr_assert(place && place->place.name.sequence == 2, "the next room is its");
    bench_end(&b);
}

/* The library refuses them; whoever writes messages of his own hears it from here. */
Test(order_refusals, samples_that_make_no_sense_are_refused_from_the_head_and_it_is_said_who)
{
    const uint64_t samples[] = {0, SAMPLES_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        struct message_place place;
        bench_init(&b);
        bench_start(&b, true);
        cr_assert(bench_place(&b, 0, 2, &place));
        struct message_describe head = bench_head(&b, &place);
        head.samples = samples[i];
        bench_describe(&b, &head);
        cr_assert(said() && strstr(said(), "push 2 of worker a says"), "%s", said());
        const struct record *refuse = bench_record(&b, RECORD_REFUSE);
        cr_assert_not_null(refuse);
        cr_assert_eq(refuse->refuse.verdict, VERDICT_MISMATCH);
        cr_assert_eq(refuse->refuse.detail, samples[i]);
        bench_log(&b);
        cr_assert_eq(bench_sent(&b, 101, MESSAGE_RECEIPT, 0)->receipt.verdict, VERDICT_MISMATCH);
        bench_end(&b);
    }
}

Test(order_refusals, one_sample_and_the_most_that_are_allowed_count)
{
    const uint64_t samples[] = {1, SAMPLES_MAX};
    bench_init(&b);
    bench_start(&b, true);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        struct message_place place;
        cr_assert(bench_place(&b, 0, 2 + i, &place));
        struct message_describe head = bench_head(&b, &place);
        head.samples = samples[i];
        bench_describe(&b, &head);
        const struct message_landed body = bench_body(&head);
        for (uint32_t shard = 0; shard < 2; shard++)
            bench_landed(&b, shard, &body);
        bench_log(&b);
        cr_assert_eq(bench_record(&b, RECORD_ADMIT)->admit.samples, samples[i]);
        cr_assert_eq(bench_record(&b, RECORD_ADMIT)->admit.sample_weight, (double)samples[i]);
    }
    bench_end(&b);
}
