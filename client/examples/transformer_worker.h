/* A rank of a group, which is one worker of the job: what a user of a large model copies.
 *
 * Each rank binds every tensor of the model with its whole shape, and says of those that are cut
 * which part it holds: a box. Memory is that of the part alone: nowhere is there a whole model.
 *
 *     join -> part, part, ... -> bind -> offer -> { pull -> sum, sum, ... -> push } -> leave
 *
 * pull writes the newest version's slices to the model's weights, the same version at all ranks;
 * push sends the model's gradient, each rank its parts: the servers take all of them or none; sum
 * is for what the ranks must add up in between, activations and their derivatives. All ranks call
 * the same in the same order.
 *
 * Functions that can fail say why on stderr and return false. A rank that is gone fails all others
 * within the time-out, by name. What it held nobody else has, so the group ends; whoever started
 * the ranks starts them all again, and they go on from the version that the servers have. */
#ifndef GRADWEIR_EXAMPLES_TRANSFORMER_WORKER_H
#define GRADWEIR_EXAMPLES_TRANSFORMER_WORKER_H

#include "client/examples/transformer_pass.h"

#include <gradweir/group.h>

struct transformer_worker {
    gradweir_ranks *group;
    struct transformer_model *model;
    uint64_t version; /* of the model's weights */
};

/* Where this rank belongs. */
struct transformer_seat {
    const char *address; /* the coordinator's */
    const char *group;   /* the worker's name, one for all its ranks */
    const char *keys;    /* "": none */
    uint32_t rank, ranks;
};

/* Meets the other ranks and the servers, whose first parameters are those of whoever comes first.
 * The model is borrowed until close. */
bool transformer_worker_open(struct transformer_worker *worker, struct transformer_model *model,
                             const struct transformer_seat *seat);
void transformer_worker_close(struct transformer_worker *worker);

bool transformer_worker_pull(struct transformer_worker *worker);

/* The gradient is the mean over `samples`, which are the same at all ranks. A refusal (too stale,
 * not finite) is no failure: the receipt says it. */
bool transformer_worker_push(struct transformer_worker *worker, uint64_t samples,
                             gradweir_receipt *receipt);

/* For transformer_team, with the worker as its context. */
bool transformer_worker_sum(void *context, real *x, size_t n);

/* For the operator's page: gradweirctl status, top. */
void transformer_worker_report(struct transformer_worker *worker, double reward);

#endif
