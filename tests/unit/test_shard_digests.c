/* Memory that somebody else has changed since its process was killed is refused, by name, wherever
 * it lies; memory that was in the middle of being written is not. */
#include "tests/unit/shard_rig.h"

#include "server/shard/digests.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct rig rig;
static char text[256];

static gradweir_status resume(void)
{
    return shard_resume(rig.local->shard, rig.local->shard->bytes, &rig.law, &rig.options, text,
                        sizeof text);
}

static void start(enum arithmetic_algorithm algorithm, double clip_average)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig.law.algorithm = algorithm;
    rig.law.clip_average = clip_average;
    rig.options.tile_elements = 256;
    rig.options.member.ring = 16;
    rig_start(&rig, 0, 1);
    rig_join(&rig, 0, ROLE_WORKER);
    rig_fill(&rig, 0, 1);
    cr_assert(rig_first(&rig, 0, 0));
    rig_fill(&rig, 1, 1);
    cr_assert(rig_admit(&rig, 0, 1));
}

/* Flips one bit of the arena at `offset`, sees it refused with `words`, flips it back, sees it
 * taken. */
static void flip(uint64_t offset, uint64_t bytes, const char *words)
{
    const uint64_t places[] = {0, bytes / 2, bytes - 1};
    for (int i = 0; i < 3; i++) {
        char *byte = at_offset(rig.local->shard, offset + places[i]);
        *byte ^= 1 << (i + 2);
        cr_assert_eq(resume(), GRADWEIR_ERR_CORRUPT, "byte %llu of %s was believed",
                     (unsigned long long)places[i], words);
        cr_assert_not_null(strstr(fail_reason(), words), "%s", fail_reason());
        *byte ^= 1 << (i + 2);
        rig.local->shard->head.kills = 0;
        cr_assert_eq(resume(), GRADWEIR_OK, "%s", fail_reason());
    }
}

Test(shard_digests, one_bit_anywhere_in_what_lasts_is_refused_by_name)
{
    start(ARITHMETIC_ADAM, 0);
    struct shard *shard = rig.local->shard;
    const uint64_t floats = RIG_ELEMENTS * sizeof(float);
    cr_assert(rig_step_one(&rig, 1));
    const uint32_t newest = parameters_find(shard, 1);
    flip(parameter_offset(shard, newest), floats, "parameters of version 1 (tensor w)");
    flip(parameter_offset(shard, newest) + floats, RIG_MOMENTS * sizeof(struct moments),
         "MOMENTS behind");
    flip(parameter_offset(shard, parameters_find(shard, 0)), floats, "parameters of version 0");
    for (uint64_t begin = 0; begin < shard->elements; begin += shard->tile) {
        const uint64_t left = shard->elements - begin, at = begin * sizeof(float);
        const uint64_t bytes = (left < shard->tile ? left : shard->tile) * sizeof(float);
        flip(tile_state(shard, 0, begin, false) + at, bytes, "optimizer state 1 (tensor w)");
        flip(tile_state(shard, 1, begin, false) + at, bytes, "optimizer state 2 (tensor w)");
    }
    flip(shard->at.moments + shard->moments_now * RIG_MOMENTS * sizeof(struct moments),
         RIG_MOMENTS * sizeof(struct moments), "array of MOMENTS");
    flip(shard->at.layout, shard->layout_bytes, "layout");
    flip(shard->at.kept + shard->ledger.index * sizeof(struct record), 64, "record of the log");
    rig_end(&rig);
}

Test(shard_digests, the_block_that_was_changed_is_the_one_that_is_named)
{
    start(ARITHMETIC_ADAM, 0);
    cr_assert(rig_step_one(&rig, 1));
    for (uint64_t block = 0; block < rig.local->shard->blocks; block++) {
        char words[40];
        snprintf(words, sizeof words, "block %llu of", (unsigned long long)block);
        const uint64_t begin = block * rig.local->shard->block;
        flip(tile_state(rig.local->shard, 0, begin, false) + begin * sizeof(float), 4, words);
    }
    rig_end(&rig);
}

Test(shard_digests, a_gradient_that_has_landed_is_what_it_was_when_its_process_is_gone)
{
    static char body[RIG_ELEMENTS * sizeof(float) + RIG_MOMENTS * sizeof(struct moments)];
    start(ARITHMETIC_ADAM, 0);
    struct head_chunk head = rig_chunk_head(rig_hello(&rig, 0, 70), 2, body, RIG_CHUNK);
    head.sequence = 3;
    rig_push(&rig, 70, head, body);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_LANDED, 0));
    flip(slot_offset(rig.local->shard, 2), sizeof body, "gradient 3 of worker 0, in slot 2");
    rig_end(&rig);
}

/* Killed in each tile, before its arithmetic, in the middle and behind it. */
static void kill_in_each_tile(enum arithmetic_algorithm algorithm)
{
    start(algorithm, 0);
    struct shard *shard = rig.local->shard;
    struct arithmetic_work work;
    rig.by_hand = true;
    rig_step_one(&rig, 1);
    for (uint64_t begin = 0; begin < shard->elements; begin += shard->tile) {
        const struct shard_action tile = *rig_action(&rig, SHARD_STEP, 0);
        cr_assert_eq(tile.begin, begin);
        const uint64_t ends[] = {begin, begin + 100, tile.end, tile.end};
        for (int i = 0; i < 4; i++) {
            shard_work(shard, &work);
            rig.local->arithmetic->step(shard_plan(shard), &work, begin, ends[i]);
            if (i == 3)
                shard_measure_update(shard, rig.local->arithmetic, begin, tile.end);
            shard->head.kills = 0;
            cr_assert_eq(resume(), GRADWEIR_OK, "%s", fail_reason());
            rig_tick(&rig, 1);
            cr_assert_eq(rig_action(&rig, SHARD_STEP, 0)->begin, begin);
        }
        if (begin > 0) {
            flip(parameter_offset(shard, shard->step.to), begin * sizeof(float), "version 1");
            rig_tick(&rig, 1);
        }
        shard_work(shard, &work);
        rig.local->arithmetic->step(shard_plan(shard), &work, begin, tile.end);
        shard_measure_update(shard, rig.local->arithmetic, begin, tile.end);
        rig_done(&rig, tile.token);
    }
    rig_end(&rig);
}

Test(shard_digests, a_tile_in_flight_is_done_again_and_only_what_is_done_is_looked_at)
{
    kill_in_each_tile(ARITHMETIC_ADAM);
    kill_in_each_tile(ARITHMETIC_MOMENTUM);
}

Test(shard_digests, the_average_that_waits_for_its_norm_is_looked_at)
{
    start(ARITHMETIC_ADAM, 1);
    const uint32_t slot = 1;
    const float one = 1;
    rig_step(&rig, 1, &slot, &one, 1);
    cr_assert_eq(rig.local->shard->step.phase, STEP_WAIT_SUMMED);
    flip(rig.local->shard->at.average, RIG_ELEMENTS * sizeof(float), "the window's average");
    rig_end(&rig);
}

Test(shard_digests, the_states_of_lamb_are_looked_at_between_its_two_phases)
{
    start(ARITHMETIC_LAMB, 0);
    const uint32_t slot = 1;
    const float one = 1;
    rig_step(&rig, 1, &slot, &one, 1);
    cr_assert_eq(rig.local->shard->step.phase, STEP_WAIT_SUMMED);
    for (uint64_t begin = 0; begin < RIG_ELEMENTS; begin += rig.local->shard->block)
        flip(tile_state(rig.local->shard, 0, begin, true) + begin * sizeof(float), 4,
             "optimizer state 1");
    rig_end(&rig);
}

Test(shard_digests, who_says_off_goes_on_with_what_is_there)
{
    start(ARITHMETIC_ADAM, 0);
    char *byte = at_offset(rig.local->shard, tile_state(rig.local->shard, 0, 0, false));
    *byte ^= 1;
    rig.options.digest = false;
    cr_assert_eq(resume(), GRADWEIR_OK);
    rig_end(&rig);
}
