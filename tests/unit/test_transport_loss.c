/* How transports lose peers, and what they make of bad input: over every backend and its lanes. */
#include "common/clock.h"
#include "tests/unit/transport_pair.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE ((uint64_t)16 << 20)

/* After LOST: everything has ended exactly once, and nobody writes into the places any more. */
static void lost_cleanly(struct pair *pair, struct pair_side *side, size_t sends, size_t takes)
{
    struct transport_event lost = pair_await(pair, side, TRANSPORT_LOST);
    cr_assert(lost.peer == side->peer && lost.reason[0] && lost.status < 0);
    cr_assert_eq(pair_count(side, TRANSPORT_SENT), sends);
    cr_assert_eq(pair_count(side, TRANSPORT_LANDED), takes);
    struct transport_message message = {0};
    cr_assert_eq(transport_send(side->transport, side->peer, &message), GRADWEIR_ERR_LOST);
    transport_hangup(side->transport, side->peer);
}

static void hangup_in_mid_body(const struct pair_setting *setting, unsigned char *body,
                               unsigned char *place, bool by_sender)
{
    struct pair pair;
    pair_open(&pair, setting, transport_defaults());
    struct transport_message message = {.body = body, .length = LARGE};
    for (int i = 0; i < 3; i++)
        cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &message),
                     GRADWEIR_OK);
    for (int i = 0; i < 2; i++) {
        uint64_t offer = pair_await(&pair, &pair.server, TRANSPORT_OFFERED).offer;
        cr_assert_eq(transport_take(pair.server.transport, offer, place + i * LARGE, 0, 0),
                     GRADWEIR_OK);
    }
    for (int i = 0; i < 3; i++) /* not enough for 32 MiB */
        pair_pump(&pair);
    struct pair_side *quitter = by_sender ? &pair.client : &pair.server;
    transport_hangup(quitter->transport, quitter->peer);
    lost_cleanly(&pair, &pair.server, 0, 2);
    memset(place, 0xAA, 2 * LARGE);
    lost_cleanly(&pair, &pair.client, 3, 0);
    for (int i = 0; i < 100; i++) {
        struct transport_event event;
        cr_assert_eq(transport_poll(pair.server.transport, &event, 1) +
                         transport_poll(pair.client.transport, &event, 1),
                     0u);
    }
    for (uint64_t i = 0; i < 2 * LARGE; i++)
        cr_assert_eq(place[i], 0xAA);
    pair_connect(&pair); /* both are as good as new */
    pair_close(&pair);
}

Test(transport_loss, a_hangup_in_mid_body_ends_everything_once_and_frees_the_memory, .timeout = 600)
{
    unsigned char *body = calloc(1, LARGE), *place = calloc(2, LARGE);
    for (size_t i = 0; i < pair_setting_count; i++) {
        hangup_in_mid_body(&pair_settings[i], body, place, false);
        hangup_in_mid_body(&pair_settings[i], body, place, true);
    }
    free(body);
    free(place);
}

Test(transport_loss, what_nobody_took_before_the_loss_is_gone, .timeout = 600)
{
    static unsigned char body[200000], place[200000];
    for (size_t i = 0; i < pair_setting_count; i++) {
        struct pair pair;
        pair_open(&pair, &pair_settings[i], transport_defaults());
        struct transport_message shorter = {.body = body, .length = 1000},
                                 longer = {.body = body, .length = 200000};
        cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &shorter),
                     GRADWEIR_OK);
        cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &longer), GRADWEIR_OK);
        uint64_t offers[2];
        for (int j = 0; j < 2; j++)
            offers[j] = pair_await(&pair, &pair.server, TRANSPORT_OFFERED).offer;
        transport_hangup(pair.client.transport, pair.client.peer);
        pair_await(&pair, &pair.server, TRANSPORT_LOST);
        for (int j = 0; j < 2; j++) {
            cr_assert_eq(transport_take(pair.server.transport, offers[j], place, 0, 0),
                         GRADWEIR_ERR_LOST);
            transport_refuse(pair.server.transport, offers[j]);
        }
        pair_close(&pair);
    }
}

Test(transport_loss, fifty_reconnections_leak_no_descriptor, .timeout = 600)
{
    for (size_t i = 0; i < pair_setting_count; i++) {
        struct pair pair;
        int descriptors = 0;
        pair_open(&pair, &pair_settings[i], transport_defaults());
        for (int round = 0; round < 50; round++) {
            struct pair_side *quitter = round % 2 ? &pair.client : &pair.server;
            uint64_t old = pair.client.peer;
            transport_hangup(quitter->transport, quitter->peer);
            pair_await(&pair, &pair.client, TRANSPORT_LOST);
            pair_await(&pair, &pair.server, TRANSPORT_LOST);
            pair_connect(&pair);
            cr_assert_neq(old, pair.client.peer);
            if (round == 5)
                descriptors = pair_open_fds();
        }
        cr_assert_leq(pair_open_fds(), descriptors + 2);
        pair_close(&pair);
    }
}

/* A killed server comes back on its port at once, while the kernel still remembers the old
 * connections. */
Test(transport_loss, a_server_may_listen_again_where_it_just_was, .timeout = 600)
{
    for (size_t i = 0; i < pair_setting_count; i++) {
        struct pair pair;
        char address[64];
        struct transport_settings settings = transport_defaults();
        pair_open(&pair, &pair_settings[i], settings);
        snprintf(address, sizeof address, "%s", transport_address(pair.server.transport));
        for (int round = 0; round < 5; round++) {
            transport_close(pair.server.transport);
            pair.server.transport = NULL;
            pair_await(&pair, &pair.client, TRANSPORT_LOST);
            settings.backend = pair_settings[i].backend;
            settings.lanes = pair_settings[i].lanes;
            settings.hub = pair.hub;
            settings.bind_address = address;
            cr_assert_eq(transport_open(&settings, &pair.server.transport), GRADWEIR_OK);
            cr_assert_eq(transport_listen(pair.server.transport), GRADWEIR_OK, "%s", fail_reason());
            pair_connect(&pair);
        }
        pair_close(&pair);
    }
}

Test(transport_loss, a_taken_port_and_a_bad_address_are_named, .timeout = 600)
{
    for (size_t i = 0; i < pair_setting_count; i++) {
        struct pair pair;
        struct transport_settings settings = transport_defaults();
        struct transport *second = NULL;
        uint64_t peer;
        pair_open(&pair, &pair_settings[i], settings);
        settings.backend = pair_settings[i].backend;
        settings.hub = pair.hub;
        settings.bind_address = transport_address(pair.server.transport);
        cr_assert_eq(transport_open(&settings, &second), GRADWEIR_OK);
        cr_assert_eq(transport_listen(second), GRADWEIR_ERR_IO);
        cr_assert(strstr(fail_reason(), settings.bind_address) && strstr(fail_reason(), "in use"),
                  "%s", fail_reason());
        transport_close(second);
        settings.bind_address = "no address";
        cr_assert_eq(transport_open(&settings, &second), GRADWEIR_OK);
        cr_assert_eq(transport_listen(second), GRADWEIR_ERR_INVALID);
        cr_assert(strstr(fail_reason(), "'no address'"));
        cr_assert_eq(transport_connect(second, "127.0.0.1:", 100, 0, &peer), GRADWEIR_ERR_INVALID);
        cr_assert_eq(transport_connect(second, "127.0.0.1:99999", 100, 0, &peer),
                     GRADWEIR_ERR_INVALID);
        transport_close(second);
        pair_close(&pair);
    }
}

Test(transport_loss, an_absent_peer_is_unreachable_within_the_deadline, .timeout = 600)
{
    for (size_t i = 0; i < pair_setting_count; i++) {
        struct pair pair;
        pair_open(&pair, &pair_settings[i], transport_defaults());
        /* The second accepts at the level of the kernel and never answers. */
        int mute = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof at;
        cr_assert(bind(mute, (struct sockaddr *)&at, length) == 0 && listen(mute, 8) == 0);
        cr_assert_eq(getsockname(mute, (struct sockaddr *)&at, &length), 0);
        char addresses[2][64] = {"127.0.0.1:1"};
        snprintf(addresses[1], sizeof addresses[1], "127.0.0.1:%u", ntohs(at.sin_port));
        for (int j = 0; j < 2; j++) {
            uint64_t peer, start_ns = clock_now_ns();
            cr_assert_eq(transport_connect(pair.client.transport, addresses[j], 700, 9, &peer),
                         GRADWEIR_OK);
            struct transport_event lost = pair_await(&pair, &pair.client, TRANSPORT_LOST);
            cr_assert(lost.peer == peer && lost.token == 9 &&
                      lost.status == GRADWEIR_ERR_UNREACHABLE);
            cr_assert(strstr(lost.reason, addresses[j]), "%s", lost.reason);
            cr_assert_lt(clock_now_ns() - start_ns, PAIR_WITHIN_MS * CLOCK_MS);
        }
        close(mute);
        pair_close(&pair);
    }
}

Test(transport_loss, a_stranger_who_speaks_http_disturbs_nobody, .timeout = 600)
{
    static unsigned char body[100], place[100];
    for (size_t i = 1; i < pair_setting_count; i++) {
        struct pair pair;
        struct transport_event event;
        char answer[64];
        pair_open(&pair, &pair_settings[i], transport_defaults());
        const char *colon = strrchr(transport_address(pair.server.transport), ':');
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)atoi(colon + 1))};
        for (int j = 0; j < 3; j++) {
            static const char line[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
            int stranger = socket(AF_INET, SOCK_STREAM, 0);
            cr_assert_eq(connect(stranger, (struct sockaddr *)&at, sizeof at), 0);
            cr_assert_eq(send(stranger, line, sizeof line, MSG_NOSIGNAL), (ssize_t)sizeof line);
            /* It is shown the door, or at least a quarter of a second passes without harm. */
            for (int k = 0; k < 50 && recv(stranger, answer, sizeof answer, MSG_DONTWAIT) < 0 &&
                            errno == EAGAIN;
                 k++) {
                transport_wait(pair.server.transport, 5);
                cr_assert_eq(transport_poll(pair.server.transport, &event, 1), 0u);
            }
            close(stranger);
        }
        struct transport_message message = {.body = body, .length = sizeof body};
        cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &message),
                     GRADWEIR_OK);
        uint64_t offer = pair_await(&pair, &pair.server, TRANSPORT_OFFERED).offer;
        cr_assert_eq(transport_take(pair.server.transport, offer, place, 0, 0), GRADWEIR_OK);
        pair_await(&pair, &pair.server, TRANSPORT_LANDED);
        cr_assert_eq(pair_count(&pair.server, TRANSPORT_ACCEPTED) +
                         pair_count(&pair.server, TRANSPORT_LOST),
                     0u);
        pair_close(&pair);
    }
}

/* A process that sends large bodies, or takes them, until it is killed. Its address comes through
 * the pipe. */
static void victim(const struct pair_setting *setting, bool sends, int address_in)
{
    static unsigned char body[4][LARGE];
    struct transport_settings settings = transport_defaults();
    settings.lanes = setting->lanes;
    struct transport *transport;
    char address[64];
    uint64_t peer;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* not left behind by a failing test */
    if (read(address_in, address, sizeof address) <= 0 ||
        transport_open(&settings, &transport) != GRADWEIR_OK ||
        transport_connect(transport, address, 120000, 0, &peer) != GRADWEIR_OK)
        _exit(1);
    for (bool connected = false;;) {
        struct transport_event event;
        while (transport_poll(transport, &event, 1) == 1) {
            connected |= event.kind == TRANSPORT_CONNECTED;
            if (event.kind == TRANSPORT_OFFERED)
                transport_take(transport, event.offer, body[event.token % 4], 0, 0);
        }
        struct transport_message message = {.body = body[0], .length = LARGE};
        if (connected && sends)
            transport_send(transport, peer, &message);
        transport_wait(transport, 100);
    }
}

static void killed(size_t setting_index, bool victim_sends)
{
    if (setting_index >= pair_setting_count)
        cr_skip("this build has no UCX");
    const struct pair_setting *setting = &pair_settings[setting_index];
    int pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0)
        victim(setting, victim_sends, pipes[0]);
    static unsigned char memory[4][LARGE];
    struct transport_settings settings = transport_defaults();
    settings.lanes = setting->lanes;
    struct pair pair = {.server.seen = calloc(PAIR_SEEN_MAX, sizeof(struct transport_event))};
    struct pair_side *side = &pair.server;
    cr_assert_eq(transport_open(&settings, &side->transport), GRADWEIR_OK);
    cr_assert_eq(transport_listen(side->transport), GRADWEIR_OK);
    cr_assert_eq(write(pipes[1], transport_address(side->transport), 64), 64);
    side->peer = pair_await(&pair, side, TRANSPORT_ACCEPTED).peer;
    struct transport_message message = {.body = memory[0], .length = LARGE};
    size_t begun = 0;
    for (int i = 0; i < 8; i++, begun++) {
        if (victim_sends)
            cr_assert_eq(transport_take(side->transport,
                                        pair_await(&pair, side, TRANSPORT_OFFERED).offer,
                                        memory[i % 4], 0, 0),
                         GRADWEIR_OK);
        else
            cr_assert_eq(transport_send(side->transport, side->peer, &message), GRADWEIR_OK);
    }
    while (pair_count(side, victim_sends ? TRANSPORT_LANDED : TRANSPORT_SENT) == 0)
        pair_pump(&pair);
    cr_assert_eq(kill(child, SIGKILL), 0);
    lost_cleanly(&pair, side, victim_sends ? 0 : begun, victim_sends ? begun : 0);
    waitpid(child, NULL, 0);
    transport_close(side->transport);
    free(side->seen);
    close(pipes[0]);
    close(pipes[1]);
}

Test(transport_loss, a_killed_sender_is_lost_and_all_takes_end, .timeout = 600)
{
    killed(1, true);
}

Test(transport_loss, a_killed_sender_over_shared_memory_is_lost_and_all_takes_end, .timeout = 600)
{
    killed(2, true);
}

Test(transport_loss, a_killed_receiver_is_lost_and_all_sends_end, .timeout = 600)
{
    killed(1, false);
}

Test(transport_loss, a_killed_receiver_over_shared_memory_is_lost_and_all_sends_end, .timeout = 600)
{
    killed(2, false);
}

Test(transport_loss, a_wrong_setting_is_named_with_its_range)
{
    struct transport *transport = NULL;
    struct transport_settings settings = transport_defaults();
    settings.peers_max = 0;
    cr_assert_eq(transport_open(&settings, &transport), GRADWEIR_ERR_INVALID);
    cr_assert(strstr(fail_reason(), "peers_max = 0 is not in 1 to 4096"), "%s", fail_reason());
    settings = transport_defaults();
    settings.backend = "drum";
    cr_assert_eq(transport_open(&settings, &transport), GRADWEIR_ERR_INVALID);
    cr_assert(strstr(fail_reason(), "'drum'"));
    if (pair_setting_count == 1)
        return;
    settings = transport_defaults();
    settings.lanes = "pigeon";
    cr_assert_eq(transport_open(&settings, &transport), GRADWEIR_ERR_INVALID);
    cr_assert(strstr(fail_reason(), "'pigeon'"));
    settings.lanes = "rc"; /* the last row is rc where there is a device */
    const bool rdma = strcmp(pair_settings[pair_setting_count - 1].lanes, "rc") == 0;
    if (!rdma) {
        cr_assert_eq(transport_open(&settings, &transport), GRADWEIR_ERR_UNSUPPORTED);
        cr_assert(strstr(fail_reason(), "no RDMA device"), "%s", fail_reason());
    }
    setenv("UCX_TLS", "posix,cma,tcp", 1);
    settings = transport_defaults();
    cr_assert_eq(transport_open(&settings, &transport), GRADWEIR_ERR_INVALID);
    cr_assert(strstr(fail_reason(), "cma"));
    cr_assert_null(transport);
}
