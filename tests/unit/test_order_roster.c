#include "tests/unit/order_bench.h"

#include <criterion/criterion.h>
#include <string.h>

static struct bench b;

static struct order_figures figures(void)
{
    struct order_figures f;
    order_figures(b.order, &f);
    return f;
}

Test(order_roster, joined_is_said_when_all_shards_have_logged_and_know_the_pass)
{
    bench_init(&b);
    bench_start(&b, true);
    bench_join_as(&b, 102, 'b', 2);
    cr_assert_not_null(bench_sent(&b, 0, MESSAGE_ENTRY, 0));
    cr_assert_null(bench_sent(&b, 102, MESSAGE_JOINED, 0));
    bench_log_one(&b, 0);
    cr_assert_null(bench_sent(&b, 102, MESSAGE_JOINED, 0));
    bench_log_one(&b, 1);
    cr_assert_not_null(bench_sent(&b, 102, MESSAGE_JOINED, 0));
    bench_end(&b);
}

Test(order_roster, the_same_nonce_gets_the_same_incarnation_and_another_fences_it_off)
{
    bench_init(&b);
    bench_start(&b, true);
    const uint64_t index = order_ledger(b.order)->index;
    bench_join_as(&b, 105, 'a', 1);
    cr_assert_eq(bench_sent(&b, 105, MESSAGE_JOINED, 0)->joined.incarnation, 1);
    cr_assert_eq(order_ledger(b.order)->index, index, "no record");
    bench_join_as(&b, 106, 'a', 77);
    const struct message *denied = bench_sent(&b, 105, MESSAGE_DENIED, 0);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_FENCED);
    cr_assert_eq(bench_record(&b, RECORD_LEAVE)->leave.cause, LEAVE_REPLACED);
    bench_log(&b);
    cr_assert_eq(bench_sent(&b, 106, MESSAGE_JOINED, 0)->joined.incarnation, 2);
    bench_join_as(&b, 107, 'a', 1);
    denied = bench_sent(&b, 107, MESSAGE_DENIED, 0);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_FENCED, "it stays out");
    bench_ask(&b, 0, 2); /* from the first connection */
    cr_assert_not_null(bench_sent(&b, 101, MESSAGE_REJOIN, 0));
    bench_end(&b);
}

Test(order_roster, another_layout_is_shown_ours_and_denied)
{
    bench_init(&b);
    bench_start(&b, true);
    const uint64_t hash = b.model->hash;
    b.model->hash = hash + 1;
    bench_join_as(&b, 102, 'b', 2);
    b.model->hash = hash;
    cr_assert_eq(bench_count(&b, ORDER_CONTENT), 1);
    cr_assert_eq(bench_sent(&b, 102, MESSAGE_DENIED, 0)->denied.status, GRADWEIR_ERR_MISMATCH);
    bench_end(&b);
}

Test(order_roster, a_lost_worker_leaves_after_its_lease_and_what_it_described_ends_in_a_record)
{
    bench_init(&b);
    bench_start(&b, true);
    bench_join(&b, 1);
    struct message_place second, third;
    cr_assert(bench_place(&b, 0, 2, &second));
    cr_assert(bench_place(&b, 0, 3, &third));
    const struct message_describe head = bench_head(&b, &second);
    bench_describe(&b, &head);
    bench_event(&b, ORDER_LOST, 101);
    cr_assert_eq(bench_records(&b, RECORD_LEAVE), 0);
    cr_assert_leq(order_next(b.order), b.now_ns + b.options.lease_ns);
    bench_tick(&b, b.options.lease_ns);
    cr_assert_eq(bench_records(&b, RECORD_REFUSE), 1);
    cr_assert_eq(bench_record(&b, RECORD_REFUSE)->refuse.name.sequence, 2);
    cr_assert_eq(bench_record(&b, RECORD_LEAVE)->leave.cause, LEAVE_LEASE);
    cr_assert_lt(bench_record(&b, RECORD_REFUSE)->index, bench_record(&b, RECORD_LEAVE)->index);
    cr_assert_not_null(bench_sent(&b, 0, MESSAGE_CLOSE, 1), "both slots close");
    cr_assert_eq(figures().workers_live, 1);
    bench_end(&b);
}

Test(order_roster, a_worker_that_returns_within_its_lease_goes_on)
{
    bench_init(&b);
    bench_start(&b, true);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    bench_event(&b, ORDER_LOST, 101);
    bench_tick(&b, b.options.lease_ns / 2);
    bench_join_as(&b, 101, 'a', 1);
    cr_assert_not_null(bench_sent(&b, 101, MESSAGE_JOINED, 0));
    bench_tick(&b, b.options.lease_ns);
    cr_assert_eq(bench_records(&b, RECORD_LEAVE), 0);
    bench_push(&b, 0, 2);
    cr_assert_eq(bench_record(&b, RECORD_ADMIT)->admit.generation, place.generation);
    bench_end(&b);
}

Test(order_roster, bye_is_a_leave_and_a_farewell)
{
    bench_init(&b);
    bench_start(&b, true);
    bench_say(&b, 101, &(struct message){.kind = MESSAGE_BYE, .bye = {.name = bench_name(0, 0)}});
    cr_assert_not_null(bench_sent(&b, 101, MESSAGE_BYE, 0));
    cr_assert_eq(bench_record(&b, RECORD_LEAVE)->leave.cause, LEAVE_BYE);
    bench_end(&b);
}

Test(order_roster, nothing_is_admitted_while_a_shard_is_lost_and_status_names_it)
{
    bench_init(&b);
    bench_start(&b, true);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    struct message_describe head = bench_head(&b, &place);
    bench_describe(&b, &head);
    const struct message_landed body = bench_body(&head);
    bench_landed(&b, 1, &body);
    bench_landed(&b, 0, &body);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 1);
    bench_log(&b);
    bench_event(&b, ORDER_LOST, 2);
    cr_assert_eq(bench_count(&b, ORDER_SAY), 1);
    char text[8192];
    order_status(b.order, b.now_ns, text, sizeof text);
    cr_assert_not_null(strstr(text, "everything waits for shard 1"));
    struct message message = {.kind = MESSAGE_ENLIST};
    message.enlist = (struct message_enlist){.protocol_oldest = PROTOCOL_SERVERS,
                                             .protocol_newest = PROTOCOL_SERVERS,
                                             .shard = 1,
                                             .instance = {1},
                                             .address = "127.0.0.1:2",
                                             .epoch = 1,
                                             .index = order_ledger(b.order)->index,
                                             .hash = order_ledger(b.order)->hash};
    bench_say(&b, 51, &message);
    cr_assert_not_null(bench_sent(&b, 51, MESSAGE_MEMBER, 0));
    cr_assert_eq(figures().shards_ready, 2);
    bench_end(&b);
}

Test(order_roster, a_shard_that_comes_back_a_little_behind_hears_what_it_missed)
{
    bench_init(&b);
    bench_start(&b, true);
    const uint64_t index = order_ledger(b.order)->index, hash = order_ledger(b.order)->hash;
    bench_push(&b, 0, 2); /* ADMIT and STEP, and a slot that closes */
    bench_log_one(&b, 0);
    bench_event(&b, ORDER_LOST, 2);
    struct message message = {.kind = MESSAGE_ENLIST};
    message.enlist = (struct message_enlist){
        PROTOCOL_SERVERS, PROTOCOL_SERVERS, 9, 1, {1}, "127.0.0.1:2", 0, 1, index, hash + 1};
    bench_say(&b, 51, &message);
    cr_assert_not_null(bench_sent(&b, 51, MESSAGE_DENIED, 0), "another log");
    message.enlist.hash = hash;
    bench_say(&b, 52, &message);
    cr_assert_eq(bench_sent(&b, 52, MESSAGE_RECORD, 0)->record.kind, RECORD_ADMIT);
    cr_assert_eq(bench_sent(&b, 52, MESSAGE_RECORD, 1)->record.kind, RECORD_STEP);
    cr_assert_null(bench_sent(&b, 52, MESSAGE_RECORD, 2));
    cr_assert_not_null(bench_sent(&b, 52, MESSAGE_ENTRY, 0));
    cr_assert_eq(bench_sent(&b, 52, MESSAGE_CLOSE, 0)->close.after, index + 2);
    bench_end(&b);
}

/* What a connection said before it broke may come behind what the next one said. */
Test(order_roster,
     a_shard_that_a_late_enlist_of_its_last_connection_displaced_is_asked_to_enlist_again)
{
    bench_init(&b);
    bench_start(&b, true);
    struct message message = {.kind = MESSAGE_ENLIST};
    message.enlist = (struct message_enlist){PROTOCOL_SERVERS,
                                             PROTOCOL_SERVERS,
                                             9,
                                             1,
                                             {1},
                                             "127.0.0.1:2",
                                             0,
                                             1,
                                             order_ledger(b.order)->index,
                                             order_ledger(b.order)->hash};
    bench_say(&b, 51, &message);
    bench_say(&b, 50, &message); /* the late one */
    bench_event(&b, ORDER_LOST, 2);
    cr_assert_null(bench_sent(&b, 51, MESSAGE_REJOIN, 0), "50 is there yet");
    bench_event(&b, ORDER_LOST, 50);
    cr_assert_not_null(bench_sent(&b, 51, MESSAGE_REJOIN, 0));
    cr_assert_eq(figures().shards_ready, 1);
    bench_say(&b, 51, &message);
    cr_assert_not_null(bench_sent(&b, 51, MESSAGE_MEMBER, 0));
    cr_assert_eq(figures().shards_ready, 2);
    bench_event(&b, ORDER_LOST, 51);
    cr_assert_null(bench_sent(&b, 51, MESSAGE_REJOIN, 0), "nobody is left");
    bench_end(&b);
}

Test(order_roster, strangers_and_late_epochs_are_counted_and_change_nothing)
{
    bench_init(&b);
    bench_start(&b, true);
    const uint64_t index = order_ledger(b.order)->index;
    const uint64_t before = figures().foreign;
    for (uint32_t kind = 0; kind < 40; kind++) {
        if (kind == MESSAGE_JOIN || kind == MESSAGE_ENLIST)
            continue;
        bench_say(&b, 200, &(struct message){.kind = kind});
        cr_assert_null(bench_sent(&b, 200, MESSAGE_PLACE, 0));
    }
    cr_assert_gt(figures().foreign, before + 20);
    cr_assert_eq(order_ledger(b.order)->index, index);
    bench_end(&b);
}

Test(order_roster, a_flush_steps_with_what_is_there_when_nothing_came_for_long)
{
    bench_init(&b);
    b.options.law.window = b.options.law.stride = 2;
    b.options.flush_after_ns = 500;
    bench_start(&b, true);
    bench_push(&b, 0, 2);
    cr_assert_eq(bench_records(&b, RECORD_STEP), 0);
    cr_assert_eq(order_next(b.order), b.now_ns + 500);
    bench_tick(&b, 499);
    cr_assert_eq(bench_records(&b, RECORD_STEP), 0);
    bench_tick(&b, 1);
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.cause, STEP_FLUSH);
    cr_assert_eq(figures().flushes, 1);
    bench_end(&b);
}

Test(order_roster, a_clipped_average_waits_for_the_sums_of_all_shards)
{
    bench_init(&b);
    b.options.law.clip_average = 1;
    bench_start(&b, true);
    bench_push(&b, 0, 2);
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.rounds, 1);
    struct message sums = {.kind = MESSAGE_SUMS};
    for (uint32_t i = 0; i < 2; i++) {
        const struct model_range range = model_shard(b.model, 2, i);
        sums.sums = (struct message_sums){.version = 1,
                                          .round = 1,
                                          .first_block = range.first_block,
                                          .blocks = range.blocks,
                                          .nodes_count = 1,
                                          .nodes = {8}};
        cr_assert_eq(bench_records(&b, RECORD_SUMMED), 0);
        bench_say(&b, 1 + i, &sums);
    }
    const struct record_summed *summed = &bench_record(&b, RECORD_SUMMED)->summed;
    cr_assert_eq(summed->norm, 4.0);
    float factor;
    memcpy(&factor, &summed->factor, sizeof factor);
    cr_assert_eq(factor, (float)arithmetic_clip_factor(4.0, 1.0));
    bench_end(&b);
}

Test(order_roster, sync_admits_one_of_each_worker_in_worker_order)
{
    bench_init(&b);
    b.options.sync = true;
    bench_start(&b, true);
    bench_join(&b, 1);
    bench_push(&b, 1, 1);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 0);
    bench_push(&b, 0, 2);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 2);
    cr_assert_eq(bench_record(&b, RECORD_ADMIT)->admit.name.worker, 1);
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.entries_count, 2);
    bench_end(&b);
}

Test(order_roster, tune_is_a_record_and_what_cannot_be_is_said)
{
    bench_init(&b);
    bench_start(&b, true);
    bench_say(&b, 300,
              &(struct message){.kind = MESSAGE_TUNE_ASK, .tune_ask = {"learning_rate", "0.5"}});
    cr_assert_eq(bench_sent(&b, 300, MESSAGE_TUNED, 0)->tuned.status, GRADWEIR_OK);
    cr_assert(order_ledger(b.order)->law.settings.learning_rate == 0.5);
    bench_say(&b, 300, &(struct message){.kind = MESSAGE_TUNE_ASK, .tune_ask = {"window", "9"}});
    cr_assert_eq(bench_sent(&b, 300, MESSAGE_TUNED, 0)->tuned.status, GRADWEIR_ERR_INVALID);
    cr_assert_eq(bench_records(&b, RECORD_TUNE), 1);
    bench_end(&b);
}

Test(order_roster, drain_finishes_what_landed_steps_once_more_and_stops_everybody)
{
    bench_init(&b);
    b.options.law.window = b.options.law.stride = 2;
    bench_start(&b, true);
    bench_push(&b, 0, 2);
    bench_event(&b, ORDER_DRAIN, 0);
    cr_assert_eq(bench_record(&b, RECORD_STEP)->step.cause, STEP_DRAIN);
    cr_assert_eq(bench_count(&b, ORDER_EXIT), 0);
    bench_log(&b);
    bench_stepped(&b, 1);
    cr_assert_eq(bench_count(&b, ORDER_EXIT), 1);
    cr_assert_not_null(bench_sent(&b, 101, MESSAGE_STOP, 0));
    cr_assert_not_null(bench_sent(&b, 1, MESSAGE_STOP, 0));
    bench_end(&b);
}

Test(order_roster, planted_faults_are_felt)
{
    bench_init(&b);
    bench_start(&b, true);
    cr_assert(!order_plant(b.order, "nothing"));
    cr_assert(order_plant(b.order, "early-receipt"));
    bench_push(&b, 0, 2);
    cr_assert_not_null(bench_sent(&b, 101, MESSAGE_RECEIPT, 0));
    bench_end(&b);
}

static void bye(uint32_t peer, uint32_t worker)
{
    struct message message = {.kind = MESSAGE_BYE, .bye = {.name = bench_name(worker, 0)}};
    message.bye.name.incarnation = order_ledger(b.order)->workers[worker].incarnation;
    bench_say(&b, peer, &message);
    bench_log(&b);
}

Test(order_roster, numbers_of_those_who_left_are_given_again_and_late_words_of_theirs_are_not_taken)
{
    bench_init(&b);
    b.options.workers_max = b.options.numbers_max = 2;
    bench_start(&b, true);
    bench_join_as(&b, 102, 'b', 2);
    bench_log(&b);
    bench_join_as(&b, 103, 'c', 3);
    const struct message *denied = bench_sent(&b, 103, MESSAGE_DENIED, 0);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_FULL);
    cr_assert(strstr(denied->denied.text, "workers_max = 2, and 2 are here"), "%s",
              denied->denied.text);
    for (uint32_t i = 0; i < 40; i++) {
        bye(102 + i, 1);
        bench_event(&b, ORDER_LOST, 102 + i);
        bench_join_as(&b, 103 + i, (char)('c' + i % 20), (uint8_t)(3 + i));
        bench_log(&b);
        const struct message *joined = bench_sent(&b, 103 + i, MESSAGE_JOINED, 0);
        cr_assert(joined && joined->joined.worker == 1, "%u", i);
        cr_assert_eq(joined->joined.incarnation, 2 + i);
        bench_ask(&b, 1, 1); /* its first incarnation, from the connection of now */
        cr_assert_null(bench_sent(&b, 102, MESSAGE_PLACE, 0));
        cr_assert_null(bench_sent(&b, 103 + i, MESSAGE_PLACE, 0));
    }
    bench_end(&b);
}

/* As a machine that is restored: its lease is over, and another process has had the name. */
Test(order_roster, who_was_away_stays_out_once_another_has_had_its_name)
{
    bench_init(&b);
    bench_start(&b, true);
    for (uint8_t others = 0; others < 2; others++) {
        bench_join_as(&b, 102, 'b', (uint8_t)(2 + 10 * others));
        bench_log(&b);
        cr_assert_not_null(bench_sent(&b, 102, MESSAGE_JOINED, 0));
        bench_event(&b, ORDER_LOST, 102);
        bench_tick(&b, b.options.lease_ns);
        bench_log(&b);
        cr_assert_eq(bench_record(&b, RECORD_LEAVE)->leave.cause, LEAVE_LEASE);
    }
    bench_join_as(&b, 103, 'b', 2);
    const struct message *denied = bench_sent(&b, 103, MESSAGE_DENIED, 0);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_FENCED);
    bench_join_as(&b, 104, 'b', 12); /* the last one may come back */
    bench_log(&b);
    cr_assert_not_null(bench_sent(&b, 104, MESSAGE_JOINED, 0));
    bench_end(&b);
}

Test(order_roster, who_was_replaced_stays_out_when_its_number_is_anothers)
{
    bench_init(&b);
    b.options.workers_max = b.options.numbers_max = 2;
    bench_start(&b, true);
    bench_join_as(&b, 102, 'b', 2);
    bench_log(&b);
    bench_join_as(&b, 103, 'b', 3);
    bench_log(&b);
    bye(103, 1);
    bench_join_as(&b, 104, 'c', 4);
    bench_log(&b);
    cr_assert_not_null(bench_sent(&b, 104, MESSAGE_JOINED, 0));
    bye(104, 1);
    bench_join_as(&b, 105, 'b', 2);
    const struct message *denied = bench_sent(&b, 105, MESSAGE_DENIED, 0);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_FENCED);
    bench_end(&b);
}
