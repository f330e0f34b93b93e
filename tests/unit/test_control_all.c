#include "tests/unit/control_pair.h"

#include <criterion/criterion.h>

enum { ROUNDS = 2000 };

static uint32_t greet(struct control_pair *pair, struct control *client)
{
    const struct message hello = control_pair_beat(1);
    cr_assert_eq(control_send(client, CONTROL_SERVER, &hello), GRADWEIR_OK);
    control_flush(client);
    return control_pair_event(pair->server, client)->peer;
}

/* Each hears every message once and in order, also where a frame fills up in between and where
 * some messages are its own; who is not there changes nothing for the others. */
Test(control_all, one_message_reaches_all_in_order_with_what_was_said_to_one)
{
    struct control_pair pair = control_pair_open(false);
    struct control *other = NULL;
    const struct control_options options = control_pair_options();
    cr_assert_eq(control_connect(pair.context, &options, control_address(pair.server), &other),
                 GRADWEIR_OK);
    const uint32_t first = greet(&pair, pair.client), second = greet(&pair, other);
    cr_assert_neq(first, second);
    const uint32_t peers[4] = {first, 0, second, second + 1000};
    for (uint64_t i = 0; i < ROUNDS; i++) {
        const struct message all = control_pair_beat(2 * i), one = control_pair_beat(2 * i + 1);
        control_send_all(pair.server, peers, 4, &all);
        cr_assert_eq(control_send(pair.server, second, &one), GRADWEIR_OK);
    }
    for (uint64_t i = 0; i < ROUNDS; i++)
        cr_assert_eq(control_pair_event(pair.client, pair.server)->message.stepped.version, 2 * i);
    for (uint64_t i = 0; i < 2 * ROUNDS; i++)
        cr_assert_eq(control_pair_event(other, pair.server)->message.stepped.version, i);
    control_close(other);
    control_pair_close(&pair);
}
