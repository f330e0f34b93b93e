/* One server and one client of a context, in one thread. */
#ifndef GRADWEIR_UNIT_CONTROL_PAIR_H
#define GRADWEIR_UNIT_CONTROL_PAIR_H

#include "common/clock.h"
#include "common/control.h"

struct control_pair {
    struct control_context *context;
    struct control *server, *client;
};

/* Whatever is waited for so long does not come, however busy the machine. */
#define CONTROL_PAIR_HANG_NS (120 * CLOCK_SECOND)

/* Without heartbeats, in effect. */
struct control_options control_pair_options(void);
struct control_pair control_pair_open(bool inproc);
void control_pair_close(struct control_pair *pair);

/* The next event of `control`; meanwhile `other`, unless NULL, flushes. Fails when none comes. */
struct control_event *control_pair_event(struct control *control, struct control *other);

struct message control_pair_beat(uint64_t number);

#endif
