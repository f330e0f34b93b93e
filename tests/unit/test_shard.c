#include "tests/unit/shard_rig.h"

#include "common/checksum.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct rig rig;

/* A core with first parameters of scale 1 from worker 0. */
static void begin(struct rig *r, uint64_t elements, uint32_t shard, uint32_t members)
{
    rig_start(r, shard, members);
    rig_join(r, 0, ROLE_WORKER);
    rig_fill(r, 0, 1);
    cr_assert(rig_first(r, 0, 0));
    cr_assert_leq(r->options.member.count, elements);
}

static uint64_t digest(struct rig *r)
{
    uint64_t version;
    const float *parameters = shard_parameters(r->local->shard, &version);
    return checksum_hash64(0, parameters, r->options.member.count * sizeof(float));
}

static void land(struct rig *r, uint32_t slot, float scale)
{
    rig_fill(r, slot, scale);
    cr_assert(rig_admit(r, 0, slot));
}

Test(shard, a_step_is_the_window_s_average_times_the_rate)
{
    uint64_t version;
    rig_init(&rig, RIG_ELEMENTS);
    rig.law.window = rig.law.stride = 2;
    begin(&rig, RIG_ELEMENTS, 0, 1);
    land(&rig, 1, 1);
    land(&rig, 2, 3);
    const uint32_t slots[] = {1, 2};
    const float weights[] = {0.5f, 0.25f}; /* 0.5 x 1 + 0.25 x 3 = 1.25 */
    cr_assert(rig_step(&rig, 0, slots, weights, 2));
    cr_assert_eq(rig_sent(&rig, MESSAGE_STEPPED, 0)->stepped.version, 1);
    const float *parameters = shard_parameters(rig.local->shard, &version);
    cr_assert_eq(version, 1);
    for (int i = 0; i < RIG_ELEMENTS; i++)
        cr_assert_float_eq(parameters[i], -0.25f * (float)(i % 7 - 3), 0);
    rig_end(&rig);
}

Test(shard, tiles_of_any_size_give_the_same_bits)
{
    uint64_t expected = 0;
    for (uint64_t tile = 0; tile <= 1024; tile += 256) {
        rig_init(&rig, RIG_ELEMENTS);
        rig.options.tile_elements = tile;
        rig.law.algorithm = ARITHMETIC_ADAM;
        begin(&rig, RIG_ELEMENTS, 0, 1);
        for (int i = 1; i < 4; i++) {
            land(&rig, 1, 0.3f * (float)i);
            cr_assert(rig_step_one(&rig, 1));
        }
        if (tile == 0)
            expected = digest(&rig);
        cr_assert_eq(digest(&rig), expected);
        rig_end(&rig);
    }
}

Test(shard, a_step_returns_between_tiles_and_logging_goes_on)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig.options.tile_elements = 256;
    begin(&rig, RIG_ELEMENTS, 0, 1);
    land(&rig, 1, 1);
    rig.by_hand = true;
    cr_assert(rig_step_one(&rig, 1));
    struct shard_action tile = *rig_action(&rig, SHARD_STEP, 0);
    const uint64_t applied = rig.ledger.index - 1;
    struct shard_figures figures;
    for (uint64_t at = 0; at < RIG_ELEMENTS; at += 256) {
        cr_assert(tile.begin == at &&
                  tile.end == (at + 256 < RIG_ELEMENTS ? at + 256 : RIG_ELEMENTS));
        land(&rig, 2 + (uint32_t)(at / 256), 1); /* logged and not applied */
        shard_figures(rig.local->shard, &figures);
        cr_assert(figures.logged == rig.ledger.index && figures.applied == applied);
        cr_assert(!rig_action(&rig, SHARD_STEP, 0)); /* one at a time */
        rig_done(&rig, tile.token);
        if (at + 256 < RIG_ELEMENTS)
            tile = *rig_action(&rig, SHARD_STEP, 0);
    }
    cr_assert_eq(rig_sent(&rig, MESSAGE_STEPPED, 0)->stepped.version, 1);
    shard_figures(rig.local->shard, &figures);
    cr_assert_eq(figures.applied, rig.ledger.index);
    rig_end(&rig);
}

Test(shard, workers_that_come_and_go_while_a_step_waits_do_not_fill_the_ring)
{
    rig_init(&rig, RIG_ELEMENTS);
    begin(&rig, RIG_ELEMENTS, 0, 1);
    land(&rig, 1, 1);
    rig.by_hand = true;
    cr_assert(rig_step_one(&rig, 1));
    const uint64_t token = rig_action(&rig, SHARD_STEP, 0)->token;
    for (uint64_t i = 1; i <= 1000; i++) {
        struct record join = {.kind = RECORD_JOIN};
        join.join = (struct record_join){.worker = 1,
                                         .incarnation = i,
                                         .role = ROLE_WORKER,
                                         .outstanding_max = 1,
                                         .identity = "b"};
        cr_assert(rig_record(&rig, &join));
        struct record leave = {.kind = RECORD_LEAVE, .leave = {1, i, LEAVE_BYE}};
        cr_assert(rig_record(&rig, &leave));
    }
    rig_close(&rig, 5, 1, rig.ledger.index);
    cr_assert_null(rig_sent(&rig, MESSAGE_FREED, 0));
    rig_done(&rig, token);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_FREED, 0));
    rig_end(&rig);
}

/* The three sums of a model on one member, joined from two. */
Test(shard, sums_of_two_members_join_to_the_bits_of_one)
{
    double sums[2];
    for (uint32_t members = 1; members <= 2; members++) {
        struct arithmetic_tree tree;
        arithmetic_tree_init(&tree);
        for (uint32_t shard = 0; shard < members; shard++) {
            rig_init(&rig, RIG_ELEMENTS);
            rig.law.clip_average = 1;
            begin(&rig, RIG_ELEMENTS, shard, members);
            land(&rig, 1, 0.1f);
            const uint32_t slot = 1;
            const float one = 1;
            cr_assert(rig_step(&rig, 1, &slot, &one, 1));
            const struct message *message = rig_sent(&rig, MESSAGE_SUMS, 0);
            cr_assert(message && message->sums.version == 1);
            cr_assert_null(rig_sent(&rig, MESSAGE_STEPPED, 0));
            struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
            const size_t n =
                arithmetic_tree_places(message->sums.first_block, message->sums.blocks, nodes);
            cr_assert_eq(n, message->sums.nodes_count);
            for (size_t i = 0; i < n; i++) {
                nodes[i].sum = message->sums.nodes[i];
                cr_assert(arithmetic_tree_add(&tree, nodes[i]));
            }
            rig_end(&rig);
        }
        sums[members - 1] = arithmetic_tree_sum(&tree);
    }
    cr_assert_gt(sums[0], 39);
    cr_assert_eq(memcmp(&sums[0], &sums[1], sizeof *sums), 0);
}

Test(shard, a_step_with_a_round_waits_for_its_factor_and_multiplies_by_it)
{
    uint64_t version;
    const uint32_t slot = 1;
    const float one = 1;
    rig_init(&rig, RIG_ELEMENTS);
    rig.law.clip_average = 1;
    begin(&rig, RIG_ELEMENTS, 0, 1);
    land(&rig, 1, 1);
    cr_assert(rig_step(&rig, 1, &slot, &one, 1));
    land(&rig, 2, 1);
    cr_assert_null(rig_sent(&rig, MESSAGE_STEPPED, 0));
    cr_assert(rig_summed(&rig, 0.5f));
    cr_assert_eq(rig_sent(&rig, MESSAGE_STEPPED, 0)->stepped.version, 1);
    const float *parameters = shard_parameters(rig.local->shard, &version);
    for (int i = 0; i < RIG_ELEMENTS; i++)
        cr_assert_float_eq(parameters[i], 0.5f * (float)(i % 7 - 3), 0);
    rig_end(&rig);
}

/* Nothing in the arena is a pointer: the memory may be mapped elsewhere and go on. */
Test(shard, an_arena_that_moves_goes_on_with_the_same_bits)
{
    uint64_t expected = 0;
    for (int moved = 0; moved < 2; moved++) {
        rig_init(&rig, RIG_ELEMENTS);
        rig.law.algorithm = ARITHMETIC_ADAM;
        begin(&rig, RIG_ELEMENTS, 0, 1);
        land(&rig, 1, 1);
        cr_assert(rig_step_one(&rig, 1));
        if (moved) {
            struct shard_figures figures;
            shard_figures(rig.local->shard, &figures);
            const size_t bytes = (figures.arena_bytes + 63) / 64 * 64;
            struct shard *elsewhere = aligned_alloc(64, bytes);
            cr_assert_not_null(elsewhere);
            memcpy((void *)elsewhere, (const void *)rig.local->shard, figures.arena_bytes);
            memset((void *)rig.local->shard, 0xff, figures.arena_bytes);
            free(rig.local->shard);
            rig.local->shard = elsewhere;
        }
        land(&rig, 1, 2);
        cr_assert(rig_step_one(&rig, 1));
        if (!moved)
            expected = digest(&rig);
        cr_assert_eq(digest(&rig), expected);
        rig_end(&rig);
    }
}

static void put_moments(uint32_t slot, double count, double mean, double m2)
{
    uint64_t bytes;
    char *tail = shard_slot(rig.local->shard, slot, &bytes);
    const struct moments moments = {count, mean, m2};
    memcpy(tail + RIG_ELEMENTS * sizeof(float), &moments, sizeof moments);
}

Test(shard, moments_of_parts_merge_to_the_moments_of_the_whole)
{
    uint64_t version;
    struct moments got;
    rig_init(&rig, RIG_ELEMENTS);
    begin(&rig, RIG_ELEMENTS, 0, 1);
    rig_fill(&rig, 1, 1);
    put_moments(1, 2, 1.5, 0.5); /* 1 2 */
    cr_assert(rig_admit(&rig, 0, 1));
    rig_fill(&rig, 2, 1);
    put_moments(2, 3, 5, 8); /* 3 5 7 */
    cr_assert(rig_admit(&rig, 0, 2));
    cr_assert(rig_step_one(&rig, 2));
    memcpy(&got, shard_parameters(rig.local->shard, &version) + RIG_ELEMENTS, sizeof got);
    cr_assert_float_eq(got.count, 5, 0);
    cr_assert(fabs(got.mean - 3.6) < 1e-12 && fabs(got.m2 - 23.2) < 1e-12);
    rig_end(&rig);
}

Test(shard, a_record_that_does_not_follow_changes_nothing)
{
    rig_init(&rig, RIG_ELEMENTS);
    begin(&rig, RIG_ELEMENTS, 0, 1);
    struct message message = {.kind = MESSAGE_RECORD};
    message.record.kind = RECORD_SAVE;
    message.record.save.cut = 1;
    ledger_seal(&rig.ledger, &message.record);
    message.record.index++;
    rig_say(&rig, &message);
    cr_assert(rig_action(&rig, SHARD_SAY, 0) && !rig_sent(&rig, MESSAGE_LOGGED, 0));
    cr_assert_eq(memcmp(shard_ledger(rig.local->shard), &rig.ledger, sizeof rig.ledger), 0);
    rig_end(&rig);
}

/* The arena has no place for an average that was off at start. */
Test(shard, clip_average_cannot_be_turned_on)
{
    for (int on = 0; on < 2; on++) {
        rig_init(&rig, RIG_ELEMENTS);
        rig.law.clip_average = on;
        begin(&rig, RIG_ELEMENTS, 0, 1);
        struct message message = {.kind = MESSAGE_RECORD};
        message.record.kind = RECORD_TUNE;
        strcpy(message.record.tune.setting, "clip_average");
        strcpy(message.record.tune.value, "0x1p+1");
        ledger_seal(&rig.ledger, &message.record);
        rig_say(&rig, &message);
        cr_assert_eq(rig_sent(&rig, MESSAGE_LOGGED, 0) != NULL, on);
        rig_end(&rig);
    }
}

Test(shard, bodies_are_kept_before_they_are_read_when_the_run_is_recorded)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig.options.keep = true;
    begin(&rig, RIG_ELEMENTS, 0, 1);
    const struct shard_action *keep = rig_action(&rig, SHARD_KEEP, 0);
    cr_assert(keep && keep->token == rig.ledger.index);
    land(&rig, 1, 1);
    keep = rig_action(&rig, SHARD_KEEP, 0);
    uint64_t bytes;
    cr_assert(keep && keep->token == rig.ledger.index);
    cr_assert_eq(shard_address(rig.local->shard, keep->offset),
                 shard_slot(rig.local->shard, 1, &bytes));
    cr_assert_eq(keep->length, bytes);
    rig_end(&rig);
}

Test(shard, a_pulse_comes_five_times_a_second)
{
    rig_init(&rig, RIG_ELEMENTS);
    begin(&rig, RIG_ELEMENTS, 0, 1);
    rig_tick(&rig, 0);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_PULSE, 0));
    rig_tick(&rig, 199999999);
    cr_assert_null(rig_sent(&rig, MESSAGE_PULSE, 0));
    cr_assert_eq(shard_next(rig.local->shard), rig.now_ns + 1);
    rig_tick(&rig, 1);
    cr_assert_eq(rig_sent(&rig, MESSAGE_PULSE, 0)->pulse.beat, 2);
    rig_end(&rig);
}

Test(shard, what_does_not_fit_is_refused_at_start)
{
    uint64_t bytes;
    char text[512];
    struct shard_options options;
    rig_init(&rig, RIG_ELEMENTS);
    rig.options.member.members = 1;
    rig.options.member.count = RIG_ELEMENTS;
    options = rig.options;
    cr_assert_eq(shard_arena_bytes(rig.model, &rig.law, &options, &bytes, text, sizeof text), 0);
    cr_assert(strstr(text, "8 slots") && strstr(text, "3 parameter slots"));
    options.member.parameter_slots = 1;
    cr_assert_eq(shard_arena_bytes(rig.model, &rig.law, &options, &bytes, text, sizeof text),
                 GRADWEIR_ERR_INVALID);
    options = rig.options;
    options.chunk_bytes = 6;
    cr_assert_eq(shard_arena_bytes(rig.model, &rig.law, &options, &bytes, text, sizeof text),
                 GRADWEIR_ERR_INVALID);
    options.chunk_bytes = UINT64_C(1) << 32;
    cr_assert_eq(shard_arena_bytes(rig.model, &rig.law, &options, &bytes, text, sizeof text),
                 GRADWEIR_ERR_INVALID);
    options = rig.options;
    options.member.count--;
    cr_assert_eq(shard_arena_bytes(rig.model, &rig.law, &options, &bytes, text, sizeof text),
                 GRADWEIR_ERR_MISMATCH);
    model_free(rig.model);
}
