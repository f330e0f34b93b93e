/* Counters that go past 2^32 and 2^53: a job is carried far ahead in one leap and goes on there,
 * and does what it does near 0. */
#include "tests/unit/order_bench.h"
#include "tests/unit/shard_audit.h"
#include "tests/unit/shard_rig.h"

#include "server/coordinator/order_internal.h"
#include "server/shard/shard_internal.h"

#include <criterion/criterion.h>
#include <string.h>

/* So far ahead that the next 512 records, versions and places go past a power of two; all rings
 * have a length that divides it. */
static const uint64_t leaps[] = {0, (UINT64_C(1) << 32) - 512, (UINT64_C(1) << 53) - 512};
enum { LEAPS = 3, STEPS = 600 };

static void leap_ledger(struct ledger *ledger, uint64_t by)
{
    ledger->index += by;
    ledger->generation_max += by;
    ledger->law.version += by;
    ledger->law.optimizer_step += by;
    ledger->law.next += by;
    ledger->law.first += by;
    ledger->law.retired += by;
    for (uint32_t i = 0; i < ledger->workers_count; i++)
        ledger->workers[i].last_sequence += by;
}

/* A shard. */

static void leap_shard(struct rig *rig, uint64_t by)
{
    struct shard *shard = rig->local->shard;
    leap_ledger(&rig->ledger, by);
    leap_ledger(&shard->ledger, by);
    shard->applied += by;
    shard->version += by;
    shard->whole += by;
    for (uint32_t i = 0; i < PARAMETER_SLOTS_MAX; i++)
        shard->parameters[i].version += by;
}

/* STEPS steps, some of them behind a kill; the parameters they end with. */
static uint64_t steps_of_a_shard(uint64_t by, float *parameters)
{
    static struct rig rig;
    char text[256];
    rig_init(&rig, RIG_ELEMENTS);
    rig.options.tile_elements = 256;
    rig.options.member.ring = 255; /* and one more place */
    rig_start(&rig, 0, 1);
    rig_join(&rig, 0, ROLE_WORKER);
    rig_fill(&rig, 0, 1);
    cr_assert(rig_first(&rig, 0, 0));
    shard_audit_end(rig.local->shard); /* it knows nothing of leaps */
    leap_shard(&rig, by);
    for (uint32_t i = 0; i < STEPS; i++) {
        rig_fill(&rig, 1, 0.01f * (float)(i % 13));
        cr_assert(rig_admit(&rig, 0, 1));
        cr_assert(rig_step_one(&rig, 1));
        const uint64_t version = by + i + 1;
        rig_say(&rig, &(struct message){.kind = MESSAGE_WHOLE, .whole = {.version = version}});
        cr_assert_eq(rig.local->shard->whole, version);
        if (i > 256 && i % 50 == 0) /* its ring holds records of here only */
            cr_assert_eq(shard_resume(rig.local->shard, rig.local->shard->bytes, &rig.law,
                                      &rig.options, text, sizeof text),
                         GRADWEIR_OK, "%s", fail_reason());
    }
    uint64_t version;
    memcpy(parameters, shard_parameters(rig.local->shard, &version), RIG_ELEMENTS * sizeof(float));
    cr_assert_eq(rig.local->shard->ledger.hash, rig.ledger.hash);
    rig_end(&rig);
    return version;
}

Test(far, a_shard_steps_on_with_the_same_bits)
{
    static float near[RIG_ELEMENTS], far[RIG_ELEMENTS];
    cr_assert_eq(steps_of_a_shard(0, near), STEPS);
    for (int i = 1; i < LEAPS; i++) {
        cr_assert_eq(steps_of_a_shard(leaps[i], far), leaps[i] + STEPS);
        cr_assert_eq(memcmp(near, far, sizeof near), 0);
    }
}

/* The coordinator. */

static void leap_order(struct order *order, uint64_t by)
{
    leap_ledger(&order->ledger, by);
    order->generations += by;
    order->whole += by;
    order->hashes_from = order->ledger.index;
    order->hashes[order->ledger.index % HASHES] = order->ledger.hash;
    for (uint32_t i = 0; i < order->slots_count; i++)
        order->slots[i].name.sequence += by; /* of the place that it has already */
    order->workers[0].asked += by;
    order->workers[0].granted += by;
    for (uint32_t i = 0; i < order->options.shards; i++) {
        order->logged[i] += by;
        order->members[i].stepped += by;
    }
}

/* The gradient before is out of the window then, and its place comes free. */
static void push_and_step(struct bench *bench, uint64_t sequence, uint64_t version)
{
    static struct record_admit before;
    bench_push(bench, 0, sequence);
    const struct message *close = bench_sent(bench, 0, MESSAGE_CLOSE, 0);
    if (close)
        before =
            (struct record_admit){.slot = close->close.slot, .generation = close->close.generation};
    bench_log(bench);
    const struct message *receipt = bench_sent(bench, 101, MESSAGE_RECEIPT, 0);
    cr_assert(receipt && receipt->receipt.verdict == VERDICT_ADMITTED &&
              receipt->receipt.name.sequence == sequence);
    const struct record_step *step = &bench_record(bench, RECORD_STEP)->step;
    cr_assert(step->version == version && step->t == version);
    cr_assert_eq(step->groups[0].learning_rate,
                 version < 1000 ? step->groups[0].learning_rate : bench->options.law.learning_rate);
    cr_assert(version < 1u << 20 || step->groups[0].bias_correction2 == 1, "corrections saturate");
    const struct record_admit admit = bench_record(bench, RECORD_ADMIT)->admit;
    cr_assert(admit.basis == version - 1 && admit.sample_weight == 4);
    bench_stepped(bench, version);
    const struct message *whole = bench_sent(bench, 0, MESSAGE_WHOLE, 0);
    cr_assert(whole && whole->whole.version == version);
    if (close)
        bench_freed(bench, before.slot, before.generation);
    bench_ask(bench, 0, sequence); /* again: the same receipt */
    receipt = bench_sent(bench, 101, MESSAGE_RECEIPT, 0);
    cr_assert(receipt && receipt->receipt.verdict == VERDICT_ADMITTED);
}

Test(far, a_coordinator_admits_and_steps_on)
{
    static struct bench bench;
    for (int i = 0; i < LEAPS; i++) {
        bench_init(&bench);
        bench_start(&bench, true);
        leap_order(bench.order, leaps[i]);
        for (uint64_t k = 1; k <= STEPS; k++)
            push_and_step(&bench, leaps[i] + 1 + k, leaps[i] + k);
        cr_assert_eq(order_ledger(bench.order)->law.unused, 0);
        bench_end(&bench);
    }
}

Test(far, what_is_older_or_newer_is_still_judged_by_its_distance)
{
    static struct bench bench;
    for (int i = 0; i < LEAPS; i++) {
        bench_init(&bench);
        bench.options.law.staleness_max = 8;
        bench_start(&bench, true);
        leap_order(bench.order, leaps[i]);
        for (uint64_t k = 1; k <= STEPS; k++)
            push_and_step(&bench, leaps[i] + 1 + k, leaps[i] + k);
        const uint64_t version = leaps[i] + STEPS;
        const uint64_t bases[] = {version - 9, version + 1, version - 8};
        const uint32_t verdicts[] = {VERDICT_STALE, VERDICT_FUTURE, VERDICT_ADMITTED};
        for (uint64_t k = 0; k < 3; k++) {
            struct message_place place;
            cr_assert(bench_place(&bench, 0, version + 2 + k, &place));
            struct message_describe head = bench_head(&bench, &place);
            head.basis = bases[k];
            bench_describe(&bench, &head);
            const struct message_landed body = bench_body(&head);
            for (uint32_t s = 0; s < bench.options.shards; s++)
                bench_landed(&bench, s, &body);
            bench_log(&bench);
            const struct message *receipt = bench_sent(&bench, 101, MESSAGE_RECEIPT, 0);
            cr_assert(receipt && receipt->receipt.verdict == verdicts[k]);
            bench_freed(&bench, place.slot, place.generation);
        }
        bench_end(&bench);
    }
}
