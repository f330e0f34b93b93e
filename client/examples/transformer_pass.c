/* See transformer_pass.h. */
#include "client/examples/transformer_pass.h"

#include "client/examples/transformer_layers.h"

#include <stdlib.h>
#include <string.h>

/* What backward needs of a layer. Rows are batch x (to - from), but of key and value. */
struct layer {
    real *x;                /* [rows, shape.width], what comes in */
    real *normed, *inverse; /* attention's */
    real *query, *key, *value, *weights, *context;
    real *middle; /* between attention and perceptron */
    real *normed_middle, *inverse_middle;
    real *up, *active; /* [rows, inner] */
};

struct transformer_pass {
    struct transformer_model *model;
    struct transformer_team team;
    size_t batch, rows, from, to;
    struct layer *layers;
    real *x, *normed, *inverse, *scores; /* after the last layer */
    real *branch;                        /* [rows, shape.width], what is summed over ranks */
    real *d_x;                           /* [rows, shape.width] */
    real *d_wide, *d_query, *d_key, *d_value, *d_context, *scratch;
    real *memory;
};

static real *take(real **at, size_t n)
{
    real *taken = *at;
    *at += n;
    return taken;
}

/* Hands out the memory that begins at `at`, and says where it ends. */
static real *lay_out(struct transformer_pass *pass, real *at)
{
    const struct transformer_model *model = pass->model;
    const struct transformer_shape *shape = &model->shape;
    const size_t rows = pass->batch * shape->places, wide = rows * shape->width;
    const size_t narrow = rows * model->width, inner = rows * model->inner;
    for (size_t i = 0; i < shape->layers; i++) {
        struct layer *layer = &pass->layers[i];
        real **const of_width[] = {&layer->x, &layer->normed, &layer->middle,
                                   &layer->normed_middle};
        real **const of_rank[] = {&layer->query, &layer->key, &layer->value, &layer->context};
        for (int k = 0; k < 4; k++) {
            *of_width[k] = take(&at, wide);
            *of_rank[k] = take(&at, narrow);
        }
        layer->inverse = take(&at, rows);
        layer->inverse_middle = take(&at, rows);
        layer->weights = take(&at, rows * model->heads * shape->places);
        layer->up = take(&at, inner);
        layer->active = take(&at, inner);
    }
    real **const of_width[] = {&pass->x, &pass->normed, &pass->branch, &pass->d_x};
    real **const of_rank[] = {&pass->d_query, &pass->d_key, &pass->d_value, &pass->d_context};
    for (int k = 0; k < 4; k++) {
        *of_width[k] = take(&at, wide);
        *of_rank[k] = take(&at, narrow);
    }
    pass->inverse = take(&at, rows);
    pass->scores = take(&at, rows * shape->words);
    pass->d_wide = take(&at, inner);
    pass->scratch = take(&at, shape->places * shape->places);
    return at;
}

static size_t memory_of(const struct transformer_model *model, size_t batch)
{
    const struct transformer_shape *shape = &model->shape;
    const size_t rows = batch * shape->places;
    const size_t of_layer =
        4 * (shape->width + model->width) + 2 + model->heads * shape->places + 2 * model->inner;
    const size_t besides = 4 * (shape->width + model->width) + 1 + shape->words + model->inner;
    return rows * (shape->layers * of_layer + besides) + shape->places * shape->places;
}

struct transformer_pass *transformer_pass_new(struct transformer_model *model,
                                              const struct transformer_team *team, size_t batch)
{
    struct transformer_pass *pass = calloc(1, sizeof *pass);
    if (pass == NULL)
        return NULL;
    pass->model = model;
    pass->team = *team;
    pass->batch = batch;
    pass->layers = calloc(model->shape.layers, sizeof *pass->layers);
    pass->memory = calloc(memory_of(model, batch), sizeof(real));
    if (pass->layers == NULL || pass->memory == NULL) {
        transformer_pass_free(pass);
        return NULL;
    }
    lay_out(pass, pass->memory);
    return pass;
}

void transformer_pass_free(struct transformer_pass *pass)
{
    if (pass == NULL)
        return;
    free(pass->memory);
    free(pass->layers);
    free(pass);
}

real *transformer_scores(struct transformer_pass *pass)
{
    return pass->scores;
}

static struct matrix weights_of(const struct transformer_tensor *tensor)
{
    return tensor->axis == 0 ? matrix_of(tensor->weights, tensor->count, tensor->shape[1])
                             : matrix_of(tensor->weights, tensor->shape[0], tensor->count);
}

/* y = x W^T, with x [rows, W's columns]. */
static void apply(const struct transformer_pass *pass, const struct transformer_tensor *tensor,
                  real *x, real *y)
{
    const struct matrix w = weights_of(tensor);
    matrix_multiply(1, matrix_of(x, pass->rows, w.columns), matrix_turned(w), 0,
                    matrix_of(y, pass->rows, w.rows));
}

/* Of y = x W^T: d_W += d_y^T x, and d_x = d_y W + keep d_x. */
struct apply_gradient {
    real *x, *d_y, *d_x;
    real keep;
};

static void apply_backward(const struct transformer_pass *pass,
                           const struct transformer_tensor *tensor, struct apply_gradient way)
{
    const struct matrix w = weights_of(tensor);
    const struct matrix d = matrix_of(way.d_y, pass->rows, w.rows);
    matrix_multiply(1, matrix_turned(d), matrix_of(way.x, pass->rows, w.columns), 1,
                    matrix_of(tensor->gradient, w.rows, w.columns));
    matrix_multiply(1, d, w, way.keep, matrix_of(way.d_x, pass->rows, w.columns));
}

static bool sum_over_ranks(const struct transformer_pass *pass, real *x)
{
    return pass->team.sum(pass->team.context, x, pass->rows * pass->model->shape.width);
}

static void add(real *to, const real *a, const real *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = a[i] + b[i];
}

static struct transformer_norm norm_of(const struct transformer_pass *pass,
                                       const struct transformer_tensor *gain, const real *x,
                                       real *y, real *inverse)
{
    return (struct transformer_norm){.rows = pass->rows,
                                     .width = pass->model->shape.width,
                                     .x = x,
                                     .gain = gain->weights,
                                     .y = y,
                                     .inverse = inverse};
}

static struct transformer_attention attention_of(const struct transformer_pass *pass,
                                                 const struct layer *layer)
{
    const struct transformer_model *model = pass->model;
    return (struct transformer_attention){.batch = pass->batch,
                                          .heads = model->heads,
                                          .width = model->width / model->heads,
                                          .from = pass->from,
                                          .to = pass->to,
                                          .places = model->shape.places,
                                          .query = layer->query,
                                          .key = layer->key,
                                          .value = layer->value,
                                          .weights = layer->weights,
                                          .context = layer->context};
}

/* Rows of this forward to their places among those of all places. */
static void keep(const struct transformer_pass *pass, const real *rows, real *kept)
{
    const size_t width = pass->model->width, n = pass->to - pass->from;
    for (size_t b = 0; b < pass->batch; b++)
        memcpy(kept + (b * pass->model->shape.places + pass->from) * width, rows + b * n * width,
               n * width * sizeof *rows);
}

static bool layer_forward(struct transformer_pass *pass, size_t i, real *out)
{
    struct layer *layer = &pass->layers[i];
    const struct transformer_tensor *t = transformer_tensor_of(pass->model, i, 0);
    const size_t wide = pass->rows * pass->model->shape.width;
    struct transformer_norm norm =
        norm_of(pass, &t[TRANSFORMER_NORM_ATTENTION], layer->x, layer->normed, layer->inverse);
    transformer_norm_forward(&norm);
    apply(pass, &t[TRANSFORMER_QUERY], layer->normed, layer->query);
    apply(pass, &t[TRANSFORMER_KEY], layer->normed, pass->d_key);
    keep(pass, pass->d_key, layer->key);
    apply(pass, &t[TRANSFORMER_VALUE], layer->normed, pass->d_value);
    keep(pass, pass->d_value, layer->value);
    const struct transformer_attention attention = attention_of(pass, layer);
    transformer_attention_forward(&attention);
    apply(pass, &t[TRANSFORMER_OUT], layer->context, pass->branch);
    if (!sum_over_ranks(pass, pass->branch))
        return false;
    add(layer->middle, layer->x, pass->branch, wide);

    norm = norm_of(pass, &t[TRANSFORMER_NORM_PERCEPTRON], layer->middle, layer->normed_middle,
                   layer->inverse_middle);
    transformer_norm_forward(&norm);
    apply(pass, &t[TRANSFORMER_UP], layer->normed_middle, layer->up);
    transformer_silu_forward(layer->up, layer->active, pass->rows * pass->model->inner);
    apply(pass, &t[TRANSFORMER_DOWN], layer->active, pass->branch);
    if (!sum_over_ranks(pass, pass->branch))
        return false;
    add(out, layer->middle, pass->branch, wide);
    return true;
}

/* The word and the place of a row. */
static void embed(struct transformer_pass *pass, const int *words, size_t stride, real *x)
{
    const struct transformer_model *model = pass->model;
    const size_t width = model->shape.width, n = pass->to - pass->from;
    for (size_t row = 0; row < pass->rows; row++) {
        const size_t place = pass->from + row % n, word = (size_t)words[row / n * stride + place];
        add(x + row * width, model->words->weights + word * width,
            model->places->weights + place * width, width);
    }
}

static void embed_backward(struct transformer_pass *pass, const int *words, size_t stride)
{
    const struct transformer_model *model = pass->model;
    const size_t width = model->shape.width;
    for (size_t row = 0; row < pass->rows; row++) {
        const size_t place = row % pass->to, word = (size_t)words[row / pass->to * stride + place];
        const real *d = pass->d_x + row * width;
        real *d_word = model->words->gradient + word * width;
        real *d_place = model->places->gradient + place * width;
        add(d_word, d_word, d, width);
        add(d_place, d_place, d, width);
    }
}

static real *out_of(const struct transformer_pass *pass, size_t layer)
{
    return layer + 1 < pass->model->shape.layers ? pass->layers[layer + 1].x : pass->x;
}

bool transformer_forward(struct transformer_pass *pass, const int *words, size_t stride,
                         size_t from, size_t to)
{
    const struct transformer_model *model = pass->model;
    pass->from = from;
    pass->to = to;
    pass->rows = pass->batch * (to - from);
    embed(pass, words, stride, pass->layers[0].x);
    for (size_t i = 0; i < model->shape.layers; i++)
        if (!layer_forward(pass, i, out_of(pass, i)))
            return false;
    const struct transformer_norm norm =
        norm_of(pass, model->norm, pass->x, pass->normed, pass->inverse);
    transformer_norm_forward(&norm);
    apply(pass, model->head, pass->normed, pass->scores);
    return true;
}

/* d_x: what is left to go back through, and what goes through the residual stream as it is. */
static bool perceptron_backward(struct transformer_pass *pass, size_t i)
{
    struct layer *layer = &pass->layers[i];
    const struct transformer_tensor *t = transformer_tensor_of(pass->model, i, 0);
    const struct transformer_tensor *gain = &t[TRANSFORMER_NORM_PERCEPTRON];
    apply_backward(pass, &t[TRANSFORMER_DOWN],
                   (struct apply_gradient){layer->active, pass->d_x, pass->d_wide, 0});
    transformer_silu_backward(layer->up, pass->d_wide, pass->rows * pass->model->inner);
    apply_backward(pass, &t[TRANSFORMER_UP],
                   (struct apply_gradient){layer->normed_middle, pass->d_wide, pass->branch, 0});
    if (!sum_over_ranks(pass, pass->branch))
        return false;
    const struct transformer_norm norm =
        norm_of(pass, gain, layer->middle, layer->normed_middle, layer->inverse_middle);
    transformer_norm_backward(&norm, pass->branch, pass->d_x, gain->gradient);
    return true;
}

static bool attention_backward(struct transformer_pass *pass, size_t i)
{
    struct layer *layer = &pass->layers[i];
    const struct transformer_tensor *t = transformer_tensor_of(pass->model, i, 0);
    const struct transformer_tensor *gain = &t[TRANSFORMER_NORM_ATTENTION];
    apply_backward(pass, &t[TRANSFORMER_OUT],
                   (struct apply_gradient){layer->context, pass->d_x, pass->d_context, 0});
    const struct transformer_attention attention = attention_of(pass, layer);
    transformer_attention_backward(
        &attention, &(struct transformer_attention_gradient){.d_context = pass->d_context,
                                                             .d_query = pass->d_query,
                                                             .d_key = pass->d_key,
                                                             .d_value = pass->d_value,
                                                             .scratch = pass->scratch});
    apply_backward(pass, &t[TRANSFORMER_QUERY],
                   (struct apply_gradient){layer->normed, pass->d_query, pass->branch, 0});
    apply_backward(pass, &t[TRANSFORMER_KEY],
                   (struct apply_gradient){layer->normed, pass->d_key, pass->branch, 1});
    apply_backward(pass, &t[TRANSFORMER_VALUE],
                   (struct apply_gradient){layer->normed, pass->d_value, pass->branch, 1});
    if (!sum_over_ranks(pass, pass->branch))
        return false;
    const struct transformer_norm norm =
        norm_of(pass, gain, layer->x, layer->normed, layer->inverse);
    transformer_norm_backward(&norm, pass->branch, pass->d_x, gain->gradient);
    return true;
}

bool transformer_backward(struct transformer_pass *pass, const int *words, size_t stride)
{
    struct transformer_model *model = pass->model;
    memset(model->gradient, 0, model->elements * sizeof(real));
    memset(pass->d_x, 0, pass->rows * model->shape.width * sizeof(real));
    apply_backward(pass, model->head,
                   (struct apply_gradient){pass->normed, pass->scores, pass->branch, 0});
    const struct transformer_norm norm =
        norm_of(pass, model->norm, pass->x, pass->normed, pass->inverse);
    transformer_norm_backward(&norm, pass->branch, pass->d_x, model->norm->gradient);
    for (size_t i = model->shape.layers; i-- > 0;)
        if (!perceptron_backward(pass, i) || !attention_backward(pass, i))
            return false;
    embed_backward(pass, words, stride);
    return true;
}
