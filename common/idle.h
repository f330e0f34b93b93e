/* What a loop does that found nothing: it lets others run and looks again, a few times, before it
 * sleeps. Where threads outnumber cores, who is about to send then does so without a signal and
 * several messages share one wake-up; where they do not, yielding returns at once.
 *
 * After that it may look for a while more, which saves a sleep and a wake-up where something comes
 * soon: always so long as it was told, or, by itself, while nobody else wants its core and looking
 * finds something (crowd.h). It yields at each look, so that who can run on its core does. */
#ifndef GRADWEIR_COMMON_IDLE_H
#define GRADWEIR_COMMON_IDLE_H

#include "common/crowd.h"

enum { IDLE_YIELDS = 4 };

/* How long it looks by itself, and the longest that it may be told. */
#define IDLE_LOOK_NS     UINT64_C(50000)
#define IDLE_LOOK_NS_MAX UINT64_C(1000000000)

/* All zeros: yields, then sleeps. Of one thread at a time. */
struct idle {
    uint32_t yields;   /* since there was anything */
    bool by_itself;    /* how long it looks is for `crowd` to say */
    uint64_t look_ns;  /* after the yields; 0: never */
    uint64_t until_ns; /* of the look under way; 0: none */
    struct crowd crowd;
    struct crowd_source source;
};

/* look_ns: 0 or how long it always looks; UINT64_MAX: by itself. */
void idle_init(struct idle *idle, uint64_t look_ns);
void idle_deinit(struct idle *idle);

/* A new wait begins: nothing of an older one counts. */
void idle_anew(struct idle *idle);

/* any: whether this turn found anything. True when the loop should turn again, false when it should
 * sleep now. */
bool idle_again(struct idle *idle, bool any);

#endif
