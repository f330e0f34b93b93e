/* A worker's core: joining and pulling. */
#include "tests/unit/session_bench.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(session, .init = bench_start, .fini = bench_end);

/* Joining. */

Test(session, joins_connects_and_greets_every_member)
{
    bench_init(1);
    cr_assert(bench_said(MESSAGE_JOIN));
    const struct message message = bench_joined_message(1);
    bench_hear(0, &message);
    cr_assert_eq(bench_count(SESSION_CONNECT), 2);
    cr_assert_eq(bench_count(SESSION_JOINED), 1);
    bench_open_member(0, 0);
    bench_open_member(1, 0);
    char text[256];
    session_waiting(&session, text, sizeof text);
    cr_assert_str_eq(text, "");
}

Test(session, says_what_it_waits_for_until_it_is_in)
{
    char text[256];
    bench_init(1);
    session_waiting(&session, text, sizeof text);
    cr_assert(strstr(text, "coordinator"));
    const struct message message = bench_joined_message(1);
    bench_hear(0, &message);
    bench_open_member(0, 0);
    session_waiting(&session, text, sizeof text);
    cr_assert_str_eq(text, "no connection to shard 1 at b:2");
}

Test(session, greets_again_when_its_pass_is_not_there_yet)
{
    bench_init(1);
    const struct message message = bench_joined_message(1);
    bench_hear(0, &message);
    bench_step((struct session_event){.kind = SESSION_CONNECTED, .member = 0});
    bench_answer(0, HEAD_DENY, GRADWEIR_ERR_AGAIN, 0);
    cr_assert_eq(session_next(&session), RETRY);
    bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = RETRY});
    cr_assert_eq(bench_count(SESSION_HEAD), 1);
    cr_assert_eq(bench_nth(SESSION_HEAD, 0)->head.kind, HEAD_HELLO);
}

Test(session, tries_to_connect_ever_more_rarely)
{
    bench_init(1);
    const struct message message = bench_joined_message(1);
    bench_hear(0, &message);
    int64_t now_ns = 0, last = 0;
    for (int i = 0; i < 12; i++) {
        bench_step((struct session_event){.kind = SESSION_PEER_LOST, .now_ns = now_ns});
        const int64_t pause = session_next(&session) - now_ns;
        cr_assert_geq(pause, last);
        last = pause;
        now_ns = session_next(&session);
        bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = now_ns});
        cr_assert_eq(bench_count(SESSION_CONNECT), 1);
    }
    cr_assert_eq(last, SESSION_RETRIES_MAX * RETRY);
}

Test(session, fails_for_good_when_it_is_denied_and_joins_no_more)
{
    bench_init(1);
    const struct message denied = {.kind = MESSAGE_DENIED,
                                   .denied = {.status = GRADWEIR_ERR_FENCED, .text = "replaced"}};
    bench_hear(0, &denied);
    cr_assert_eq(bench_nth(SESSION_FAILED, 0)->status, GRADWEIR_ERR_FENCED);
    bench_step((struct session_event){.kind = SESSION_UP});
    cr_assert_null(bench_said(MESSAGE_JOIN));
}

Test(session, refuses_members_that_do_not_tile_the_model)
{
    struct message message = bench_joined_message(1);
    message.joined.members[1].first++;
    bench_init(1);
    bench_hear(0, &message);
    cr_assert_eq(bench_nth(SESSION_FAILED, 0)->status, GRADWEIR_ERR_PROTOCOL);
    message = bench_joined_message(1);
    message.joined.members_count = 0;
    bench_init(1);
    bench_hear(0, &message);
    cr_assert_eq(bench_count(SESSION_FAILED), 1);
}

/* Pulling. */

static void offer_body(uint32_t member, uint64_t version, uint64_t offset, uint64_t length)
{
    const struct head_parameters parameters = {.kind = HEAD_PARAMETERS,
                                               .timeline = 1,
                                               .crc = 55,
                                               .ticket = session.parts[member].ticket,
                                               .version = version,
                                               .offset = offset,
                                               .length = length,
                                               .total = session.members[member].bytes};
    struct head_any head;
    memcpy(&head, &parameters, sizeof head);
    bench_step((struct session_event){
        .kind = SESSION_OFFERED, .member = member, .head = &head, .offer = 8, .length = length});
}

static void land(uint64_t token, uint64_t length, uint32_t crc)
{
    bench_step((struct session_event){
        .kind = SESSION_LANDED, .token = token, .length = length, .crc = crc});
}

static void whole_body(uint32_t member, uint64_t version)
{
    offer_body(member, version, 0, session.members[member].bytes);
    cr_assert_eq(bench_count(SESSION_TAKE), 1);
    const struct session_action take = *bench_nth(SESSION_TAKE, 0);
    land(take.token, take.length, 55);
}

static void start_pull(void)
{
    bench_come_in(1);
    bench_step((struct session_event){.kind = SESSION_PULL});
    cr_assert_eq(bench_count(SESSION_HEAD), 2);
}

Test(session, a_pull_is_whole_when_all_members_have_sent_one_version)
{
    start_pull();
    whole_body(0, 7);
    cr_assert_eq(bench_count(SESSION_PULLED), 0);
    whole_body(1, 7);
    cr_assert_eq(bench_nth(SESSION_PULLED, 0)->version, 7);
    cr_assert_eq(session.newest, 7);
}

Test(session, a_mixture_is_never_handed_out_but_the_older_part_pulled_again)
{
    start_pull();
    whole_body(0, 8);
    whole_body(1, 7);
    cr_assert_eq(bench_count(SESSION_PULLED), 0);
    cr_assert_eq(bench_count(SESSION_HEAD), 1);
    struct head_pull head;
    memcpy(&head, &bench_nth(SESSION_HEAD, 0)->head, sizeof head);
    cr_assert_eq(bench_nth(SESSION_HEAD, 0)->member, 1);
    cr_assert_eq(head.version, 8);
    cr_assert_eq(head.flags, PULL_EXACT);
    whole_body(1, 8);
    cr_assert_eq(bench_nth(SESSION_PULLED, 0)->version, 8);
}

static struct head_pull nth_pull(uint32_t n)
{
    struct head_pull head;
    memcpy(&head, &bench_nth(SESSION_HEAD, n)->head, sizeof head);
    cr_assert_eq(head.kind, HEAD_PULL);
    return head;
}

Test(session, a_pull_rides_with_the_newest_push_until_that_has_no_number)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_step((struct session_event){.kind = SESSION_PULL, .after = true});
    cr_assert_eq(bench_count(SESSION_HEAD), 2);
    cr_assert_eq(nth_pull(0).flags, PULL_AFTER);
    cr_assert_eq(nth_pull(1).after, 1);
    bench_judge(1, VERDICT_QUEUE_FULL, 1);
    cr_assert_eq(bench_count(SESSION_HEAD), 2);
    cr_assert_eq(nth_pull(0).flags, 0);
    cr_assert_eq(nth_pull(1).after, 0);
}

Test(session, asks_all_again_when_the_exact_version_is_gone)
{
    start_pull();
    whole_body(0, 8);
    whole_body(1, 7);
    const struct head_parameters gone = {
        .kind = HEAD_GONE, .timeline = 1, .ticket = session.parts[1].ticket, .version = 11};
    struct head_any head;
    memcpy(&head, &gone, sizeof head);
    bench_step((struct session_event){.kind = SESSION_OFFERED, .member = 1, .head = &head});
    cr_assert_eq(bench_count(SESSION_HEAD), 2);
    whole_body(0, 12);
    whole_body(1, 12);
    cr_assert_eq(bench_nth(SESSION_PULLED, 0)->version, 12);
}

Test(session, a_damaged_body_is_asked_for_again)
{
    start_pull();
    whole_body(0, 7);
    offer_body(1, 7, 0, session.members[1].bytes);
    const struct session_action take = *bench_nth(SESSION_TAKE, 0);
    land(take.token, take.length, 56);
    cr_assert_eq(bench_count(SESSION_PULLED), 0);
    cr_assert_eq(bench_count(SESSION_HEAD), 1);
    whole_body(1, 7);
    cr_assert_eq(bench_count(SESSION_PULLED), 1);
}

Test(session, bodies_that_leave_a_hole_or_overlap_are_refused)
{
    start_pull();
    const uint64_t half = session.members[0].bytes / 2;
    offer_body(0, 7, half, half);
    cr_assert_eq(bench_count(SESSION_REFUSE), 1);
    offer_body(0, 7, 0, half);
    cr_assert_eq(bench_count(SESSION_TAKE), 1);
    offer_body(0, 7, 0, half);
    cr_assert_eq(bench_count(SESSION_REFUSE), 1);
    offer_body(0, 8, half, half);
    cr_assert_eq(bench_count(SESSION_REFUSE), 1, "another version in the middle");
    offer_body(0, 7, half, 0);
    cr_assert_eq(bench_count(SESSION_PULLED) + bench_count(SESSION_TAKE), 0);
    offer_body(0, 7, half, half);
    cr_assert_eq(bench_count(SESSION_TAKE), 1);
}

Test(session, a_lost_member_is_asked_again_and_the_others_are_not)
{
    start_pull();
    whole_body(0, 7);
    offer_body(1, 7, 0, session.members[1].bytes);
    bench_step((struct session_event){.kind = SESSION_PEER_LOST, .member = 1, .now_ns = 1});
    bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = 1 + RETRY});
    bench_step((struct session_event){.kind = SESSION_CONNECTED, .member = 1});
    bench_answer(1, HEAD_WELCOME, 0, 10);
    cr_assert_eq(bench_count(SESSION_HEAD), 1);
    cr_assert_eq(bench_nth(SESSION_HEAD, 0)->head.kind, HEAD_PULL);
    whole_body(1, 7);
    cr_assert_eq(bench_count(SESSION_PULLED), 1);
}

Test(session, another_timeline_pulls_anew)
{
    start_pull();
    whole_body(0, 7);
    struct message message = bench_joined_message(1);
    message.timeline = 2;
    message.joined.version = 3;
    bench_hear(0, &message);
    cr_assert_eq(session.newest, 3);
    cr_assert_not(session.parts[0].complete);
}

/* mode = sync: the others waited too long for it. */

static void take_out(void)
{
    struct message denied = {.kind = MESSAGE_DENIED, .denied = {.status = GRADWEIR_ERR_AGAIN}};
    strcpy(denied.denied.text, "taken out of the round");
    bench_hear(0, &denied);
    cr_assert_eq(bench_count(SESSION_FAILED), 0);
    cr_assert_str_eq(bench_nth(SESSION_SAY, 0)->message.denied.text, "taken out of the round");
}

Test(session, taken_out_of_a_round_it_rests_until_it_has_something_to_push_or_to_pull)
{
    for (int pull = 0; pull < 2; pull++) {
        bench_come_in(1);
        take_out();
        cr_assert_null(bench_said(MESSAGE_JOIN));
        bench_step((struct session_event){.kind = SESSION_PEER_LOST, .member = 0});
        bench_answer(1, HEAD_DENY, GRADWEIR_ERR_FENCED, 0);
        cr_assert_null(bench_said(MESSAGE_JOIN));
        if (pull)
            bench_step((struct session_event){.kind = SESSION_PULL});
        else
            bench_push(0, PURPOSE_GRADIENT, 0);
        cr_assert_not_null(bench_said(MESSAGE_JOIN));
        const struct message message = bench_joined_message(2);
        bench_hear(0, &message);
        cr_assert_eq(bench_count(SESSION_JOINED), 1);
        cr_assert(pull || bench_said(MESSAGE_ASK)->ask.name.incarnation == 2);
    }
}

Test(session, taken_out_of_a_round_with_a_push_under_way_it_joins_at_once)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    take_out();
    cr_assert_not_null(bench_said(MESSAGE_JOIN));
}
