/* Gradients measured chunk by chunk as they land, and sealed by a digest that comes late. */
#include "tests/unit/shard_audit.h"
#include "tests/unit/shard_rig.h"

#include "common/arithmetic.h"
#include "common/checksum.h"
#include "common/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { CHUNKS = 4, BODY = RIG_ELEMENTS * 4 + 2 * 24 };

static struct rig rig;
static uint32_t session;
static float body[RIG_ELEMENTS + 12]; /* the range, then two moments of 24 bytes */

static void start(void)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig_start(&rig, 0, 1);
    rig_join(&rig, 0, ROLE_WORKER);
    session = rig_hello(&rig, 0, 50);
    rig.by_hand = true;
    memset(body, 0, sizeof body);
    for (int i = 0; i < RIG_ELEMENTS; i++)
        body[i] = (float)(i % 7) * 0.3f - 1;
}

static void end(void)
{
    rig_end(&rig);
}

TestSuite(shard_landing, .init = start, .fini = end);

static const struct message_landed *landed(void)
{
    const struct message *message = rig_sent(&rig, MESSAGE_LANDED, 0);
    return message ? &message->landed : NULL;
}

static struct head_chunk chunk(uint32_t slot, uint64_t i, bool sealed)
{
    struct head_chunk head = rig_chunk_head(session, slot, body, RIG_CHUNK);
    head.offset = i * RIG_CHUNK;
    head.length = (uint32_t)(i + 1 < CHUNKS ? RIG_CHUNK : BODY - i * RIG_CHUNK);
    head.flags = sealed ? CHUNK_SEALED : 0;
    head.digest = sealed ? 77 : 0;
    head.crc = checksum_crc32c(0, (const char *)body + head.offset, head.length);
    return head;
}

static bool at_hand;

/* Lands as a shell does it. */
static void land(const struct head_chunk *head)
{
    rig_head(&rig, 50, head, head->length);
    const struct shard_action *take = rig_action(&rig, SHARD_TAKE, 0);
    cr_assert_not_null(take);
    struct shard_event event = {.kind = SHARD_LANDED, .token = take->token, .length = take->length};
    const uint64_t offset = take->offset;
    const char *from = (const char *)body + head->offset;
    if (at_hand) {
        shard_copy_body(rig.local->shard, arithmetic_choose(NULL), offset, from, &event);
    } else {
        memcpy(shard_address(rig.local->shard, offset), from, head->length);
        shard_measure_body(rig.local->shard, arithmetic_choose(NULL), offset, &event);
    }
    at_hand = !at_hand; /* one way and the other, by turns */
    cr_assert_eq(event.crc, head->crc);
    rig_event(&rig, event);
}

Test(shard_landing, chunks_in_any_order_need_no_scan_and_give_the_same_sum)
{
    struct random random;
    random_init(&random, 3);
    double first = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t order[CHUNKS] = {0, 1, 2, 3};
        for (uint32_t k = CHUNKS - 1; k > 0; k--) {
            const uint32_t other = (uint32_t)random_below(&random, k + 1);
            const uint64_t was = order[k];
            order[k] = order[other];
            order[other] = was;
        }
        for (uint32_t k = 0; k < CHUNKS; k++) {
            cr_assert_null(landed());
            const struct head_chunk head = chunk(i, order[k], true);
            land(&head);
        }
        cr_assert_null(rig_action(&rig, SHARD_SCAN, 0));
        const struct message_landed *l = landed();
        cr_assert(l && l->intact && l->digest == 77 && l->not_finite == UINT64_MAX);
        cr_assert_float_eq(l->magnitude, 1.0f, 1e-6);
        first = i == 0 ? l->sum_squares : first;
        cr_assert_eq(memcmp(&first, &l->sum_squares, sizeof first), 0);
        rig_tick(&rig, 1);
    }
    double sum = 0;
    for (int i = 0; i < RIG_ELEMENTS; i++)
        sum += (double)body[i] * (double)body[i];
    cr_assert(fabs(first - sum) < 1e-9 * sum);
}

Test(shard_landing, what_is_not_finite_is_scanned_for_its_place)
{
    body[517] = INFINITY;
    for (uint64_t i = 0; i < CHUNKS; i++) {
        const struct head_chunk head = chunk(0, i, true);
        land(&head);
    }
    cr_assert(rig_action(&rig, SHARD_SCAN, 0) && !landed());
    rig_done(&rig, rig_action(&rig, SHARD_SCAN, 0)->token);
    cr_assert(landed() && landed()->intact);
}

Test(shard_landing, one_chunk_that_was_not_measured_makes_a_scan)
{
    for (uint64_t i = 0; i + 1 < CHUNKS; i++) {
        const struct head_chunk head = chunk(0, i, true);
        land(&head);
    }
    const struct head_chunk head = chunk(0, CHUNKS - 1, true);
    rig_head(&rig, 50, &head, head.length);
    const struct shard_action take = *rig_action(&rig, SHARD_TAKE, 0);
    rig_land(&rig, &take, (const char *)body + head.offset);
    cr_assert(rig_action(&rig, SHARD_SCAN, 0) && !landed());
}

Test(shard_landing, the_digest_may_come_with_any_chunk_and_whole_means_sealed)
{
    for (uint32_t sealing = 0; sealing < CHUNKS; sealing++) {
        for (uint64_t i = 0; i < CHUNKS; i++) {
            cr_assert_null(landed());
            const struct head_chunk head = chunk(sealing, i, i == sealing);
            land(&head);
        }
        cr_assert(landed() && landed()->intact && landed()->digest == 77);
        rig_tick(&rig, 1);
    }
    for (uint64_t i = 0; i < CHUNKS; i++) {
        const struct head_chunk head = chunk(5, i, false);
        land(&head);
        cr_assert_null(landed());
    }
    const struct head_chunk again = chunk(5, 2, true); /* a repeat whose body is here already */
    rig_head(&rig, 50, &again, again.length);
    cr_assert_not_null(rig_action(&rig, SHARD_REFUSE, 0));
    cr_assert(landed() && landed()->intact && landed()->digest == 77);
}

Test(shard_landing, a_digest_without_the_seal_or_another_one_lands_torn)
{
    struct head_chunk head = chunk(0, 0, false);
    head.digest = 77;
    rig_head(&rig, 50, &head, head.length);
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && landed() && !landed()->intact);

    head = chunk(1, 0, true);
    land(&head);
    head = chunk(1, 1, true);
    head.digest++;
    rig_head(&rig, 50, &head, head.length);
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && landed() && !landed()->intact);
}
