/* The operations of a pass on the CPU. See network_math.h. */
#include "client/trainer/network_math.h"

#include <string.h>

static void times_transposed(void *context, struct blas_sizes sizes, const float *a, const float *b,
                             float *c)
{
    (void)context;
    blas_times_transposed(sizes, a, b, c);
}

static void times(void *context, struct blas_sizes sizes, const float *a, const float *b, float *c)
{
    (void)context;
    blas_times(sizes, a, b, c);
}

static void transposed_times(void *context, struct blas_sizes sizes, const float *a, const float *b,
                             float *c)
{
    (void)context;
    blas_transposed_times(sizes, a, b, c);
}

static void add_bias_tanh(void *context, size_t rows, size_t cols, const float *bias, float *y)
{
    (void)context;
    vector_add_bias_tanh(rows, cols, bias, y);
}

static void tanh_backward(void *context, size_t rows, size_t cols, const float *h, float *d,
                          float *sums)
{
    (void)context;
    vector_tanh_backward(rows, cols, h, d, sums);
}

static void narrow_forward(void *context, const struct narrow_layer *layer, const float *x,
                           float *y)
{
    (void)context;
    vector_narrow_forward(layer, x, y);
}

static void narrow_gradient(void *context, const struct narrow_layer *layer, const float *x,
                            const float *d_y, float *d_weight, float *d_bias)
{
    (void)context;
    vector_narrow_gradient(layer, x, d_y, d_weight, d_bias);
}

static void narrow_backward(void *context, const struct narrow_layer *layer, const float *d_y,
                            float *d_x)
{
    (void)context;
    vector_narrow_backward(layer, d_y, d_x);
}

static void clear(void *context, float *to, size_t n)
{
    (void)context;
    memset(to, 0, n * sizeof(float));
}

static void copy(void *context, const float *from, float *to, size_t n)
{
    (void)context;
    memcpy(to, from, n * sizeof(float));
}

const struct network_math network_math_cpu = {.times_transposed = times_transposed,
                                              .times = times,
                                              .transposed_times = transposed_times,
                                              .add_bias_tanh = add_bias_tanh,
                                              .tanh_backward = tanh_backward,
                                              .narrow_forward = narrow_forward,
                                              .narrow_gradient = narrow_gradient,
                                              .narrow_backward = narrow_backward,
                                              .clear = clear,
                                              .copy = copy};
