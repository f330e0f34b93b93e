/* The next step, made ahead while its gradient lands: ahead.c tells how. What struct shard has of
 * it, and what the core's other files ask. */
#ifndef GRADWEIR_SHARD_AHEAD_H
#define GRADWEIR_SHARD_AHEAD_H

#include "server/shard/shard.h"

/* The guess. All of it is of the process. */
struct ahead {
    uint64_t number; /* of the guess, counted; 0: there is none */
    bool reserved;   /* `to` is kept for the next step, whatever that is */
    uint32_t slot;   /* the gradient */
    uint64_t generation;
    uint32_t from, to;         /* parameter slots */
    struct record_step record; /* as it is expected */
    struct arithmetic_plan plan;
};

/* A chunk of that gradient is about to land: guesses, unless something speaks against it. */
void ahead_guess(struct shard *shard, uint32_t slot);

/* Whether chunks of it are to be stepped on, by ahead.plan, on what ahead_work says; ahead_stepped
 * says of which elements that was done, in memory, and ahead_landed that the core has heard so. */
bool ahead_lands(const struct shard *shard, uint32_t slot);
void ahead_work(struct shard *shard, struct arithmetic_work *work);
void ahead_stepped(struct shard *shard, uint64_t begin, uint64_t end);
void ahead_landed(struct shard *shard, uint64_t chunk, const struct shard_event *event);

/* A step begins: in which parameter slot it is made (UINT32_MAX: there is none), and, once, whether
 * it is the one that was guessed. Then, tile by tile: is all of it made? It counts as done now. */
uint32_t ahead_claim(struct shard *shard);
bool ahead_right(struct shard *shard);
bool ahead_made(struct shard *shard, uint64_t begin, uint64_t end);
void ahead_passed(struct shard *shard, uint64_t begin, uint64_t end);

void ahead_forget(struct shard *shard); /* and gives back what was reserved */

#endif
