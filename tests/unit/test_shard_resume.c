/* What shard_resume drops, asks for again, refuses, and survives. */
#include "tests/unit/shard_rig.h"

#include "common/random.h"
#include "server/shard/shard_internal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct rig rig;
static char body[RIG_ELEMENTS * sizeof(float) + RIG_MOMENTS * sizeof(struct moments)];
static char text[256];

static gradweir_status resume(void)
{
    return shard_resume(rig.local->shard, rig.local->shard->bytes, &rig.law, &rig.options, text,
                        sizeof text);
}

static void start(void)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig.law.algorithm = ARITHMETIC_ADAM;
    rig.options.tile_elements = 256;
    rig.options.keep = true;
    rig_start(&rig, 0, 1);
    rig_join(&rig, 0, ROLE_WORKER);
    rig_fill(&rig, 0, 1);
    cr_assert(rig_first(&rig, 0, 0));
}

static void end(void)
{
    rig_end(&rig);
}

TestSuite(shard_resume, .init = start, .fini = end);

/* One chunk has landed, another is on its way; returns its TAKE. */
static struct shard_action half_a_gradient(void)
{
    const uint32_t session = rig_hello(&rig, 0, 70);
    struct head_chunk head = rig_chunk_head(session, 1, body, RIG_CHUNK);
    rig_head(&rig, 70, &head, RIG_CHUNK);
    const struct shard_action first = *rig_action(&rig, SHARD_TAKE, 0);
    rig_land(&rig, &first, body);
    head.offset = RIG_CHUNK;
    rig_head(&rig, 70, &head, RIG_CHUNK);
    return *rig_action(&rig, SHARD_TAKE, 0);
}

Test(shard_resume, who_had_bodies_under_way_sends_all_of_them_again)
{
    half_a_gradient();
    cr_assert_eq(resume(), GRADWEIR_OK, "%s", fail_reason());
    rig_tick(&rig, 1);
    cr_assert_eq(rig.local->shard->figures.sessions, 0);
    const uint32_t session = rig_hello(&rig, 0, 70); /* numbers of peers may be used again */
    rig_push(&rig, 70, rig_chunk_head(session, 1, body, RIG_CHUNK), body);
    const struct message *landed = rig_sent(&rig, MESSAGE_LANDED, 0);
    cr_assert(landed && landed->landed.intact);
}

Test(shard_resume, a_slot_is_not_freed_while_a_dead_process_bodies_may_land)
{
    half_a_gradient();
    cr_assert_eq(resume(), GRADWEIR_OK);
    rig_tick(&rig, 1);
    rig_close(&rig, 1, 1, 0);
    cr_assert_null(rig_sent(&rig, MESSAGE_FREED, 0));
    cr_assert_leq(shard_next(rig.local->shard), rig.now_ns + QUIET_NS);
    rig_tick(&rig, QUIET_NS - 10);
    cr_assert_null(rig_sent(&rig, MESSAGE_FREED, 0));
    rig_tick(&rig, 10);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_FREED, 0));
}

Test(shard_resume, what_had_landed_is_said_again_and_is_not_sent_again)
{
    const uint32_t session = rig_hello(&rig, 0, 70);
    rig_push(&rig, 70, rig_chunk_head(session, 1, body, RIG_CHUNK), body);
    cr_assert_eq(resume(), GRADWEIR_OK);
    const struct message member = {.kind = MESSAGE_MEMBER};
    rig_say(&rig, &member);
    const struct message *landed = rig_sent(&rig, MESSAGE_LANDED, 0);
    cr_assert(landed && landed->landed.slot == 1 && landed->landed.generation == 1);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_STEPPED, 0));
    const struct message *logged = rig_sent(&rig, MESSAGE_LOGGED, 0);
    cr_assert(logged && logged->logged.index == rig.ledger.index);
}

Test(shard_resume, a_scan_that_was_under_way_is_asked_for_again)
{
    const uint32_t session = rig_hello(&rig, 0, 70);
    rig.by_hand = true;
    rig_push(&rig, 70, rig_chunk_head(session, 1, body, RIG_CHUNK), body);
    cr_assert_not_null(rig_action(&rig, SHARD_SCAN, 0));
    cr_assert_eq(resume(), GRADWEIR_OK);
    cr_assert_leq(shard_next(rig.local->shard), rig.now_ns, "it wants to be asked at once");
    rig_tick(&rig, 1);
    const struct shard_action *scan = rig_action(&rig, SHARD_SCAN, 0);
    cr_assert_not_null(scan);
    rig_done(&rig, scan->token);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_LANDED, 0));
}

Test(shard_resume, keeps_of_the_last_event_are_given_again_and_older_ones_are_not)
{
    rig_fill(&rig, 1, 1);
    cr_assert(rig_admit(&rig, 0, 1));
    const uint64_t index = rig.ledger.index;
    for (int i = 0; i < 2; i++) { /* killed before anything could be carried out, twice */
        cr_assert_eq(resume(), GRADWEIR_OK);
        rig_tick(&rig, 1);
        const struct shard_action *keep = rig_action(&rig, SHARD_KEEP, 0);
        cr_assert(keep && keep->token == index);
    }
    rig_tick(&rig, 1);
    cr_assert_eq(resume(), GRADWEIR_OK);
    rig_tick(&rig, 1);
    cr_assert_null(rig_action(&rig, SHARD_KEEP, 0));
}

/* The core is in the middle of its first tile. */
static void begin_tile(void)
{
    rig_fill(&rig, 1, 1);
    cr_assert(rig_admit(&rig, 0, 1));
    rig.by_hand = true;
    rig_step_one(&rig, 1);
    cr_assert_not_null(rig_action(&rig, SHARD_STEP, 0));
}

Test(shard_resume, five_kills_within_one_tile_and_the_memory_is_not_believed)
{
    begin_tile();
    for (int i = 0; i < KILLS_MAX - 1; i++) {
        cr_assert_eq(resume(), GRADWEIR_OK);
        rig_tick(&rig, 1);
        cr_assert_not_null(rig_action(&rig, SHARD_STEP, 0));
    }
    cr_assert_eq(resume(), GRADWEIR_ERR_CORRUPT);
    cr_assert_not_null(strstr(fail_reason(), "not believed"), "%s", fail_reason());
}

Test(shard_resume, kills_at_other_tiles_or_while_idle_are_nobody_s_fault)
{
    for (int i = 0; i < 3 * KILLS_MAX; i++)
        cr_assert_eq(resume(), GRADWEIR_OK);
    begin_tile();
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < KILLS_MAX - 1; k++) {
            cr_assert_eq(resume(), GRADWEIR_OK);
            rig_tick(&rig, 1);
        }
        const struct shard_action step = *rig_action(&rig, SHARD_STEP, 0);
        shard_measure_update(rig.local->shard, rig.local->arithmetic, step.begin, step.end);
        rig_done(&rig, step.token);
    }
}

static void refuses(gradweir_status expected, const char *word)
{
    cr_assert_eq(resume(), expected, "%s: %s", word, fail_reason());
    cr_assert_not_null(strstr(fail_reason(), word), "%s", fail_reason());
}

Test(shard_resume, an_arena_of_another_run_is_refused_by_name)
{
    static struct rig right; /* large */
    right = rig;
    rig.options.member.job++;
    refuses(GRADWEIR_ERR_MISMATCH, "job");
    rig = right;
    rig.options.member.shard++;
    refuses(GRADWEIR_ERR_MISMATCH, "shard");
    rig = right;
    rig.law.algorithm = ARITHMETIC_SGD;
    refuses(GRADWEIR_ERR_MISMATCH, "optimizer");
    rig = right;
    rig.options.chunk_bytes *= 2;
    refuses(GRADWEIR_ERR_MISMATCH, "chunk_bytes");
    rig = right;
    rig.options.warm = false;
    refuses(GRADWEIR_ERR_STATE, "warm");
    rig = right;
    rig.local->shard->head.format++;
    refuses(GRADWEIR_ERR_MISMATCH, "format");
    rig.local->shard->head.format--;
    rig.local->shard->head.build++;
    refuses(GRADWEIR_ERR_MISMATCH, "build");
    rig.local->shard->head.build--;
    cr_assert_eq(resume(), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(shard_resume(rig.local->shard, 1000, &rig.law, &rig.options, text, sizeof text),
                 GRADWEIR_ERR_CORRUPT);
}

Test(shard_resume, an_arena_that_was_never_finished_says_so)
{
    cr_assert(shard_arena_begun(rig.local->shard, rig.local->shard->bytes));
    rig.local->shard->head.magic = 0;
    cr_assert_not(shard_arena_begun(rig.local->shard, rig.local->shard->bytes));
}

/* Some bytes of control memory are others: it may be refused or taken, but nobody falls. */
static bool survive(struct random *random, char *copy, uint64_t whole)
{
    struct shard *shard = (struct shard *)(void *)copy;
    const uint64_t ledger = offsetof(struct shard, ledger) + offsetof(struct ledger, workers);
    memcpy(copy, rig.local->shard, whole);
    shard->audit = NULL;
    for (uint64_t i = 1 + random_below(random, 4); i; i--) {
        const uint64_t where = random_below(random, 3);
        const uint64_t at =
            where == 0 ? random_below(random, ledger)
            : where == 1
                ? ledger + sizeof shard->ledger.workers +
                      random_below(random, sizeof *shard - ledger - sizeof shard->ledger.workers)
                : random_below(random, shard->at.journal + 4096);
        copy[at] ^= (char)(1 << random_below(random, 8));
    }
    if (random_below(random, 4) == 0)
        shard->journal.used = random_below(random, 64) * 8;
    return shard_resume(shard, whole, &rig.law, &rig.options, text, sizeof text) == GRADWEIR_OK;
}

Test(shard_resume, damaged_memory_is_refused_or_taken_and_nothing_falls)
{
    struct random random;
    begin_tile();
    const uint64_t whole = rig.local->shard->bytes;
    char *copy = aligned_alloc(64, (whole + 63) / 64 * 64);
    cr_assert_not_null(copy);
    random_init(&random, 3);
    uint32_t refused = 0;
    for (int i = 0; i < 600; i++)
        refused += !survive(&random, copy, whole);
    cr_assert_gt(refused, 100, "%u", refused);
    free(copy);
}
