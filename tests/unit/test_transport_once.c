/* Bodies that come along with their heads, and are looked at before anybody has copied them. */
#include "tests/unit/transport_pair.h"

#include "common/clock.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { TOLD_MAX = 256, BODY_MAX = 1 << 20 };

/* What is done with an offer while it is told. */
enum answer { REFUSES, TAKES, WAITS };

struct once {
    struct transport *transport;
    enum answer answer;
    bool hangs_up, sated; /* wants his turn after each */
    unsigned char *place;
    uint64_t tokens[TOLD_MAX], offers[TOLD_MAX]; /* by their order */
    bool here[TOLD_MAX], whole[TOLD_MAX];
    uint32_t count, landed;
};

static void hear(struct once *once, const struct transport_event *event)
{
    once->landed += event->kind == TRANSPORT_LANDED && event->status == GRADWEIR_OK;
    if (event->kind != TRANSPORT_OFFERED)
        return;
    uint64_t seed;
    cr_assert_eq(event->head_length, sizeof seed);
    memcpy(&seed, event->head, sizeof seed);
    const void *body = event->length ? transport_body(once->transport, event->offer) : NULL;
    cr_assert_lt(once->count, (uint32_t)TOLD_MAX);
    once->here[once->count] = body;
    once->whole[once->count] = body && pair_is_filled(body, event->length, seed);
    once->offers[once->count] = event->offer;
    once->tokens[once->count++] = seed;
    if (once->hangs_up)
        transport_hangup(once->transport, event->peer);
    else if (event->length && (once->answer == TAKES || (!body && once->answer != WAITS)))
        cr_assert_eq(transport_take(once->transport, event->offer, once->place, 0, seed),
                     GRADWEIR_OK);
    else if (event->length && once->answer == REFUSES)
        transport_refuse(once->transport, event->offer);
}

static bool told(void *context, const struct transport_event *event)
{
    struct once *once = context;
    hear(once, event);
    return !once->sated;
}

/* The server has an ear for what comes along. */
static void open_with(struct pair *pair, struct once *once, const char *lanes)
{
    struct transport_settings settings = transport_defaults();
    const struct pair_setting setting = {"ucx", lanes, ""};
    pair_open(pair, &setting, settings);
    transport_close(pair->server.transport);
    transport_close(pair->client.transport);
    settings.lanes = lanes;
    cr_assert_eq(transport_open(&settings, &pair->client.transport), GRADWEIR_OK);
    settings.at_once = told;
    settings.at_once_context = once;
    cr_assert_eq(transport_open(&settings, &pair->server.transport), GRADWEIR_OK);
    cr_assert_eq(transport_listen(pair->server.transport), GRADWEIR_OK);
    pair->server.seen_count = pair->client.seen_count = 0;
    once->transport = pair->server.transport;
    pair_connect(pair);
}

static void send_one(const struct pair *pair, const unsigned char *body, uint64_t length,
                     uint64_t seed)
{
    const struct transport_message message = {
        .head = &seed, .head_length = sizeof seed, .body = body, .length = length, .token = seed};
    cr_assert_eq(transport_send(pair->client.transport, pair->client.peer, &message), GRADWEIR_OK);
}

/* What the server polls is told as well: together they are everything, in order. */
static void pump_until(struct pair *pair, struct once *once, uint32_t count)
{
    const uint64_t deadline_ns = clock_now_ns() + PAIR_WITHIN_MS * CLOCK_MS;
    while (once->count < count) {
        cr_assert(!deadline_passed(clock_now_ns(), deadline_ns));
        pair_pump(pair);
        for (size_t i = 0; i < pair->server.seen_count; i++)
            hear(once, &pair->server.seen[i]);
        pair->server.seen_count = 0;
    }
}

Test(transport_once, bodies_over_tcp_are_seen_where_they_came_and_all_keep_their_order,
     .timeout = 60)
{
    static const uint64_t sizes[] = {40000, 0, 1 << 18, 1, 0, 1 << 20, (1 << 18) + 1, 1 << 18, 300};
    enum { SIZES = sizeof sizes / sizeof sizes[0], ROUNDS = 3 };
    static unsigned char bodies[SIZES][BODY_MAX];
    for (int answer = REFUSES; answer <= TAKES; answer++) {
        struct once once = {.answer = (enum answer)answer, .place = malloc(BODY_MAX)};
        struct pair pair;
        open_with(&pair, &once, "tcp");
        for (uint32_t sent = 0; sent < ROUNDS * SIZES;) {
            for (uint32_t i = 0; i < SIZES; i++, sent++) {
                pair_fill(bodies[i], sizes[i], sent);
                send_one(&pair, bodies[i], sizes[i], sent);
            }
            pump_until(&pair, &once, sent);
            for (uint32_t i = 0; i < SIZES; i++)
                cr_assert_eq(pair_await(&pair, &pair.client, TRANSPORT_SENT).status, GRADWEIR_OK);
        }
        for (uint32_t i = 0; i < once.count; i++) {
            cr_assert_eq(once.tokens[i], i);
            const bool along = sizes[i % SIZES] > 0 && sizes[i % SIZES] <= 1 << 18;
            cr_assert_eq(once.here[i], along, "%u", i);
            cr_assert_eq(once.whole[i], along, "%u", i);
        }
        cr_assert_eq(pair.stalls, 0u);
        pair_close(&pair);
        free(once.place);
    }
}

Test(transport_once, who_answers_later_finds_a_copy, .timeout = 60)
{
    enum { COUNT = 20 };
    static unsigned char body[1 << 18], place[1 << 18];
    struct once once = {.answer = WAITS};
    struct pair pair;
    open_with(&pair, &once, "tcp");
    for (uint64_t i = 0; i < COUNT; i++) {
        pair_fill(body, sizeof body, i);
        send_one(&pair, body, sizeof body, i);
        pump_until(&pair, &once, (uint32_t)i + 1);
        pair_await(&pair, &pair.client, TRANSPORT_SENT);
    }
    for (uint64_t i = 0; i < COUNT / 2; i++) {
        const void *copy = transport_body(pair.server.transport, once.offers[i]);
        cr_assert(copy && pair_is_filled(copy, sizeof body, i));
        cr_assert_eq(transport_take(pair.server.transport, once.offers[i], place, 0, i),
                     GRADWEIR_OK);
        cr_assert(pair_is_filled(place, sizeof body, i));
        cr_assert_null(transport_body(pair.server.transport, once.offers[i]));
    }
    pair_close(&pair); /* the others are freed with the peer */
}

Test(transport_once, who_hangs_up_while_it_is_told_hears_no_more_of_that_peer, .timeout = 60)
{
    static unsigned char body[1 << 18];
    struct once once = {.hangs_up = true};
    struct pair pair;
    open_with(&pair, &once, "tcp");
    for (uint64_t i = 0; i < 4; i++)
        send_one(&pair, body, sizeof body, i);
    pair_await(&pair, &pair.server, TRANSPORT_LOST);
    pair_await(&pair, &pair.client, TRANSPORT_LOST);
    cr_assert_eq(once.count, 1u);
    pair_close(&pair);
}

/* The most bodies that one poll hands out, of eight that are sent at once. */
static uint32_t most_at_once(bool sated)
{
    enum { COUNT = 8 };
    static unsigned char body[1 << 18];
    struct once once = {.sated = sated};
    struct transport_event events[8];
    struct pair pair;
    uint32_t most = 0;
    open_with(&pair, &once, "tcp");
    for (uint64_t i = 0; i < COUNT; i++)
        send_one(&pair, body, sizeof body, i);
    const uint64_t deadline_ns = clock_now_ns() + PAIR_WITHIN_MS * CLOCK_MS;
    while (once.count < COUNT) {
        cr_assert(!deadline_passed(clock_now_ns(), deadline_ns));
        for (uint32_t i = 0; i < 20; i++)
            transport_poll(pair.client.transport, events, 8);
        const uint32_t before = once.count;
        transport_poll(pair.server.transport, events, 8);
        most = once.count - before > most ? once.count - before : most;
    }
    pair_close(&pair);
    return most;
}

Test(transport_once, who_wants_his_turn_gets_it_before_more_comes, .timeout = 60)
{
    const uint32_t a_segment = 2; /* of UCX's over TCP: 512 KiB, read at once */
    cr_assert_leq(most_at_once(true), a_segment);
    cr_assert_gt(most_at_once(false), a_segment);
}

Test(transport_once, how_long_a_body_should_be_is_said_of_tcp_alone, .timeout = 60)
{
    for (size_t i = 0; i < pair_setting_count; i++) {
        struct pair pair;
        const bool tcp = strcmp(pair_settings[i].lanes, "tcp") == 0;
        pair_open(&pair, &pair_settings[i], transport_defaults());
        cr_assert_eq(transport_portion(pair.client.transport, pair.client.peer),
                     tcp ? UINT64_C(1) << 18 : UINT64_MAX);
        cr_assert_eq(transport_portion(pair.client.transport, pair.client.peer + 1), UINT64_MAX);
        pair_close(&pair);
    }
}

/* How many bodies leave while their receiver answers none. */
static uint32_t sent_unanswered(struct pair *pair)
{
    static unsigned char body[100];
    struct transport_event events[8];
    uint32_t sent = 0;
    for (uint32_t turns = 0; turns < 20000; turns++) {
        const struct transport_message message = {.body = body, .length = sizeof body};
        sent += transport_send(pair->client.transport, pair->client.peer, &message) == GRADWEIR_OK;
        transport_poll(pair->client.transport, events, 8);
        transport_poll(pair->server.transport, events, 8);
    }
    return sent;
}

Test(transport_once, over_tcp_as_few_bodies_are_under_way_as_their_receiver_says, .timeout = 60)
{
    for (size_t i = 0; i < pair_setting_count; i++) {
        struct pair pair;
        struct transport_settings limits = transport_defaults();
        limits.along_max = 4;
        pair_open(&pair, &pair_settings[i], limits);
        const bool tcp = strcmp(pair_settings[i].lanes, "tcp") == 0;
        cr_assert_eq(sent_unanswered(&pair), tcp ? 4 : limits.offers_max, "%s",
                     pair_settings[i].lanes);
        pair_close(&pair);
    }
}
