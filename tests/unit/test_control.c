#include "common/control.h"

#include "common/clock.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* One server and one client of a context, in one thread. */
struct pair {
    struct control_context *context;
    struct control *server, *client;
};

static struct control_options options(void)
{
    struct control_options made = control_defaults();
    made.peers_max = 8;
    return made;
}

static struct control_event *wait_event(struct control *control, struct control *other)
{
    const uint64_t end = clock_now_ns() + 10 * CLOCK_SECOND;
    while (clock_now_ns() < end) {
        struct control_event *event = control_poll(control);
        if (event)
            return event;
        control_flush(control);
        if (other)
            control_flush(other);
        poll(NULL, 0, 1);
    }
    cr_assert_fail("nothing came within 10 s");
    return NULL;
}

static struct pair open_pair(bool inproc)
{
    struct pair pair;
    const struct control_options o = options();
    cr_assert_eq(control_context_new(&pair.context), GRADWEIR_OK);
    cr_assert_eq(control_listen(pair.context, &o, "127.0.0.1:0", "inproc://here", &pair.server),
                 GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(control_connect(pair.context, &o,
                                 inproc ? "inproc://here" : control_address(pair.server),
                                 &pair.client),
                 GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(wait_event(pair.client, NULL)->kind, CONTROL_UP);
    return pair;
}

static void close_pair(struct pair *pair)
{
    control_close(pair->client);
    control_close(pair->server);
    control_context_free(pair->context);
}

static struct message beat(uint64_t number)
{
    return (struct message){
        .kind = MESSAGE_STEPPED, .epoch = 1, .timeline = 1, .stepped.version = number};
}

static void talk(bool inproc)
{
    struct pair pair = open_pair(inproc);
    for (uint64_t i = 0; i < 3000; i++) {
        const struct message message = beat(i);
        cr_assert_eq(control_send(pair.client, CONTROL_SERVER, &message), GRADWEIR_OK);
        if (i % 100 == 99)
            control_flush(pair.client);
    }
    uint32_t peer = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        const struct control_event *event = wait_event(pair.server, pair.client);
        cr_assert_eq(event->kind, CONTROL_MESSAGE);
        cr_assert_eq(event->message.stepped.version, i);
        peer = event->peer;
    }
    const struct message answer = beat(7);
    cr_assert_eq(control_send(pair.server, peer, &answer), GRADWEIR_OK);
    cr_assert_eq(wait_event(pair.client, pair.server)->message.stepped.version, 7);
    cr_assert_eq(control_send(pair.server, peer + 1, &answer), GRADWEIR_ERR_LOST);
    close_pair(&pair);
}

Test(control, messages_keep_their_order_both_ways_over_tcp)
{
    talk(false);
}

Test(control, messages_keep_their_order_both_ways_within_a_process)
{
    talk(true);
}

Test(control, a_lost_client_is_told_once_after_what_it_had_sent)
{
    struct pair pair = open_pair(false);
    const struct message message = beat(1);
    control_send(pair.client, CONTROL_SERVER, &message);
    control_close(pair.client);
    const struct control_event *event = wait_event(pair.server, NULL);
    cr_assert_eq(event->kind, CONTROL_MESSAGE);
    const uint32_t peer = event->peer;
    event = wait_event(pair.server, NULL);
    cr_assert_eq(event->kind, CONTROL_LOST);
    cr_assert_eq(event->peer, peer);
    cr_assert_eq(control_send(pair.server, peer, &message), GRADWEIR_ERR_LOST);
    control_close(pair.server);
    control_context_free(pair.context);
}

Test(control, a_port_in_use_is_named_with_its_reason)
{
    struct pair pair = open_pair(false);
    struct control *second = NULL;
    const struct control_options o = options();
    cr_assert_eq(control_listen(pair.context, &o, control_address(pair.server), NULL, &second),
                 GRADWEIR_ERR_IO);
    cr_assert(strstr(fail_reason(), control_address(pair.server)), "%s", fail_reason());
    cr_assert(strstr(fail_reason(), "in use"), "%s", fail_reason());
    close_pair(&pair);
}

Test(control, addresses_off_loopback_want_keys_or_a_word)
{
    struct control_context *context;
    struct control *control = NULL;
    struct control_options o = options();
    cr_assert_eq(control_context_new(&context), GRADWEIR_OK);
    cr_assert_eq(control_listen(context, &o, "0.0.0.0:0", NULL, &control), GRADWEIR_ERR_INVALID);
    cr_assert(strstr(fail_reason(), "insecure"));
    cr_assert_eq(control_connect(context, &o, "nonsense", &control), GRADWEIR_ERR_INVALID);
    o.insecure = true;
    cr_assert_eq(control_listen(context, &o, "0.0.0.0:0", NULL, &control), GRADWEIR_OK);
    control_close(control);
    control_context_free(context);
}

static int connect_raw(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    const char *colon = strrchr(address, ':');
    to.sin_port = htons((uint16_t)atoi(colon + 1));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

Test(control, garbage_on_the_port_leaves_honest_clients_alone)
{
    struct pair pair = open_pair(false);
    for (int i = 0; i < 50; i++) {
        const int fd = connect_raw(control_address(pair.server));
        const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        cr_assert_gt(write(fd, text, sizeof text), 0);
        close(fd);
    }
    const struct message message = beat(9);
    control_send(pair.client, CONTROL_SERVER, &message);
    cr_assert_eq(wait_event(pair.server, pair.client)->message.stepped.version, 9);
    close_pair(&pair);
}

Test(control, sending_to_a_server_that_is_not_there_does_not_block)
{
    struct control_context *context;
    struct control *client;
    const struct control_options o = options();
    cr_assert_eq(control_context_new(&context), GRADWEIR_OK);
    cr_assert_eq(control_connect(context, &o, "127.0.0.1:1", &client), GRADWEIR_OK);
    const uint64_t begin = clock_now_ns();
    const struct message message = beat(1);
    for (int i = 0; i < 100; i++) {
        control_send(client, CONTROL_SERVER, &message);
        control_flush(client);
    }
    cr_assert_null(control_poll(client));
    cr_assert_lt(clock_now_ns() - begin, 5 * CLOCK_SECOND);
    control_close(client);
    control_context_free(context);
}
