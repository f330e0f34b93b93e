/* A client within the server's thread: the same promises as over a socket. */
#include "tests/unit/control_pair.h"

#include <criterion/criterion.h>
#include <string.h>

struct linked {
    struct control_context *context;
    struct control *server, *client;
};

static struct linked open_linked(void)
{
    struct linked made;
    const struct control_options o = control_pair_options();
    cr_assert_eq(control_context_new(&made.context), GRADWEIR_OK);
    cr_assert_eq(control_listen(made.context, &o, "127.0.0.1:0", NULL, &made.server), GRADWEIR_OK);
    cr_assert_eq(control_connect_within(made.server, &made.client), GRADWEIR_OK);
    cr_assert_eq(control_poll(made.client)->kind, CONTROL_UP);
    cr_assert_null(control_poll(made.client));
    return made;
}

static void close_linked(struct linked *linked)
{
    control_close(linked->client);
    control_close(linked->server);
    control_context_free(linked->context);
}

static uint32_t introduce(struct linked *linked)
{
    const struct message hello = control_pair_beat(1);
    cr_assert_eq(control_send(linked->client, CONTROL_SERVER, &hello), GRADWEIR_OK);
    const struct control_event *event = control_poll(linked->server);
    cr_assert(event && event->kind == CONTROL_MESSAGE);
    return event->peer;
}

Test(control_link, what_one_sends_the_other_has_at_its_next_poll_in_order)
{
    struct linked linked = open_linked();
    const uint32_t peer = introduce(&linked);
    for (uint64_t i = 0; i < 5000; i++) {
        const struct message message = control_pair_beat(i);
        cr_assert_eq(control_send(linked.server, peer, &message), GRADWEIR_OK);
    }
    cr_assert(control_ready(linked.client));
    for (uint64_t i = 0; i < 5000; i++)
        cr_assert_eq(control_poll(linked.client)->message.stepped.version, i);
    cr_assert_null(control_poll(linked.client));
    cr_assert_not(control_ready(linked.client));
    close_linked(&linked);
}

Test(control_link, a_page_stays_readable_while_answers_are_written)
{
    struct linked linked = open_linked();
    const uint32_t peer = introduce(&linked);
    static uint8_t bytes[PAGE_BYTES_MAX];
    memset(bytes, 0x5a, sizeof bytes);
    struct message page = {.kind = MESSAGE_PAGE,
                           .epoch = 1,
                           .timeline = 1,
                           .page = {.content = CONTENT_LAYOUT,
                                    .pages = 9,
                                    .total = 9 * sizeof bytes,
                                    .bytes = sizeof bytes,
                                    .data = bytes}};
    for (page.page.page = 0; page.page.page < 9; page.page.page++)
        cr_assert_eq(control_send(linked.server, peer, &page), GRADWEIR_OK);
    for (uint32_t i = 0; i < 9; i++) {
        const struct control_event *event = control_poll(linked.client);
        cr_assert_eq(event->message.page.page, i);
        for (int more = 0; more < 100; more++) { /* would move the bytes if they lay there */
            const struct message beat = control_pair_beat(i);
            cr_assert_eq(control_send(linked.server, peer, &beat), GRADWEIR_OK);
        }
        cr_assert_eq(memcmp(event->message.page.data, bytes, sizeof bytes), 0);
    }
    close_linked(&linked);
}

Test(control_link, a_closed_client_is_lost_after_what_it_had_sent)
{
    struct linked linked = open_linked();
    const uint32_t peer = introduce(&linked);
    const struct message last = control_pair_beat(42);
    cr_assert_eq(control_send(linked.client, CONTROL_SERVER, &last), GRADWEIR_OK);
    control_close(linked.client);
    linked.client = NULL;
    cr_assert_eq(control_poll(linked.server)->message.stepped.version, 42);
    const struct control_event *event = control_poll(linked.server);
    cr_assert(event && event->kind == CONTROL_LOST && event->peer == peer);
    cr_assert_null(control_poll(linked.server));
    cr_assert_eq(control_send(linked.server, peer, &last), GRADWEIR_ERR_LOST);
    close_linked(&linked);
}

Test(control_link, a_closed_server_is_lost)
{
    struct linked linked = open_linked();
    control_close(linked.server);
    linked.server = NULL;
    cr_assert_eq(control_poll(linked.client)->kind, CONTROL_LOST);
    const struct message beat = control_pair_beat(1);
    cr_assert_eq(control_send(linked.client, CONTROL_SERVER, &beat), GRADWEIR_ERR_LOST);
    close_linked(&linked);
}

Test(control_link, what_nobody_reads_is_refused_at_a_bound)
{
    struct linked linked = open_linked();
    const uint32_t peer = introduce(&linked);
    static uint8_t bytes[PAGE_BYTES_MAX];
    const struct message page = {
        .kind = MESSAGE_PAGE,
        .epoch = 1,
        .timeline = 1,
        .page = {.content = CONTENT_LAYOUT, .bytes = sizeof bytes, .data = bytes, .pages = 1}};
    uint64_t sent = 0;
    while (sent < 10000 && control_send(linked.server, peer, &page) == GRADWEIR_OK)
        sent++;
    cr_assert_gt(sent * sizeof bytes, CONTENT_BYTES_MAX / 2, "a whole layout must fit");
    cr_assert_lt(sent, 10000);
    close_linked(&linked);
}
