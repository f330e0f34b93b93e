/* What the files of groups share: a layer above the client, whose public calls it uses, and above
 * the collective seam.
 *
 *   group.c         options, join, leave, what is known
 *   group_meet.c    ranks find one another by the coordinator; renew
 *   group_bind.c    tensors into one flat array, cut among the ranks; the worker that they are
 *   group_pull.c    one version at all ranks; who waits is taken in
 *   group_push.c    sums, and their parts to the servers
 *   group_arrays.c  the caller's own arrays
 *
 * Flat arrays: the whole tensors, one behind the other, then the tensors of which each rank has a
 * part of its own.
 *
 *   whole   parameters of all tensors, whole; the caller's memory where that is one array
 *   sum     samples x gradient of the whole tensors, then of this rank's own parts
 *   part    what this rank pushes: its cut of the whole tensors, then its own parts
 */
#ifndef GRADWEIR_CLIENT_GROUP_INTERNAL_H
#define GRADWEIR_CLIENT_GROUP_INTERNAL_H

#include "client/client_internal.h"
#include "common/collective.h"

#include <gradweir/group.h>

/* Slab of a tensor: `count` indexes of `axis` from `first` on. */
struct group_part {
    uint32_t axis;
    uint64_t first, count;
};

struct group_tensor {
    gradweir_tensor tensor; /* the caller's; its name is ours */
    char name[64];
    uint64_t elements;
    bool own;               /* each rank has its own part, which it told */
    struct group_part part; /* this rank's: told, or cut */
    uint64_t at;            /* in `whole`, and `sum` unless it is own; MOMENTS: in `moments` */
    uint64_t sum_at;        /* own: in `sum` */
    uint64_t part_at;       /* in `part` */
};

/* What a rank says of itself before a pull's and a push's floats move. Travels as floats. */
struct group_words {
    uint64_t version; /* pull: that it has; push: that its gradient is of */
    uint64_t samples;
    uint64_t step;
    int32_t status;
    uint32_t waiting; /* a bit for each rank that it has heard of */
};

struct gradweir_ranks {
    gradweir_options client_options; /* texts are ours: */
    char *texts[10];
    uint32_t texts_count;
    char backend[16], listen[256];
    uint64_t timeout_ns, patience_ns;
    bool shared, fixed;
    gradweir_client *channel; /* never bound: by it ranks meet */
    gradweir_client *client;  /* bound: the worker that they are; NULL before bind, or while it is
                                 not made anew */
    struct collective *ranks; /* NULL: there are none now */

    uint32_t rank, count;                        /* this rank's place among the present ones */
    uint32_t names[GRADWEIR_RANKS_MAX];          /* by place: rank of options.client */
    uint32_t met_names[GRADWEIR_RANKS_MAX], met; /* as of the last meeting */
    uint64_t meeting;
    uint32_t shrunk;
    bool broken, left_out, fenced;
    uint32_t waiting;
    uint64_t step, version;

    gradweir_group groups[MODEL_GROUPS_MAX];
    uint32_t groups_count;
    struct group_tensor *tensors;
    size_t tensors_count;
    struct group_said {
        size_t tensor;
        struct group_part part;
    } * said;
    size_t said_count;
    bool lent; /* whole is the caller's */
    float *whole, *sum, *part;
    uint64_t shared_elements, elements, own_elements; /* own: of this rank's own parts */
    size_t counts[GRADWEIR_RANKS_MAX];                /* of the whole tensors, by place */
    uint64_t begin;                                   /* where this rank's cut begins */
    struct moments *moments, *all_moments;            /* this rank's, and then all ranks' */
    uint64_t moments_count;
    gradweir_box *boxes;
    size_t boxes_count;
    uint64_t gathered; /* samples that were accumulated */
};

/* group_meet.c. Meets the ranks of `asked` (bits; 0: all, unless others know better), and links
 * them. */
gradweir_status group_meet(struct gradweir_ranks *group, uint32_t asked, uint64_t patience_ns);
/* Bits of those that are in now. */
uint32_t group_names(const struct gradweir_ranks *group);
/* A call has failed: what has to be renewed. Passes status on. */
gradweir_status group_note(struct gradweir_ranks *group, gradweir_status status);
/* Whether anything may be called. */
gradweir_status group_whole(const struct gradweir_ranks *group, const char *what);
/* Everybody's words, by place. */
gradweir_status group_say(struct gradweir_ranks *group, const struct group_words *mine,
                          struct group_words *all);
/* Time for one thing of several in a call. */
uint32_t group_share_ms(const struct gradweir_ranks *group);

/* group_bind.c. The worker that the present ranks are, made anew. */
gradweir_status group_connect(struct gradweir_ranks *group);
void group_disconnect(struct gradweir_ranks *group);
void group_unbind(struct gradweir_ranks *group);
uint64_t group_rest(const struct group_tensor *tensor,
                    uint32_t axis);                              /* elements behind the axis */
uint64_t group_part_elements(const struct group_tensor *tensor); /* of this rank's part */
/* Of a packed part: to its places in the whole tensor. */
void group_spread(const struct group_tensor *tensor, const struct group_part *part,
                  const float *from, float *to);

#endif
