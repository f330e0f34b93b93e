/* One set of loops: the seam between vector_math.c and the instruction sets. What each does:
 * vector_math.h. */
#ifndef GRADWEIR_TRAINER_VECTOR_TABLE_H
#define GRADWEIR_TRAINER_VECTOR_TABLE_H

#include "client/trainer/vector_math.h"

struct vector_table {
    void (*add_bias_tanh)(size_t rows, size_t cols, const float *bias, float *y);
    void (*tanh_backward)(size_t rows, size_t cols, const float *h, float *d, float *sums);
    void (*narrow_forward)(const struct narrow_layer *layer, const float *x, float *y);
    void (*narrow_gradient)(const struct narrow_layer *layer, const float *x, const float *d_y,
                            float *d_weight, float *d_bias);
    void (*narrow_backward)(const struct narrow_layer *layer, const float *d_y, float *d_x);
    void (*add_scaled)(size_t n, float scale, const float *x, float *y);
    double (*square_sum)(size_t n, const float *x);
    void (*adam)(size_t n, const struct adam_factors *factors, const float *gradient,
                 struct adam_state state);
};

extern const struct vector_table vector_table_scalar;
extern const struct vector_table vector_table_avx2;
extern const struct vector_table vector_table_avx512;

#endif
