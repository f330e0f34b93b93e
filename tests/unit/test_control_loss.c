#include "common/clock.h"
#include "tests/unit/control_pair.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

Test(control_loss, a_lost_client_is_told_once_after_what_it_had_sent)
{
    struct control_pair pair = control_pair_open(false);
    const struct message message = control_pair_beat(1);
    control_send(pair.client, CONTROL_SERVER, &message);
    control_close(pair.client);
    const struct control_event *event = control_pair_event(pair.server, NULL);
    cr_assert_eq(event->kind, CONTROL_MESSAGE);
    const uint32_t peer = event->peer;
    event = control_pair_event(pair.server, NULL);
    cr_assert_eq(event->kind, CONTROL_LOST);
    cr_assert_eq(event->peer, peer);
    cr_assert_eq(control_send(pair.server, peer, &message), GRADWEIR_ERR_LOST);
    control_close(pair.server);
    control_context_free(pair.context);
}

/* The process that is lost: says one thing, then sleeps until it is killed. */
static void live_as_client(int address_pipe, const struct control_options *o)
{
    char address[64] = "";
    struct control_context *context;
    struct control *client;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const struct message message = control_pair_beat(4);
    if (read(address_pipe, address, sizeof address - 1) <= 0 ||
        control_context_new(&context) != GRADWEIR_OK ||
        control_connect(context, o, address, &client) != GRADWEIR_OK)
        _exit(1);
    control_send(client, CONTROL_SERVER, &message);
    for (;;) {
        control_poll(client);
        control_flush(client);
        poll(NULL, 0, 1);
    }
}

/* The loss is told after the signal, and what was heard of the process by then: 0, it lives. */
static pid_t lose_by(int signal_number, const struct control_options *o)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork(); /* before ZeroMQ has threads */
    if (child == 0)
        live_as_client(ends[0], o);
    struct control_context *context;
    struct control *server;
    cr_assert_eq(control_context_new(&context), GRADWEIR_OK);
    cr_assert_eq(control_listen(context, o, "127.0.0.1:0", NULL, &server), GRADWEIR_OK);
    const char *address = control_address(server);
    cr_assert_gt(write(ends[1], address, strlen(address)), 0);
    const struct control_event *event = control_pair_event(server, NULL);
    cr_assert_eq(event->kind, CONTROL_MESSAGE);
    const uint32_t peer = event->peer;
    kill(child, signal_number);
    event = control_pair_event(server, NULL);
    const pid_t ended = waitpid(child, NULL, WNOHANG);
    cr_assert_eq(event->kind, CONTROL_LOST);
    cr_assert_eq(event->peer, peer);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    control_close(server);
    control_context_free(context);
    return ended;
}

Test(control_loss, a_killed_process_is_lost_at_once_and_a_stopped_one_when_its_heart_is_silent)
{
    struct control_options o = control_pair_options();
    lose_by(SIGKILL, &o); /* without heartbeats */
    o.heartbeat_ms = 200;
    o.heartbeat_dead_ms = 600;
    cr_assert_eq(lose_by(SIGSTOP, &o), 0, "it was killed");
}

/* Connections that end before their first frame is read, one behind the other, so that their
 * descriptors are used again: each is lost once, none is taken for another. */
Test(control_loss, short_connections_are_each_lost_once)
{
    enum { TIMES = 40 };
    struct control_context *context;
    struct control *server;
    struct control_options o = control_pair_options();
    o.peers_max = 2 * TIMES;
    cr_assert_eq(control_context_new(&context), GRADWEIR_OK);
    cr_assert_eq(control_listen(context, &o, "127.0.0.1:0", NULL, &server), GRADWEIR_OK);
    for (uint64_t i = 0; i < TIMES; i++) {
        struct control *client;
        cr_assert_eq(control_connect(context, &o, control_address(server), &client), GRADWEIR_OK);
        cr_assert_eq(control_pair_event(client, NULL)->kind, CONTROL_UP);
        const struct message message = control_pair_beat(i);
        control_send(client, CONTROL_SERVER, &message);
        control_close(client);
    }
    uint32_t heard = 0, lost = 0;
    while (heard < TIMES || lost < TIMES) {
        const struct control_event *event = control_pair_event(server, NULL);
        heard += event->kind == CONTROL_MESSAGE;
        lost += event->kind == CONTROL_LOST;
        cr_assert_leq(lost, heard);
    }
    cr_assert_null(control_poll(server));
    cr_assert_eq(control_bad_frames(server), 0);
    control_close(server);
    control_context_free(context);
}

/* Who does not read is told of as full, then as lost; what waits for him is bounded. */
Test(control_loss, a_peer_that_does_not_read_is_given_up_in_bounds)
{
    struct control_pair pair = control_pair_open(false);
    const struct message hello = control_pair_beat(1);
    control_send(pair.client, CONTROL_SERVER, &hello);
    const uint32_t peer = control_pair_event(pair.server, pair.client)->peer;
    static uint8_t data[PAGE_BYTES_MAX];
    struct message page = {.kind = MESSAGE_PAGE};
    content_page(CONTENT_LAYOUT, data, sizeof data, 0, &page.page);
    gradweir_status status = GRADWEIR_OK;
    for (int i = 0; i < 10000 && status == GRADWEIR_OK; i++)
        status = control_send(pair.server, peer, &page);
    cr_assert_eq(status, GRADWEIR_ERR_FULL, "%s", fail_reason());
    const struct control_event *event = control_pair_event(pair.server, NULL);
    cr_assert_eq(event->kind, CONTROL_LOST);
    cr_assert_eq(event->peer, peer);
    control_pair_close(&pair);
}

Test(control_loss, a_client_hears_that_the_server_went_and_that_it_came_back)
{
    struct control_pair pair = control_pair_open(false);
    char address[64];
    snprintf(address, sizeof address, "%s", control_address(pair.server));
    control_close(pair.server);
    cr_assert_eq(control_pair_event(pair.client, NULL)->kind, CONTROL_LOST);
    const struct control_options o = control_pair_options();
    const uint64_t end = clock_now_ns() + CONTROL_PAIR_HANG_NS;
    gradweir_status status;
    do /* ZeroMQ frees the port from a thread of its own */
        status = control_listen(pair.context, &o, address, NULL, &pair.server);
    while (status == GRADWEIR_ERR_IO && clock_now_ns() < end);
    cr_assert_eq(status, GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(control_pair_event(pair.client, NULL)->kind, CONTROL_UP);
    control_pair_close(&pair);
}
