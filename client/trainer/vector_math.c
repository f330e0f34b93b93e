/* Chooses the loops for this processor; the only list of them. */
#include "client/trainer/vector_math.h"

#include "client/trainer/vector_table.h"

static const struct vector_table *table(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return &vector_table_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &vector_table_avx2;
#endif
    return &vector_table_scalar;
}

void vector_add_bias_tanh(size_t rows, size_t cols, const float *bias, float *y)
{
    table()->add_bias_tanh(rows, cols, bias, y);
}

void vector_tanh_backward(size_t rows, size_t cols, const float *h, float *d, float *sums)
{
    table()->tanh_backward(rows, cols, h, d, sums);
}

void vector_narrow_forward(const struct narrow_layer *layer, const float *x, float *y)
{
    table()->narrow_forward(layer, x, y);
}

void vector_narrow_gradient(const struct narrow_layer *layer, const float *x, const float *d_y,
                            float *d_weight, float *d_bias)
{
    table()->narrow_gradient(layer, x, d_y, d_weight, d_bias);
}

void vector_narrow_backward(const struct narrow_layer *layer, const float *d_y, float *d_x)
{
    table()->narrow_backward(layer, d_y, d_x);
}

void vector_add_scaled(size_t n, float scale, const float *x, float *y)
{
    table()->add_scaled(n, scale, x, y);
}

double vector_square_sum(size_t n, const float *x)
{
    return table()->square_sum(n, x);
}

void vector_adam(size_t n, const struct adam_factors *factors, const float *gradient,
                 struct adam_state state)
{
    table()->adam(n, factors, gradient, state);
}
