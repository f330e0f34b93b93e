#include "tests/unit/order_bench.h"

#include <criterion/criterion.h>
#include <string.h>

static struct bench b;

/* Two workers, first parameters, and so many more gradients of worker 0 admitted. */
static void start(uint32_t gradients)
{
    bench_init(&b);
    bench_start(&b, true);
    bench_join(&b, 1);
    for (uint32_t i = 0; i < gradients; i++) {
        bench_push(&b, 0, 2 + i);
        bench_log(&b);
    }
}

static void back(uint8_t instance, bool cold, uint64_t index, const char *address)
{
    struct message message = {.kind = MESSAGE_ENLIST};
    message.enlist = (struct message_enlist){.protocol_oldest = PROTOCOL_SERVERS,
                                             .protocol_newest = PROTOCOL_SERVERS,
                                             .job = 9,
                                             .shard = 1,
                                             .instance = {instance},
                                             .cold = cold,
                                             .epoch = cold ? 0 : 1,
                                             .index = index,
                                             .hash = index ? b.log[index + 1].previous : 0};
    strcpy(message.enlist.address, address);
    bench_say(&b, 52, &message);
}

Test(members, a_shard_that_is_another_process_now_hears_what_it_missed_and_workers_its_address)
{
    for (int late = 0; late < 2; late++) {
        start(1);
        const uint64_t index = order_ledger(b.order)->index;
        bench_push(&b, 1, 1);
        if (!late) /* its heir is here before its connection is seen to break */
            bench_event(&b, ORDER_LOST, 2);
        back(3, false, index, "127.0.0.1:4");
        cr_assert_not_null(bench_sent(&b, 52, MESSAGE_MEMBER, 0));
        cr_assert_eq(bench_sent(&b, 52, MESSAGE_RECORD, 0)->record.index, index + 1);
        cr_assert_not_null(bench_sent(&b, 52, MESSAGE_ENTRY, 1));
        for (uint32_t worker = 0; worker < 2; worker++) {
            const struct message *moved = bench_sent(&b, 101 + worker, MESSAGE_MOVED, 0);
            cr_assert(moved && moved->moved.shard == 1 &&
                      strcmp(moved->moved.address, "127.0.0.1:4") == 0);
        }
        bench_event(&b, ORDER_LOST, 52);
        back(3, false, index, "127.0.0.1:4");
        cr_assert_null(bench_sent(&b, 101, MESSAGE_MOVED, 0),
                       "the same process: only a connection");
        bench_end(&b);
    }
}

Test(members, a_shard_that_comes_back_without_its_memory_ends_the_job_and_says_what_is_lost)
{
    start(1);
    bench_event(&b, ORDER_LOST, 2);
    back(3, true, 0, "127.0.0.1:4");
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t peers[] = {1, 101, 52};
        const struct message *denied = bench_sent(&b, peers[i], MESSAGE_DENIED, 0);
        cr_assert(denied && denied->denied.status == GRADWEIR_ERR_LOST);
        cr_assert_not_null(strstr(denied->denied.text, "shard 1"));
        cr_assert_not_null(strstr(denied->denied.text, "version 1"));
    }
    const struct order_action *last = &b.actions.items[b.actions.count - 1];
    cr_assert(last->kind == ORDER_EXIT && last->message.denied.status == GRADWEIR_ERR_LOST);
    bench_end(&b);
}

Test(members, a_second_shard_without_memory_is_refused_while_the_first_is_here)
{
    start(1);
    back(3, true, 0, "127.0.0.1:4");
    cr_assert_eq(bench_sent(&b, 52, MESSAGE_DENIED, 0)->denied.status, GRADWEIR_ERR_REFUSED);
    cr_assert_null(bench_sent(&b, 101, MESSAGE_DENIED, 0));
    bench_end(&b);
}

Test(members, memory_of_an_older_promise_or_another_log_is_refused)
{
    start(1);
    bench_join(&b, 2);
    const uint64_t index = order_ledger(b.order)->index - 1;
    bench_event(&b, ORDER_LOST, 2);
    back(3, false, index - 1, "127.0.0.1:4");
    cr_assert_not_null(bench_sent(&b, 52, MESSAGE_DENIED, 0), "less than it has said it logged");
    b.log[index + 1].previous++;
    back(3, false, index + 1, "127.0.0.1:4");
    cr_assert_not_null(bench_sent(&b, 52, MESSAGE_DENIED, 0), "another log");
    bench_end(&b);
}

/* What a connection said before it broke may come behind what the next one said. */
Test(members, a_worker_that_a_late_join_of_its_last_connection_displaced_is_asked_to_join_again)
{
    start(1);
    bench_join_as(&b, 201, 'a', 1); /* its connection of now; it computes, and says nothing */
    bench_join_as(&b, 101, 'a', 1); /* the late one */
    cr_assert_null(bench_sent(&b, 201, MESSAGE_REJOIN, 0), "101 is there yet");
    bench_event(&b, ORDER_LOST, 101);
    cr_assert_not_null(bench_sent(&b, 201, MESSAGE_REJOIN, 0));
    bench_join_as(&b, 201, 'a', 1);
    cr_assert_not_null(bench_sent(&b, 201, MESSAGE_JOINED, 0));
    bench_tick(&b, 2 * b.options.lease_ns);
    cr_assert_eq(bench_records(&b, RECORD_LEAVE), 0);
    bench_event(&b, ORDER_LOST, 201);
    cr_assert_null(bench_sent(&b, 101, MESSAGE_REJOIN, 0), "nobody is left");
    bench_end(&b);
}

Test(members, whoever_was_fenced_off_or_has_left_is_asked_nothing)
{
    start(1);
    bench_join_as(&b, 201, 'a', 7); /* another process under its name */
    bench_event(&b, ORDER_LOST, 201);
    cr_assert_null(bench_sent(&b, 101, MESSAGE_REJOIN, 0));
    bench_say(&b, 102, &(struct message){.kind = MESSAGE_BYE, .bye = {.name = bench_name(1, 0)}});
    bench_event(&b, ORDER_LOST, 102);
    cr_assert_eq(b.actions.count, 0);
    bench_end(&b);
}

/* A shard that was stopped brings a gradient's words over a connection that it does not know to be
 * new. */
Test(members, a_shard_that_is_asked_to_enlist_and_does_so_anyway_stays_in)
{
    struct message_place place;
    start(1);
    const uint64_t index = order_ledger(b.order)->index;
    bench_push(&b, 1, 1);
    cr_assert(bench_place(&b, 0, 3, &place));
    const struct message_describe words = bench_head(&b, &place);
    bench_event(&b, ORDER_LOST, 2);
    bench_say(&b, 52, &(struct message){.kind = MESSAGE_DESCRIBE, .describe = words});
    cr_assert_not_null(bench_sent(&b, 52, MESSAGE_REJOIN, 0));
    back(3, false, index, "127.0.0.1:4");
    cr_assert_not_null(bench_sent(&b, 52, MESSAGE_MEMBER, 0));
    back(3, false, index, "127.0.0.1:4");
    cr_assert_null(bench_sent(&b, 52, MESSAGE_DENIED, 0));
    bench_end(&b);
}
