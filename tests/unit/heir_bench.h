/* A coordinator (order_bench's) that dies, and its heir with the same fake shards. What the shards
 * hold follows from the log that the old one wrote: each has logged so far, and some bodies have
 * landed whole. */
#ifndef GRADWEIR_UNIT_HEIR_BENCH_H
#define GRADWEIR_UNIT_HEIR_BENCH_H

#include "tests/unit/order_bench.h"

struct heir_shard {
    uint64_t index; /* of its log */
    bool cold;
    uint32_t promise;
    struct message_landed landed[16];
    uint32_t landed_count;
};

struct heir {
    struct bench *old;
    struct bench bench; /* the heir's core; its log begins as a copy of the old one's */
    struct heir_shard shards[4];
    uint8_t *content;
    size_t content_room;
};

/* A job to be taken over: so many workers, first parameters, and so many more gradients of worker 0
 * admitted. */
void heir_job(struct bench *bench, uint32_t workers, uint32_t gradients);

/* The heir's core; all shards have logged what the old one wrote, in epoch 1. */
void heir_init(struct heir *heir, struct bench *old);
void heir_end(struct heir *heir);

/* A body that has landed whole on a shard, or on all. */
void heir_landed(struct heir *heir, uint32_t shard, const struct message_landed *landed);
void heir_landed_all(struct heir *heir, const struct message_landed *landed);

/* Events, as shards give them: peers 1 + shard. */
void heir_enlist(struct heir *heir, uint32_t shard);
void heir_sealed(struct heir *heir, uint32_t shard, uint32_t epoch, uint8_t instance);
void heir_content(struct heir *heir, uint32_t shard); /* its pages */
void heir_answer(struct heir *heir, uint32_t shard);  /* SEALED and its pages */
void heir_take_over(struct heir *heir);               /* all of it, to the end */

/* A worker is in again, under its old nonce: worker i of bench_join. */
const struct message_joined *heir_join(struct heir *heir, uint32_t worker);

/* What was sent to anybody in the last event, but for this kind. */
uint32_t heir_sent_else(const struct heir *heir, uint32_t kind);

/* How the core has ended: 1 when it has not. */
int heir_exit(const struct heir *heir);

#endif
