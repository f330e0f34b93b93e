/* A group of ranks is one worker of the coordinator. Peers 110 + r are its ranks, identity "z". */
#include "tests/unit/order_bench.h"

#include "common/parts.h"
#include "common/wire.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 1 }; /* its number as a worker: "a" is 0 */

static struct bench bench;
static uint64_t instances[3] = {7, 8, 9};

static void start(void)
{
    bench_init(&bench);
    bench_start(&bench, true);
}

static void end(void)
{
    bench_end(&bench);
}

TestSuite(order_ranks, .init = start, .fini = end);

static uint32_t peers_from = 110;

static uint32_t peer_of(uint32_t rank)
{
    return peers_from + rank;
}

static void say_join(uint32_t rank, uint32_t role)
{
    struct message message = {.kind = MESSAGE_JOIN};
    message.join = (struct message_join){.protocol_oldest = 1,
                                         .protocol_newest = 1,
                                         .identity = {'z'},
                                         .nonce = {99},
                                         .role = role,
                                         .layout_hash = bench.model->hash,
                                         .outstanding_max = 2};
    bench_say(&bench, peer_of(rank), &message);
}

static void join_rank(uint32_t rank, uint32_t ranks)
{
    bench_say(
        &bench, peer_of(rank),
        &(struct message){.kind = MESSAGE_RANK,
                          .rank = {.rank = rank, .ranks = ranks, .instance = instances[rank]}});
    say_join(rank, ROLE_RANK);
}

static bool asked(uint32_t rank);

Test(order_ranks, a_join_without_rank_is_asked_to_come_again_and_a_plain_one_is_no_rank)
{
    say_join(0, ROLE_RANK);
    cr_assert_not_null(bench_sent(&bench, peer_of(0), MESSAGE_REJOIN, 0));
    cr_assert_null(bench_sent(&bench, peer_of(0), MESSAGE_WANT, 0));
    join_rank(0, 2);
    cr_assert(asked(0));
    say_join(0, ROLE_WORKER);
    bench_log(&bench);
    cr_assert_eq(bench_records(&bench, RECORD_JOIN), 2);
}

/* Whoever is asked for its parts tells them: rows of the one tensor. */
static void tell(uint32_t rank, uint32_t ranks, uint64_t first, uint64_t count)
{
    uint8_t bytes[64];
    struct parts *parts = parts_new(rank, ranks, 1);
    struct message page = {.kind = MESSAGE_PAGE};
    parts->items[0] = (struct part){0, 0, first, count};
    parts_encode(parts, bytes);
    content_page(CONTENT_PARTS, bytes, parts_bytes(parts), 0, &page.page);
    bench_say(&bench, peer_of(rank), &page);
    free(parts);
}

static bool asked(uint32_t rank)
{
    const struct message *want = bench_sent(&bench, peer_of(rank), MESSAGE_WANT, 0);
    return want && want->want.content == CONTENT_PARTS;
}

static void both_join(uint64_t end_of_first, uint64_t begin_of_second)
{
    const uint64_t whole = bench.model->elements;
    join_rank(0, 2);
    cr_assert(asked(0));
    tell(0, 2, 0, end_of_first);
    cr_assert_null(bench_sent(&bench, peer_of(0), MESSAGE_DENIED, 0));
    join_rank(1, 2);
    cr_assert(asked(1));
    tell(1, 2, begin_of_second, whole - begin_of_second);
}

static void group_here(void)
{
    both_join(100, 100);
    cr_assert_null(bench_sent(&bench, peer_of(0), MESSAGE_JOINED, 0)); /* not logged yet */
    bench_log_one(&bench, 0);
    bench_log_one(&bench, 1);
    for (uint32_t r = 0; r < 2; r++) {
        const struct message *joined = bench_sent(&bench, peer_of(r), MESSAGE_JOINED, 0);
        cr_assert(joined && joined->joined.worker == GROUP && joined->joined.incarnation == 1);
    }
}

static void say_rank(uint32_t rank, const struct message *message)
{
    bench_say(&bench, peer_of(rank), message);
}

static struct message_place place_of(uint64_t sequence, uint32_t rank)
{
    say_rank(rank,
             &(struct message){.kind = MESSAGE_ASK, .ask = {.name = bench_name(GROUP, sequence)}});
    const struct message *place = bench_sent(&bench, peer_of(0), MESSAGE_PLACE, 0);
    cr_assert(place && bench_sent(&bench, peer_of(1), MESSAGE_PLACE, 0));
    return place->place;
}

static struct message_describe share_of(const struct message_place *place, uint32_t rank)
{
    struct message_describe head = bench_head(&bench, place);
    head.digest = 500 + rank;
    head.norm = rank + 3;
    return head;
}

static void describe(uint32_t rank, const struct message_describe *head)
{
    say_rank(rank, &(struct message){.kind = MESSAGE_DESCRIBE, .describe = *head});
}

static void bodies_land(const struct message_place *place)
{
    const uint64_t digests[2] = {500, 501};
    struct message_describe whole = bench_head(&bench, place);
    whole.digest = parts_digest(digests, 2);
    const struct message_landed body = bench_body(&whole);
    bench_landed(&bench, 0, &body);
    bench_landed(&bench, 1, &body);
}

static uint32_t verdict_told(uint32_t rank)
{
    const struct message *receipt = bench_sent(&bench, peer_of(rank), MESSAGE_RECEIPT, 0);
    return receipt ? receipt->receipt.verdict : VERDICT_NONE;
}

Test(order_ranks, ranks_are_one_worker_with_one_join)
{
    group_here();
    cr_assert_eq(bench_records(&bench, RECORD_JOIN), 2); /* and "a" */
}

Test(order_ranks, one_push_has_one_record_one_norm_and_one_receipt_for_all)
{
    group_here();
    const struct message_place place = place_of(1, 1);
    const struct message_describe zero = share_of(&place, 0), one = share_of(&place, 1);
    describe(1, &one);
    describe(1, &one); /* said twice */
    bodies_land(&place);
    cr_assert_eq(bench_records(&bench, RECORD_ADMIT), 0);
    describe(0, &zero);
    cr_assert_eq(bench_records(&bench, RECORD_ADMIT), 1);
    const struct record_admit *admit = &bench_record(&bench, RECORD_ADMIT)->admit;
    const uint64_t digests[2] = {500, 501};
    cr_assert_eq(admit->digest, parts_digest(digests, 2));
    cr_assert(fabs(admit->norm - 5) < 1e-12);
    cr_assert_eq(admit->samples, zero.samples);
    bench_log_one(&bench, 0);
    cr_assert_eq(verdict_told(0), VERDICT_NONE);
    bench_log_one(&bench, 1);
    cr_assert(verdict_told(0) == VERDICT_ADMITTED && verdict_told(1) == VERDICT_ADMITTED);
    describe(1, &one); /* its receipt was lost: the first verdict again */
    cr_assert_eq(verdict_told(1), VERDICT_ADMITTED);
    cr_assert_eq(bench_records(&bench, RECORD_ADMIT), 1);
}

Test(order_ranks, another_basis_or_other_samples_refuse_the_gradient_naming_both_ranks)
{
    group_here();
    for (uint32_t i = 0; i < 2; i++) {
        const struct message_place place = place_of(i + 1, 0);
        struct message_describe zero = share_of(&place, 0), one = share_of(&place, 1);
        if (i == 0)
            one.basis++;
        else
            one.samples++;
        describe(0, &zero);
        describe(1, &one);
        const struct record_refuse *refuse = &bench_record(&bench, RECORD_REFUSE)->refuse;
        cr_assert(refuse->verdict == VERDICT_MISMATCH && refuse->detail == 3);
        bench_log_one(&bench, 0);
        bench_log_one(&bench, 1);
        cr_assert(verdict_told(0) == VERDICT_MISMATCH && verdict_told(1) == VERDICT_MISMATCH);
        bench_freed(&bench, place.slot, place.generation);
    }
    cr_assert_eq(bench_records(&bench, RECORD_ADMIT), 0);
}

static void denied(uint32_t rank, int32_t status, const char *text)
{
    const struct message *message = bench_sent(&bench, peer_of(rank), MESSAGE_DENIED, 0);
    cr_assert_not_null(message, "rank %u", rank);
    cr_assert_eq(message->denied.status, status);
    cr_assert(strstr(message->denied.text, text), "%s", message->denied.text);
}

Test(order_ranks, gaps_and_overlaps_are_denied_to_all_ranks_with_the_tensor)
{
    both_join(100, 101);
    for (uint32_t r = 0; r < 2; r++)
        denied(r, GRADWEIR_ERR_MISMATCH, "no rank has 100 to 100 of axis 0 of tensor");
    both_join(100, 99);
    for (uint32_t r = 0; r < 2; r++)
        denied(r, GRADWEIR_ERR_MISMATCH, "ranks 0 and 1 both have 99 to 99");
    cr_assert_eq(bench_records(&bench, RECORD_JOIN), 1);
}

Test(order_ranks, a_part_out_of_range_is_denied_to_its_rank)
{
    join_rank(1, 2);
    tell(1, 2, 5, bench.model->elements);
    denied(1, GRADWEIR_ERR_INVALID, "rank 1: tensor");
}

Test(order_ranks, a_missing_rank_that_comes_back_goes_on_where_it_was)
{
    group_here();
    const struct message_place place = place_of(1, 0);
    const struct message_describe zero = share_of(&place, 0), one = share_of(&place, 1);
    describe(0, &zero);
    bench_event(&bench, ORDER_LOST, peer_of(1));
    say_rank(0, &(struct message){.kind = MESSAGE_ASK, .ask = {.name = bench_name(GROUP, 1)}});
    cr_assert_null(
        bench_sent(&bench, peer_of(0), MESSAGE_PLACE, 0)); /* nothing while one is away */
    join_rank(1, 2);
    tell(1, 2, 100, bench.model->elements - 100);
    for (uint32_t r = 0; r < 2; r++) {
        const struct message *joined = bench_sent(&bench, peer_of(r), MESSAGE_JOINED, 0);
        cr_assert(joined && joined->joined.incarnation == 1);
    }
    describe(1, &one);
    bodies_land(&place);
    cr_assert_eq(bench_records(&bench, RECORD_ADMIT), 1);
}

/* What a connection said before it broke may come behind what the next one said. */
Test(order_ranks, a_rank_that_a_late_join_of_its_last_connection_displaced_is_asked_to_join_again)
{
    const uint64_t rest = bench.model->elements - 100;
    group_here();
    peers_from = 120; /* its connection of now */
    join_rank(1, 2);
    tell(1, 2, 100, rest);
    cr_assert_not_null(bench_sent(&bench, 121, MESSAGE_JOINED, 0));
    peers_from = 110;
    join_rank(1, 2); /* the late one */
    cr_assert_not_null(bench_sent(&bench, 111, MESSAGE_JOINED, 0));
    bench_event(&bench, ORDER_LOST, 111);
    cr_assert_not_null(bench_sent(&bench, 121, MESSAGE_REJOIN, 0));
    cr_assert_null(bench_sent(&bench, 110, MESSAGE_REJOIN, 0), "it is there");
    peers_from = 120;
    join_rank(1, 2);
    cr_assert_not_null(bench_sent(&bench, 110, MESSAGE_JOINED, 0));
    cr_assert_not_null(bench_sent(&bench, 121, MESSAGE_JOINED, 0));
    bench_tick(&bench, 2 * bench.options.lease_ns);
    cr_assert_eq(bench_records(&bench, RECORD_LEAVE), 0);
    cr_assert_eq(bench_records(&bench, RECORD_JOIN), 2);
}

static bool says(const char *sentence)
{
    static char text[32768];
    order_status(bench.order, bench.now_ns, text, sizeof text);
    return strstr(text, sentence) != NULL;
}

Test(order_ranks, whoever_is_missing_of_a_group_is_named_on_the_status_page)
{
    join_rank(0, 2);
    cr_assert(says("worker z is not in: it waits for its rank 0 of 2, or its parts"));
    tell(0, 2, 0, 100);
    cr_assert(!says("its rank 0") && says("worker z is not in: it waits for its rank 1 of 2"));
    join_rank(1, 2);
    tell(1, 2, 100, bench.model->elements - 100);
    bench_log(&bench);
    cr_assert(!says("waits for its rank") && says("\"ranks\":2,\"ranks_missing\":[],"));
    const struct message_place place = place_of(1, 0);
    const struct message_describe zero = share_of(&place, 0);
    describe(0, &zero);
    bench_tick(&bench, 1000000000);
    cr_assert(says("gradient 1 of z waits for the share of its rank 1 since 1.0 s"));
    bench_event(&bench, ORDER_LOST, peer_of(1));
    bench_tick(&bench, 500000000);
    cr_assert(says("worker z waits for its rank 1 of 2, lost since 0.5 s: it is out after 2.0 s"));
    cr_assert(says("\"ranks_missing\":[1],"));
    bench_tick(&bench, bench.options.lease_ns);
    cr_assert(!says("waits for its rank") && !says("waits for the share"));
}

Test(order_ranks, a_dead_rank_costs_the_unfinished_gradient_and_the_others_are_told)
{
    group_here();
    const struct message_place place = place_of(1, 0);
    const struct message_describe zero = share_of(&place, 0);
    describe(0, &zero);
    bodies_land(&place);
    bench_event(&bench, ORDER_LOST, peer_of(1));
    bench_tick(&bench, bench.options.lease_ns + 1);
    denied(0, GRADWEIR_ERR_LOST, "rank 1 of worker z is gone");
    cr_assert_eq(bench_record(&bench, RECORD_REFUSE)->refuse.verdict, VERDICT_CANCELLED);
    cr_assert_eq(bench_record(&bench, RECORD_LEAVE)->leave.worker, GROUP);
    cr_assert_eq(bench_records(&bench, RECORD_ADMIT), 0);
}

Test(order_ranks, another_process_in_a_ranks_place_ends_the_group_and_all_anew_begin_it_again)
{
    group_here();
    bench_event(&bench, ORDER_LOST, peer_of(1));
    instances[1] = 88;
    join_rank(1, 2);
    tell(1, 2, 100, bench.model->elements - 100);
    denied(0, GRADWEIR_ERR_LOST, "");
    denied(1, GRADWEIR_ERR_LOST, "another process");
    cr_assert_eq(bench_records(&bench, RECORD_LEAVE), 1);
    bench_log(&bench);
    both_join(100, 100);
    bench_log_one(&bench, 0);
    bench_log_one(&bench, 1);
    cr_assert_eq(bench_sent(&bench, peer_of(1), MESSAGE_JOINED, 0)->joined.incarnation, 2);
}

Test(order_ranks, a_group_leaves_when_all_ranks_have_said_bye)
{
    group_here();
    const struct message bye = {.kind = MESSAGE_BYE, .bye = {.name = bench_name(GROUP, 0)}};
    say_rank(0, &bye);
    cr_assert_not_null(bench_sent(&bench, peer_of(0), MESSAGE_BYE, 0));
    bench_event(&bench, ORDER_LOST, peer_of(0));
    bench_tick(&bench, 2 * bench.options.lease_ns);
    cr_assert_eq(bench_records(&bench, RECORD_LEAVE), 0); /* rank 1 may still wait for a receipt */
    say_rank(1, &bye);
    cr_assert_eq(bench_record(&bench, RECORD_LEAVE)->leave.cause, LEAVE_BYE);
}

Test(order_ranks, each_rank_counts_as_a_process_of_workers_max)
{
    for (uint32_t i = 1; i + 1 < bench.options.workers_max; i++)
        bench_join(&bench, i);
    both_join(100, 100);
    denied(0, GRADWEIR_ERR_FULL, "workers_max");
    denied(1, GRADWEIR_ERR_REFUSED, "the first rank");
}

Test(order_ranks, a_rank_without_its_parts_keeps_nobody_else_waiting)
{
    join_rank(0, 2); /* is asked, and never answers */
    bench_join(&bench, 1);
    cr_assert_eq(bench_records(&bench, RECORD_JOIN), 2);
}
