/* Chance from a seed: xoshiro256++ (Blackman and Vigna, 2019, prng.di.unimi.it), seeded by
 * splitmix64.
 *
 * One seed makes any number of independent streams, told apart by a name and a number, so that
 * adding a consumer of chance does not move anybody else's. Not for secrets: those, and nonces,
 * come from random_entropy. */
#ifndef GRADWEIR_COMMON_RANDOM_H
#define GRADWEIR_COMMON_RANDOM_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct random {
    uint64_t state[4];
};

void random_init(struct random *random, uint64_t seed);

/* The stream `name`/`number` of a seed: random_split(&r, 7, "worker", 3). */
void random_split(struct random *random, uint64_t seed, const char *name, uint64_t number);

uint64_t random_next(struct random *random);

/* Uniform in [0, bound), without bias. bound > 0. */
uint64_t random_below(struct random *random, uint64_t bound);

/* Uniform in [0, 1), 53 bits. */
double random_uniform(struct random *random);

/* Bytes from the kernel (getrandom). Fails with ERR_IO. */
gradweir_status random_entropy(void *bytes, size_t size);

#endif
