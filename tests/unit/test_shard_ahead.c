/* Steps made ahead, while their gradient lands: the bits of steps that come later, whatever the
 * guess was, and nothing is kept of a wrong one. Each script runs without and with it. */
#include "tests/unit/shard_rig.h"

#include "common/checksum.h"
#include "server/shard/shard_internal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 4, WORKERS = 2 };

static struct rig rig;
static uint64_t chunk_bytes;
static uint64_t sequences[WORKERS]; /* that the next gradient has */
static float body[RIG_ELEMENTS + 12];

static void start(bool ahead)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig.law.learning_rate = 0.3;
    rig.options.tile_elements = 256;
    rig.options.chunk_bytes = chunk_bytes;
    rig.options.ahead = ahead ? 1 : 0;
    rig_start(&rig, 0, 1);
    for (uint32_t i = 0; i < WORKERS; i++) {
        rig_join(&rig, i, ROLE_WORKER);
        sequences[i] = 1;
    }
    rig_fill(&rig, 0, 1);
    cr_assert(rig_first(&rig, 0, 0));
    sequences[0]++;
}

/* Chunk i of a gradient of that worker; by turns as bodies at hand and as bodies that have moved.
 */
static void land(uint32_t worker, uint32_t slot, uint64_t i, bool intact)
{
    const uint64_t all = sizeof(float) * RIG_ELEMENTS + RIG_MOMENTS * sizeof(struct moments);
    const uint64_t offset = i * chunk_bytes, rest = all - offset;
    const uint64_t length = rest < chunk_bytes ? rest : chunk_bytes;
    for (int k = 0; k < RIG_ELEMENTS; k++)
        body[k] = (float)((k + 3 * (int)slot) % 11) * 0.37f - 1.5f;
    const char *from = (const char *)body + offset;
    struct head_chunk head =
        rig_chunk_head(rig_hello(&rig, worker, 50 + worker), slot, from, length);
    head.offset = offset;
    head.sequence = sequences[worker];
    head.basis = 0;
    head.crc ^= !intact;
    rig_head(&rig, 50 + worker, &head, length);
    const struct shard_action *take = rig_action(&rig, SHARD_TAKE, 0);
    cr_assert_not_null(take);
    struct shard_event event = {.kind = SHARD_LANDED, .token = take->token, .length = length};
    const uint64_t place = take->offset;
    if (i % 2) {
        shard_copy_body(rig.local->shard, arithmetic_choose(NULL), place, from, &event);
    } else {
        memcpy(shard_address(rig.local->shard, place), from, length);
        shard_measure_body(rig.local->shard, arithmetic_choose(NULL), place, &event);
    }
    rig_event(&rig, event);
}

static uint64_t chunks(void)
{
    const uint64_t all = sizeof(float) * RIG_ELEMENTS + RIG_MOMENTS * sizeof(struct moments);
    return (all + chunk_bytes - 1) / chunk_bytes;
}

static void land_all(uint32_t worker, uint32_t slot)
{
    for (uint64_t i = 0; i < chunks(); i++)
        land(worker, slot, chunks() - 1 - i, true);
    const struct message *landed = rig_sent(&rig, MESSAGE_LANDED, 0);
    cr_assert(landed && landed->landed.intact);
}

static void admit(uint32_t worker, uint32_t slot)
{
    cr_assert(rig_admit(&rig, worker, slot));
    sequences[worker]++;
}

static void whole(void)
{
    uint64_t version;
    shard_parameters(rig.local->shard, &version);
    rig_say(&rig, &(struct message){.kind = MESSAGE_WHOLE, .whole = {version}});
}

static void step_of(uint32_t worker, uint32_t slot)
{
    admit(worker, slot);
    cr_assert(rig_step_one(&rig, slot));
    whole();
}

/* Parameter slots that no version is in, and no step is made in. */
static uint32_t reserved(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rig.options.member.parameter_slots; i++)
        count += rig.local->shard->parameters[i].writing;
    return count;
}

static uint64_t tiles_ahead(void)
{
    struct shard_figures figures;
    shard_figures(rig.local->shard, &figures);
    return figures.tiles_ahead;
}

/* Tiles that are made ahead with chunks that are blocks and tiles, that are neither, and with one
 * that is the whole gradient. */
struct tiles {
    uint64_t blocks, odd, one;
};

static void both(void (*script)(void), struct tiles tiles)
{
    const struct {
        uint64_t bytes, tiles;
    } cases[] = {{1024, tiles.blocks}, {1000, tiles.odd}, {4096, tiles.one}};
    for (size_t i = 0; i < 3; i++) {
        float expected[RIG_ELEMENTS];
        uint64_t version, same;
        chunk_bytes = cases[i].bytes;
        start(false);
        script();
        cr_assert_eq(tiles_ahead(), 0);
        memcpy(expected, shard_parameters(rig.local->shard, &version), sizeof expected);
        rig_end(&rig);
        start(true);
        script();
        const float *made = shard_parameters(rig.local->shard, &same);
        cr_expect_eq(version, same);
        cr_expect_eq(memcmp(made, expected, sizeof expected), 0, "chunks of %llu",
                     (unsigned long long)chunk_bytes);
        cr_expect_eq(tiles_ahead(), cases[i].tiles, "chunks of %llu: %llu tiles ahead",
                     (unsigned long long)chunk_bytes, (unsigned long long)tiles_ahead());
        cr_expect_eq(reserved(), 0);
        rig_end(&rig);
    }
}

static const struct tiles none = {0, 0, 0};

static void one_after_the_other(void)
{
    for (uint32_t slot = 1; slot < 6; slot++) {
        land_all(slot % WORKERS, slot);
        step_of(slot % WORKERS, slot);
    }
}

Test(shard_ahead, a_gradient_that_is_the_next_one_is_stepped_on_as_it_lands)
{
    both(one_after_the_other, (struct tiles){5 * TILES, 5 * TILES, 5 * TILES});
}

static void another_first(void)
{
    land_all(0, 1);
    land_all(1, 2);
    step_of(1, 2);
    step_of(0, 1);
}

Test(shard_ahead, a_guess_is_dropped_when_another_gradient_is_admitted)
{
    both(another_first, none);
}

static void another_in_between(void)
{
    land(0, 1, 0, true);
    land_all(1, 2);
    step_of(1, 2);
    for (uint64_t i = 1; i < chunks(); i++) /* with these the guess begins anew */
        land(0, 1, i, true);
    step_of(0, 1);
    land_all(1, 3);
    step_of(1, 3);
}

Test(shard_ahead, what_landed_before_the_guess_is_stepped_on_later)
{
    both(another_in_between, (struct tiles){2 * TILES - 1, 2 * TILES - 1, TILES});
}

static void other_rate(void)
{
    land_all(0, 1);
    rig.law.learning_rate = 0.7;
    step_of(0, 1);
}

Test(shard_ahead, a_guess_is_dropped_when_the_step_has_other_numbers)
{
    both(other_rate, none);
}

static void other_weight(void)
{
    const uint32_t slot = 1;
    const float weight = 0.5f;
    land_all(0, slot);
    admit(0, slot);
    cr_assert(rig_step(&rig, 0, &slot, &weight, 1));
}

Test(shard_ahead, a_guess_is_dropped_when_the_gradient_has_another_weight)
{
    both(other_weight, none);
}

static void nothing_changes(void)
{
    struct record record = {.kind = RECORD_STEP};
    land_all(0, 1);
    admit(0, 1);
    record.step = (struct record_step){.version = 1,
                                       .t = 1,
                                       .cause = STEP_DUE,
                                       .algorithm = STEP_NOTHING,
                                       .groups_count = 1,
                                       .groups = {{0.3, 1, 1}},
                                       .entries_count = 1,
                                       .entries = {{1, 0x3f800000}}};
    cr_assert(rig_record(&rig, &record));
}

Test(shard_ahead, a_guess_is_dropped_when_the_step_is_to_change_nothing)
{
    both(nothing_changes, none);
}

static void refused(uint32_t worker, uint32_t slot)
{
    struct record record = {.kind = RECORD_REFUSE,
                            .refuse = {.name = {worker, 1, sequences[worker]++},
                                       .slot = slot,
                                       .generation = 1,
                                       .verdict = VERDICT_CANCELLED}};
    cr_assert(rig_record(&rig, &record));
}

static void one_that_is_refused(void)
{
    land(0, 1, 0, false);
    cr_assert_eq(reserved(), rig.options.ahead > 0);
    refused(0, 1);
    land_all(0, 2); /* in the slot that was reserved for the other */
    cr_assert_eq(reserved(), rig.options.ahead > 0);
    step_of(0, 2);
    land_all(1, 3);
    refused(1, 3);
    rig_close(&rig, 3, 1, 0);
    land_all(1, 4);
    step_of(1, 4);
}

Test(shard_ahead, a_gradient_that_is_broken_or_refused_makes_room_for_the_next_guess)
{
    both(one_that_is_refused, (struct tiles){2 * TILES, 2 * TILES, 2 * TILES});
}

static void killed(void)
{
    char text[256];
    struct shard *shard = rig.local->shard;
    land_all(0, 1);
    cr_assert_eq(reserved(), rig.options.ahead > 0);
    cr_assert_eq(shard_resume(shard, shard->bytes, &rig.law, &rig.options, text, sizeof text),
                 GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(reserved(), 0);
    rig_tick(&rig, 1);
    step_of(0, 1);
    land_all(1, 2);
    step_of(1, 2);
}

Test(shard_ahead, a_process_that_goes_on_knows_of_no_guess)
{
    both(killed, (struct tiles){TILES, TILES, TILES});
}

/* All spare parameter slots are read: nothing is made ahead, and nobody is hung up for a guess. */
Test(shard_ahead, readers_are_not_hung_up_for_a_guess)
{
    chunk_bytes = 1024;
    start(true);
    land_all(0, 1);
    step_of(0, 1);
    land_all(0, 2);
    step_of(0, 2);
    for (uint32_t i = 0; i < rig.options.member.parameter_slots; i++)
        rig.local->shard->parameters[i].pins++;
    rig.now_ns += 2 * rig.options.pull_patience_ns;
    land_all(0, 3);
    cr_assert_eq(reserved(), 0);
    for (uint32_t i = 0; i < rig.options.member.parameter_slots; i++)
        rig.local->shard->parameters[i].pins--;
    step_of(0, 3);
    cr_assert_eq(tiles_ahead(), 2 * TILES);
    rig_end(&rig);
}

/* What it says of itself is looked at when a killed process' memory is gone on with. */
Test(shard_ahead, digests_are_those_of_what_was_made)
{
    static const uint64_t sizes[] = {1024, 1000};
    for (size_t i = 0; i < 2; i++) {
        char text[256];
        chunk_bytes = sizes[i];
        start(true);
        land_all(0, 1);
        step_of(0, 1);
        cr_assert_eq(tiles_ahead(), TILES);
        struct shard *shard = rig.local->shard;
        cr_expect_eq(shard_resume(shard, shard->bytes, &rig.law, &rig.options, text, sizeof text),
                     GRADWEIR_OK, "%s", fail_reason());
        uint64_t version;
        float *made = (float *)(uintptr_t)shard_parameters(shard, &version);
        made[777] += 1;
        cr_expect_eq(shard_resume(shard, shard->bytes, &rig.law, &rig.options, text, sizeof text),
                     GRADWEIR_ERR_CORRUPT);
        rig_end(&rig);
    }
}
