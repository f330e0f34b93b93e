/* See host_farewell.h. */
#include "server/host_farewell.h"

#include "common/clock.h"

#include <poll.h>

static const uint64_t patience_ns = 2 * CLOCK_SECOND;

void host_farewell_expect(struct host_farewell *farewell, uint32_t peer)
{
    if (farewell->count < FAREWELL_MAX)
        farewell->peers[farewell->count++] = peer;
}

static void has_gone(struct host_farewell *farewell, uint32_t peer)
{
    for (uint32_t i = 0; i < farewell->count; i++)
        if (farewell->peers[i] == peer) {
            farewell->peers[i] = farewell->peers[--farewell->count];
            return;
        }
}

void host_farewell_wait(struct host_farewell *farewell, struct control *control)
{
    const uint64_t end_ns = clock_now_ns() + patience_ns;
    control_flush(control);
    while (farewell->count && clock_now_ns() < end_ns) {
        const struct control_event *event;
        while ((event = control_poll(control)))
            if (event->kind == CONTROL_LOST ||
                (event->kind == CONTROL_MESSAGE && event->message.kind == MESSAGE_BYE))
                has_gone(farewell, event->peer);
        control_flush(control);
        if (farewell->count)
            poll(NULL, 0, 2);
    }
}
