/* A made-up run that is recorded: two members, two workers "a" and "b", W = 4, S = 2, weights that
 * decay, Adam, a clip of the average, refusals, MOMENTS, a flush, and a clip that is tuned on the
 * way. */
#ifndef GRADWEIR_UNIT_RECORDED_RUN_H
#define GRADWEIR_UNIT_RECORDED_RUN_H

#include "server/shard/shard_local.h"

enum { RUN_MEMBERS = 2, RUN_GRADIENTS = 25, RUN_VERSIONS = 12, RUN_SLOTS = 8 };

struct recorded_run {
    char folder[64];
    struct model *model;
    struct ledger ledger;
    struct shard_local *shards[RUN_MEMBERS];
    struct recording *log, *bodies[RUN_MEMBERS];
    struct arithmetic_tree sums;
    uint64_t fills, sequences[2];
    uint32_t more;                      /* elements of the model, so that its stripes are long */
    uint32_t stripe_max;                /* as shard_options */
    bool wrong_factor;                  /* the last SUMMED tells another factor than was used */
    uint64_t digests[RUN_VERSIONS + 1]; /* the model's, at each version */
    uint64_t clipped;                   /* steps whose factor was below 1 */
    /* What the run would have been had b's gradients not counted: the shards get 0 for them, and
     * weights that are worked out here by hand; the digests are then of that. */
    bool without_b;
    uint64_t of_b, changed, emptied; /* b's gradients; steps that lost some, or all, of theirs */
    uint64_t by_stacks;              /* steps */
};

/* Makes the folder and records the run in it, up to bytes_max. */
void recorded_run_make(struct recorded_run *run, uint64_t bytes_max);

/* Frees everything and removes the folder. */
void recorded_run_end(struct recorded_run *run);

#endif
