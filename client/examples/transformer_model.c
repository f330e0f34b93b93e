/* See transformer_model.h. */
#include "client/examples/transformer_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE_LAYERS = 2, AFTER_LAYERS = 2 };

uint64_t transformer_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* A tensor that is cut along `axis`, which the ranks divide. */
static struct transformer_tensor cut_along(const struct transformer_model *model, uint64_t rows,
                                           uint64_t columns, uint32_t axis)
{
    struct transformer_tensor tensor = {.dimensions = 2, .shape = {rows, columns}, .axis = axis};
    tensor.scale = 1 / sqrt((double)columns);
    tensor.cut = true;
    tensor.count = tensor.shape[axis] / model->ranks;
    tensor.first = tensor.count * model->rank;
    tensor.elements = (size_t)(rows * columns / model->ranks);
    return tensor;
}

/* A tensor that every rank has. */
static struct transformer_tensor whole(uint64_t rows, uint64_t columns, double scale)
{
    struct transformer_tensor tensor = {.dimensions = columns > 1 ? 2 : 1,
                                        .shape = {rows, columns}};
    tensor.scale = scale;
    tensor.count = rows;
    tensor.elements = (size_t)(rows * columns);
    return tensor;
}

struct transformer_tensor *transformer_tensor_of(const struct transformer_model *model,
                                                 size_t layer, enum transformer_part part)
{
    return &model->tensors[BEFORE_LAYERS + layer * TRANSFORMER_PARTS + part];
}

static void describe_layer(struct transformer_model *model, size_t layer)
{
    static const char *const names[TRANSFORMER_PARTS] = {
        "norm_attention", "query", "key", "value", "out", "norm_perceptron", "up", "down"};
    const size_t width = model->shape.width, inner = model->shape.inner;
    struct transformer_tensor *parts = transformer_tensor_of(model, layer, 0);
    parts[TRANSFORMER_NORM_ATTENTION] = whole(width, 1, 0);
    parts[TRANSFORMER_QUERY] = cut_along(model, width, width, 0);
    parts[TRANSFORMER_KEY] = cut_along(model, width, width, 0);
    parts[TRANSFORMER_VALUE] = cut_along(model, width, width, 0);
    parts[TRANSFORMER_OUT] = cut_along(model, width, width, 1);
    parts[TRANSFORMER_NORM_PERCEPTRON] = whole(width, 1, 0);
    parts[TRANSFORMER_UP] = cut_along(model, inner, width, 0);
    parts[TRANSFORMER_DOWN] = cut_along(model, width, inner, 1);
    /* What goes into the residual stream is smaller the more goes into it (GPT-2). */
    parts[TRANSFORMER_OUT].scale /= sqrt(2 * (double)model->shape.layers);
    parts[TRANSFORMER_DOWN].scale /= sqrt(2 * (double)model->shape.layers);
    for (int part = 0; part < TRANSFORMER_PARTS; part++)
        snprintf(parts[part].name, sizeof parts[part].name, "layer%zu.%s", layer, names[part]);
}

static void describe(struct transformer_model *model)
{
    const struct transformer_shape *shape = &model->shape;
    model->words = &model->tensors[0];
    model->places = &model->tensors[1];
    model->norm = &model->tensors[model->tensors_count - 2];
    model->head = &model->tensors[model->tensors_count - 1];
    *model->words = whole(shape->words, shape->width, 1);
    *model->places = whole(shape->places, shape->width, 1);
    for (size_t layer = 0; layer < shape->layers; layer++)
        describe_layer(model, layer);
    *model->norm = whole(shape->width, 1, 0);
    /* Small, so that the first policy is nearly uniform. */
    *model->head = whole(shape->words, shape->width, 0.1 / sqrt((double)shape->width));
    strcpy(model->words->name, "words");
    strcpy(model->places->name, "places");
    strcpy(model->norm->name, "norm");
    strcpy(model->head->name, "head");
}

size_t transformer_place(const struct transformer_tensor *tensor, size_t i)
{
    const size_t columns = (size_t)tensor->shape[1], first = (size_t)tensor->first;
    if (tensor->axis == 0)
        return first * columns + i;
    return i / tensor->count * columns + first + i % tensor->count;
}

/* Uniform, of the wanted standard deviation. */
static void fill(struct transformer_tensor *tensor, uint64_t seed)
{
    for (size_t i = 0; i < tensor->elements; i++) {
        const uint64_t bits = transformer_mix(seed + transformer_place(tensor, i)) >> 11;
        const double uniform = (double)bits / (double)(UINT64_C(1) << 52) - 1; /* -1 to 1 */
        tensor->weights[i] =
            tensor->scale > 0 ? (real)(sqrt(3) * tensor->scale * uniform) : (real)1;
    }
}

/* Whole tensors first, one behind the other: so gradweir pulls to their place, without a copy. */
static bool take_memory(struct transformer_model *model, uint64_t seed)
{
    for (size_t i = 0; i < model->tensors_count; i++)
        model->elements += model->tensors[i].elements;
    model->weights = calloc(model->elements, sizeof(real));
    model->gradient = calloc(model->elements, sizeof(real));
    if (model->weights == NULL || model->gradient == NULL)
        return false;
    real *weights = model->weights, *gradient = model->gradient;
    for (int cut = 0; cut < 2; cut++)
        for (size_t i = 0; i < model->tensors_count; i++) {
            struct transformer_tensor *tensor = &model->tensors[i];
            if (tensor->cut != (cut == 1))
                continue;
            tensor->weights = weights;
            tensor->gradient = gradient;
            weights += tensor->elements;
            gradient += tensor->elements;
            fill(tensor, transformer_mix(seed << 16 ^ i));
        }
    return true;
}

struct transformer_model *transformer_model_new(const struct transformer_shape *shape, size_t rank,
                                                size_t ranks, uint64_t seed)
{
    if (shape->width % shape->heads != 0 || shape->heads % ranks != 0 || shape->inner % ranks != 0)
        return NULL;
    struct transformer_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return NULL;
    model->shape = *shape;
    model->rank = rank;
    model->ranks = ranks;
    model->heads = shape->heads / ranks;
    model->width = shape->width / ranks;
    model->inner = shape->inner / ranks;
    model->tensors_count = BEFORE_LAYERS + shape->layers * TRANSFORMER_PARTS + AFTER_LAYERS;
    model->tensors = calloc(model->tensors_count, sizeof *model->tensors);
    if (model->tensors != NULL) {
        describe(model);
        if (take_memory(model, seed))
            return model;
    }
    transformer_model_free(model);
    return NULL;
}

void transformer_model_free(struct transformer_model *model)
{
    if (model == NULL)
        return;
    free(model->weights);
    free(model->gradient);
    free(model->tensors);
    free(model);
}

size_t transformer_model_size(const struct transformer_model *model)
{
    size_t size = 0;
    for (size_t i = 0; i < model->tensors_count; i++)
        size += (size_t)(model->tensors[i].shape[0] * model->tensors[i].shape[1]);
    return size;
}
