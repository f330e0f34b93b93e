/* See transformer_layers.h. */
#include "client/examples/transformer_layers.h"

#include <tgmath.h>

static const double NORM_EPSILON = 1e-6;

void transformer_norm_forward(const struct transformer_norm *norm)
{
    for (size_t row = 0; row < norm->rows; row++) {
        const real *x = norm->x + row * norm->width;
        real *y = norm->y + row * norm->width;
        real squares = 0;
        for (size_t i = 0; i < norm->width; i++)
            squares += x[i] * x[i];
        const real inverse = 1 / sqrt(squares / (real)norm->width + (real)NORM_EPSILON);
        for (size_t i = 0; i < norm->width; i++)
            y[i] = norm->gain[i] * (x[i] * inverse);
        norm->inverse[row] = inverse;
    }
}

/* With u = x / rms(x):  d_x = (g - u mean(g u)) / rms(x),  where g = gain d_y. */
void transformer_norm_backward(const struct transformer_norm *norm, const real *d_y, real *d_x,
                               real *d_gain)
{
    for (size_t row = 0; row < norm->rows; row++) {
        const real *x = norm->x + row * norm->width, *d = d_y + row * norm->width;
        real *to = d_x + row * norm->width;
        const real inverse = norm->inverse[row];
        real mean = 0;
        for (size_t i = 0; i < norm->width; i++) {
            const real unit = x[i] * inverse;
            mean += norm->gain[i] * d[i] * unit;
            d_gain[i] += d[i] * unit;
        }
        mean /= (real)norm->width;
        for (size_t i = 0; i < norm->width; i++)
            to[i] += inverse * (norm->gain[i] * d[i] - x[i] * inverse * mean);
    }
}

void transformer_silu_forward(const real *x, real *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + exp(-x[i]));
}

void transformer_silu_backward(const real *x, real *d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const real sigmoid = 1 / (1 + exp(-x[i]));
        d[i] *= sigmoid * (1 + x[i] * (1 - sigmoid));
    }
}

void transformer_softmax(real *x, size_t n)
{
    real most = x[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++) {
        x[i] = exp(x[i] - most);
        sum += x[i];
    }
    for (size_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* One head of one sequence: `rows` of what is laid out [batch, period, heads x width]. */
static struct matrix head_of(const struct transformer_attention *a, real *at, size_t period,
                             size_t rows, const size_t which[2])
{
    const size_t stride = a->heads * a->width;
    real *first = at + which[0] * period * stride + which[1] * a->width;
    return (struct matrix){.at = first, .rows = rows, .columns = a->width, .stride = stride};
}

static struct matrix weights_of(const struct transformer_attention *a, const size_t which[2])
{
    const size_t rows = a->to - a->from;
    return matrix_of(a->weights + (which[0] * a->heads + which[1]) * rows * a->to, rows, a->to);
}

static void attend(const struct transformer_attention *a, const size_t which[2])
{
    const size_t rows = a->to - a->from;
    const struct matrix weights = weights_of(a, which);
    const struct matrix query = head_of(a, a->query, rows, rows, which);
    const struct matrix key = head_of(a, a->key, a->places, a->to, which);
    const struct matrix value = head_of(a, a->value, a->places, a->to, which);
    const real scale = 1 / sqrt((real)a->width);
    matrix_multiply(scale, query, matrix_turned(key), 0, weights);
    for (size_t i = 0; i < rows; i++) {
        const size_t seen = a->from + i + 1;
        transformer_softmax(weights.at + i * a->to, seen);
        for (size_t j = seen; j < a->to; j++)
            weights.at[i * a->to + j] = 0;
    }
    matrix_multiply(1, weights, value, 0, head_of(a, a->context, rows, rows, which));
}

void transformer_attention_forward(const struct transformer_attention *attention)
{
    for (size_t b = 0; b < attention->batch; b++)
        for (size_t h = 0; h < attention->heads; h++)
            attend(attention, (const size_t[2]){b, h});
}

/* The softmax s of a row, backward: d_x = s (d_s - sum(d_s s)). Where s is 0 nothing comes back. */
static void soften_backward(struct matrix weights, real *d)
{
    for (size_t i = 0; i < weights.rows; i++) {
        const real *s = weights.at + i * weights.columns;
        real *row = d + i * weights.columns, sum = 0;
        for (size_t j = 0; j < weights.columns; j++)
            sum += row[j] * s[j];
        for (size_t j = 0; j < weights.columns; j++)
            row[j] = s[j] * (row[j] - sum);
    }
}

static void attend_backward(const struct transformer_attention *a,
                            const struct transformer_attention_gradient *g, const size_t which[2])
{
    const size_t rows = a->to;
    const struct matrix weights = weights_of(a, which);
    const struct matrix query = head_of(a, a->query, rows, rows, which);
    const struct matrix key = head_of(a, a->key, a->places, rows, which);
    const struct matrix value = head_of(a, a->value, a->places, rows, which);
    const struct matrix d_context = head_of(a, g->d_context, rows, rows, which);
    const struct matrix d_weights = matrix_of(g->scratch, rows, rows);
    const real scale = 1 / sqrt((real)a->width);
    matrix_multiply(1, matrix_turned(weights), d_context, 0,
                    head_of(a, g->d_value, rows, rows, which));
    matrix_multiply(1, d_context, matrix_turned(value), 0, d_weights);
    soften_backward(weights, d_weights.at);
    matrix_multiply(scale, d_weights, key, 0, head_of(a, g->d_query, rows, rows, which));
    matrix_multiply(scale, matrix_turned(d_weights), query, 0,
                    head_of(a, g->d_key, rows, rows, which));
}

void transformer_attention_backward(const struct transformer_attention *attention,
                                    const struct transformer_attention_gradient *gradient)
{
    for (size_t b = 0; b < attention->batch; b++)
        for (size_t h = 0; h < attention->heads; h++)
            attend_backward(attention, gradient, (const size_t[2]){b, h});
}
