/* What is gathered for one peer goes as few messages, in order. */
#include "common/transport_outbox.h"
#include "tests/unit/transport_pair.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct pair_setting memory = {.backend = "memory", .lanes = ""};
static struct pair pair;
static struct outbox outbox;
static uint64_t lost_tokens;
static uint32_t lost_items;
static uint8_t body[OUTBOX_SMALL + 1];

static void note_lost(void *context, const struct outbox_item *item, gradweir_status status)
{
    cr_assert(context == &outbox && status != GRADWEIR_OK);
    lost_tokens += item->token;
    lost_items++;
}

static void start(void)
{
    struct transport_settings limits = transport_defaults();
    limits.offers_max = 4;
    pair_open(&pair, &memory, limits);
    outbox =
        (struct outbox){.transport = pair.client.transport, .lost = note_lost, .context = &outbox};
    cr_assert_eq(outbox_init(&outbox, 8), GRADWEIR_OK);
    lost_tokens = lost_items = 0;
}

static void end(void)
{
    outbox_deinit(&outbox);
    pair_close(&pair);
}

TestSuite(outbox, .init = start, .fini = end);

static void put(uint8_t kind, uint32_t mark, uint64_t length)
{
    const struct head_any head = {.kind = kind, .session = mark};
    outbox_put(&outbox, &(struct outbox_item){.peer = pair.client.peer,
                                              .heads = {head},
                                              .heads_count = 1,
                                              .body = body,
                                              .length = length,
                                              .token = length});
}

/* The next message at the other side: its heads' kinds as digits, and which has the body. */
static uint32_t kinds(uint32_t *bodied, uint64_t *length)
{
    const struct transport_event event = pair_await(&pair, &pair.server, TRANSPORT_OFFERED);
    const uint32_t count = outbox_heads(&event, bodied);
    uint32_t number = 0;
    for (uint32_t i = 0; i < count; i++)
        number = number * 10 + event.head[i * HEAD_BYTES];
    *length = event.length;
    if (event.length)
        transport_refuse(pair.server.transport, event.offer);
    return number;
}

Test(outbox, what_is_said_to_one_peer_in_a_turn_is_one_message)
{
    uint32_t bodied;
    uint64_t length;
    put(HEAD_GONE, 1, 0);
    put(HEAD_CHUNK, 2, 100);
    put(HEAD_PULL, 3, 0);
    cr_assert(outbox_flush(&outbox));
    cr_assert_eq(kinds(&bodied, &length), 745);
    cr_assert(bodied == 1 && length == 100);
    cr_assert_eq(pair_await(&pair, &pair.client, TRANSPORT_SENT).token, 100);
    cr_assert(!outbox_flush(&outbox));
}

Test(outbox, no_message_has_two_bodies_or_too_many_heads)
{
    uint32_t bodied;
    uint64_t length;
    put(HEAD_CHUNK, 1, 10);
    put(HEAD_CHUNK, 2, 20);
    for (int i = 0; i < 4; i++)
        put(HEAD_PULL, 3, 0);
    outbox_flush(&outbox);
    cr_assert_eq(kinds(&bodied, &length), 4);
    cr_assert(bodied == 0 && length == 10);
    cr_assert_eq(kinds(&bodied, &length), 4555);
    cr_assert(bodied == 0 && length == 20);
    cr_assert_eq(kinds(&bodied, &length), 5);
    cr_assert_eq(length, 0);
}

Test(outbox, a_large_body_leaves_at_once)
{
    put(HEAD_CHUNK, 1, sizeof body);
    cr_assert_eq(outbox.count, 0);
    put(HEAD_CHUNK, 1, OUTBOX_SMALL);
    cr_assert_eq(outbox.count, 1);
}

Test(outbox, what_finds_no_room_waits_and_keeps_its_order)
{
    uint32_t bodied;
    uint64_t length;
    for (uint64_t i = 1; i <= 6; i++)
        put(HEAD_CHUNK, 0, i);
    outbox_flush(&outbox);
    cr_assert_eq(outbox.count, 2);
    for (uint64_t i = 1; i <= 6; i++) {
        outbox_flush(&outbox);
        cr_assert_eq(kinds(&bodied, &length), 4);
        cr_assert_eq(length, i);
        pair_pump(&pair);
    }
    cr_assert_eq(lost_items, 0);
}

Test(outbox, what_cannot_be_sent_is_given_back)
{
    put(HEAD_CHUNK, 0, 5);
    transport_hangup(pair.client.transport, pair.client.peer);
    pair_await(&pair, &pair.client, TRANSPORT_LOST);
    cr_assert(outbox_flush(&outbox));
    cr_assert(lost_tokens == 5 && outbox.count == 0);
    for (uint64_t i = 0; i < 9; i++) /* one more than there is room for */
        put(HEAD_CHUNK, 0, 7);
    cr_assert(lost_tokens == 12 && outbox.count == 8);
}

Test(outbox, what_is_no_heads_has_none)
{
    uint32_t bodied;
    struct transport_event event = {.head_length = HEAD_BYTES - 1};
    cr_assert_eq(outbox_heads(&event, &bodied), 0);
    event.head_length = 0;
    cr_assert_eq(outbox_heads(&event, &bodied), 0);
    event.head_length = HEAD_BYTES + 1;
    cr_assert_eq(outbox_heads(&event, &bodied), 0);
    event.head_length = 3 * HEAD_BYTES; /* none of them may have a body: the last would */
    cr_assert(outbox_heads(&event, &bodied) == 3 && bodied == 2);
}
