/* What the transport costs: GB/s of 16 MiB bodies one way, and round trip time and CPU of small
 * bodies.
 *
 *      bench_transport [lanes [rendezvous_bytes]]        lanes: tcp, posix, auto
 *
 * Two processes on this machine; the parent sends, the child takes, and sends small bodies back.
 * Not part of ctest. */
#include "common/clock.h"
#include "common/transport.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE        ((uint64_t)16 << 20)
#define SMALL        ((uint64_t)20 * 1024)
#define LARGE_ROUNDS 128
#define SMALL_ROUNDS 5000
#define WINDOW       4

static char large[WINDOW][LARGE], place[LARGE];

static struct transport *open_or_exit(int arguments, char **argument)
{
    struct transport_settings settings = transport_defaults();
    settings.lanes = arguments > 1 ? argument[1] : "auto";
    if (arguments > 2)
        settings.rendezvous_bytes = strtoull(argument[2], NULL, 10);
    struct transport *transport = NULL;
    if (transport_open(&settings, &transport) != GRADWEIR_OK) {
        fprintf(stderr, "%s\n", fail_reason());
        exit(1);
    }
    return transport;
}

/* Takes everything; sends back what is small, and one empty head for what is large. */
static void echo(struct transport *transport)
{
    for (;;) {
        struct transport_event events[32];
        size_t n = transport_poll(transport, events, 32);
        for (size_t i = 0; i < n; i++) {
            struct transport_event *event = &events[i];
            if (event->kind == TRANSPORT_OFFERED && event->length > 0)
                transport_take(transport, event->offer, place, 0, event->length);
            if (event->kind == TRANSPORT_LANDED) {
                struct transport_message back = {
                    .body = place, .length = event->token <= SMALL ? event->token : 0};
                if (event->status == GRADWEIR_OK &&
                    transport_send(transport, event->peer, &back) != GRADWEIR_OK)
                    exit(1);
            }
            if (event->kind == TRANSPORT_LOST)
                return;
        }
        if (n == 0)
            transport_wait(transport, 1000);
    }
}

/* Sends `rounds` bodies of `length` with at most `window` unanswered; returns when all are
 * answered. */
static void drive(struct transport *transport, uint64_t peer, uint64_t length, int rounds,
                  int window)
{
    int sent = 0, answered = 0;
    while (answered < rounds) {
        while (sent < rounds && sent - answered < window) {
            struct transport_message message = {
                .head = "head", .head_length = 4, .body = large[sent % WINDOW], .length = length};
            if (transport_send(transport, peer, &message) != GRADWEIR_OK)
                exit(1);
            sent++;
        }
        struct transport_event events[32];
        size_t n = transport_poll(transport, events, 32);
        for (size_t i = 0; i < n; i++) {
            if (events[i].kind == TRANSPORT_LOST)
                exit(1);
            if (events[i].kind == TRANSPORT_OFFERED && events[i].length > 0)
                transport_take(transport, events[i].offer, place, 0, 0);
            answered += (events[i].kind == TRANSPORT_OFFERED && events[i].length == 0) ||
                        events[i].kind == TRANSPORT_LANDED;
        }
        if (n == 0)
            transport_wait(transport, 1000);
    }
}

static uint64_t connect_to(struct transport *transport, const char *address)
{
    uint64_t peer = 0;
    if (transport_connect(transport, address, 5000, 0, &peer) != GRADWEIR_OK)
        exit(1);
    struct transport_event event = {0};
    while (transport_poll(transport, &event, 1) == 0)
        transport_wait(transport, 100);
    if (event.kind != TRANSPORT_CONNECTED) {
        fprintf(stderr, "%s\n", event.reason);
        exit(1);
    }
    return peer;
}

int main(int arguments, char **argument)
{
    int pipes[2];
    char address[64] = "";
    if (pipe(pipes) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* not left behind when the parent gives up */
        struct transport *transport = open_or_exit(arguments, argument);
        memset(place, 1, sizeof place);
        if (transport_listen(transport) != GRADWEIR_OK ||
            write(pipes[1], transport_address(transport), 64) != 64)
            return 1;
        echo(transport);
        transport_close(transport);
        return 0;
    }
    if (read(pipes[0], address, sizeof address) <= 0)
        return 1;
    memset(large, 2, sizeof large);
    struct transport *transport = open_or_exit(arguments, argument);
    uint64_t peer = connect_to(transport, address);
    drive(transport, peer, LARGE, WINDOW, WINDOW);
    uint64_t start_ns = clock_now_ns();
    drive(transport, peer, LARGE, LARGE_ROUNDS, WINDOW);
    double seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    char text[TRANSPORT_TEXT_SIZE];
    transport_describe(transport, 0, text, sizeof text);
    printf("in force: %s\n", text);
    transport_describe(transport, peer, text, sizeof text);
    printf("peer: %s\n16 MiB bodies, %d in flight: %.2f GB/s\n", text, WINDOW,
           (double)(LARGE * LARGE_ROUNDS) / seconds * 1e-9);
    start_ns = clock_now_ns();
    uint64_t cpu_ns = clock_cpu_ns();
    drive(transport, peer, SMALL, SMALL_ROUNDS, 1);
    printf("20 KiB there and back: %.1f us, %.1f us CPU at this end\n",
           (double)(clock_now_ns() - start_ns) * 1e-3 / SMALL_ROUNDS,
           (double)(clock_cpu_ns() - cpu_ns) * 1e-3 / SMALL_ROUNDS);
    transport_close(transport);
    waitpid(child, NULL, 0);
    return 0;
}
