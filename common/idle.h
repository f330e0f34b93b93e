/* What a loop does that found nothing: it lets others run and looks again, a few times, before it
 * sleeps. Where threads outnumber cores, who is about to send then does so without a signal and
 * several messages share one wake-up; where they do not, yielding returns at once. */
#ifndef GRADWEIR_COMMON_IDLE_H
#define GRADWEIR_COMMON_IDLE_H

#include <stdbool.h>
#include <stdint.h>

enum { IDLE_YIELDS = 4 };

struct idle {
    uint32_t yields; /* since there was anything; starts at 0 */
};

/* any: whether this turn found anything. True when the loop should turn again, false when it should
 * sleep now. */
bool idle_again(struct idle *idle, bool any);

#endif
