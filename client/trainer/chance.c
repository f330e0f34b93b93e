/* See chance.h. */
#include "client/trainer/chance.h"

#include "common/element_random.h"

static uint64_t splitmix(uint64_t *x)
{
    uint64_t z = (*x += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void chance_init(struct chance *chance, uint64_t seed, uint64_t stream)
{
    uint64_t x = seed;
    x = splitmix(&x) ^ (stream * 0xD1342543DE82EF95u);
    for (size_t i = 0; i < 4; i++)
        chance->state[i] = splitmix(&x);
}

void chance_init_for(struct chance *chance, uint64_t seed, uint64_t worker, enum chance_use use)
{
    chance_init(chance, seed, worker * CHANCE_USES_MAX + use);
}

static uint64_t rotate(uint64_t x, unsigned bits)
{
    return (x << bits) | (x >> (64 - bits));
}

uint64_t chance_next(struct chance *chance)
{
    uint64_t *s = chance->state;
    const uint64_t result = rotate(s[1] * 5, 7) * 9;
    const uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

double chance_uniform(struct chance *chance, double low, double high)
{
    return element_between(low, high, element_unit(chance_next(chance)));
}

double chance_normal(struct chance *chance)
{
    const double first = chance_uniform(chance, 0, 1), second = chance_uniform(chance, 0, 1);
    return element_normal(first, second);
}

void chance_shuffle(struct chance *chance, uint32_t *numbers, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        const size_t j = (size_t)chance_uniform(chance, 0, (double)i);
        const uint32_t swapped = numbers[i - 1];
        numbers[i - 1] = numbers[j];
        numbers[j] = swapped;
    }
}
