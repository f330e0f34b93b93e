#include "common/clock.h"
#include "tests/unit/control_pair.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

static void talk(bool inproc)
{
    struct control_pair pair = control_pair_open(inproc);
    for (uint64_t i = 0; i < 3000; i++) {
        const struct message message = control_pair_beat(i);
        cr_assert_eq(control_send(pair.client, CONTROL_SERVER, &message), GRADWEIR_OK);
        if (i % 100 == 99)
            control_flush(pair.client);
    }
    uint32_t peer = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        const struct control_event *event = control_pair_event(pair.server, pair.client);
        cr_assert_eq(event->kind, CONTROL_MESSAGE);
        cr_assert_eq(event->message.stepped.version, i);
        peer = event->peer;
    }
    const struct message answer = control_pair_beat(7);
    cr_assert_eq(control_send(pair.server, peer, &answer), GRADWEIR_OK);
    cr_assert_eq(control_pair_event(pair.client, pair.server)->message.stepped.version, 7);
    cr_assert_eq(control_send(pair.server, peer + 1, &answer), GRADWEIR_ERR_LOST);
    control_pair_close(&pair);
}

Test(control, messages_keep_their_order_both_ways_over_tcp)
{
    talk(false);
}

Test(control, messages_keep_their_order_both_ways_within_a_process)
{
    talk(true);
}

Test(control, a_port_in_use_is_named_with_its_reason)
{
    struct control_pair pair = control_pair_open(false);
    struct control *second = NULL;
    const struct control_options o = control_pair_options();
    cr_assert_eq(control_listen(pair.context, &o, control_address(pair.server), NULL, &second),
                 GRADWEIR_ERR_IO);
    cr_assert(strstr(fail_reason(), control_address(pair.server)), "%s", fail_reason());
    cr_assert(strstr(fail_reason(), "in use"), "%s", fail_reason());
    control_pair_close(&pair);
}

Test(control, addresses_off_loopback_want_keys_or_a_word)
{
    struct control_context *context;
    struct control *control = NULL;
    struct control_options o = control_pair_options();
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
    struct control_pair pair = control_pair_open(false);
    for (int i = 0; i < 50; i++) {
        const int fd = connect_raw(control_address(pair.server));
        const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        cr_assert_gt(write(fd, text, sizeof text), 0);
        close(fd);
    }
    const struct message message = control_pair_beat(9);
    control_send(pair.client, CONTROL_SERVER, &message);
    cr_assert_eq(control_pair_event(pair.server, pair.client)->message.stepped.version, 9);
    control_pair_close(&pair);
}

Test(control, sending_to_a_server_that_is_not_there_does_not_block)
{
    struct control_context *context;
    struct control *client;
    const struct control_options o = control_pair_options();
    cr_assert_eq(control_context_new(&context), GRADWEIR_OK);
    cr_assert_eq(control_connect(context, &o, "127.0.0.1:1", &client), GRADWEIR_OK);
    const uint64_t begin = clock_now_ns();
    const struct message message = control_pair_beat(1);
    for (int i = 0; i < 100; i++) {
        control_send(client, CONTROL_SERVER, &message);
        control_flush(client);
    }
    cr_assert_null(control_poll(client));
    cr_assert_lt(clock_now_ns() - begin, CONTROL_PAIR_HANG_NS);
    control_close(client);
    control_context_free(context);
}

static void *raw_dealer(void *zmq, const char *address)
{
    char endpoint[80];
    void *dealer = zmq_socket(zmq, ZMQ_DEALER);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", address);
    zmq_setsockopt(dealer, ZMQ_LINGER, &(int){0}, sizeof(int));
    cr_assert_eq(zmq_connect(dealer, endpoint), 0);
    return dealer;
}

static void count_line(void *context, enum log_level level, const char *line)
{
    (void)level;
    snprintf(context, LOG_LINE_MAX, "%s", line);
}

Test(control, frames_of_strangers_are_dropped_counted_and_explained)
{
    static char line[LOG_LINE_MAX];
    struct log log;
    log_init_sink(&log, LOG_WARN, count_line, line);
    struct control_context *context;
    struct control *server;
    struct control_options o = control_pair_options();
    o.log = &log;
    cr_assert_eq(control_context_new(&context), GRADWEIR_OK);
    cr_assert_eq(control_listen(context, &o, "127.0.0.1:0", NULL, &server), GRADWEIR_OK);
    void *zmq = zmq_ctx_new();
    void *dealer = raw_dealer(zmq, control_address(server));
    cr_assert_eq(zmq_send(dealer, "\xdd\xff\xff\xff\xff", 5, 0), 5);
    const uint64_t end = clock_now_ns() + CONTROL_PAIR_HANG_NS;
    while (control_bad_frames(server) < 1 && clock_now_ns() < end)
        cr_assert_null(control_poll(server));
    cr_assert(strstr(line, "a message must be an array"), "%s", line);
    zmq_send(dealer, "a", 1, ZMQ_SNDMORE);
    zmq_send(dealer, "b", 1, 0);
    while (control_bad_frames(server) < 2 && clock_now_ns() < end)
        cr_assert_null(control_poll(server));
    cr_assert_eq(control_bad_frames(server), 2);
    zmq_close(dealer);
    zmq_ctx_term(zmq);
    cr_assert_eq(control_pair_event(server, NULL)->kind, CONTROL_LOST);
    control_close(server);
    control_context_free(context);
}

/* libzmq cuts the connection before the frame is taken in. */
Test(control, a_frame_above_the_limit_is_cut)
{
    static uint8_t frame[FRAME_BYTES_MAX + 1];
    struct control_pair pair = control_pair_open(false);
    void *zmq = zmq_ctx_new();
    void *dealer = raw_dealer(zmq, control_address(pair.server));
    void *monitor = zmq_socket(zmq, ZMQ_PAIR);
    cr_assert_eq(zmq_socket_monitor(dealer, "inproc://cut", ZMQ_EVENT_DISCONNECTED), 0);
    cr_assert_eq(zmq_connect(monitor, "inproc://cut"), 0);
    cr_assert_eq(zmq_send(dealer, frame, sizeof frame, 0), (int)sizeof frame);
    zmq_setsockopt(monitor, ZMQ_RCVTIMEO, &(int){120000}, sizeof(int));
    uint8_t event[6];
    cr_assert_eq(zmq_recv(monitor, event, sizeof event, 0), 6, "the connection was not cut");
    cr_assert_null(control_poll(pair.server));
    zmq_socket_monitor(dealer, NULL, 0);
    zmq_close(monitor);
    zmq_close(dealer);
    zmq_ctx_term(zmq);
    const struct message message = control_pair_beat(9);
    control_send(pair.client, CONTROL_SERVER, &message);
    cr_assert_eq(control_pair_event(pair.server, pair.client)->message.stepped.version, 9);
    control_pair_close(&pair);
}

/* The descriptors are edge-triggered; asked before sleeping, control_ready never sleeps on a
 * message that is already here. */
Test(control, a_sleeper_on_the_descriptors_hears_every_message)
{
    struct control_pair pair = control_pair_open(false);
    struct pollfd sleepers[2] = {{.events = POLLIN}, {.events = POLLIN}};
    int fds[2];
    cr_assert_eq(control_fds(pair.server, fds), 2);
    sleepers[0].fd = fds[0];
    sleepers[1].fd = fds[1];
    for (uint64_t i = 0; i < 500; i++) {
        const struct message message = control_pair_beat(i);
        control_send(pair.client, CONTROL_SERVER, &message);
        control_flush(pair.client);
        const struct control_event *event = NULL;
        while (!event) {
            if (!control_ready(pair.server))
                cr_assert_gt(poll(sleepers, 2, 120000), 0, "slept on message %d", (int)i);
            event = control_poll(pair.server);
        }
        cr_assert_eq(event->message.stepped.version, i);
    }
    control_pair_close(&pair);
}
