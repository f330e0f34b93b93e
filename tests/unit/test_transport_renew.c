/* A transport that hears nobody any more makes itself anew. */
#include "tests/unit/transport_pair.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

/* A connection to a server that does not turn, until it is lost. */
static void connect_in_vain(struct pair *pair, bool *old_lost)
{
    uint64_t peer = 0;
    bool lost = false;
    cr_assert_eq(transport_connect(pair->client.transport,
                                   transport_address(pair->server.transport), 100, 0, &peer),
                 GRADWEIR_OK);
    while (!lost) {
        struct transport_event event;
        if (transport_poll(pair->client.transport, &event, 1) == 0)
            continue;
        cr_assert_eq(event.kind, TRANSPORT_LOST);
        lost = event.peer == peer;
        *old_lost |= event.peer == pair->client.peer;
    }
}

/* What a process that was killed in the middle of a message leaves behind looks the same to others:
 * connections begin and nobody answers. */
Test(transport_renew, who_hears_nobody_is_made_anew_and_connects_again, .timeout = 60)
{
    for (size_t i = 0; i < pair_setting_count; i++) {
        if (strcmp(pair_settings[i].backend, "ucx") != 0)
            continue;
        struct pair pair;
        bool old_lost = false;
        pair_open(&pair, &pair_settings[i], transport_defaults());
        connect_in_vain(&pair, &old_lost);
        cr_assert_not(old_lost, "one may simply be slow");
        connect_in_vain(&pair, &old_lost);
        for (int polls = 0; !old_lost && polls < 100000; polls++) {
            struct transport_event event;
            if (transport_poll(pair.client.transport, &event, 1))
                old_lost = event.kind == TRANSPORT_LOST && event.peer == pair.client.peer;
        }
        cr_assert(old_lost);
        transport_poll(pair.client.transport, &(struct transport_event){.kind = 0}, 1);
        pair_connect(&pair);
        struct transport_message message = {.head = "x", .head_length = 1};
        cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &message),
                     GRADWEIR_OK);
        pair_await(&pair, &pair.server, TRANSPORT_OFFERED);
        pair_close(&pair);
    }
}
