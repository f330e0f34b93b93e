#include "tests/unit/control_pair.h"

#include "common/clock.h"

#include <criterion/criterion.h>
#include <poll.h>

struct control_options control_pair_options(void)
{
    struct control_options made = control_defaults();
    made.peers_max = 8;
    made.heartbeat_ms = 600000; /* a machine that stands still for a second is no loss here */
    made.heartbeat_dead_ms = 1800000;
    return made;
}

struct control_event *control_pair_event(struct control *control, struct control *other)
{
    const uint64_t end = clock_now_ns() + CONTROL_PAIR_HANG_NS;
    while (clock_now_ns() < end) {
        struct control_event *event = control_poll(control);
        if (event)
            return event;
        control_flush(control);
        if (other)
            control_flush(other);
        poll(NULL, 0, 1);
    }
    cr_assert_fail("nothing came");
    return NULL;
}

struct control_pair control_pair_open(bool inproc)
{
    struct control_pair pair;
    const struct control_options o = control_pair_options();
    cr_assert_eq(control_context_new(&pair.context), GRADWEIR_OK);
    cr_assert_eq(control_listen(pair.context, &o, "127.0.0.1:0", "inproc://here", &pair.server),
                 GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(control_connect(pair.context, &o,
                                 inproc ? "inproc://here" : control_address(pair.server),
                                 &pair.client),
                 GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(control_pair_event(pair.client, NULL)->kind, CONTROL_UP);
    return pair;
}

void control_pair_close(struct control_pair *pair)
{
    control_close(pair->client);
    control_close(pair->server);
    control_context_free(pair->context);
}

struct message control_pair_beat(uint64_t number)
{
    return (struct message){
        .kind = MESSAGE_STEPPED, .epoch = 1, .timeline = 1, .stepped.version = number};
}
