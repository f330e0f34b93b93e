/* What every transport must do, run over every backend and its lanes. Death and bad input:
 * test_transport_loss.c. */
#include "tests/unit/transport_pair.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FOR_EACH_SETTING(setting)                                                                  \
    for (const struct pair_setting *setting = pair_settings;                                       \
         setting < pair_settings + pair_setting_count; setting++)

#define BODY_MAX (((uint64_t)16 << 20) + 5)

static const uint64_t sizes[] = {0,    1,     3,     63,    64,    65,      1000,    8191,
                                 8192, 20480, 65535, 65536, 65537, 1000003, BODY_MAX};

static void send_body(struct pair_side *from, const void *body, uint64_t length, uint64_t token)
{
    struct transport_message message = {.head = &token,
                                        .head_length = sizeof token,
                                        .body = body,
                                        .length = length,
                                        .token = token};
    cr_assert_eq(transport_send(from->transport, from->peer, &message), GRADWEIR_OK, "%s",
                 fail_reason());
}

static void one_way(struct pair *pair, struct pair_side *from, struct pair_side *to,
                    unsigned char *buffers[2])
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char head[TRANSPORT_HEAD_MAX];
        uint32_t head_length = (uint32_t)(i * 5 % (TRANSPORT_HEAD_MAX + 1));
        pair_fill(head, head_length, i);
        pair_fill(buffers[0], sizes[i], i + 1);
        memset(buffers[1], 0, sizes[i] + 1);
        struct transport_message message = {.head = head,
                                            .head_length = head_length,
                                            .body = buffers[0],
                                            .length = sizes[i],
                                            .token = 100 + i};
        cr_assert_eq(transport_send(from->transport, from->peer, &message), GRADWEIR_OK);
        memset(head, 0, sizeof head);
        struct transport_event offered = pair_await(pair, to, TRANSPORT_OFFERED);
        cr_assert(offered.peer == to->peer && offered.length == sizes[i]);
        cr_assert(offered.head_length == head_length &&
                  pair_is_filled(offered.head, head_length, i));
        cr_assert_eq(offered.offer != 0, sizes[i] > 0);
        if (sizes[i] > 0) {
            cr_assert_eq(transport_take(to->transport, offered.offer, buffers[1], 0, 200 + i),
                         GRADWEIR_OK);
            struct transport_event landed = pair_await(pair, to, TRANSPORT_LANDED);
            cr_assert(landed.status == GRADWEIR_OK && landed.token == 200 + i &&
                      landed.length == sizes[i]);
            cr_assert(landed.offer == offered.offer && landed.peer == to->peer);
        }
        struct transport_event sent = pair_await(pair, from, TRANSPORT_SENT);
        cr_assert(sent.status == GRADWEIR_OK && sent.token == 100 + i);
        cr_assert(pair_is_filled(buffers[1], sizes[i], i + 1) && buffers[1][sizes[i]] == 0);
    }
}

Test(transport, heads_and_bodies_of_all_sizes_arrive_intact_both_ways, .timeout = 600)
{
    unsigned char *buffers[2] = {malloc(BODY_MAX + 1), malloc(BODY_MAX + 1)};
    FOR_EACH_SETTING(setting)
    {
        struct pair pair;
        pair_open(&pair, setting, transport_defaults());
        one_way(&pair, &pair.client, &pair.server, buffers);
        one_way(&pair, &pair.server, &pair.client, buffers);
        cr_assert_eq(pair.stalls, 0u, "%s/%s slept through something", setting->backend,
                     setting->lanes);
        cr_assert_eq(pair.server.seen_count + pair.client.seen_count, 0u);
        pair_close(&pair);
    }
    free(buffers[0]);
    free(buffers[1]);
}

Test(transport, bodies_go_from_and_to_registered_memory, .timeout = 600)
{
    uint64_t length = 3000000;
    unsigned char *buffers[2] = {malloc(length), malloc(length)};
    FOR_EACH_SETTING(setting)
    {
        struct pair pair;
        uint32_t memory[2] = {0};
        pair_open(&pair, setting, transport_defaults());
        cr_assert_eq(transport_memory_map(pair.client.transport, buffers[0], length, &memory[0]),
                     GRADWEIR_OK);
        cr_assert_eq(transport_memory_map(pair.server.transport, buffers[1], length, &memory[1]),
                     GRADWEIR_OK);
        pair_fill(buffers[0], length, 4);
        memset(buffers[1], 0, length);
        struct transport_message message = {
            .body = buffers[0], .length = length, .memory = memory[0]};
        cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &message),
                     GRADWEIR_OK);
        uint64_t offer = pair_await(&pair, &pair.server, TRANSPORT_OFFERED).offer;
        cr_assert_eq(transport_take(pair.server.transport, offer, buffers[1], memory[1], 0),
                     GRADWEIR_OK);
        cr_assert_eq(pair_await(&pair, &pair.server, TRANSPORT_LANDED).status, GRADWEIR_OK);
        cr_assert_eq(pair_await(&pair, &pair.client, TRANSPORT_SENT).status, GRADWEIR_OK);
        cr_assert(pair_is_filled(buffers[1], length, 4));
        transport_memory_unmap(pair.client.transport, memory[0]);
        transport_memory_unmap(pair.server.transport, memory[1]);
        pair_close(&pair);
    }
    free(buffers[0]);
    free(buffers[1]);
}

/* Read where it lies, or taken where it does not. */
static bool read_or_take(struct pair *pair, unsigned char *place, uint64_t seed)
{
    struct transport *transport = pair->server.transport;
    const struct transport_event offered = pair_await(pair, &pair->server, TRANSPORT_OFFERED);
    const void *body = transport_body(transport, offered.offer);
    if (body) {
        cr_assert(pair_is_filled(body, offered.length, seed));
        transport_refuse(transport, offered.offer);
        cr_assert_null(transport_body(transport, offered.offer));
        return true;
    }
    cr_assert_eq(transport_take(transport, offered.offer, place, 0, 0), GRADWEIR_OK);
    pair_await(pair, &pair->server, TRANSPORT_LANDED);
    cr_assert(pair_is_filled(place, offered.length, seed));
    return false;
}

/* Over shared memory a body of some size is at hand, once both sides have found that they share a
 * machine; and as many more as there are blocks. */
Test(transport, a_body_that_is_here_can_be_read_where_it_lies, .timeout = 600)
{
    enum { AT_ONCE = 6, ROUNDS = 8, LENGTH = 1 << 20 };
    unsigned char *bodies = malloc((size_t)AT_ONCE * LENGTH), *place = malloc(LENGTH + 1);
    FOR_EACH_SETTING(setting)
    {
        struct pair pair;
        uint32_t at_hand = 0;
        pair_open(&pair, setting, transport_defaults());
        for (uint64_t round = 0; round < ROUNDS; round++) {
            for (uint64_t i = 0; i < AT_ONCE; i++) {
                pair_fill(bodies + i * LENGTH, LENGTH, round * AT_ONCE + i);
                send_body(&pair.client, bodies + i * LENGTH, LENGTH - round, i);
            }
            at_hand = 0;
            for (uint64_t i = 0; i < AT_ONCE; i++)
                at_hand += read_or_take(&pair, place, round * AT_ONCE + i);
            for (uint64_t i = 0; i < AT_ONCE; i++)
                cr_assert_eq(pair_await(&pair, &pair.client, TRANSPORT_SENT).status, GRADWEIR_OK);
        }
        if (strcmp(setting->lanes, "posix") == 0)
            cr_assert_geq(at_hand, 4u);
        cr_assert_null(transport_body(pair.server.transport, 12345));
        cr_assert_eq(pair.stalls, 0u);
        pair_close(&pair);
    }
    free(bodies);
    free(place);
}

/* Bodies that are made in the transport's room, and room that is given back: there is as much of it
 * after many as after one, and when all is in use that is said. */
Test(transport, a_body_may_be_made_in_room_of_the_transport, .timeout = 600)
{
    enum { ROUNDS = 20, LENGTH = 300000 };
    unsigned char *place = malloc(LENGTH);
    FOR_EACH_SETTING(setting)
    {
        struct pair pair;
        bool any = false;
        pair_open(&pair, setting, transport_defaults());
        struct transport *client = pair.client.transport;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            void *unused = NULL, *room = place;
            any = transport_room(client, pair.client.peer, LENGTH, &unused) == GRADWEIR_OK;
            (void)transport_room(client, pair.client.peer, LENGTH, &room);
            cr_assert_neq(room, unused);
            pair_fill(room, LENGTH, round);
            send_body(&pair.client, room, LENGTH, round);
            transport_room_back(client, pair.client.peer, unused);
            (void)read_or_take(&pair, place, round);
            cr_assert_eq(pair_await(&pair, &pair.client, TRANSPORT_SENT).status, GRADWEIR_OK);
        }
        cr_assert(any || strcmp(setting->lanes, "posix") != 0);
        void *none, *all[64];
        size_t rooms = 0;
        while (transport_room(client, pair.client.peer, LENGTH, &all[rooms]) == GRADWEIR_OK)
            cr_assert_lt(++rooms, 64);
        cr_assert_eq(transport_room(client, pair.client.peer, LENGTH, &none),
                     rooms > 0 ? GRADWEIR_ERR_AGAIN : GRADWEIR_ERR_UNSUPPORTED);
        while (rooms > 0)
            transport_room_back(client, pair.client.peer, all[--rooms]);
        cr_assert_eq(transport_room(client, pair.client.peer, BODY_MAX, &none),
                     GRADWEIR_ERR_UNSUPPORTED);
        cr_assert_eq(transport_room(client, 12345, LENGTH, &none), GRADWEIR_ERR_UNSUPPORTED);
        pair_close(&pair);
    }
    free(place);
}

Test(transport, an_offer_is_taken_late_or_refused_as_its_owner_likes, .timeout = 600)
{
    static unsigned char bodies[6][100000], places[6][100000];
    FOR_EACH_SETTING(setting)
    {
        struct pair pair;
        struct transport_event offers[6];
        pair_open(&pair, setting, transport_defaults());
        for (uint64_t i = 0; i < 6; i++) { /* short and long ones by turns */
            pair_fill(bodies[i], sizeof bodies[i], i);
            send_body(&pair.client, bodies[i], i % 2 ? sizeof bodies[i] : 700, i);
        }
        for (uint64_t i = 0; i < 6; i++) {
            uint64_t token;
            offers[i] = pair_await(&pair, &pair.server, TRANSPORT_OFFERED);
            memcpy(&token, offers[i].head, sizeof token);
            cr_assert_eq(token, i, "offered in the order sent");
        }
        transport_refuse(pair.server.transport, offers[2].offer);
        transport_refuse(pair.server.transport, offers[3].offer);
        for (int i = 5; i >= 0; i--) {
            memset(places[i], 0, sizeof places[i]);
            gradweir_status expected = i == 2 || i == 3 ? GRADWEIR_ERR_LOST : GRADWEIR_OK;
            cr_assert_eq(
                transport_take(pair.server.transport, offers[i].offer, places[i], 0, (uint64_t)i),
                expected);
        }
        for (int i = 0; i < 6; i++)
            cr_assert_eq(pair_await(&pair, &pair.client, TRANSPORT_SENT).status, GRADWEIR_OK);
        for (int i = 0; i < 4; i++) {
            struct transport_event landed = pair_await(&pair, &pair.server, TRANSPORT_LANDED);
            cr_assert_eq(landed.status, GRADWEIR_OK);
            cr_assert(pair_is_filled(places[landed.token], landed.length, landed.token));
        }
        cr_assert_eq(transport_take(pair.server.transport, offers[0].offer, places[0], 0, 0),
                     GRADWEIR_ERR_LOST);
        pair_close(&pair);
    }
}

/* The receiver takes only `offers_max` and the sender keeps only `in_flight_max`; beyond it, AGAIN
 * and one WRITABLE. */
Test(transport, a_full_peer_pushes_back_and_says_when_there_is_room, .timeout = 600)
{
    static unsigned char body[300], place[300];
    struct transport_settings limits = transport_defaults();
    limits.in_flight_max = 8;
    limits.offers_max = 3;
    FOR_EACH_SETTING(setting)
    {
        struct pair pair;
        pair_open(&pair, setting, limits);
        struct transport_message message = {.body = body, .length = sizeof body};
        for (int i = 0; i < 3; i++)
            cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &message),
                         GRADWEIR_OK);
        for (int i = 0; i < 3; i++)
            cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &message),
                         GRADWEIR_ERR_AGAIN);
        for (int round = 0; round < 20; round++) {
            uint64_t offer = pair_await(&pair, &pair.server, TRANSPORT_OFFERED).offer;
            cr_assert_eq(pair_count(&pair.client, TRANSPORT_WRITABLE), 0u);
            cr_assert_eq(transport_take(pair.server.transport, offer, place, 0, 0), GRADWEIR_OK);
            pair_await(&pair, &pair.server, TRANSPORT_LANDED);
            cr_assert_eq(pair_await(&pair, &pair.client, TRANSPORT_WRITABLE).peer,
                         pair.client.peer);
            cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &message),
                         GRADWEIR_OK);
            cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &message),
                         GRADWEIR_ERR_AGAIN);
        }
        cr_assert_eq(pair.stalls, 0u);
        pair_close(&pair);
    }
}

/* Takes whatever is offered into the place of its token; returns how many bodies landed intact. */
static int take_all(struct pair *pair, unsigned char (*places)[70000])
{
    struct pair_side *server = &pair->server;
    int whole = 0;
    for (size_t i = 0; i < server->seen_count; i++) {
        struct transport_event *event = &server->seen[i];
        uint64_t token = event->token;
        if (event->kind == TRANSPORT_OFFERED) {
            memcpy(&token, event->head, sizeof token);
            cr_assert_eq(
                transport_take(server->transport, event->offer, places[token % 64], 0, token),
                GRADWEIR_OK);
        } else {
            cr_assert(event->kind == TRANSPORT_LANDED && event->status == GRADWEIR_OK);
            whole += pair_is_filled(places[token % 64], event->length, token);
        }
    }
    server->seen_count = 0;
    return whole;
}

Test(transport, many_messages_in_flight_keep_their_contents, .timeout = 600)
{
    static unsigned char bodies[64][70000], places[64][70000];
    enum { ROUNDS = 1500 };
    FOR_EACH_SETTING(setting)
    {
        struct pair pair;
        pair_open(&pair, setting, transport_defaults());
        uint64_t sent = 0;
        int whole = 0;
        while (whole < ROUNDS) {
            gradweir_status status = GRADWEIR_OK;
            while (sent < ROUNDS && status == GRADWEIR_OK) {
                uint64_t length = 1 + sent * 7919 % (sizeof bodies[0] - 1);
                pair_fill(bodies[sent % 64], length, sent);
                struct transport_message message = {.head = &sent,
                                                    .head_length = sizeof sent,
                                                    .body = bodies[sent % 64],
                                                    .length = length};
                status = transport_send(pair.client.transport, pair.client.peer, &message);
                sent += status == GRADWEIR_OK;
            }
            cr_assert(status == GRADWEIR_OK || status == GRADWEIR_ERR_AGAIN);
            pair_pump(&pair);
            whole += take_all(&pair, places);
            pair.client.seen_count = 0;
        }
        cr_assert_eq(pair.stalls, 0u);
        pair_close(&pair);
    }
}

/* Other programs use lo as well: one quiet run of many is enough where nothing goes there. */
Test(transport, what_describe_says_is_where_the_bytes_go, .timeout = 600)
{
    enum { ROUNDS = 4 };
    unsigned char *body = calloc(1, BODY_MAX), *place = calloc(1, BODY_MAX);
    for (size_t i = 1; i < pair_setting_count; i++) {
        struct pair pair;
        char text[TRANSPORT_TEXT_SIZE];
        double least = 1e9;
        pair_open(&pair, &pair_settings[i], transport_defaults());
        const bool by_lo = strncmp(pair_settings[i].described, "tcp/", 4) == 0;
        for (int attempt = 0; attempt < (by_lo ? 5 : 200) && (by_lo || least >= 0.02); attempt++) {
            uint64_t before = pair_loopback_bytes();
            for (int round = 0; round < ROUNDS; round++) {
                send_body(&pair.client, body, BODY_MAX, 1);
                uint64_t offer = pair_await(&pair, &pair.server, TRANSPORT_OFFERED).offer;
                cr_assert_eq(transport_take(pair.server.transport, offer, place, 0, 0),
                             GRADWEIR_OK);
                pair_await(&pair, &pair.server, TRANSPORT_LANDED);
                pair_await(&pair, &pair.client, TRANSPORT_SENT);
            }
            double part = (double)(pair_loopback_bytes() - before) / (double)(ROUNDS * BODY_MAX);
            least = part < least ? part : least;
        }
        const char *described = pair_settings[i].described;
        for (int side = 0; side < 2; side++) {
            struct pair_side *of = side ? &pair.server : &pair.client;
            cr_assert_eq(transport_describe(of->transport, of->peer, text, sizeof text),
                         GRADWEIR_OK);
            cr_assert(strncmp(text, described, strlen(described)) == 0, "%s", text);
            cr_assert_eq(strstr(text, "tcp") != NULL, by_lo, "%s", text);
        }
        cr_assert(by_lo ? least >= 1.0 : least < 0.02, "%s: %.3f of the payload on lo", text,
                  least);
        cr_assert_eq(transport_describe(pair.client.transport, 0, text, sizeof text), GRADWEIR_OK);
        cr_assert(strstr(text, "TLS=") && !strstr(text, "cma"), "%s", text);
        pair_close(&pair);
    }
    free(body);
    free(place);
}

Test(transport, the_nth_move_breaks_the_link_when_a_test_asks_for_it)
{
    static unsigned char body[3 << 20], place[3 << 20];
    for (uint64_t countdown = 1; countdown <= 4; countdown++) {
        struct pair pair;
        pair_open(&pair, &pair_settings[0], transport_defaults());
        transport_memory_break_after(pair.hub, countdown);
        pair_fill(body, sizeof body, 1);
        memset(place, 0, sizeof place);
        send_body(&pair.client, body, sizeof body, 5);
        if (countdown > 1) { /* move 1 is the head, 2 to 4 are steps of 1 MiB */
            uint64_t offer = pair_await(&pair, &pair.server, TRANSPORT_OFFERED).offer;
            cr_assert_eq(transport_take(pair.server.transport, offer, place, 0, 6), GRADWEIR_OK);
            cr_assert_eq(pair_await(&pair, &pair.server, TRANSPORT_LANDED).status,
                         GRADWEIR_ERR_LOST);
            cr_assert(pair_is_filled(place, (countdown - 2) << 20, 1));
        }
        cr_assert_eq(pair_await(&pair, &pair.client, TRANSPORT_SENT).status, GRADWEIR_ERR_LOST);
        cr_assert_eq(pair_await(&pair, &pair.client, TRANSPORT_LOST).status, GRADWEIR_ERR_LOST);
        cr_assert_eq(pair_await(&pair, &pair.server, TRANSPORT_LOST).status, GRADWEIR_ERR_LOST);
        pair_close(&pair);
    }
}
