#include "tests/unit/shard_rig.h"

#include "common/arithmetic_element.h"
#include "common/checksum.h"
#include "common/pieces.h"
#include "common/random.h"
#include "server/shard/shard_internal.h"

#include <criterion/criterion.h>
#include <string.h>

/* A matrix of 100 x 100 in the rig's one vector, cut into columns by hand. */
enum { FLOATS = 10000, COLUMNS = 100, BODY = FLOATS * 4 + RIG_MOMENTS * 24, PLACES = 8 };

static struct rig rig;
static uint32_t session;
static uint8_t expected[BODY];

static void start(void)
{
    uint64_t version;
    rig_init(&rig, FLOATS);
    rig_start(&rig, 0, 1);
    rig_join(&rig, 0, ROLE_WORKER);
    session = rig_hello(&rig, 0, 50);
    rig_fill(&rig, 0, 1);
    cr_assert(rig_first(&rig, 0, 0));
    memcpy(expected, shard_parameters(rig.local->shard, &version), BODY);
}

static void end(void)
{
    rig_end(&rig);
}

TestSuite(shard_pieces, .init = start, .fini = end);

static struct piece columns(uint64_t first, uint64_t count)
{
    return (struct piece){.offset = first * 4,
                          .length = COLUMNS * count * 4,
                          .lead = count * 4,
                          .width = count * 4,
                          .period = COLUMNS * 4};
}

static struct piece row(uint64_t offset, uint64_t bytes)
{
    return (struct piece){offset, bytes, bytes, bytes, bytes};
}

static struct head_pull head_of(const struct piece *list, uint32_t count, uint8_t dtype,
                                uint64_t ticket)
{
    struct head_pull head = {.kind = HEAD_PULL,
                             .dtype = dtype,
                             .flags = PULL_PIECES,
                             .session = session,
                             .epoch = 1,
                             .timeline = 1,
                             .ticket = ticket,
                             .pieces = count,
                             .crc = checksum_crc32c(0, list, count * sizeof *list)};
    for (uint32_t i = 0; i < count; i++)
        head.length += list[i].length;
    return head;
}

/* Asks; false when its list is not taken. */
static bool ask(const struct head_pull *head, const struct piece *list)
{
    rig_head(&rig, 50, head, head->pieces * sizeof *list);
    const struct shard_action *take = rig_action(&rig, SHARD_TAKE, 0);
    if (!take)
        return false;
    const struct shard_action copy = *take;
    rig_land(&rig, &copy, list);
    return true;
}

static void sent(uint64_t token, gradweir_status status)
{
    rig_event(&rig, (struct shard_event){.kind = SHARD_SENT, .token = token, .status = status});
}

/* All bodies of a ticket put together, each in its turn; how many there were. */
static uint32_t collect(uint64_t ticket, uint8_t *got, uint64_t *bytes)
{
    static struct shard_action waiting[16];
    uint32_t first = 0, count = 0, bodies = 0;
    *bytes = 0;
    do {
        const struct shard_action *reply;
        for (uint32_t i = 0; (reply = rig_reply(&rig, HEAD_PARAMETERS, i)); i++)
            waiting[(first + count++) % 16] = *reply;
        cr_assert(count > 0 && count <= 16);
        const struct shard_action body = waiting[first++ % 16];
        struct head_parameters head;
        memcpy(&head, &body.head, sizeof head);
        cr_assert(head.ticket == ticket && head.offset == *bytes && head.flags == PULL_PIECES);
        memcpy(got + *bytes, shard_address(rig.local->shard, body.offset), body.length);
        *bytes += body.length;
        count--;
        bodies++;
        cr_assert_leq(*bytes, head.total);
        sent(body.token, GRADWEIR_OK);
        if (*bytes == head.total)
            return bodies;
    } while (true);
}

static uint64_t take_columns(uint64_t first, uint64_t count, bool half, uint8_t *to)
{
    uint64_t bytes = 0;
    for (uint64_t r = 0; r < COLUMNS; r++)
        for (uint64_t c = first; c < first + count; c++) {
            float x;
            memcpy(&x, expected + (r * COLUMNS + c) * 4, sizeof x);
            const uint16_t rounded = element_to_bf16(x);
            memcpy(to + bytes, half ? (const void *)&rounded : &x, half ? 2 : 4);
            bytes += half ? 2 : 4;
        }
    return bytes;
}

Test(shard_pieces, columns_rows_and_moments_arrive_in_the_order_of_the_list)
{
    for (int half = 0; half < 2; half++) {
        const struct piece list[] = {columns(90, 10), row(400, 800), columns(3, 7),
                                     row(FLOATS * 4 + 24, 24)};
        const struct head_pull head =
            head_of(list, 4, half ? HEAD_BFLOAT16 : HEAD_FLOAT32, 7 + (uint64_t)half);
        uint8_t got[BODY], wanted[BODY];
        uint64_t bytes, at = take_columns(90, 10, half, wanted);
        for (uint64_t i = 0; i < 200; i++) {
            float x;
            memcpy(&x, expected + 400 + i * 4, sizeof x);
            const uint16_t rounded = element_to_bf16(x);
            memcpy(wanted + at, half ? (const void *)&rounded : &x, half ? 2 : 4);
            at += half ? 2 : 4;
        }
        at += take_columns(3, 7, half, wanted + at);
        memcpy(wanted + at, expected + FLOATS * 4 + 24, 24);
        cr_assert(ask(&head, list));
        cr_assert_gt(collect(head.ticket, got, &bytes), 4);
        cr_assert_eq(bytes, at + 24);
        cr_assert_eq(memcmp(got, wanted, bytes), 0);
    }
}

Test(shard_pieces, a_row_leaves_from_the_slot_itself_and_a_column_from_a_place_of_its_own)
{
    uint64_t version;
    const struct piece list[] = {row(400, 800), columns(5, 1)};
    const struct head_pull head = head_of(list, 2, HEAD_FLOAT32, 1);
    cr_assert(ask(&head, list));
    const uint8_t *slot = (const void *)shard_parameters(rig.local->shard, &version);
    const uint64_t offset = rig_reply(&rig, HEAD_PARAMETERS, 0)->offset;
    cr_assert_eq(shard_address(rig.local->shard, offset), slot + 400);
    const uint8_t *made =
        shard_address(rig.local->shard, rig_reply(&rig, HEAD_PARAMETERS, 1)->offset);
    cr_assert(made < slot || made >= slot + BODY);
}

/* Four pulls take all places; the fifth waits, pins its version, and goes on when one is free. */
Test(shard_pieces, who_finds_no_place_waits_for_one)
{
    const struct piece list[] = {columns(0, 50)};
    static struct shard_action first[PLACES];
    uint32_t bodies = 0;
    for (uint64_t ticket = 1; ticket <= 4; ticket++) {
        const struct head_pull head = head_of(list, 1, HEAD_FLOAT32, ticket);
        cr_assert(ask(&head, list));
        const struct shard_action *reply;
        for (uint32_t i = 0; (reply = rig_reply(&rig, HEAD_PARAMETERS, i)); i++)
            first[bodies++] = *reply;
    }
    cr_assert_eq(bodies, PLACES);
    /* One is lost: its place goes to nobody else as long as the other body of it moves. */
    for (uint32_t i = 0; i < PLACES - 2; i++)
        sent(first[i].token, GRADWEIR_ERR_LOST);
    const struct head_pull head = head_of(list, 1, HEAD_FLOAT32, 9);
    uint8_t got[BODY], wanted[BODY];
    uint64_t bytes;
    cr_assert(ask(&head, list));
    collect(9, got, &bytes);
    cr_assert_eq(bytes, take_columns(0, 50, false, wanted));
    cr_assert_eq(memcmp(got, wanted, bytes), 0);
    sent(first[PLACES - 2].token, GRADWEIR_OK);
    sent(first[PLACES - 1].token, GRADWEIR_ERR_LOST);
}

Test(shard_pieces, only_what_is_newer_is_told_at_once_and_moves_nothing_when_nothing_is)
{
    const struct piece list[] = {columns(0, 1)};
    struct head_pull head = head_of(list, 1, HEAD_FLOAT32, 1);
    struct head_parameters answer;
    head.flags |= PULL_NEWER;
    cr_assert(ask(&head, list));
    cr_assert_null(rig_reply(&rig, HEAD_PARAMETERS, 0));
    memcpy(&answer, &rig_reply(&rig, HEAD_GONE, 0)->head, sizeof answer);
    cr_assert_eq(answer.version, 0);
    rig_fill(&rig, 1, 1);
    cr_assert(rig_admit(&rig, 0, 1) && rig_step_one(&rig, 1));
    cr_assert(ask(&head, list)); /* stepped here, but not yet whole */
    cr_assert_null(rig_reply(&rig, HEAD_PARAMETERS, 0));
    rig_say(&rig, &(struct message){.kind = MESSAGE_WHOLE, .whole = {1}});
    cr_assert(ask(&head, list));
    memcpy(&answer, &rig_reply(&rig, HEAD_PARAMETERS, 0)->head, sizeof answer);
    cr_assert_eq(answer.version, 1);
}

Test(shard_pieces, a_list_that_does_not_fit_its_head_is_not_taken)
{
    const struct piece list[] = {columns(0, 1), row(0, 4)};
    const struct head_pull good = head_of(list, 2, HEAD_FLOAT32, 1);
    struct head_pull bad[8];
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].pieces = 0;
    bad[1].pieces = PIECES_MAX + 1;
    bad[2].offset = 4;
    bad[3].dtype = 2;
    bad[4].timeline = 2;
    bad[5].session++;
    bad[6].flags = 0;
    for (int i = 0; i < 7; i++) {
        rig_head(&rig, 50, &bad[i], bad[i].pieces * sizeof *list);
        cr_assert_null(rig_action(&rig, SHARD_TAKE, 0), "%d", i);
        cr_assert_not_null(rig_reply(&rig, HEAD_GONE, 0));
        cr_assert(bad[i].pieces == 0 || rig_action(&rig, SHARD_REFUSE, 0));
    }
    rig_head(&rig, 50, &good, 3 * sizeof *list);
    cr_assert(!rig_action(&rig, SHARD_TAKE, 0) && rig_action(&rig, SHARD_REFUSE, 0));
    bad[7].flags = PULL_PIECES;
    rig_head(&rig, 50, &bad[7], 0);
    cr_assert_null(rig_action(&rig, SHARD_TAKE, 0));
    cr_assert(ask(&good, list) && rig_reply(&rig, HEAD_PARAMETERS, 0));
}

/* Random words for a list: no crash, nothing read outside, and whoever sends it is hung up. */
Test(shard_pieces, a_list_of_nonsense_ends_the_connection_and_one_of_torn_bytes_does_not)
{
    struct random random;
    uint32_t good = 0, hung = 0;
    random_init(&random, 3);
    for (uint32_t i = 0; i < 3000; i++) {
        struct piece list[3] = {columns(2, 3), row(40, 80), columns(50, 2)};
        const uint64_t worth[] = {0,
                                  1,
                                  4,
                                  40,
                                  COLUMNS * 4,
                                  BODY,
                                  BODY - 4,
                                  UINT64_MAX,
                                  UINT64_MAX - 3,
                                  UINT64_C(1) << 63,
                                  random_next(&random)};
        uint64_t *words = (uint64_t *)list;
        words[random_below(&random, 15)] = worth[random_below(&random, 11)];
        struct head_pull head = head_of(list, 3, i % 2 ? HEAD_BFLOAT16 : HEAD_FLOAT32, i + 10);
        head.crc ^= i % 5 == 0;
        cr_assert(ask(&head, list));
        if (i % 5 == 0) {
            cr_assert(rig_reply(&rig, HEAD_GONE, 0) && !rig_action(&rig, SHARD_HANGUP, 0));
        } else if (rig_action(&rig, SHARD_HANGUP, 0)) {
            hung++;
        } else {
            uint8_t got[2 * BODY];
            uint64_t bytes;
            good++;
            collect(head.ticket, got, &bytes);
        }
    }
    cr_assert(good > 100 && hung > 100, "%u %u", good, hung);
}

Test(shard_pieces, a_list_still_under_way_when_its_sender_is_gone_is_let_go)
{
    struct shard_figures figures;
    const struct piece list[] = {columns(0, 1)};
    const struct head_pull head = head_of(list, 1, HEAD_FLOAT32, 1);
    rig_head(&rig, 50, &head, sizeof list);
    const struct shard_action take = *rig_action(&rig, SHARD_TAKE, 0);
    cr_assert_neq(rig_hello(&rig, 0, 51), 0); /* the same worker, over another connection */
    cr_assert_not_null(rig_action(&rig, SHARD_HANGUP, 0));
    rig_land(&rig, &take, list);
    cr_assert_null(rig_reply(&rig, HEAD_PARAMETERS, 0));
    shard_figures(rig.local->shard, &figures);
    cr_assert(figures.pulls_waiting == 0 && figures.pinned == 0);
}

/* Bodies that a killed process had asked for may still land, and then in the list of another. */
Test(shard_pieces, no_list_is_taken_as_long_as_a_dead_process_bodies_may_land)
{
    const struct piece list[] = {columns(0, 1)};
    const struct head_pull head = head_of(list, 1, HEAD_FLOAT32, 1);
    rig.local->shard->quiet_until_ns = rig.now_ns + QUIET_NS;
    cr_assert(!ask(&head, list) && rig_reply(&rig, HEAD_GONE, 0) &&
              rig_action(&rig, SHARD_REFUSE, 0));
    rig_tick(&rig, QUIET_NS);
    cr_assert(ask(&head, list) && rig_reply(&rig, HEAD_PARAMETERS, 0));
}
