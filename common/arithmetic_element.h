/* What happens to one element, once for all compilers: gcc and clang on every instruction set, and
 * nvcc. Plain C that is also C++; IEEE add, subtract, multiply, divide, square root and integer
 * operations only. The formulas are those of PyTorch 1.13 (torch/optim) and timm (optim/lamb.py);
 * the order of operations written here is the definition.
 *
 * nvcc must compile this with --fmad=false --prec-div=true --prec-sqrt=true --ftz=false. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_ELEMENT_H
#define GRADWEIR_COMMON_ARITHMETIC_ELEMENT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define ELEMENT static __host__ __device__ __forceinline__
#else
#define ELEMENT static inline
#endif

/* A running sum and what it owes. */
struct element_sum {
    float sum, owed;
};

ELEMENT uint32_t element_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ELEMENT float element_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* bfloat16: round to nearest even; a NaN stays a NaN (quiet). */
ELEMENT uint16_t element_to_bf16(float x)
{
    const uint32_t bits = element_bits(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

ELEMENT float element_from_bf16(uint16_t half)
{
    return element_float((uint32_t)half << 16);
}

/* binary16: round to nearest even, subnormals kept, overflow to infinity. 0x477ff000 is 65520, the
 * first magnitude that rounds to infinity; 0x38800000 is 2^-14, the smallest normal one. Below it
 * the adding of 0.5 rounds to multiples of 2^-24. Chosen from values, not by branches, so that
 * loops over it become vectors. */
ELEMENT uint16_t element_to_f16(float x)
{
    const uint32_t bits = element_bits(x);
    const uint32_t size = bits & 0x7fffffffu;
    const uint32_t normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
    const uint32_t small = element_bits(element_float(size) + 0.5f) - 0x3f000000u;
    uint32_t half = size < 0x38800000u ? small : normal;
    half = size >= 0x477ff000u ? 0x7c00u : half;
    half = size > 0x7f800000u ? 0x7e00u : half;
    return (uint16_t)(((bits >> 16) & 0x8000u) | half);
}

ELEMENT float element_from_f16(uint16_t half)
{
    const uint32_t size = half & 0x7fffu;
    const uint32_t normal = (size << 13) + 0x38000000u;
    const uint32_t small = element_bits((float)(int32_t)size * 5.9604644775390625e-8f); /* 2^-24 */
    uint32_t bits = size < 0x400u ? small : normal;
    bits = size >= 0x7c00u ? 0x7f800000u | (size & 0x3ffu) << 13 : bits;
    return element_float((uint32_t)(half & 0x8000u) << 16 | bits);
}

/* int8 with one scale for each ELEMENT_INT8_BLOCK elements. The scale is the largest magnitude /
 * 127, rounded up to 16 significant bits, so that scale × q is exact for every q of -127..127 (and
 * what has been encoded once encodes to itself); no smaller than the smallest normal float, so
 * that its reciprocal is finite; and no larger than the last such scale whose 127-fold is finite:
 * what is finite stays so, and so does what an encoding leaves out of it. All zeros: scale 0. With
 * a NaN or an Inf among them: the scale is NaN, and q is 1 where they are and 0 elsewhere. */
#define ELEMENT_INT8_BLOCK     256
#define ELEMENT_INT8_SCALE_MIN 0x00800000u /* as bits */
#define ELEMENT_INT8_SCALE_MAX 0x7c010200u /* FLT_MAX / 127, rounded down to 16 bits */

ELEMENT float element_int8_scale(uint32_t largest_bits)
{
    if (largest_bits >= 0x7f800000u)
        return element_float(0x7fc00000u);
    if (largest_bits == 0)
        return 0.0f;
    const uint32_t bits =
        (element_bits(element_float(largest_bits) / 127.0f) + 0xffu) & 0xffffff00u;
    const uint32_t least = bits < ELEMENT_INT8_SCALE_MIN ? ELEMENT_INT8_SCALE_MIN : bits;
    return element_float(least > ELEMENT_INT8_SCALE_MAX ? ELEMENT_INT8_SCALE_MAX : least);
}

/* What an element is multiplied by before it is rounded. */
ELEMENT float element_int8_inverse(float scale)
{
    return scale > 0.0f ? 1.0f / scale : 0.0f;
}

/* x × inverse to the nearest integer, ties to even: behind 1.5 × 2^23 the last bit of a float
 * counts ones. |x × inverse| <= 127.5 is the caller's. */
ELEMENT int8_t element_to_int8(float x, float inverse)
{
    const uint32_t shifted = element_bits(x * inverse + 12582912.0f);
    return (int8_t)(int32_t)(shifted - 0x4b400000u);
}

/* The same integer as a float: what is behind the 1.5 × 2^23, exactly. */
ELEMENT float element_int8_steps(float x, float inverse)
{
    return (x * inverse + 12582912.0f) - 12582912.0f;
}

ELEMENT float element_from_int8(int8_t q, float scale)
{
    return (float)q * scale;
}

/* Of a gradient before it is rounded, and of an average. */
ELEMENT float element_scaled(float x, float scale)
{
    return x * scale;
}

/* Of sums in a tree. */
ELEMENT float element_add(float a, float b)
{
    return a + b;
}

ELEMENT double element_add_double(double a, double b)
{
    return a + b;
}

/* One more term of a Kahan sum. */
ELEMENT struct element_sum element_kahan(float sum, float owed, float term)
{
    const float y = term - owed;
    const float t = sum + y;
    struct element_sum next;
    next.sum = t;
    next.owed = (t - sum) - y;
    return next;
}

/* x × keep + y × rest: the running average of every optimizer. */
ELEMENT float element_blend(float x, float keep, float y, float rest)
{
    return x * keep + y * rest;
}

ELEMENT float element_blend_square(float x, float keep, float y, float rest)
{
    return x * keep + (rest * y) * y;
}

/* x + factor × y: weight decay onto a gradient or update, and Nesterov's look ahead. */
ELEMENT float element_plus(float x, float factor, float y)
{
    return x + factor * y;
}

ELEMENT float element_descend(float theta, float rate, float direction)
{
    return theta - rate * direction;
}

/* g / (sqrt(s) + eps). */
ELEMENT float element_rmsprop(float gradient, float square, float epsilon)
{
    return gradient / (sqrtf(square) + epsilon);
}

/* The variance of a centered RMSProp. Rounding may leave it just below zero when the gradient is
 * constant; PyTorch then gives a NaN, we take it for zero. */
ELEMENT float element_variance(float square, float mean)
{
    const float s = square - mean * mean;
    return s < 0.0f ? 0.0f : s;
}

/* m / (sqrt(v) / sqrt(1 - beta2^t) + eps): Adam's direction but for the first bias correction,
 * which is in m for LAMB and in the rate for the others. */
ELEMENT float element_adam(float m, float v, float bias2_root, float epsilon)
{
    return m / (sqrtf(v) / bias2_root + epsilon);
}

ELEMENT float element_larger(float a, float b)
{
    return a > b ? a : b;
}

#endif
