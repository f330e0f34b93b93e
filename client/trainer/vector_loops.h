/* The loops of vector_math.h as code that vector_scalar.c, vector_avx2.c and vector_avx512.c
 * compile for their instruction set. Each of them includes this file once and defines one table.
 * What they do to one element is common/element_network.h and element_gradient.h. */
#ifndef GRADWEIR_TRAINER_VECTOR_LOOPS_H
#define GRADWEIR_TRAINER_VECTOR_LOOPS_H

#include "client/trainer/vector_table.h"
#include "common/element_network.h"

static void add_bias_tanh(size_t rows, size_t cols, const float *restrict bias, float *restrict y)
{
    for (size_t i = 0; i < rows; i++, y += cols)
        for (size_t j = 0; j < cols; j++)
            y[j] = element_bias_tanh(y[j], bias[j]);
}

static void tanh_backward(size_t rows, size_t cols, const float *restrict h, float *restrict d,
                          float *restrict sums)
{
    for (size_t j = 0; j < cols; j++)
        sums[j] = 0;
    for (size_t i = 0; i < rows; i++, d += cols, h += cols)
        for (size_t j = 0; j < cols; j++) {
            d[j] = element_tanh_backward(d[j], h[j]);
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
        y[i] = element_plus(y[i], scale, x[i]);
}

static double square_sum(size_t n, const float *restrict x)
{
    double part[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t l = 0; l < 8; l++)
            part[l] = element_square_add(part[l], x[i + l]);
    for (size_t l = 0; i + l < n; l++)
        part[l] = element_square_add(part[l], x[i + l]);
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
    for (size_t i = 0; i < n; i++)
        parameters[i] = element_local_adam(&f, gradient[i], parameters[i], &m[i], &v[i]);
}

#define VECTOR_TABLE                                                                               \
    {                                                                                              \
        .add_bias_tanh = add_bias_tanh, .tanh_backward = tanh_backward,                            \
        .narrow_forward = narrow_forward, .narrow_gradient = narrow_gradient,                      \
        .narrow_backward = narrow_backward, .add_scaled = add_scaled, .square_sum = square_sum,    \
        .adam = adam                                                                               \
    }

#endif
