/* The loops of the network that are not matrix products, compiled for AVX-512, AVX2 and any
 * processor; the one that runs here is chosen by vector_math.c. Only IEEE operations without
 * contraction, and sums in a fixed order: all give the same bits. */
#ifndef GRADWEIR_TRAINER_VECTOR_MATH_H
#define GRADWEIR_TRAINER_VECTOR_MATH_H

#include "common/element_gradient.h"

#include <stddef.h>

/* y [rows, cols] = tanh(y + bias), bias [cols]. tanh is element_tanh. */
void vector_add_bias_tanh(size_t rows, size_t cols, const float *bias, float *y);

/* d [rows, cols] *= 1 - h^2 (the slope of tanh where its value is h), and sums [cols] = the column
 * sums of the new d, which is the gradient of the bias. */
void vector_tanh_backward(size_t rows, size_t cols, const float *h, float *d, float *sums);

/* A linear layer whose output is narrow, one to three wide: a matrix product that narrow is mostly
 * overhead. */
struct narrow_layer {
    size_t batch;
    size_t in;
    size_t out;
    const float *weight; /* [out, in] */
    const float *bias;   /* [out] */
};

/* y [batch, out] = x W^T + b, x [batch, in]. */
void vector_narrow_forward(const struct narrow_layer *layer, const float *x, float *y);

/* d_weight [out, in] and d_bias [out] from d_y [batch, out] and the layer's input. */
void vector_narrow_gradient(const struct narrow_layer *layer, const float *x, const float *d_y,
                            float *d_weight, float *d_bias);

/* d_x [batch, in] += d_y W. */
void vector_narrow_backward(const struct narrow_layer *layer, const float *d_y, float *d_x);

/* y += scale x. */
void vector_add_scaled(size_t n, float scale, const float *x, float *y);

/* The sum of squares in double. */
double vector_square_sum(size_t n, const float *x);

/* Adam's pass: element_local_adam. */
struct adam_state {
    float *parameters;
    float *m;
    float *v;
};
void vector_adam(size_t n, const struct adam_factors *factors, const float *gradient,
                 struct adam_state state);

#endif
