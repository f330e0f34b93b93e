/* The inside of a group, for collective_group.c and collective_roll.c. */
#ifndef GRADWEIR_COMMON_COLLECTIVE_GROUP_H
#define GRADWEIR_COMMON_COLLECTIVE_GROUP_H

#include "common/collective.h"

#define HELLO_MAGIC UINT64_C(0x70756f7267727767) /* "gwrgroup" */

/* What a rank gives in the first round of a join, and in a roll-call. */
struct hello {
    uint64_t magic;
    uint32_t rank, ranks;
    int32_t status; /* join: of name_group; roll-call: why this rank calls */
    uint32_t generation;
    uint64_t step; /* the last that was done here */
    char backend[16];
    struct collective_name name; /* rank 0's counts */
};

struct collective {
    const struct collective_functions *functions;
    struct collective_link *link;
    struct collective_options options;
    uint32_t rank, ranks;                 /* now */
    uint32_t names[COLLECTIVE_RANKS_MAX]; /* by present rank: that of the join */
    struct collective_seen seen[COLLECTIVE_RANKS_MAX];
    struct hello hellos[COLLECTIVE_RANKS_MAX]; /* by name */
    bool here[COLLECTIVE_RANKS_MAX];           /* by name: who is in, or whom a roll-call found */
    bool called;                               /* the roll has been called since the group broke */
    bool broken, left_out;
    uint32_t rounds; /* of this generation, so far */
    uint64_t step, step_least, step_most;
    uint32_t linked[COLLECTIVE_RANKS_MAX], linked_n; /* names of the link's members */
    struct collective_name name;
    char *swapped; /* place for a swap among members */
    size_t swapped_size;
};

/* How a sentence calls rank r of the join, and of how many it is. */
static inline uint32_t group_called(const struct collective *group, uint32_t r)
{
    return group->options.called_of ? group->options.called[r] : r;
}

static inline uint32_t group_called_of(const struct collective *group)
{
    return group->options.called_of ? group->options.called_of : group->options.ranks;
}

/* The group's next round, among those in `here`; tells there who came. */
gradweir_status group_exchange(struct collective *group, const void *mine, size_t bytes, void *all,
                               uint64_t deadline_ns);

struct hello group_hello(const struct collective *group, gradweir_status status);

/* Who is still there, of all members, with a patience; all who come know the same ones. why: this
 * rank's reason to ask; TIMEOUT afterwards if it was anybody's. */
gradweir_status group_call_roll(struct collective *group, gradweir_status *why);

/* A call has failed with why: everybody returns, and all say the same about it. Gives why, or what
 * is worse. */
gradweir_status group_broke(struct collective *group, const char *what, gradweir_status why,
                            const struct collective_call *call);

#endif
