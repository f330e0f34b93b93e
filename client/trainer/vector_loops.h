/* The loops of vector_math.h as code that vector_scalar.c, vector_avx2.c and vector_avx512.c
 * compile for their instruction set. Each of them includes this file once and defines one table.
 *
 * tanh is the rational approximation x p(x^2) / q(x^2) of Eigen (MathFunctionsImpl.h,
 * generic_fast_tanh_float), odd of degree 13 over even of degree 6; beyond the limit float tanh is
 * +-1. */
#ifndef GRADWEIR_TRAINER_VECTOR_LOOPS_H
#define GRADWEIR_TRAINER_VECTOR_LOOPS_H

#include "client/trainer/vector_table.h"

#include <math.h>

static inline float tanh_of(float x)
{
    const float limit = 7.90531110763549805f;
    x = x > limit ? limit : x;
    x = x < -limit ? -limit : x;
    const float x2 = x * x;
    float p = -2.76076847742355e-16f;
    p = p * x2 + 2.00018790482477e-13f;
    p = p * x2 + -8.60467152213735e-11f;
    p = p * x2 + 5.12229709037114e-08f;
    p = p * x2 + 1.48572235717979e-05f;
    p = p * x2 + 6.37261928875436e-04f;
    p = p * x2 + 4.89352455891786e-03f;
    float q = 1.19825839466702e-06f;
    q = q * x2 + 1.18534705686654e-04f;
    q = q * x2 + 2.26843463243900e-03f;
    q = q * x2 + 4.89352518554385e-03f;
    return x * p / q;
}

static void add_bias_tanh(size_t rows, size_t cols, const float *restrict bias, float *restrict y)
{
    for (size_t i = 0; i < rows; i++, y += cols)
        for (size_t j = 0; j < cols; j++)
            y[j] = tanh_of(y[j] + bias[j]);
}

static void tanh_backward(size_t rows, size_t cols, const float *restrict h, float *restrict d,
                          float *restrict sums)
{
    for (size_t j = 0; j < cols; j++)
        sums[j] = 0;
    for (size_t i = 0; i < rows; i++, d += cols, h += cols)
        for (size_t j = 0; j < cols; j++) {
            d[j] *= 1 - h[j] * h[j];
            sums[j] += d[j];
        }
}

/* Sixteen partial sums, so that the order of additions is the same on every CPU. */
static inline float dot(size_t n, const float *restrict a, const float *restrict b)
{
    float part[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t l = 0; l < 16; l++)
            part[l] += a[i + l] * b[i + l];
    for (size_t l = 0; i + l < n; l++)
        part[l] += a[i + l] * b[i + l];
    for (size_t width = 8; width > 0; width /= 2)
        for (size_t l = 0; l < width; l++)
            part[l] += part[l + width];
    return part[0];
}

static void narrow_forward(const struct narrow_layer *layer, const float *restrict x,
                           float *restrict y)
{
    for (size_t i = 0; i < layer->batch; i++)
        for (size_t k = 0; k < layer->out; k++)
            y[i * layer->out + k] =
                dot(layer->in, x + i * layer->in, layer->weight + k * layer->in) + layer->bias[k];
}

static void narrow_gradient(const struct narrow_layer *layer, const float *restrict x,
                            const float *restrict d_y, float *restrict d_weight,
                            float *restrict d_bias)
{
    const size_t in = layer->in, out = layer->out;
    for (size_t j = 0; j < out * in; j++)
        d_weight[j] = 0;
    for (size_t k = 0; k < out; k++) {
        float sum = 0;
        for (size_t i = 0; i < layer->batch; i++) {
            const float d = d_y[i * out + k];
            sum += d;
            for (size_t j = 0; j < in; j++)
                d_weight[k * in + j] += d * x[i * in + j];
        }
        d_bias[k] = sum;
    }
}

static void narrow_backward(const struct narrow_layer *layer, const float *restrict d_y,
                            float *restrict d_x)
{
    const size_t in = layer->in, out = layer->out;
    for (size_t i = 0; i < layer->batch; i++)
        for (size_t k = 0; k < out; k++) {
            const float d = d_y[i * out + k];
            for (size_t j = 0; j < in; j++)
                d_x[i * in + j] += d * layer->weight[k * in + j];
        }
}

static void add_scaled(size_t n, float scale, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += scale * x[i];
}

static double square_sum(size_t n, const float *restrict x)
{
    double part[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t l = 0; l < 8; l++)
            part[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i + l < n; l++)
        part[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t width = 4; width > 0; width /= 2)
        for (size_t l = 0; l < width; l++)
            part[l] += part[l + width];
    return part[0];
}

static void adam(size_t n, const struct adam_factors *factors, const float *restrict gradient,
                 struct adam_state state)
{
    const struct adam_factors f = *factors;
    float *restrict parameters = state.parameters, *restrict m = state.m, *restrict v = state.v;
    for (size_t i = 0; i < n; i++) {
        const float g = gradient[i] * f.gradient_scale;
        m[i] = f.beta1 * m[i] + (1 - f.beta1) * g;
        v[i] = f.beta2 * v[i] + (1 - f.beta2) * g * g;
        parameters[i] -= f.rate * m[i] / (sqrtf(v[i]) * f.root_scale + f.epsilon);
    }
}

#define VECTOR_TABLE                                                                               \
    {                                                                                              \
        .add_bias_tanh = add_bias_tanh, .tanh_backward = tanh_backward,                            \
        .narrow_forward = narrow_forward, .narrow_gradient = narrow_gradient,                      \
        .narrow_backward = narrow_backward, .add_scaled = add_scaled, .square_sum = square_sum,    \
        .adam = adam                                                                               \
    }

#endif
