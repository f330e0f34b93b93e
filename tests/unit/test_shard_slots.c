#include "tests/unit/shard_audit.h"
#include "tests/unit/shard_rig.h"

#include "common/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static struct rig rig;
static uint32_t session;
static float body[RIG_ELEMENTS + 12]; /* the range, then two moments of 24 bytes */

static void start(void)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig_start(&rig, 0, 1);
    rig_join(&rig, 0, ROLE_WORKER);
    session = rig_hello(&rig, 0, 50);
    memset(body, 0, sizeof body);
    for (int i = 0; i < RIG_ELEMENTS; i++)
        body[i] = (float)(i % 5) - 2;
}

static void end(void)
{
    rig_end(&rig);
}

TestSuite(shard_slots, .init = start, .fini = end);

static const struct message_landed *landed(void)
{
    const struct message *message = rig_sent(&rig, MESSAGE_LANDED, 0);
    return message ? &message->landed : NULL;
}

Test(shard_slots, a_gradient_lands_in_chunks_and_is_measured)
{
    rig_push(&rig, 50, rig_chunk_head(session, 3, body, RIG_CHUNK), body);
    const struct message_landed *l = landed();
    cr_assert_not_null(l);
    cr_assert(l->slot == 3 && l->generation == 1 && l->digest == 77 && l->intact);
    cr_assert(l->name.worker == 0 && l->name.incarnation == 1 && l->name.sequence == 1);
    cr_assert_eq(l->not_finite, UINT64_MAX);
    cr_assert(l->magnitude >= 2 && l->magnitude <= 2);
    cr_assert(fabs(l->sum_squares - 2000) < 1e-9);
    uint64_t bytes;
    const void *slot = shard_slot(rig.local->shard, 3, &bytes);
    cr_assert_eq(memcmp(slot, body, bytes), 0);
}

Test(shard_slots, the_first_element_that_is_not_finite_is_named)
{
    body[17] = NAN;
    rig_push(&rig, 50, rig_chunk_head(session, 0, body, RIG_CHUNK), body);
    cr_assert_eq(landed()->not_finite, 17);
    cr_assert(landed()->intact);
}

Test(shard_slots, moments_that_are_no_statistics_are_not_finite)
{
    const struct moments bad = {.count = 1, .mean = 0, .m2 = -1};
    memcpy((char *)(body + RIG_ELEMENTS) + sizeof bad, &bad, sizeof bad);
    rig_push(&rig, 50, rig_chunk_head(session, 0, body, RIG_CHUNK), body);
    cr_assert_eq(landed()->not_finite, RIG_ELEMENTS + 1);
}

Test(shard_slots, a_wrong_checksum_lands_torn)
{
    struct head_chunk head = rig_chunk_head(session, 0, body, RIG_CHUNK);
    head.crc ^= 1;
    rig_head(&rig, 50, &head, RIG_CHUNK);
    const struct shard_action take = *rig_action(&rig, SHARD_TAKE, 0);
    rig_land(&rig, &take, body);
    cr_assert(landed() && !landed()->intact);
}

Test(shard_slots, another_digest_sequence_or_basis_within_a_generation_lands_torn)
{
    for (uint32_t i = 0; i < 3; i++) {
        struct head_chunk head = rig_chunk_head(session, i, body, RIG_CHUNK);
        rig_head(&rig, 50, &head, RIG_CHUNK);
        cr_assert_not_null(rig_action(&rig, SHARD_TAKE, 0));
        head.offset = RIG_CHUNK;
        head.digest += i == 0;
        head.sequence += i == 1;
        head.basis += i == 2;
        rig_head(&rig, 50, &head, RIG_CHUNK);
        cr_assert_not_null(rig_action(&rig, SHARD_REFUSE, 0));
        cr_assert(landed() && !landed()->intact && landed()->digest == 77);
    }
}

Test(shard_slots, a_chunk_that_comes_twice_is_thrown_away_without_fault)
{
    const struct head_chunk head = rig_chunk_head(session, 0, body, RIG_CHUNK);
    rig_head(&rig, 50, &head, RIG_CHUNK);
    const struct shard_action take = *rig_action(&rig, SHARD_TAKE, 0);
    rig_head(&rig, 50, &head, RIG_CHUNK);
    cr_assert_not_null(rig_action(&rig, SHARD_REFUSE, 0));
    cr_assert_null(landed());
    rig_land(&rig, &take, body);
    rig_head(&rig, 50, &head, RIG_CHUNK);
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && !landed());
}

Test(shard_slots, a_closed_generation_never_lands_again_and_the_next_one_does)
{
    rig_push(&rig, 50, rig_chunk_head(session, 0, body, RIG_CHUNK), body);
    rig_close(&rig, 0, 1, 0);
    cr_assert_eq(rig_sent(&rig, MESSAGE_FREED, 0)->freed.generation, 1);
    struct head_chunk head = rig_chunk_head(session, 0, body, RIG_CHUNK);
    rig_head(&rig, 50, &head, RIG_CHUNK);
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && !rig_action(&rig, SHARD_TAKE, 0) && !landed());
    head.generation = 2;
    rig_head(&rig, 50, &head, RIG_CHUNK);
    cr_assert_not_null(rig_action(&rig, SHARD_TAKE, 0));
    rig_close(&rig, 0, 1, 0); /* said twice: so is the answer, and the next one goes on */
    cr_assert_eq(rig_sent(&rig, MESSAGE_FREED, 0)->freed.generation, 1);
}

Test(shard_slots, close_waits_for_what_moves_what_is_measured_and_what_is_applied)
{
    rig.by_hand = true;
    const struct head_chunk head = rig_chunk_head(session, 0, body, RIG_CHUNK);
    rig_head(&rig, 50, &head, RIG_CHUNK);
    const struct shard_action take = *rig_action(&rig, SHARD_TAKE, 0);
    rig_close(&rig, 0, 1, 0);
    cr_assert_null(rig_sent(&rig, MESSAGE_FREED, 0));
    rig_land(&rig, &take, body);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_FREED, 0));

    rig_push(&rig, 50, rig_chunk_head(session, 1, body, RIG_CHUNK), body);
    const uint64_t scan = rig_action(&rig, SHARD_SCAN, 0)->token;
    rig_close(&rig, 1, 1, 0);
    cr_assert_null(rig_sent(&rig, MESSAGE_FREED, 0));
    rig_done(&rig, scan);
    cr_assert(rig_sent(&rig, MESSAGE_FREED, 0) && !landed());

    rig_close(&rig, 2, 1, rig.ledger.index + 1);
    cr_assert_null(rig_sent(&rig, MESSAGE_FREED, 0));
    rig_join(&rig, 1, ROLE_WORKER);
    rig_close(&rig, 3, 1, rig.ledger.index);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_FREED, 0));
    rig_close(&rig, 2, 1, 0);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_FREED, 0)); /* it was freed with the JOIN */
}

Test(shard_slots, a_reader_sends_nothing)
{
    rig_join(&rig, 1, ROLE_READER);
    const struct head_chunk head = rig_chunk_head(rig_hello(&rig, 1, 51), 0, body, RIG_CHUNK);
    cr_assert_neq(head.session, 0);
    rig_head(&rig, 51, &head, RIG_CHUNK);
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && !rig_action(&rig, SHARD_TAKE, 0) && !landed());
}

Test(shard_slots, two_workers_do_not_share_a_generation)
{
    rig_join(&rig, 1, ROLE_WORKER);
    struct head_chunk head = rig_chunk_head(rig_hello(&rig, 1, 51), 0, body, RIG_CHUNK);
    rig_head(&rig, 51, &head, RIG_CHUNK);
    cr_assert_not_null(rig_action(&rig, SHARD_TAKE, 0));
    head.session = session;
    head.offset = RIG_CHUNK;
    rig_head(&rig, 50, &head, RIG_CHUNK);
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && !landed());
}

Test(shard_slots, an_empty_range_lands_by_a_head_alone)
{
    static struct rig empty; /* too large for the stack */
    rig_init(&empty, 10);    /* one block: member 0 of 3 has nothing */
    rig_start(&empty, 1, 3);
    cr_assert_eq(empty.options.member.count, 0);
    rig_join(&empty, 0, ROLE_WORKER);
    const struct head_chunk head = rig_chunk_head(rig_hello(&empty, 0, 50), 2, "", 0);
    rig_head(&empty, 50, &head, 0);
    const struct message *message = rig_sent(&empty, MESSAGE_LANDED, 0);
    cr_assert(message && message->landed.intact && message->landed.slot == 2);
    rig_end(&empty);
}

/* Whatever a peer writes into a head, a body is only let into a slot, whole chunks at a time. */
Test(shard_slots, no_head_reaches_beyond_its_slot)
{
    uint64_t bytes;
    const char *arena = (const char *)rig.local->shard;
    struct random random;
    shard_audit_end(rig.local->shard); /* so many heads take too long with it */
    random_init(&random, 5);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        struct head_chunk head =
            rig_chunk_head(session, (uint32_t)random_below(&random, 9), body, RIG_CHUNK);
        const uint64_t odd[] = {0,    RIG_CHUNK, 3 * RIG_CHUNK, 4 * RIG_CHUNK - 48,
                                4096, 1,         UINT64_MAX,    UINT64_MAX - RIG_CHUNK + 1,
                                4048};
        head.offset = odd[random_below(&random, 9)];
        head.length = (uint32_t)odd[random_below(&random, 9)];
        head.generation = i + random_below(&random, 3);
        head.flags = (uint16_t)random_below(&random, 4);
        head.digest = (head.flags & CHUNK_SEALED) || random_below(&random, 8) == 0 ? 77 : 0;
        const uint64_t length =
            random_below(&random, 2) ? head.length : odd[random_below(&random, 9)];
        rig_head(&rig, 50, &head, length);
        const struct shard_action *take = rig_action(&rig, SHARD_TAKE, 0);
        if (take) {
            taken++;
            const char *slot = shard_slot(rig.local->shard, head.slot, &bytes);
            const uint64_t begin = (uint64_t)(slot - arena);
            cr_assert(take->offset >= begin && take->length <= bytes &&
                      take->offset - begin <= bytes - take->length);
            cr_assert_eq((take->offset - begin) % RIG_CHUNK, 0);
            rig_event(&rig, (struct shard_event){.kind = SHARD_LANDED,
                                                 .token = take->token,
                                                 .status = GRADWEIR_ERR_LOST});
        }
        rig_close(&rig, head.slot, head.generation, 0);
        cr_assert_eq(head.slot < RIG_SLOTS, rig_sent(&rig, MESSAGE_FREED, 0) != NULL);
    }
    cr_assert_gt(taken, 100);
}
