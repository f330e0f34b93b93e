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

static void start(uint32_t window, uint32_t stride)
{
    bench_init(&b);
    b.options.law.window = window;
    b.options.law.stride = stride;
    bench_start(&b, true);
}

static const struct message_receipt *receipt(uint32_t worker)
{
    const struct message *message = bench_sent(&b, 101 + worker, MESSAGE_RECEIPT, 0);
    return message ? &message->receipt : NULL;
}

Test(order, the_first_parameters_are_the_first_offer_and_later_ones_are_told_so)
{
    start(1, 1);
    cr_assert(order_ledger(b.order)->first && figures().whole == 0);
    bench_join(&b, 1);
    const struct message *joined = bench_sent(&b, 102, MESSAGE_JOINED, 0);
    cr_assert(joined && joined->joined.first == 1 && joined->joined.members_count == 2);
    struct message_place place;
    cr_assert(bench_place(&b, 1, 1, &place));
    struct message_describe head = bench_head(&b, &place);
    head.purpose = PURPOSE_FIRST;
    bench_describe(&b, &head);
    cr_assert_eq(bench_record(&b, RECORD_REFUSE)->refuse.verdict, VERDICT_CANCELLED);
    bench_end(&b);
}

Test(order, a_gradient_before_the_first_parameters_comes_from_the_future)
{
    bench_init(&b);
    bench_start(&b, false);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 1, &place));
    struct message_describe head = bench_head(&b, &place);
    bench_describe(&b, &head);
    cr_assert_eq(bench_record(&b, RECORD_REFUSE)->refuse.verdict, VERDICT_FUTURE);
    bench_end(&b);
}

Test(order, admits_only_what_has_landed_on_all_shards)
{
    start(1, 1);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    struct message_describe head = bench_head(&b, &place);
    bench_describe(&b, &head);
    const struct message_landed body = bench_body(&head);
    bench_landed(&b, 0, &body);
    bench_landed(&b, 0, &body);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 0);
    bench_landed(&b, 1, &body);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 1);
    cr_assert_eq(bench_records(&b, RECORD_STEP), 1);
    bench_end(&b);
}

Test(order, a_body_that_lands_before_its_head_waits_for_it)
{
    start(1, 1);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    struct message_describe head = bench_head(&b, &place);
    const struct message_landed body = bench_body(&head);
    bench_landed(&b, 0, &body);
    bench_landed(&b, 1, &body);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 0);
    bench_describe(&b, &head);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 1);
    bench_end(&b);
}

Test(order, a_receipt_is_sent_when_all_shards_have_logged_and_brings_the_next_place)
{
    start(1, 1);
    bench_push(&b, 0, 2);
    cr_assert_null(receipt(0));
    bench_log_one(&b, 0);
    cr_assert_null(receipt(0));
    bench_log_one(&b, 1);
    cr_assert_not_null(receipt(0));
    cr_assert_eq(receipt(0)->verdict, VERDICT_ADMITTED);
    cr_assert_eq(receipt(0)->weight, 4.0f);
    cr_assert_eq(receipt(0)->index, bench_record(&b, RECORD_ADMIT)->index);
    cr_assert_eq(receipt(0)->next_sequence, 3);
    bench_end(&b);
}

Test(order, the_same_name_again_gets_the_first_receipt_and_another_body_a_mismatch)
{
    start(1, 1);
    bench_push(&b, 0, 2);
    bench_log(&b);
    const uint64_t index = receipt(0)->index, records = order_ledger(b.order)->index;
    const uint64_t before = figures().duplicates;
    const struct message_place place = {.name = bench_name(0, 2)};
    struct message_describe head = bench_head(&b, &place);
    bench_describe(&b, &head);
    cr_assert(receipt(0) && receipt(0)->verdict == VERDICT_ADMITTED && receipt(0)->index == index);
    bench_ask(&b, 0, 2);
    cr_assert(receipt(0) && receipt(0)->index == index);
    head.digest++;
    bench_describe(&b, &head);
    cr_assert(receipt(0) && receipt(0)->verdict == VERDICT_MISMATCH && receipt(0)->index == 0);
    cr_assert_eq(order_ledger(b.order)->index, records);
    cr_assert_eq(figures().duplicates, before + 3);
    bench_end(&b);
}

Test(order, a_stale_gradient_costs_a_head_not_a_body)
{
    bench_init(&b);
    b.options.law.staleness_max = 0;
    bench_start(&b, true);
    bench_push(&b, 0, 2);
    bench_log(&b);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 3, &place));
    struct message_describe head = bench_head(&b, &place);
    head.basis = 0;
    bench_describe(&b, &head);
    cr_assert_eq(bench_record(&b, RECORD_REFUSE)->refuse.verdict, VERDICT_STALE);
    cr_assert_not_null(bench_sent(&b, 0, MESSAGE_CLOSE, 0));
    bench_log(&b);
    cr_assert_eq(receipt(0)->verdict, VERDICT_STALE);
    cr_assert_eq(receipt(0)->staleness, 1);
    bench_end(&b);
}

static uint32_t verdict_of(void (*spoil)(struct message_describe *, struct message_landed *))
{
    start(1, 1);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    struct message_describe head = bench_head(&b, &place);
    struct message_landed body = bench_body(&head);
    const struct message_landed sound = body;
    spoil(&head, &body);
    bench_describe(&b, &head);
    bench_landed(&b, 0, &sound);
    bench_landed(&b, 1, &body);
    const struct record *refuse = bench_record(&b, RECORD_REFUSE);
    const uint32_t verdict = refuse ? refuse->refuse.verdict : VERDICT_ADMITTED;
    bench_end(&b);
    return verdict;
}

static void spoil_nothing(struct message_describe *head, struct message_landed *body)
{
    (void)head, (void)body;
}

static void spoil_digest(struct message_describe *head, struct message_landed *body)
{
    (void)head, body->digest++;
}

static void spoil_crc(struct message_describe *head, struct message_landed *body)
{
    (void)head, body->intact = 0;
}

static void spoil_finite(struct message_describe *head, struct message_landed *body)
{
    (void)head, body->not_finite = 700;
}

static void spoil_size(struct message_describe *head, struct message_landed *body)
{
    (void)head, body->magnitude = 1e19f;
}

static void spoil_layout(struct message_describe *head, struct message_landed *body)
{
    (void)body, head->layout_hash++;
}

static void spoil_basis(struct message_describe *head, struct message_landed *body)
{
    (void)body, head->basis++;
}

Test(order, every_spoiled_gradient_is_refused_everywhere_with_its_reason)
{
    cr_assert_eq(verdict_of(spoil_nothing), VERDICT_ADMITTED);
    cr_assert_eq(verdict_of(spoil_digest), VERDICT_MISMATCH);
    cr_assert_eq(verdict_of(spoil_crc), VERDICT_MISMATCH);
    cr_assert_eq(verdict_of(spoil_finite), VERDICT_NOT_FINITE);
    cr_assert_eq(verdict_of(spoil_size), VERDICT_NOT_FINITE);
    cr_assert_eq(verdict_of(spoil_layout), VERDICT_MISMATCH);
    cr_assert_eq(verdict_of(spoil_basis), VERDICT_FUTURE);
}

Test(order, later_sequences_wait_for_earlier_ones)
{
    start(1, 1);
    struct message_place second, third;
    cr_assert(bench_place(&b, 0, 2, &second));
    cr_assert(bench_place(&b, 0, 3, &third));
    struct message_describe head = bench_head(&b, &third);
    bench_describe(&b, &head);
    struct message_landed body = bench_body(&head);
    bench_landed(&b, 0, &body);
    bench_landed(&b, 1, &body);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 0);
    head = bench_head(&b, &second);
    bench_describe(&b, &head);
    body = bench_body(&head);
    bench_landed(&b, 0, &body);
    bench_landed(&b, 1, &body);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 2);
    cr_assert_eq(bench_record(&b, RECORD_ADMIT)->admit.name.sequence, 3);
    bench_end(&b);
}

Test(order, a_slot_is_given_again_only_when_every_shard_has_freed_it)
{
    bench_init(&b);
    b.options.queue = 1;
    b.options.window_max = 1;
    bench_start(&b, true);
    bench_push(&b, 0, 2); /* its step empties the window: the slot is closing */
    const struct record_admit admit = bench_record(&b, RECORD_ADMIT)->admit;
    bench_log(&b);
    const uint64_t next = receipt(0)->next_generation;
    cr_assert_neq(next, 0);
    cr_assert_neq(receipt(0)->next_slot, admit.slot);
    struct message_describe head =
        bench_head(&b, &(struct message_place){bench_name(0, 3), receipt(0)->next_slot, next});
    bench_describe(&b, &head);
    const struct message_landed body = bench_body(&head);
    bench_landed(&b, 0, &body);
    bench_landed(&b, 1, &body);
    bench_log(&b);
    cr_assert_eq(receipt(0)->next_sequence, 0, "both slots are closing");
    struct message_place place;
    cr_assert(!bench_place(&b, 0, 4, &place));
    struct message freed = {.kind = MESSAGE_FREED, .freed = {admit.slot, admit.generation}};
    bench_say(&b, 1, &freed);
    cr_assert_null(bench_sent(&b, 101, MESSAGE_PLACE, 0));
    freed.freed.generation++;
    bench_say(&b, 2, &freed);
    cr_assert_null(bench_sent(&b, 101, MESSAGE_PLACE, 0), "another generation");
    freed.freed.generation--;
    bench_say(&b, 2, &freed);
    const struct message *placed = bench_sent(&b, 101, MESSAGE_PLACE, 0);
    cr_assert(placed && placed->place.slot == admit.slot && placed->place.generation > next);
    bench_end(&b);
}

Test(order, every_worker_has_a_place_before_anyone_gets_a_second)
{
    bench_init(&b);
    b.options.queue = 2;
    bench_start(&b, true);
    bench_join(&b, 1);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    cr_assert(!bench_place(&b, 0, 3, &place), "the other place is worker 1's");
    cr_assert_eq(figures().waiting, 1);
    cr_assert(bench_place(&b, 1, 1, &place));
    cr_assert(bench_place(&b, 1, 1, &place), "asked again: the same place");
    cr_assert_eq(figures().queue, 2);
    bench_end(&b);
}

Test(order, an_unused_place_expires_while_others_wait)
{
    bench_init(&b);
    b.options.queue = 1;
    bench_start(&b, true);
    bench_join(&b, 1);
    struct message_place place, other;
    cr_assert(bench_place(&b, 0, 2, &place));
    cr_assert(!bench_place(&b, 1, 1, &other));
    bench_tick(&b, b.options.place_patience_ns);
    cr_assert_not_null(bench_sent(&b, 0, MESSAGE_CLOSE, 0));
    cr_assert_not_null(bench_sent(&b, 102, MESSAGE_PLACE, 0));
    const struct message_describe head = bench_head(&b, &place);
    bench_describe(&b, &head);
    cr_assert_eq(figures().pushes, 1, "the place is gone: it waits for another");
    cr_assert_eq(figures().waiting, 1);
    bench_end(&b);
}

Test(order, a_full_queue_is_said_when_overflow_is_reject)
{
    bench_init(&b);
    b.options.queue = 1;
    b.options.overflow_reject = true;
    bench_start(&b, true);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    cr_assert(!bench_place(&b, 0, 3, &place));
    cr_assert(receipt(0) && receipt(0)->verdict == VERDICT_QUEUE_FULL && receipt(0)->index == 0);
    cr_assert_eq(figures().waiting, 0);
    bench_end(&b);
}

Test(order, what_does_not_land_in_time_is_cancelled_by_a_record)
{
    start(1, 1);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 2, &place));
    const struct message_describe head = bench_head(&b, &place);
    bench_describe(&b, &head);
    const struct message_landed body = bench_body(&head);
    bench_landed(&b, 0, &body);
    char text[4096];
    order_status(b.order, b.now_ns, text, sizeof text);
    cr_assert_not_null(strstr(text, "until it has landed on shard 1"));
    cr_assert_leq(order_next(b.order), b.now_ns + b.options.push_patience_ns);
    bench_tick(&b, b.options.push_patience_ns);
    cr_assert_eq(bench_record(&b, RECORD_REFUSE)->refuse.verdict, VERDICT_CANCELLED);
    bench_landed(&b, 1, &body);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 0);
    bench_end(&b);
}

Test(order, admissions_wait_while_the_slowest_shard_is_half_a_ring_behind)
{
    bench_init(&b);
    b.options.ring = 32;
    b.options.law.staleness_max = -1;
    bench_start(&b, true);
    uint64_t sequence = 2;
    while (order_ledger(b.order)->index < 64 && sequence < 40) {
        const uint32_t before = bench_records(&b, RECORD_ADMIT);
        struct message_place place;
        if (!bench_place(&b, 0, sequence, &place))
            break;
        const struct message_describe head = bench_head(&b, &place);
        bench_describe(&b, &head);
        const struct message_landed body = bench_body(&head);
        bench_landed(&b, 0, &body);
        bench_landed(&b, 1, &body);
        if (bench_records(&b, RECORD_ADMIT) == before)
            break;
        const struct record_admit admit = bench_record(&b, RECORD_ADMIT)->admit;
        bench_freed(&b, admit.slot, admit.generation);
        sequence++;
    }
    const uint32_t stopped = bench_records(&b, RECORD_ADMIT);
    cr_assert_lt(stopped, 16);
    cr_assert_gt(stopped, 4);
    bench_log_one(&b, 0);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), stopped);
    bench_log_one(&b, 1);
    cr_assert_gt(bench_records(&b, RECORD_ADMIT), stopped);
    bench_end(&b);
}

Test(order, another_log_on_a_shard_is_an_alarm_that_stops_admitting)
{
    start(1, 1);
    bench_say(
        &b, 1,
        &(struct message){.kind = MESSAGE_LOGGED, .logged = {order_ledger(b.order)->index, 12345}});
    cr_assert_eq(bench_count(&b, ORDER_SAY), 1);
    bench_push(&b, 0, 2);
    cr_assert_eq(bench_records(&b, RECORD_ADMIT), 0);
    bench_end(&b);
}

Test(order, whole_is_what_every_shard_has_stepped)
{
    start(1, 1);
    bench_push(&b, 0, 2);
    bench_log(&b);
    const struct message stepped = {.kind = MESSAGE_STEPPED, .stepped = {1}};
    bench_say(&b, 1, &stepped);
    cr_assert_null(bench_sent(&b, 0, MESSAGE_WHOLE, 0));
    bench_say(&b, 2, &stepped);
    cr_assert_eq(bench_sent(&b, 0, MESSAGE_WHOLE, 0)->whole.version, 1);
    cr_assert_eq(figures().whole, 1);
    bench_end(&b);
}
