/* A worker's core: coordinators and shards that go and come. */
#include "tests/unit/session_bench.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(session_epoch, .init = bench_start, .fini = bench_end);

/* The connection breaks and comes again; who answers is the coordinator of this epoch. */
static void take_over(uint32_t epoch, uint64_t incarnation)
{
    bench_step((struct session_event){.kind = SESSION_DOWN, .now_ns = 10});
    bench_step((struct session_event){.kind = SESSION_UP, .now_ns = 20});
    cr_assert_not_null(bench_said(MESSAGE_JOIN));
    struct message message = bench_joined_message(incarnation);
    message.epoch = epoch;
    message.joined.pass[0] = (uint8_t)epoch;
    message.joined.first = session.first;
    bench_hear(30, &message);
}

/* In, with one push whose body has left; then another coordinator, in epoch 2. */
static void begin_taken_over(void)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 7, 0);
    bench_send_rest(0, 1);
    take_over(2, 1);
}

static void give_place_in(uint32_t epoch, uint64_t sequence, uint64_t generation)
{
    struct message message = {.kind = MESSAGE_PLACE, .epoch = epoch, .timeline = 1};
    message.place = (struct message_place){.name = {3, 1, sequence}, 4, generation};
    bench_hear(40, &message);
}

static uint32_t heads(uint8_t kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < actions.count; i++)
        n += (actions.items[i].kind == SESSION_HEAD || actions.items[i].kind == SESSION_CHUNK) &&
             actions.items[i].head.kind == kind;
    return n;
}

Test(session_epoch, a_new_coordinator_is_asked_about_what_is_under_way_before_bodies_move_again)
{
    begin_taken_over();
    const struct message *asked = bench_said(MESSAGE_ASK);
    cr_assert(asked && asked->epoch == 2 && asked->ask.name.sequence == 1);
    cr_assert_null(bench_said(MESSAGE_DESCRIBE));
    cr_assert(heads(HEAD_HELLO) == 2 && heads(HEAD_CHUNK) == 0);
    struct head_hello hello;
    memcpy(&hello, &bench_nth(SESSION_HEAD, 0)->head, sizeof hello);
    cr_assert(hello.epoch == 2 && hello.pass[0] == 2);
    bench_answer(0, HEAD_WELCOME, 0, 35);
    bench_answer(1, HEAD_WELCOME, 0, 35);
    cr_assert_eq(heads(HEAD_CHUNK), 0);
}

Test(session_epoch, a_place_that_was_held_needs_words_only)
{
    begin_taken_over();
    bench_answer(0, HEAD_WELCOME, 0, 35);
    bench_answer(1, HEAD_WELCOME, 0, 35);
    give_place_in(2, 1, 7);
    const struct message *described = bench_said(MESSAGE_DESCRIBE);
    cr_assert(described && described->describe.generation == 7);
    cr_assert_eq(heads(HEAD_CHUNK), 0);
    struct message receipt = bench_receipt_message(1, VERDICT_ADMITTED);
    receipt.epoch = 2;
    bench_hear(50, &receipt);
    cr_assert_eq(bench_nth(SESSION_VERDICT, 0)->message.receipt.verdict, VERDICT_ADMITTED);
}

Test(session_epoch, another_place_gets_the_same_bytes_under_the_same_name)
{
    begin_taken_over();
    bench_answer(0, HEAD_WELCOME, 0, 35);
    bench_answer(1, HEAD_WELCOME, 0, 35);
    const uint64_t fresh = (UINT64_C(2) << 40) + 1;
    give_place_in(2, 1, fresh);
    cr_assert_eq(heads(HEAD_CHUNK), 4);
    struct head_chunk chunk;
    memcpy(&chunk, &bench_nth(SESSION_CHUNK, 0)->head, sizeof chunk);
    cr_assert(chunk.epoch == 2 && chunk.generation == fresh && chunk.sequence == 1 &&
              chunk.digest == 99);
}

Test(session_epoch, the_first_receipt_ends_a_push_whose_verdict_was_lost)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 7, 0);
    take_over(2, 1);
    struct message receipt = bench_receipt_message(1, VERDICT_STALE);
    receipt.epoch = 2;
    bench_hear(50, &receipt);
    cr_assert_eq(bench_count(SESSION_VERDICT), 0, "chunks of before are in flight yet");
    bench_send_rest(0, 60);
    cr_assert_eq(bench_nth(SESSION_VERDICT, 0)->message.receipt.verdict, VERDICT_STALE);
}

Test(session_epoch, queue_full_never_ends_a_name_that_had_a_place)
{
    begin_taken_over();
    struct message full = bench_receipt_message(1, VERDICT_QUEUE_FULL);
    full.epoch = 2;
    bench_hear(50, &full);
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
    bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = session_next(&session)});
    const struct message *asked = bench_said(MESSAGE_ASK);
    cr_assert(asked && asked->ask.name.sequence == 1);
}

Test(session_epoch, another_incarnation_does_not_rename_what_had_a_place)
{
    begin_taken_over();
    take_over(3, 2);
    cr_assert_eq(bench_nth(SESSION_VERDICT, 0)->status, GRADWEIR_ERR_LOST);
    cr_assert_null(bench_said(MESSAGE_ASK));
}

Test(session_epoch, a_push_made_while_nobody_answers_is_asked_for_once_it_is_in)
{
    bench_come_in(1);
    bench_step((struct session_event){.kind = SESSION_DOWN});
    bench_push(0, PURPOSE_GRADIENT, 5);
    cr_assert_null(bench_said(MESSAGE_ASK));
    take_over(2, 1);
    cr_assert_eq(bench_said(MESSAGE_ASK)->ask.name.sequence, 1);
}

Test(session_epoch, a_place_that_came_ahead_is_not_used_under_another_coordinator)
{
    bench_come_in(1);
    bench_give_place(1, 7, 0);
    take_over(2, 1);
    bench_push(0, PURPOSE_GRADIENT, 50);
    cr_assert_not_null(bench_said(MESSAGE_ASK));
    cr_assert_null(bench_said(MESSAGE_DESCRIBE));
}

Test(session_epoch, words_of_an_epoch_that_is_over_count_for_nothing_and_are_named)
{
    char text[256];
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 7, 0);
    bench_send_rest(0, 1);
    take_over(5, 1);
    struct message late = bench_receipt_message(1, VERDICT_ADMITTED);
    late.epoch = 4;
    bench_hear(50, &late);
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
    bench_step((struct session_event){.kind = SESSION_DOWN, .now_ns = 60});
    bench_step((struct session_event){.kind = SESSION_UP, .now_ns = 70});
    struct message joined = bench_joined_message(1);
    joined.epoch = 4;
    bench_hear(80, &joined);
    cr_assert_eq(bench_count(SESSION_JOINED), 0);
    session_waiting(&session, text, sizeof text);
    cr_assert(strstr(text, "epoch 4") && strstr(text, "epoch 5"), "%s", text);
}

Test(session_epoch, a_job_that_has_begun_anew_is_not_taken_for_the_old_one)
{
    bench_come_in(1);
    session.first = true;
    bench_step((struct session_event){.kind = SESSION_DOWN, .now_ns = 10});
    bench_step((struct session_event){.kind = SESSION_UP, .now_ns = 20});
    const struct message joined = bench_joined_message(1);
    bench_hear(30, &joined);
    cr_assert_eq(bench_nth(SESSION_FAILED, 0)->status, GRADWEIR_ERR_LOST);
}

/* A shard's process that is another one now. */

static void move(uint32_t shard, const char *address)
{
    struct message message = {.kind = MESSAGE_MOVED, .epoch = 1, .timeline = 1};
    message.moved.shard = shard;
    strcpy(message.moved.address, address);
    bench_hear(50, &message);
}

Test(session_epoch, a_shard_that_moved_is_met_at_its_new_address_and_gets_what_it_lacks)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 7, 0);
    bench_send_rest(0, 1);
    bench_step((struct session_event){.kind = SESSION_PULL, .now_ns = 2});
    move(1, "b:9");
    cr_assert_eq(bench_nth(SESSION_HANGUP, 0)->member, 1);
    bench_step((struct session_event){.kind = SESSION_PEER_LOST, .member = 1, .now_ns = 60});
    cr_assert_leq(session_next(&session), 60 + RETRY);
    bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = 60 + RETRY});
    cr_assert_eq(bench_nth(SESSION_CONNECT, 0)->member, 1);
    cr_assert_str_eq(session.members[1].where.address, "b:9");
    bench_open_member(1, 70);
    cr_assert_eq(heads(HEAD_CHUNK), 2, "all of its part, and nothing to the other member");
    cr_assert_eq(heads(HEAD_PULL), 1);
}

Test(session_epoch, a_shard_that_was_away_when_it_moved_is_tried_at_once)
{
    bench_come_in(1);
    bench_step((struct session_event){.kind = SESSION_PEER_LOST, .member = 1, .now_ns = 10});
    for (int i = 0; i < 8; i++) {
        bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = session_next(&session)});
        bench_step((struct session_event){
            .kind = SESSION_PEER_LOST, .member = 1, .now_ns = session.now_ns});
    }
    struct message message = {.kind = MESSAGE_MOVED, .epoch = 1, .timeline = 1};
    message.moved = (struct message_moved){.shard = 1, .address = "b:9"};
    bench_hear(session.now_ns, &message);
    cr_assert_eq(bench_count(SESSION_HANGUP), 0);
    cr_assert_eq(session_next(&session), session.now_ns);
    message.moved.shard = 7;
    bench_hear(session.now_ns, &message);
    cr_assert_eq(actions.count, 0, "there is no shard 7");
}

Test(session_epoch, a_shard_that_stays_away_is_asked_for_since_it_may_have_moved_unheard)
{
    bench_come_in(1);
    uint32_t joins = 0;
    for (int i = 0; i < 12; i++) {
        bench_step((struct session_event){
            .kind = SESSION_PEER_LOST, .member = 1, .now_ns = session.now_ns});
        joins += bench_said(MESSAGE_JOIN) != NULL;
        cr_assert(i > 5 || joins == 0, "a short absence is nothing to ask about");
        bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = session_next(&session)});
    }
    cr_assert_gt(joins, 2);
    bench_step(
        (struct session_event){.kind = SESSION_PEER_LOST, .member = 1, .now_ns = session.now_ns});
    struct message message = bench_joined_message(1);
    strcpy(message.joined.members[1].address, "b:9");
    bench_hear(session.now_ns, &message);
    cr_assert_eq(bench_nth(SESSION_CONNECT, 0)->member, 1);
    cr_assert_str_eq(session.members[1].where.address, "b:9");
    cr_assert_eq(bench_count(SESSION_HEAD), 0, "nothing has changed for the other");
}
