#include "tests/unit/heir_bench.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct bench b;
static struct heir h;
static const int64_t SECOND = 1000000000;

static void start(uint32_t gradients)
{
    heir_job(&b, 2, gradients);
}

static void end(void)
{
    heir_end(&h);
    bench_end(&b);
}

static struct order_figures figures(void)
{
    struct order_figures f;
    order_figures(h.bench.order, &f);
    return f;
}

static struct message_landed landing(const struct message_place *place)
{
    const struct message_describe head = bench_head(&b, place);
    return bench_body(&head);
}

Test(take_over, nothing_is_decided_and_no_worker_hears_anything_before_all_have_promised)
{
    start(1);
    heir_init(&h, &b);
    bench_join_as(&h.bench, 101, 'a', 1);
    heir_enlist(&h, 0);
    cr_assert_eq(h.bench.actions.count, 0, "is a job running? one shard is no answer");
    heir_enlist(&h, 1);
    for (uint32_t i = 0; i < 2; i++) {
        const struct message *seal = bench_sent(&h.bench, 1 + i, MESSAGE_SEAL, 0);
        cr_assert(seal && seal->epoch == 2 && seal->seal.instance[0] == 2);
    }
    cr_assert_eq(heir_sent_else(&h, MESSAGE_SEAL), 0);
    heir_answer(&h, 0);
    cr_assert_eq(h.bench.actions.count, 0);
    bench_ask(&h.bench, 0, 3);
    cr_assert_eq(h.bench.actions.count, 0);
    heir_sealed(&h, 1, 2, 2);
    cr_assert(h.bench.actions.count == 0 && !figures().acting, "a promise without its content");
    heir_content(&h, 1);
    cr_assert(figures().acting && figures().epoch == 2);
    cr_assert_not_null(bench_sent(&h.bench, 1, MESSAGE_MEMBER, 0));
    cr_assert_not_null(bench_sent(&h.bench, 101, MESSAGE_JOINED, 0));
    end();
}

Test(take_over, the_longest_log_is_the_truth_and_whoever_is_behind_gets_the_rest)
{
    start(2);
    const uint64_t all = order_ledger(b.order)->index;
    bench_push(&b, 0, 4); /* ADMIT and STEP, which only shard 1 has logged */
    heir_init(&h, &b);
    h.shards[0].index = all;
    heir_take_over(&h);
    cr_assert_eq(order_ledger(h.bench.order)->index, all + 2);
    cr_assert_eq(order_ledger(h.bench.order)->hash, order_ledger(b.order)->hash);
    const struct message *missing = bench_sent(&h.bench, 1, MESSAGE_RECORD, 0);
    cr_assert(missing && missing->record.kind == RECORD_ADMIT && missing->epoch == 2 &&
              missing->record.epoch == 1);
    cr_assert_eq(bench_sent(&h.bench, 1, MESSAGE_RECORD, 1)->record.kind, RECORD_STEP);
    cr_assert_null(bench_sent(&h.bench, 1, MESSAGE_RECORD, 2));
    cr_assert_null(bench_sent(&h.bench, 2, MESSAGE_RECORD, 0));
    /* The next record follows, in the new epoch. */
    bench_join_as(&h.bench, 103, 'c', 3);
    const struct record *join = bench_record(&h.bench, RECORD_JOIN);
    cr_assert(join->index == all + 3 && join->epoch == 2);
    cr_assert_eq(join->previous, order_ledger(b.order)->hash);
    end();
}

Test(take_over, a_worker_keeps_its_incarnation_and_hears_the_first_receipt_once_all_have_it)
{
    start(2);
    const uint64_t all = order_ledger(b.order)->index;
    struct message_place place;
    bench_push(&b, 0, 4);
    const struct record_admit admit = bench_record(&b, RECORD_ADMIT)->admit;
    place = (struct message_place){admit.name, admit.slot, admit.generation};
    struct message_describe head = bench_head(&b, &place);
    heir_init(&h, &b);
    h.shards[0].index = all;
    heir_take_over(&h);
    cr_assert_null(heir_join(&h, 0), "not before shard 0 has logged what it lacked");
    bench_log_one(&h.bench, 0);
    const struct message *joined = bench_sent(&h.bench, 101, MESSAGE_JOINED, 0);
    cr_assert(joined && joined->joined.incarnation == 1 && joined->joined.last_sequence == 4);
    bench_describe(&h.bench, &head);
    const struct message *receipt = bench_sent(&h.bench, 101, MESSAGE_RECEIPT, 0);
    cr_assert(receipt && receipt->receipt.verdict == VERDICT_ADMITTED &&
              receipt->receipt.index == all + 1);
    cr_assert_eq(bench_records(&h.bench, RECORD_ADMIT), 3);
    end();
}

Test(take_over, owed_receipts_are_told_when_all_shards_are_level_too)
{
    start(1);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 3, &place));
    struct message_describe head = bench_head(&b, &place);
    head.basis = 99;
    bench_describe(&b, &head);
    bench_log(&b); /* all have REFUSE, and then the receipt is lost with the coordinator */
    cr_assert_eq(bench_record(&b, RECORD_REFUSE)->refuse.verdict, VERDICT_FUTURE);
    for (int planted = 0; planted < 2; planted++) {
        heir_init(&h, &b);
        if (planted)
            cr_assert(order_plant(h.bench.order, "owed-not-resent"));
        heir_take_over(&h);
        cr_assert_not_null(heir_join(&h, 0));
        bench_describe(&h.bench, &head);
        const struct message *receipt = bench_sent(&h.bench, 101, MESSAGE_RECEIPT, 0);
        cr_assert_eq(receipt == NULL, planted);
        cr_assert(!receipt || receipt->receipt.verdict == VERDICT_FUTURE);
        heir_end(&h);
    }
    bench_end(&b);
}

Test(take_over, a_body_that_is_whole_everywhere_keeps_its_place_and_is_judged_once_described)
{
    start(1);
    struct message_place place;
    cr_assert(bench_place(&b, 0, 3, &place));
    struct message_describe head = bench_head(&b, &place);
    const struct message_landed body = landing(&place);
    heir_init(&h, &b);
    heir_landed_all(&h, &body);
    heir_take_over(&h);
    heir_join(&h, 0);
    bench_ask(&h.bench, 0, 3);
    const struct message *held = bench_sent(&h.bench, 101, MESSAGE_PLACE, 0);
    cr_assert(held && held->place.slot == place.slot && held->place.generation == place.generation);
    bench_describe(&h.bench, &head);
    const struct record *admit = bench_record(&h.bench, RECORD_ADMIT);
    cr_assert(admit->epoch == 2 && admit->admit.name.sequence == 3 &&
              admit->admit.generation == place.generation);
    cr_assert_eq(bench_records(&h.bench, RECORD_ADMIT), 2);
    bench_log(&h.bench);
    cr_assert_eq(bench_sent(&h.bench, 101, MESSAGE_RECEIPT, 0)->receipt.verdict, VERDICT_ADMITTED);
    end();
}

/* Which CLOSE tells the heir's shards that a slot is over; or NULL. */
static const struct message_close *closed(uint32_t slot)
{
    const struct message *message;
    for (uint32_t i = 0; (message = bench_sent(&h.bench, 0, MESSAGE_CLOSE, i)); i++)
        if (message->close.slot == slot)
            return &message->close;
    return NULL;
}

Test(take_over, incomplete_slots_close_above_all_old_generations_and_their_bodies_come_again)
{
    struct message_place torn, partial, place;
    start(1);
    cr_assert(bench_place(&b, 0, 3, &partial));
    cr_assert(bench_place(&b, 1, 1, &torn));
    struct message_landed body = landing(&partial);
    heir_init(&h, &b);
    heir_landed(&h, 0, &body); /* on one of two */
    body = landing(&torn);
    heir_landed(&h, 0, &body);
    body.digest++;
    heir_landed(&h, 1, &body);
    heir_take_over(&h);
    for (uint32_t slot = 0; slot < 16; slot++) {
        const struct message_close *close = closed(slot);
        const bool window = slot == bench_record(&b, RECORD_ADMIT)->admit.slot &&
                            ledger_window(order_ledger(b.order)) > 0;
        cr_assert(window || (close && close->generation == UINT64_C(2) << 40 &&
                             close->after == order_ledger(b.order)->index),
                  "slot %u", slot);
    }
    heir_join(&h, 0);
    bench_ask(&h.bench, 0, 3);
    cr_assert_null(bench_sent(&h.bench, 101, MESSAGE_PLACE, 0), "no slot is free yet");
    const struct message freed = {.kind = MESSAGE_FREED, .freed = {5, UINT64_C(2) << 40}};
    bench_say(&h.bench, 1, &freed);
    cr_assert_null(bench_sent(&h.bench, 101, MESSAGE_PLACE, 0), "freed by one of two");
    bench_say(&h.bench, 2, &freed);
    const struct message *given = bench_sent(&h.bench, 101, MESSAGE_PLACE, 0);
    cr_assert_not_null(given);
    place = given->place;
    cr_assert(place.slot == 5 && place.generation > UINT64_C(2) << 40 && place.name.sequence == 3);
    end();
}

Test(take_over, places_behind_a_gap_are_not_held)
{
    struct message_place third, fourth;
    start(1);
    cr_assert(bench_place(&b, 0, 3, &third));
    cr_assert(bench_place(&b, 0, 4, &fourth));
    const struct message_landed body = landing(&fourth);
    heir_init(&h, &b);
    heir_landed_all(&h, &body);
    heir_take_over(&h);
    cr_assert_eq(figures().queue, 0);
    cr_assert_not_null(closed(fourth.slot));
    heir_end(&h);
    heir_init(&h, &b);
    const struct message_landed before = landing(&third);
    heir_landed_all(&h, &before);
    heir_landed_all(&h, &body);
    heir_take_over(&h);
    cr_assert_eq(figures().queue, 2);
    end();
}

Test(take_over, a_step_that_waits_for_its_sums_gets_them_in_the_new_epoch)
{
    bench_init(&b);
    b.options.law.clip_average = 1;
    bench_start(&b, true);
    bench_push(&b, 0, 2);
    bench_log(&b);
    cr_assert(order_ledger(b.order)->stepping);
    heir_init(&h, &b);
    heir_take_over(&h);
    cr_assert_eq(bench_records(&h.bench, RECORD_SUMMED), 0);
    double ones[64], blocks = 0;
    for (uint32_t i = 0; i < 64; i++)
        ones[i] = 1;
    for (uint32_t i = 0; i < 2; i++) {
        const struct model_range range = model_shard(b.model, 2, i);
        struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
        struct message message = {.kind = MESSAGE_SUMS};
        struct message_sums *sums = &message.sums;
        *sums = (struct message_sums){
            .version = 1, .round = 1, .first_block = range.first_block, .blocks = range.blocks};
        sums->nodes_count =
            (uint32_t)arithmetic_tree_cover(range.first_block, ones, range.blocks, nodes);
        for (uint32_t n = 0; n < sums->nodes_count; n++)
            sums->nodes[n] = nodes[n].sum;
        bench_say(&h.bench, 1 + i, &message);
        blocks += (double)range.blocks;
    }
    const struct record *summed = bench_record(&h.bench, RECORD_SUMMED);
    cr_assert(summed && summed->epoch == 2 && summed->summed.norm == sqrt(blocks));
    end();
}

Test(take_over, shards_without_memory_among_others_with_it_are_refused_by_name)
{
    start(1);
    heir_init(&h, &b);
    h.shards[1].cold = true;
    h.shards[1].promise = 0;
    heir_enlist(&h, 1);
    cr_assert_eq(h.bench.actions.count, 0);
    heir_enlist(&h, 0);
    const struct message *denied = bench_sent(&h.bench, 2, MESSAGE_DENIED, 0);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_LOST &&
              strstr(denied->denied.text, "shard 1"));
    cr_assert_eq(heir_sent_else(&h, MESSAGE_DENIED), 0);
    bench_tick(&h.bench, 60 * SECOND);
    cr_assert_eq(h.bench.actions.count, 0, "never anew in silence");
    h.shards[1].cold = false;
    h.shards[1].promise = 1;
    bench_event(&h.bench, ORDER_LOST, 2);
    heir_enlist(&h, 1);
    cr_assert_not_null(bench_sent(&h.bench, 1, MESSAGE_SEAL, 0));
    end();
}

Test(take_over, replaced_twins_stay_out_and_leases_begin_anew)
{
    start(1);
    bench_join_as(&b, 105, 'a', 50); /* a twin replaces worker 0 */
    bench_log(&b);
    heir_init(&h, &b);
    heir_take_over(&h);
    cr_assert_null(heir_join(&h, 0));
    const struct message *denied = bench_sent(&h.bench, 101, MESSAGE_DENIED, 0);
    cr_assert(denied && denied->denied.status == GRADWEIR_ERR_FENCED);
    bench_join_as(&h.bench, 105, 'a', 50);
    cr_assert_eq(bench_sent(&h.bench, 105, MESSAGE_JOINED, 0)->joined.incarnation, 2);
    bench_tick(&h.bench, b.options.lease_ns - 1);
    cr_assert_eq(bench_records(&h.bench, RECORD_LEAVE), 1, "the twin's");
    bench_tick(&h.bench, 1);
    cr_assert_eq(bench_records(&h.bench, RECORD_LEAVE), 2);
    cr_assert_eq(bench_record(&h.bench, RECORD_LEAVE)->leave.worker, 1, "who has not come back");
    end();
}

Test(take_over, pushes_and_verdicts_are_counted_on)
{
    start(3);
    heir_init(&h, &b);
    heir_take_over(&h);
    cr_assert_eq(figures().pushes, 4);
    cr_assert_eq(figures().verdicts[VERDICT_ADMITTED], 4);
    end();
}

Test(take_over, staleness_is_of_the_gradients_that_the_heir_admitted_itself)
{
    start(3);
    struct order_figures before;
    order_figures(b.order, &before);
    cr_assert_eq(before.staleness_of, 3, "the offer has none");
    struct message_place place;
    cr_assert(bench_place(&b, 0, 5, &place));
    struct message_describe head = bench_head(&b, &place);
    head.basis = ledger_version(order_ledger(b.order)) - 2;
    const struct message_landed body = landing(&place);
    heir_init(&h, &b);
    heir_landed_all(&h, &body);
    heir_take_over(&h);
    cr_assert(figures().staleness_of == 0 && figures().staleness_sum == 0);
    heir_join(&h, 0);
    bench_ask(&h.bench, 0, 5);
    bench_describe(&h.bench, &head);
    cr_assert_eq(figures().verdicts[VERDICT_ADMITTED], 5);
    cr_assert(figures().staleness_of == 1 && figures().staleness_sum == 2, "%llu %llu",
              (unsigned long long)figures().staleness_of,
              (unsigned long long)figures().staleness_sum);
    cr_assert_eq(figures().staleness_max, 2);
    end();
}
