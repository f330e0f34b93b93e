/* Chance without a state: Philox4x32-10 (Salmon et al., 2011, "Parallel random numbers: as easy as
 * 1, 2, 3"). A number is what its seed, stream and place say, so thousands of environments draw at
 * once and a run is repeated in any order. Integer operations only: the same bits on every device.
 * Not for secrets. What a drawn number becomes (uniform, normal) is also what the trainer's own
 * generator uses (client/trainer/chance.c). */
#ifndef GRADWEIR_COMMON_ELEMENT_RANDOM_H
#define GRADWEIR_COMMON_ELEMENT_RANDOM_H

#include "common/arithmetic_element.h"

struct element_words {
    uint32_t word[4];
};

ELEMENT struct element_words element_philox_round(struct element_words c, uint32_t key0,
                                                  uint32_t key1)
{
    const uint64_t product0 = (uint64_t)0xD2511F53u * c.word[0];
    const uint64_t product1 = (uint64_t)0xCD9E8D57u * c.word[2];
    struct element_words next;
    next.word[0] = (uint32_t)(product1 >> 32) ^ c.word[1] ^ key0;
    next.word[1] = (uint32_t)product1;
    next.word[2] = (uint32_t)(product0 >> 32) ^ c.word[3] ^ key1;
    next.word[3] = (uint32_t)product0;
    return next;
}

/* The four words at `place` of a stream. */
ELEMENT struct element_words element_random(uint64_t seed, uint64_t stream, uint64_t place)
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    struct element_words c;
    c.word[0] = (uint32_t)place;
    c.word[1] = (uint32_t)(place >> 32);
    c.word[2] = (uint32_t)stream;
    c.word[3] = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        c = element_philox_round(c, key0, key1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

/* Streams of one seed: what is drawn for whom, so that nobody draws another's numbers. */
enum element_purpose { ELEMENT_FOR_STARTS, ELEMENT_FOR_ACTIONS, ELEMENT_PURPOSES };

ELEMENT uint64_t element_stream(enum element_purpose purpose, uint64_t number)
{
    return number * ELEMENT_PURPOSES + purpose;
}

/* 64 random bits as a double in [0, 1), 53 bits. */
ELEMENT double element_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1.0p-53;
}

/* Of the four words the pair 0 or 1, as a double in [0, 1). */
ELEMENT double element_unit_of(const struct element_words *words, int pair)
{
    return element_unit((uint64_t)words->word[2 * pair + 1] << 32 | words->word[2 * pair]);
}

/* A uniform of [0, 1) taken to [low, high). */
ELEMENT double element_between(double low, double high, double unit)
{
    return low + (high - low) * unit;
}

/* Standard normal from two uniforms of [0, 1) (Box and Muller). */
ELEMENT double element_normal(double unit1, double unit2)
{
    return sqrt(-2 * log(1.0 - unit1)) * cos(2 * 3.14159265358979323846 * unit2);
}

#endif
