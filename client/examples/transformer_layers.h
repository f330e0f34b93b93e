/* The layers that are not matrix products, forward and backward. Backward functions add to the
 * gradients of parameters (gain) and write or add to those of activations as each one says. */
#ifndef GRADWEIR_EXAMPLES_TRANSFORMER_LAYERS_H
#define GRADWEIR_EXAMPLES_TRANSFORMER_LAYERS_H

#include "client/examples/transformer_matrix.h"

/* Root mean square normalisation (Zhang and Sennrich 2019), row by row: y = gain x / rms(x). */
struct transformer_norm {
    size_t rows, width;
    const real *x, *gain;
    real *y;
    real *inverse; /* [rows], 1 / rms: written by forward, read by backward */
};

void transformer_norm_forward(const struct transformer_norm *norm);

/* d_x += what d_y gives; d_gain += too. */
void transformer_norm_backward(const struct transformer_norm *norm, const real *d_y, real *d_x,
                               real *d_gain);

/* y = x sigmoid(x), of n elements. */
void transformer_silu_forward(const real *x, real *y, size_t n);

/* d becomes the derivative by x of what it is the derivative of by y. */
void transformer_silu_backward(const real *x, real *d, size_t n);

/* Causal attention of queries at places `from` to `to` - 1 to keys at 0 to `to` - 1, in each of
 * `batch` sequences, for `heads` heads of `width` columns each. With from = to - 1 it is a step of
 * sampling; keys and values of earlier places are those that were written then. */
struct transformer_attention {
    size_t batch, heads, width;
    size_t from, to;
    size_t places;     /* rows of a sequence in key and value */
    real *query;       /* [batch, to - from, heads x width] */
    real *key, *value; /* [batch, places, heads x width] */
    real *weights;     /* [batch, heads, to - from, to], after softmax: forward writes them */
    real *context;     /* [batch, to - from, heads x width] */
};

void transformer_attention_forward(const struct transformer_attention *attention);

struct transformer_attention_gradient {
    real *d_context;                 /* read; as context */
    real *d_query, *d_key, *d_value; /* written; as query: from must be 0 */
    real *scratch;                   /* [to, to] */
};

void transformer_attention_backward(const struct transformer_attention *attention,
                                    const struct transformer_attention_gradient *gradient);

/* x becomes its softmax over n elements. */
void transformer_softmax(real *x, size_t n);

#endif
