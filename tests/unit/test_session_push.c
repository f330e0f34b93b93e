/* A worker's core: what becomes of its pushes. */
#include "tests/unit/session_bench.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(session_push, .init = bench_start, .fini = bench_end);

Test(session_push, asks_describes_and_sends_every_byte_once)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    cr_assert_eq(bench_said(MESSAGE_ASK)->ask.name.sequence, 1);
    cr_assert_eq(bench_count(SESSION_CHUNK), 0);
    bench_give_place(1, 9, 0);
    cr_assert_eq(bench_described().digest, 99);
    cr_assert_eq(bench_described().session, 11);
    cr_assert_null(bench_said(MESSAGE_DESCRIBE));
    uint64_t next = 0;
    for (uint32_t i = 0; i < bench_count(SESSION_CHUNK); i++) {
        const struct session_action *chunk = bench_nth(SESSION_CHUNK, i);
        struct head_chunk head;
        memcpy(&head, &chunk->head, sizeof head);
        cr_assert_eq(chunk->offset, next);
        cr_assert_eq(head.generation, 9);
        cr_assert_eq(head.session, 10 + chunk->member);
        cr_assert_eq(head.offset, next - (chunk->member ? FIRST_HALF * sizeof(float) : 0));
        next += chunk->length;
    }
    cr_assert_eq(next, ELEMENTS * sizeof(float));
}

Test(session_push, has_no_more_in_flight_to_a_member_than_allowed_whatever_the_pushes)
{
    bench_come_in(2);
    session.chunk_bytes = 16;
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    cr_assert_eq(bench_count(SESSION_CHUNK), 2 * SESSION_CHUNKS_AHEAD);
    bench_push(1, PURPOSE_GRADIENT, 0);
    bench_give_place(2, 10, 0);
    cr_assert_eq(bench_count(SESSION_CHUNK), 0);
    uint32_t first = 0;
    for (int i = 0; i < 128 + 122; i++) {
        const uint32_t member = session.pushes[0].in_flight[0] ? 0 : 1;
        bench_sent(0, member, GRADWEIR_OK, 0);
        first += bench_count(SESSION_CHUNK) && bench_nth(SESSION_CHUNK, 0)->buffer == 0;
        cr_assert_leq(bench_count(SESSION_CHUNK), 1);
    }
    cr_assert_eq(first, 128 + 122 - 2 * SESSION_CHUNKS_AHEAD);
    cr_assert_eq(session.members[1].in_flight, SESSION_CHUNKS_AHEAD);
}

Test(session_push, sends_an_empty_head_to_a_member_without_a_range)
{
    struct message message = bench_joined_message(1);
    message.joined.members[0].count = ELEMENTS;
    message.joined.members[1] = (struct member){.address = "b:2", .first = ELEMENTS};
    bench_init(1);
    bench_hear(0, &message);
    bench_open_member(0, 0);
    bench_open_member(1, 0);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    cr_assert_eq(bench_count(SESSION_HEAD), 2);
    cr_assert_eq(bench_nth(SESSION_HEAD, 0)->head.kind, HEAD_DESCRIBE);
    cr_assert_eq(bench_nth(SESSION_HEAD, 1)->member, 1);
    cr_assert_eq(bench_nth(SESSION_HEAD, 1)->head.kind, HEAD_CHUNK);
}

Test(session_push, tells_the_verdict_when_the_buffer_is_free_and_not_before)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_judge(1, VERDICT_STALE, 1);
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
    bench_sent(0, 0, GRADWEIR_OK, 1);
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
    bench_sent(0, 0, GRADWEIR_OK, 1);
    bench_sent(0, 1, GRADWEIR_OK, 1);
    bench_sent(0, 1, GRADWEIR_OK, 1);
    cr_assert_eq(bench_count(SESSION_VERDICT), 1);
    cr_assert_eq(bench_nth(SESSION_VERDICT, 0)->message.receipt.verdict, VERDICT_STALE);
    cr_assert_eq(session_next(&session), INT64_MAX);
}

Test(session_push, a_lost_connection_frees_the_buffer_of_a_push_that_has_its_verdict)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_judge(1, VERDICT_STALE, 1);
    bench_sent(0, 0, GRADWEIR_OK, 1);
    bench_sent(0, 0, GRADWEIR_OK, 1);
    bench_step((struct session_event){.kind = SESSION_PEER_LOST, .member = 1, .now_ns = 1});
    cr_assert_eq(bench_count(SESSION_VERDICT), 1);
}

Test(session_push, sends_the_same_bytes_under_the_same_name_when_a_member_comes_back)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_step((struct session_event){.kind = SESSION_PEER_LOST, .member = 1, .now_ns = 1});
    bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = 1 + RETRY});
    cr_assert_eq(bench_nth(SESSION_CONNECT, 0)->member, 1);
    bench_open_member(1, 20);
    cr_assert_eq(bench_count(SESSION_CHUNK), 2);
    struct head_chunk head;
    memcpy(&head, &bench_nth(SESSION_CHUNK, 0)->head, sizeof head);
    cr_assert_eq(head.sequence, 1);
    cr_assert_eq(head.generation, 9);
    cr_assert_eq(head.offset, 0);
    cr_assert_eq(bench_nth(SESSION_CHUNK, 0)->member, 1);
}

Test(session_push, describes_again_after_a_rejoin_and_moves_no_body_for_that)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_step((struct session_event){.kind = SESSION_DOWN});
    bench_step((struct session_event){.kind = SESSION_UP});
    cr_assert(bench_said(MESSAGE_JOIN));
    const struct message message = bench_joined_message(1);
    bench_hear(5, &message);
    cr_assert_eq(bench_said(MESSAGE_DESCRIBE)->describe.name.sequence, 1);
    cr_assert_eq(bench_count(SESSION_HEAD) + bench_count(SESSION_CHUNK), 0);
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
    struct message other = message;
    other.joined.pass[0] = 9;
    bench_hear(6, &other);
    cr_assert_eq(bench_count(SESSION_HEAD), 2, "another pass is shown to both");
}

Test(session_push, another_incarnation_ends_what_had_a_place_and_renames_what_had_none)
{
    bench_come_in(2);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_push(1, PURPOSE_GRADIENT, 0);
    bench_send_rest(0, 0);
    const struct message message = bench_joined_message(2);
    bench_hear(5, &message);
    cr_assert_eq(bench_nth(SESSION_VERDICT, 0)->status, GRADWEIR_ERR_LOST);
    cr_assert_eq(bench_nth(SESSION_VERDICT, 0)->message.receipt.verdict, VERDICT_NONE);
    cr_assert_eq(bench_said(MESSAGE_ASK)->ask.name.sequence, 1);
    cr_assert_eq(bench_said(MESSAGE_ASK)->ask.name.incarnation, 2);
}

Test(session_push, the_same_incarnation_of_another_number_is_another)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_send_rest(0, 0);
    struct message message = bench_joined_message(1);
    message.joined.worker++;
    bench_hear(5, &message);
    cr_assert(bench_nth(SESSION_VERDICT, 0));
    cr_assert_eq(bench_nth(SESSION_VERDICT, 0)->status, GRADWEIR_ERR_LOST);
}

Test(session_push, uses_the_place_that_came_with_a_receipt_without_asking)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_send_rest(0, 0);
    struct message message = bench_receipt_message(1, VERDICT_ADMITTED);
    message.receipt.next_sequence = 2;
    message.receipt.next_slot = 6;
    message.receipt.next_generation = 12;
    bench_hear(1, &message);
    bench_push(0, PURPOSE_GRADIENT, 2);
    cr_assert_null(bench_said(MESSAGE_ASK));
    cr_assert_eq(bench_described().generation, 12);
    bench_give_place(2, 15, 3); /* that place had expired: here is another */
    cr_assert_eq(bench_said(MESSAGE_DESCRIBE)->describe.generation, 15);
}

Test(session_push, keeps_the_places_that_came_with_receipts_heard_together)
{
    bench_come_in(2);
    for (uint32_t i = 0; i < 2; i++) {
        bench_push(i, PURPOSE_GRADIENT, 0);
        bench_give_place(i + 1, 9 + i, 0);
        bench_send_rest(i, 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct message message = bench_receipt_message(i + 1, VERDICT_ADMITTED);
        message.receipt.next_sequence = i + 3;
        message.receipt.next_generation = i + 13;
        bench_hear(1, &message);
    }
    for (uint32_t i = 0; i < 2; i++) {
        bench_push(i, PURPOSE_GRADIENT, 2);
        cr_assert_eq(bench_described().generation, i + 13);
    }
}

Test(session_push, queue_full_frees_the_number_and_who_comes_behind_moves_up)
{
    bench_come_in(2);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_push(1, PURPOSE_GRADIENT, 0);
    bench_judge(1, VERDICT_QUEUE_FULL, 1);
    cr_assert_eq(bench_nth(SESSION_VERDICT, 0)->buffer, 0);
    cr_assert_eq(bench_said(MESSAGE_ASK)->ask.name.sequence, 1);
    bench_give_place(1, 9, 2);
    cr_assert_eq(bench_described().sequence, 1);
    bench_judge(1, VERDICT_QUEUE_FULL, 3); /* to an older ask: this push has its place */
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
}

Test(session_push, without_a_verdict_it_sends_again_ever_more_rarely)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = RESEND});
    cr_assert(bench_said(MESSAGE_DESCRIBE));
    cr_assert_eq(bench_count(SESSION_CHUNK), 0, "bodies are on their way yet");
    bench_send_rest(0, RESEND);
    int64_t now_ns = session_next(&session), last = 0;
    for (int i = 0; i < 8; i++) {
        bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = now_ns});
        cr_assert(bench_said(MESSAGE_DESCRIBE));
        cr_assert_eq(bench_count(SESSION_CHUNK), 4);
        bench_send_rest(0, now_ns);
        cr_assert_geq(session_next(&session) - now_ns, last);
        last = session_next(&session) - now_ns;
        now_ns = session_next(&session);
    }
    cr_assert_eq(last, SESSION_PAUSES_MAX * RESEND);
}

Test(session_push, asks_whether_somebody_else_was_first_when_its_offer_is_cancelled)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_FIRST, 0);
    bench_give_place(1, 9, 0);
    bench_send_rest(0, 0);
    bench_judge(1, VERDICT_CANCELLED, 1);
    cr_assert(bench_said(MESSAGE_JOIN));
    cr_assert_not(session.first);
    struct message message = bench_joined_message(1);
    message.joined.first = 1;
    bench_hear(2, &message);
    cr_assert(session.first);
}

Test(session_push, hears_no_receipt_of_another_incarnation)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    struct message message = bench_receipt_message(1, VERDICT_ADMITTED);
    message.receipt.name.incarnation++;
    bench_hear(0, &message);
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
}

/* A body of CHUNK-sized chunks whose first `filled` bytes are made. */
static void fill(bool filling, uint64_t filled)
{
    bench_step((struct session_event){
        .kind = SESSION_FILLED,
        .push = {.buffer = 0, .filling = filling, .filled = filled, .norm = 2, .digest = 98}});
}

static void begin_filling(void)
{
    bench_come_in(1);
    session.chunk_bytes = 64;
    bench_give_place(1, 9, 0);
    bench_step((struct session_event){
        .kind = SESSION_PUSH,
        .push = {.purpose = PURPOSE_GRADIENT, .samples = 1, .basis = 5, .filling = true}});
    cr_assert_eq(bench_count(SESSION_CHUNK), 0);
}

static struct head_chunk chunk_head(uint32_t n)
{
    struct head_chunk head;
    memcpy(&head, &bench_nth(SESSION_CHUNK, n)->head, sizeof head);
    return head;
}

Test(session_push, sends_what_is_made_while_the_rest_is_made_and_seals_it_at_the_end)
{
    const uint64_t half = FIRST_HALF * sizeof(float), all = ELEMENTS * sizeof(float);
    begin_filling();
    fill(true, 127);
    cr_assert_eq(bench_count(SESSION_CHUNK), 1);
    cr_assert(chunk_head(0).flags == 0 && chunk_head(0).digest == 0);
    cr_assert_null(bench_said(MESSAGE_DESCRIBE));
    fill(true, 128);
    cr_assert_eq(bench_count(SESSION_CHUNK), 1);
    cr_assert_eq(chunk_head(0).offset, 64);
    uint64_t sent = 128, sealed = 0;
    for (uint64_t at = half; at <= all; at += all - half) {
        fill(at < all, at);
        while (bench_count(SESSION_CHUNK) || session.members[0].in_flight ||
               session.members[1].in_flight) {
            for (uint32_t i = 0; i < bench_count(SESSION_CHUNK); i++) {
                const struct session_action *chunk = bench_nth(SESSION_CHUNK, i);
                cr_assert_leq(chunk->offset + chunk->length, at);
                sent += chunk->length;
                sealed += chunk_head(i).flags == CHUNK_SEALED && chunk_head(i).digest == 98;
            }
            const uint32_t member = session.members[0].in_flight ? 0 : 1;
            if (!session.members[member].in_flight)
                break;
            bench_sent(0, member, GRADWEIR_OK, 0);
        }
        cr_assert(at == all || (sealed == 0 && sent == half - (half % 64 ? half % 64 : 64)));
    }
    cr_assert_eq(sent, all);
    cr_assert_geq(sealed, 2);
}

Test(session_push, a_verdict_on_what_is_still_made_waits_for_its_end)
{
    begin_filling();
    fill(true, 64);
    bench_sent(0, 0, GRADWEIR_OK, 0);
    bench_judge(1, VERDICT_STALE, 1);
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
    fill(true, 128);
    cr_assert_eq(bench_count(SESSION_VERDICT) + bench_count(SESSION_CHUNK), 0);
    fill(false, ELEMENTS * sizeof(float));
    cr_assert_eq(bench_count(SESSION_VERDICT), 1);
    cr_assert_null(bench_said(MESSAGE_DESCRIBE));
}

Test(session_push, a_member_that_comes_back_gets_again_what_is_made_so_far)
{
    begin_filling();
    fill(true, 128);
    bench_step((struct session_event){.kind = SESSION_PEER_LOST, .member = 0, .now_ns = 1});
    bench_step((struct session_event){.kind = SESSION_TICK, .now_ns = 1 + RETRY});
    bench_open_member(0, 20);
    cr_assert_eq(bench_count(SESSION_CHUNK), 2);
    cr_assert(chunk_head(0).offset == 0 && chunk_head(1).offset == 64 && chunk_head(1).flags == 0);
}

static void receipt_head(uint32_t session_number, uint32_t epoch)
{
    struct head_any any;
    const struct head_receipt head = {.kind = HEAD_RECEIPT,
                                      .next = 1,
                                      .session = session_number,
                                      .epoch = epoch,
                                      .staleness = 2,
                                      .sequence = 1,
                                      .index = 7,
                                      .version = 4,
                                      .whole = 5,
                                      .next_generation = 12,
                                      .next_slot = 6,
                                      .weight = 0.5F};
    memcpy(&any, &head, sizeof any);
    bench_step((struct session_event){.kind = SESSION_OFFERED, .member = 1, .head = &any});
}

Test(session_push, a_receipt_may_come_by_the_member_that_took_the_words)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_send_rest(0, 0);
    receipt_head(12, 1); /* another session's */
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
    receipt_head(11, 2); /* another coordinator's */
    cr_assert_eq(bench_count(SESSION_VERDICT), 0);
    receipt_head(11, 1);
    const struct message_receipt *receipt = &bench_nth(SESSION_VERDICT, 0)->message.receipt;
    cr_assert(receipt->verdict == VERDICT_ADMITTED && receipt->index == 7);
    cr_assert(receipt->version == 4 && receipt->staleness == 2);
    cr_assert_float_eq(receipt->weight, 0.5, 0);
    cr_assert_eq(session.newest, 5);
    bench_push(0, PURPOSE_GRADIENT, 2);
    cr_assert_null(bench_said(MESSAGE_ASK));
    cr_assert_eq(bench_described().generation, 12);
    cr_assert_eq(bench_described().slot, 6);
}

Test(session_push, a_member_that_is_lost_may_have_taken_the_words_along)
{
    bench_come_in(1);
    bench_push(0, PURPOSE_GRADIENT, 0);
    bench_give_place(1, 9, 0);
    bench_send_rest(0, 0);
    bench_step((struct session_event){.kind = SESSION_PEER_LOST, .member = 0});
    cr_assert_null(bench_said(MESSAGE_DESCRIBE));
    bench_step((struct session_event){.kind = SESSION_PEER_LOST, .member = 1});
    cr_assert_eq(bench_said(MESSAGE_DESCRIBE)->describe.name.sequence, 1);
}
