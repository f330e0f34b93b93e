/* The trainer's source of chance: xoshiro256** (Blackman and Vigna), seeded through splitmix64. The
 * state is an argument everywhere, so a run is repeated by its seed. Streams of one seed do not
 * overlap in practice: each stream number is mixed into the seed before it fills the state. */
#ifndef GRADWEIR_TRAINER_CHANCE_H
#define GRADWEIR_TRAINER_CHANCE_H

#include <stddef.h>
#include <stdint.h>

struct chance {
    uint64_t state[4];
};

void chance_init(struct chance *chance, uint64_t seed, uint64_t stream);

/* What chance is for: each use of each worker draws from a stream of its own. First parameters are
 * the same for all: those of worker 0. */
enum chance_use {
    CHANCE_PARAMETERS,
    CHANCE_ENVIRONMENT,
    CHANCE_POLICY,
    CHANCE_SHUFFLE,
    CHANCE_ENVIRONMENT_SECOND, /* where environments act in two groups */
    CHANCE_USES_MAX = 16
};
void chance_init_for(struct chance *chance, uint64_t seed, uint64_t worker, enum chance_use use);

uint64_t chance_next(struct chance *chance);

/* Uniform in [low, high). */
double chance_uniform(struct chance *chance, double low, double high);

/* Standard normal (Box and Muller; the second value of a pair is not kept, so that the state is all
 * there is). */
double chance_normal(struct chance *chance);

/* Puts the numbers in a random order (Fisher and Yates). */
void chance_shuffle(struct chance *chance, uint32_t *numbers, size_t n);

#endif
