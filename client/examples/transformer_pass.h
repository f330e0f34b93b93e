/* The way through the model and back, over the slices of one rank; the ranks' sums are a function
 * that the caller gives. The same pass samples (a place at a time, keys and values of the places
 * before are kept) and trains (all places at once, then back). */
#ifndef GRADWEIR_EXAMPLES_TRANSFORMER_PASS_H
#define GRADWEIR_EXAMPLES_TRANSFORMER_PASS_H

#include "client/examples/transformer_model.h"

/* The other ranks. All call sum equally often with equal n; x becomes the sum of theirs, the same
 * bits at all. False: it cannot be had, and neither can what called it. */
struct transformer_team {
    bool (*sum)(void *context, real *x, size_t n);
    void *context;
};

struct transformer_pass;

/* For `batch` sequences at most of the model's places. Model and team are borrowed. NULL: no
 * memory. */
struct transformer_pass *transformer_pass_new(struct transformer_model *model,
                                              const struct transformer_team *team, size_t batch);
void transformer_pass_free(struct transformer_pass *pass);

/* Through the model with the words at places `from` to `to` - 1 of each sequence (words[b * stride
 * + place]); those at 0 to from - 1 have been through it before, with the same weights. */
bool transformer_forward(struct transformer_pass *pass, const int *words, size_t stride,
                         size_t from, size_t to);

/* What forward made: [batch, to - from, words], the scores of each word to come next. The caller
 * may write their derivatives there, for backward. */
real *transformer_scores(struct transformer_pass *pass);

/* After a forward from 0, with the derivatives of a loss in scores: the model's gradient, anew.
 * words and stride as forward's. */
bool transformer_backward(struct transformer_pass *pass, const int *words, size_t stride);

#endif
