/* What happens to a shard's core that is killed now and then (test_shard_warm.c), in order: bodies,
 * records, CLOSEs. While it is written, a rig of its own follows it undisturbed. */
#ifndef GRADWEIR_UNIT_WARM_SCRIPT_H
#define GRADWEIR_UNIT_WARM_SCRIPT_H

#include "tests/unit/shard_rig.h"

enum { WARM_OPERATIONS_MAX = 128 };
enum { WARM_BODY = RIG_ELEMENTS * sizeof(float) + RIG_MOMENTS * sizeof(struct moments) };

enum warm_kind { WARM_PUSH, WARM_RECORD, WARM_CLOSE, WARM_ENTRY };

/* Each can be told again after a kill: what is done already is skipped, as a coordinator and a
 * worker would. */
struct warm_operation {
    enum warm_kind kind;
    struct record record; /* of CLOSE: index only, as `after` */
    uint32_t slot, worker;
    uint64_t generation, sequence;
    float scale;
};

extern struct rig warm_rig; /* the run that nobody disturbs; end it with rig_end */
extern struct warm_operation warm_script[WARM_OPERATIONS_MAX];
extern uint32_t warm_script_count;

/* How a step goes: Adam at once, Adam after a round for the norm of the average, LAMB. */
enum warm_steps { WARM_AT_ONCE, WARM_CLIPPED, WARM_LAMB };

/* Steps over 1000 elements in tiles of 256. */
void warm_script_write(enum warm_steps steps);

/* The body of a push of that scale: WARM_BODY bytes. */
void warm_body(float scale, char *body);

#endif
