/* What a worker does to one element of a finished gradient: its magnitude for the finite test, the
 * factor of a clip, accumulation, the choice of the largest k, and Adam where the worker is its own
 * learner. Into and out of wire numbers: arithmetic_element.h. */
#ifndef GRADWEIR_COMMON_ELEMENT_GRADIENT_H
#define GRADWEIR_COMMON_ELEMENT_GRADIENT_H

#include "common/arithmetic_element.h"

#include <stdbool.h>

/* Bits of |x|: they order as the magnitudes do, and Inf and NaN come last. */
ELEMENT uint32_t element_magnitude(float x)
{
    return element_bits(x) & 0x7fffffffu;
}

ELEMENT bool element_is_finite(float x)
{
    return element_magnitude(x) < 0x7f800000u;
}

ELEMENT uint32_t element_larger_magnitude(uint32_t largest, float x)
{
    const uint32_t size = element_magnitude(x);
    return size > largest ? size : largest;
}

/* min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; limit 0: 1. A NaN norm gives
 * NaN. */
ELEMENT double element_clip_factor(double norm, double limit)
{
    if (limit <= 0.0)
        return 1.0;
    const double factor = limit / (norm + 1e-6);
    return factor > 1.0 ? 1.0 : factor;
}

/* The norm of a scaled gradient from its sum of squares before, and the scale with a clip to
 * `limit` in it. */
ELEMENT double element_norm(double square_sum, float scale)
{
    return sqrt(square_sum) * (double)fabsf(scale);
}

ELEMENT float element_clipped_scale(float scale, double norm, double limit)
{
    return (float)((double)scale * element_clip_factor(norm, limit));
}

/* One more term of a sum of squares. */
ELEMENT double element_square_add(double sum, float x)
{
    return sum + (double)x * (double)x;
}

/* One block of int8 in a measure: its bytes squared and added as integers, its largest byte. */
ELEMENT double element_int8_square_add(double sum, int32_t squares, float scale)
{
    return sum + (double)squares * ((double)scale * (double)scale);
}

ELEMENT uint32_t element_int8_magnitude(int32_t most, float scale)
{
    return element_is_finite(scale) ? element_magnitude((float)most * scale) : 0x7fc00000u;
}

/* Error feedback: what is encoded of x, and what it leaves owed (what was owed before, where
 * nothing finite is said). When a push is refused, what was said comes back; or, x still being
 * there, the taking is undone. */
ELEMENT float element_owing(float x, float rest)
{
    return x + rest;
}

ELEMENT float element_owed(float sum, float said, float rest)
{
    return element_is_finite(said) ? sum - said : rest;
}

ELEMENT float element_owed_again(float rest, float said)
{
    return rest + said;
}

ELEMENT float element_untaken(float rest, float said, float x)
{
    return element_is_finite(said) ? (rest + said) - x : rest;
}

/* What becomes of an element of a block: rounded, or where the block is not finite, 1 for whoever
 * is to blame. */
ELEMENT int8_t element_int8_sent(float x, float scale, float inverse)
{
    if (!element_is_finite(scale))
        return element_is_finite(x) ? 0 : 1;
    return element_to_int8(x, inverse);
}

/* Adam's pass of a worker without servers: g = gradient_scale gradient; m and v decay towards g and
 * g^2; parameters -= rate m / (sqrt(v) root_scale + epsilon). */
struct adam_factors {
    float gradient_scale;
    float beta1;
    float beta2;
    float rate;
    float root_scale;
    float epsilon;
};

ELEMENT float element_local_adam(const struct adam_factors *f, float gradient, float theta,
                                 float *m, float *v)
{
    const float g = gradient * f->gradient_scale;
    *m = f->beta1 * *m + (1 - f->beta1) * g;
    *v = f->beta2 * *v + (1 - f->beta2) * g * g;
    return theta - f->rate * *m / (sqrtf(*v) * f->root_scale + f->epsilon);
}

/* The k elements of the largest magnitude; among equals those of lower index. Found by the digits
 * of the magnitude's 31 bits, 11, 10 and 10 from the top: each round counts the digits of those
 * elements whose digits above are the threshold's, and element_top_descend then fixes one more.
 * Counting is exact whatever the order, so the choice is the same on every device. */
#define ELEMENT_TOP_ROUNDS 3
#define ELEMENT_TOP_DIGITS 2048

struct element_top {
    uint32_t threshold; /* the digits that are known; after all rounds the k-th largest magnitude */
    uint64_t left;      /* how many are still to be found below what is known; after all rounds, how
                           many of those equal to the threshold are taken */
};

ELEMENT int element_top_shift(int round)
{
    return round == 0 ? 20 : (round == 1 ? 10 : 0);
}

/* The digit of a magnitude in this round, or -1 when it is out of the search. */
ELEMENT int element_top_digit(const struct element_top *top, int round, uint32_t magnitude)
{
    const int shift = element_top_shift(round);
    const uint32_t mask = round == 0 ? 0x7ffu : 0x3ffu;
    if (round > 0 && (magnitude ^ top->threshold) >> element_top_shift(round - 1) != 0)
        return -1;
    return (int)(magnitude >> shift & mask);
}

/* counts [ELEMENT_TOP_DIGITS] of this round; 0 < left <= their sum. */
ELEMENT struct element_top element_top_descend(struct element_top top, int round,
                                               const uint32_t *counts)
{
    int digit = round == 0 ? 2047 : 1023;
    while (digit > 0 && counts[digit] < top.left)
        top.left -= counts[digit--];
    top.threshold |= (uint32_t)digit << element_top_shift(round);
    return top;
}

/* Whether an element is taken, `equals` elements of the threshold's magnitude lying before it. */
ELEMENT bool element_top_takes(const struct element_top *top, uint32_t magnitude, uint64_t equals)
{
    return magnitude > top->threshold || (magnitude == top->threshold && equals < top->left);
}

#endif
