/* One slot filled by several ranks: exactly once, in any order, whatever is sent again or fails. */
#include "tests/unit/shard_audit.h"
#include "tests/unit/shard_rig.h"

#include "common/checksum.h"
#include "common/parts.h"
#include "common/random.h"

#include <criterion/criterion.h>
#include <string.h>

enum { RANKS = 3, BODY = RIG_ELEMENTS * 4 + RIG_MOMENTS * 24, PIECES = 64 };

static struct rig rig;
static uint32_t sessions[RANKS];
static float body[RIG_ELEMENTS + 12];
static const uint64_t digests[RANKS] = {31, 41, 59};

/* Rank r has every third run of 40 floats; the tail of MOMENTS is rank 0's. */
struct piece {
    uint64_t offset, length, before;
    bool last;
};
static struct piece pieces[RANKS][PIECES];
static uint32_t counts[RANKS];

static void cut(void)
{
    memset(counts, 0, sizeof counts);
    for (uint32_t r = 0; r < RANKS; r++) {
        uint64_t before = 0;
        for (uint64_t offset = r * 160; offset < BODY; offset += RANKS * 160) {
            const bool in_tail = offset >= 4000;
            const uint64_t rest = (in_tail ? BODY : 4000) - offset;
            if (in_tail)
                continue;
            const uint64_t length = rest < 160 ? rest : 160;
            pieces[r][counts[r]++] = (struct piece){offset, length, before, false};
            before += length;
        }
        if (r == 0)
            pieces[r][counts[r]++] = (struct piece){4000, 48, before, false};
        pieces[r][counts[r] - 1].last = true;
    }
}

static uint32_t hello(uint32_t rank, uint64_t peer)
{
    struct head_hello head = rig_hello_head(0);
    head.rank = (uint8_t)rank;
    head.ranks = RANKS;
    rig_head(&rig, peer, &head, 0);
    const struct shard_action *welcome = rig_reply(&rig, HEAD_WELCOME, 0);
    return welcome ? welcome->head.session : 0;
}

static void start(void)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig_start(&rig, 0, 1);
    rig_join(&rig, 0, ROLE_WORKER);
    for (uint32_t r = 0; r < RANKS; r++)
        cr_assert_neq(sessions[r] = hello(r, 50 + r), 0);
    memset(body, 0, sizeof body);
    for (int i = 0; i < RIG_ELEMENTS; i++)
        body[i] = (float)(i % 5) - 2;
    cut();
}

static void end(void)
{
    rig_end(&rig);
}

TestSuite(shard_shares, .init = start, .fini = end);

static struct head_chunk head_of(uint32_t rank, const struct piece *piece)
{
    const uint64_t at = piece->offset < sizeof body ? piece->offset : 0;
    struct head_chunk head = rig_chunk_head(sessions[rank], 3, (char *)body + at, piece->length);
    head.kind = HEAD_PART;
    head.digest = digests[rank];
    head.basis = piece->before;
    head.offset = piece->offset;
    head.flags = piece->last ? PART_LAST : 0;
    return head;
}

/* The TAKE, or length 0: it was not taken. */
static struct shard_action offer(uint32_t rank, uint32_t n)
{
    const struct head_chunk head = head_of(rank, &pieces[rank][n]);
    rig_head(&rig, 50 + rank, &head, pieces[rank][n].length);
    const struct shard_action *take = rig_action(&rig, SHARD_TAKE, 0);
    cr_assert(take || rig_action(&rig, SHARD_REFUSE, 0));
    return take ? *take : (struct shard_action){.length = 0};
}

static bool send(uint32_t rank, uint32_t n)
{
    const struct shard_action take = offer(rank, n);
    if (take.length)
        rig_land(&rig, &take, (char *)body + pieces[rank][n].offset);
    return take.length != 0;
}

static const struct message_landed *landed(void)
{
    const struct message *message = rig_sent(&rig, MESSAGE_LANDED, 0);
    return message ? &message->landed : NULL;
}

static void check_whole(void)
{
    uint64_t bytes;
    cr_assert(landed() && landed()->intact);
    cr_assert_eq(landed()->digest, parts_digest(digests, RANKS));
    cr_assert_eq(landed()->name.sequence, 1);
    const void *slot = shard_slot(rig.local->shard, 3, &bytes);
    cr_assert_eq(bytes, BODY);
    cr_assert_eq(memcmp(slot, body, bytes), 0);
}

static void forget_slot(uint64_t generation)
{
    uint64_t bytes;
    rig_close(&rig, 3, generation, 0);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_FREED, 0));
    memset(shard_slot(rig.local->shard, 3, &bytes), 0xff, BODY);
}

Test(shard_shares, ranks_fill_a_slot_in_any_order_and_repeats_count_once)
{
    struct random random;
    random_init(&random, 3);
    for (uint32_t turn = 1; turn < 40; turn++) {
        uint32_t next[RANKS] = {0}, left = 0;
        for (uint32_t r = 0; r < RANKS; r++)
            left += counts[r];
        while (left > 0) {
            const uint32_t r = (uint32_t)random_below(&random, RANKS);
            cr_assert(!landed());
            if (next[r] > 0 && random_below(&random, 2)) {
                cr_assert_not(send(r, (uint32_t)random_below(&random, next[r])));
                cr_assert(!landed());
            }
            if (next[r] == counts[r])
                continue;
            struct head_chunk head = head_of(r, &pieces[r][next[r]]);
            head.generation = turn;
            rig_head(&rig, 50 + r, &head, pieces[r][next[r]].length);
            const struct shard_action take = *rig_action(&rig, SHARD_TAKE, 0);
            rig_land(&rig, &take, (char *)body + pieces[r][next[r]].offset);
            next[r]++;
            left--;
        }
        check_whole();
        forget_slot(turn);
        if (turn == 1)
            for (uint32_t r = 0; r < RANKS; r++) /* repeats above are of generation 1 */
                cr_assert_not(send(r, 0));
    }
}

static void send_rest(uint32_t rank, uint32_t from)
{
    for (uint32_t n = from; n < counts[rank]; n++)
        cr_assert(send(rank, n), "rank %u piece %u", rank, n);
}

Test(shard_shares, a_piece_behind_a_lost_one_waits_until_that_has_come)
{
    cr_assert(send(1, 0));
    cr_assert_not(send(1, 2));
    cr_assert(send(1, 1));
    cr_assert(send(1, 2));
    send_rest(1, 3);
    send_rest(0, 0);
    send_rest(2, 0);
    check_whole();
}

Test(shard_shares, a_body_that_fails_sends_its_rank_back_to_the_start_and_no_other)
{
    send_rest(0, 0);
    cr_assert(send(1, 0));
    const struct shard_action one = offer(1, 1), two = offer(1, 2);
    rig_event(&rig, (struct shard_event){
                        .kind = SHARD_LANDED, .token = one.token, .status = GRADWEIR_ERR_LOST});
    cr_assert_not(send(1, 3)); /* nothing is taken while bodies of before move */
    rig_land(&rig, &two, (char *)body + pieces[1][2].offset);
    cr_assert_not(send(1, 3));
    send_rest(1, 0);
    send_rest(2, 0);
    check_whole();
}

Test(shard_shares, a_rank_comes_back_over_another_connection_and_the_others_stay)
{
    const struct shard_action moving = offer(1, 0);
    cr_assert_eq(hello(1, 60), 0); /* AGAIN: a body of the old one still moves */
    cr_assert_not_null(rig_reply(&rig, HEAD_DENY, 0));
    rig_event(&rig, (struct shard_event){
                        .kind = SHARD_LANDED, .token = moving.token, .status = GRADWEIR_ERR_LOST});
    rig_event(&rig, (struct shard_event){.kind = SHARD_PEER_LOST, .peer = 51});
    cr_assert_neq(sessions[1] = hello(1, 51), 0);
    send_rest(0, 0);
    send_rest(1, 0);
    send_rest(2, 0);
    check_whole();
}

Test(shard_shares, without_one_rank_nothing_has_landed)
{
    send_rest(0, 0);
    send_rest(2, 0);
    cr_assert_null(landed());
    rig_tick(&rig, 1);
    cr_assert_null(landed());
}

Test(shard_shares, shares_that_do_not_add_up_are_torn)
{
    send_rest(0, 0);
    send_rest(2, 0);
    pieces[1][4].last = true; /* it says that this was all */
    for (uint32_t n = 0; n < 5; n++)
        cr_assert(send(1, n));
    cr_assert(landed() && !landed()->intact);
}

Test(shard_shares, bytes_beyond_the_range_are_torn)
{
    send_rest(0, 0);
    send_rest(2, 0);
    send_rest(1, 0); /* whole: 4 would be one too many */
    forget_slot(1);
    struct head_chunk head = head_of(1, &(struct piece){0, 1024, 0, false});
    head.generation = 2;
    uint64_t before = 0;
    for (uint64_t offset = 0; offset + 1024 <= BODY; offset += 1024, before += 1024) {
        head.offset = offset;
        head.basis = before;
        rig_head(&rig, 51, &head, 1024);
        cr_assert_not_null(rig_action(&rig, SHARD_TAKE, 0));
    }
    head.session = sessions[2]; /* another rank takes more than is left */
    head.digest = digests[2];
    head.offset = head.basis = 0;
    rig_head(&rig, 52, &head, 1024);
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && landed() && !landed()->intact);
}

Test(shard_shares, offsets_that_fall_another_digest_or_a_wrong_checksum_are_torn)
{
    for (uint32_t i = 0; i < 3; i++) {
        struct head_chunk head = head_of(1, &pieces[1][0]);
        head.generation = i + 1;
        rig_head(&rig, 51, &head, 160);
        const struct shard_action take = *rig_action(&rig, SHARD_TAKE, 0);
        if (i < 2) {
            rig_land(&rig, &take, (char *)body + pieces[1][0].offset);
            head = head_of(1, &pieces[1][1]);
            head.generation = i + 1;
            if (i == 0)
                head.offset = pieces[1][0].offset;
            else
                head.digest++;
            rig_head(&rig, 51, &head, 160);
        } else {
            rig_land(&rig, &take, (char *)body + pieces[1][0].offset + 4);
        }
        cr_assert(landed() && !landed()->intact, "%u", i);
        rig_close(&rig, 3, i + 1, 0);
    }
}

Test(shard_shares, chunks_and_shares_do_not_mix)
{
    struct head_chunk head = rig_chunk_head(sessions[0], 3, body, RIG_CHUNK);
    rig_head(&rig, 50, &head, RIG_CHUNK); /* a rank sends no chunks */
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && !landed());
    rig_join(&rig, 1, ROLE_WORKER);
    head.session = rig_hello(&rig, 1, 70);
    head.kind = HEAD_PART; /* and a whole worker no pieces */
    rig_head(&rig, 70, &head, RIG_CHUNK);
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && !landed());
}

Test(shard_shares, a_rank_that_does_not_exist_is_denied)
{
    for (uint32_t i = 0; i < 3; i++) {
        struct head_hello head = rig_hello_head(0);
        head.rank = i == 0 ? 3 : i == 1 ? 0 : 1;
        head.ranks = i == 0 ? 3 : i == 1 ? RANKS_MAX + 1 : 0;
        rig_head(&rig, 90, &head, 0);
        cr_assert(rig_reply(&rig, HEAD_DENY, 0) && !rig_reply(&rig, HEAD_WELCOME, 0));
    }
}

Test(shard_shares, a_rank_without_anything_here_says_so_by_a_head_alone)
{
    struct head_chunk head = head_of(0, &(struct piece){0, 0, 0, true});
    rig_head(&rig, 50, &head, 0);
    cr_assert_null(landed());
    head = head_of(1, &(struct piece){0, 0, 0, true});
    rig_head(&rig, 51, &head, 0);
    uint64_t before = 0;
    for (uint64_t offset = 0; offset < BODY; offset += 1024, before += 1024) {
        const uint64_t rest = BODY - offset;
        const struct piece piece = {offset, rest < 1024 ? rest : 1024, before, rest <= 1024};
        head = head_of(2, &piece);
        rig_head(&rig, 52, &head, piece.length);
        const struct shard_action take = *rig_action(&rig, SHARD_TAKE, 0);
        rig_land(&rig, &take, (char *)body + offset);
    }
    check_whole();
}

/* Whatever a rank writes into a head, a body is only let into its slot. */
Test(shard_shares, no_head_reaches_beyond_its_slot)
{
    uint64_t bytes;
    const char *arena = (const char *)rig.local->shard;
    struct random random;
    shard_audit_end(rig.local->shard);
    random_init(&random, 5);
    uint32_t taken = 0;
    for (uint32_t i = 1; i < 20000; i++) {
        const uint64_t odd[] = {0,    4,    160,  1024,       1028,          4047,
                                4044, 4048, BODY, UINT64_MAX, UINT64_MAX - 3};
        struct head_chunk head =
            head_of(1, &(struct piece){odd[random_below(&random, 11)], 4, 0, false});
        head.slot = (uint32_t)random_below(&random, 9);
        head.length = (uint32_t)odd[random_below(&random, 11)];
        head.basis = random_below(&random, 4) ? 0 : odd[random_below(&random, 11)];
        head.generation = i;
        head.flags = (uint16_t)random_below(&random, 3);
        rig_head(&rig, 51, &head,
                 random_below(&random, 4) ? head.length : odd[random_below(&random, 11)]);
        const struct shard_action *take = rig_action(&rig, SHARD_TAKE, 0);
        if (take) {
            taken++;
            const char *slot = shard_slot(rig.local->shard, head.slot, &bytes);
            const uint64_t begin = (uint64_t)(slot - arena);
            cr_assert(take->offset >= begin && take->length <= bytes &&
                      take->offset - begin <= bytes - take->length);
            rig_event(&rig, (struct shard_event){.kind = SHARD_LANDED,
                                                 .token = take->token,
                                                 .status = GRADWEIR_ERR_LOST});
        }
        rig_close(&rig, head.slot, head.generation, 0);
    }
    cr_assert_gt(taken, 100);
}
