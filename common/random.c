/* xoshiro256++ 1.0 and splitmix64, after the public-domain sources at prng.di.unimi.it. */
#include "common/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, unsigned by)
{
    return (x << by) | (x >> (64 - by));
}

void random_init(struct random *random, uint64_t seed)
{
    for (unsigned i = 0; i < 4; i++)
        random->state[i] = splitmix(&seed);
}

void random_split(struct random *random, uint64_t seed, const char *name, uint64_t number)
{
    /* Every byte and the number pass through splitmix, so that near names are far apart. */
    uint64_t state = seed;
    uint64_t mixed = splitmix(&state);
    for (; *name; name++) {
        state = mixed ^ (unsigned char)*name;
        mixed = splitmix(&state);
    }
    state = mixed ^ number;
    random_init(random, splitmix(&state));
}

uint64_t random_next(struct random *random)
{
    uint64_t *s = random->state;
    const uint64_t result = rotate(s[0] + s[3], 23) + s[0];
    const uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

uint64_t random_below(struct random *random, uint64_t bound)
{
    ASSERT(bound > 0);
    /* Draws below 2^64 mod bound are thrown away: what is left divides evenly. */
    const uint64_t least = (UINT64_MAX - bound + 1) % bound;
    uint64_t draw;
    do
        draw = random_next(random);
    while (draw < least);
    return draw % bound;
}

double random_uniform(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}

gradweir_status random_entropy(void *bytes, size_t size)
{
    unsigned char *next = bytes;
    while (size > 0) {
        const ssize_t got = getrandom(next, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fail(GRADWEIR_ERR_IO, "getrandom: %s", strerror(errno));
        next += got;
        size -= (size_t)got;
    }
    return GRADWEIR_OK;
}
