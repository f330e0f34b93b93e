/* The parameters of a small GPT: which tensors there are, and what of each this rank holds.
 *
 * As in Megatron-LM (Shoeybi et al. 2019), a layer is cut so that two sums over the ranks suffice
 * for each pass through it:
 *
 *     x --norm--> [query key value] --attention--> [out] --sum--> + x --norm--> [up] [down]
 * --sum--> + cut by heads: their rows         cut by columns              rows  columns
 *
 * A weight W of shape [to, from] gives y = x W^T. Cut by rows (axis 0; Megatron says column
 * parallel, for it writes W^T) each rank computes some columns of y from all of x, and nothing need
 * be said. Cut by columns (axis 1) each has a summand of all of y.
 *
 * Embeddings, norms and the head are whole at every rank, and every rank computes the same
 * gradients of them. */
#ifndef GRADWEIR_EXAMPLES_TRANSFORMER_MODEL_H
#define GRADWEIR_EXAMPLES_TRANSFORMER_MODEL_H

#include "client/examples/transformer_matrix.h"

#include <stdint.h>

struct transformer_shape {
    size_t words;  /* the vocabulary */
    size_t places; /* the longest sequence */
    size_t width;  /* of the residual stream */
    size_t heads;  /* their width is width / heads; a multiple of the ranks */
    size_t inner;  /* of the multilayer perceptron; a multiple of the ranks */
    size_t layers;
};

/* A tensor, of which this rank holds `count` indexes of `axis` from `first` on, and everything of
 * the other axis: what gradweir calls a part. */
struct transformer_tensor {
    char name[32];
    uint32_t dimensions; /* 1 or 2 */
    uint64_t shape[2];   /* of the whole tensor; shape[1] is 1 where there is one dimension */
    double scale;        /* of its first values: standard deviation; 0: all ones */
    bool cut;            /* false: every rank holds all of it */
    uint32_t axis;
    uint64_t first, count;
    size_t elements;          /* of what is held */
    real *weights, *gradient; /* [elements], dense and row-major */
};

/* The tensors of a layer. */
enum transformer_part {
    TRANSFORMER_NORM_ATTENTION,
    TRANSFORMER_QUERY,
    TRANSFORMER_KEY,
    TRANSFORMER_VALUE,
    TRANSFORMER_OUT,
    TRANSFORMER_NORM_PERCEPTRON,
    TRANSFORMER_UP,
    TRANSFORMER_DOWN,
    TRANSFORMER_PARTS
};

struct transformer_model {
    struct transformer_shape shape;
    size_t rank, ranks;
    size_t heads, width, inner; /* of this rank: shape's by ranks */
    size_t tensors_count;
    struct transformer_tensor *tensors; /* in the order that all workers bind */
    struct transformer_tensor *words, *places, *norm, *head;
    size_t elements;          /* held here, of all tensors */
    real *weights, *gradient; /* of all tensors: the whole ones, then the cut ones */
};

/* The part of rank `rank` of `ranks`, with the first values of `seed`: those of an element depend
 * on its place in the whole tensor, so however the model is cut it is the same. NULL: no memory, or
 * ranks that do not divide the heads and inner. */
struct transformer_model *transformer_model_new(const struct transformer_shape *shape, size_t rank,
                                                size_t ranks, uint64_t seed);
void transformer_model_free(struct transformer_model *model);

struct transformer_tensor *transformer_tensor_of(const struct transformer_model *model,
                                                 size_t layer, enum transformer_part part);

/* Elements of the whole model, at all ranks together. */
size_t transformer_model_size(const struct transformer_model *model);

/* Where an element of what is held lies in the whole tensor. */
size_t transformer_place(const struct transformer_tensor *tensor, size_t i);

/* A random 64-bit number for a number: splitmix64's last step. */
uint64_t transformer_mix(uint64_t x);

#endif
