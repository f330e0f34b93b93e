/* The operations that a pass over the network is made of, for whoever keeps the floats:
 * network_pass.c says in which order they come, forward and backward, once for all. On the CPU they
 * are OpenBLAS and vector_math and are done on return; on a GPU they are queued, in order, and the
 * arrays are in its memory. Matrices are row-major. None of them may write to what it reads. */
#ifndef GRADWEIR_TRAINER_NETWORK_MATH_H
#define GRADWEIR_TRAINER_NETWORK_MATH_H

#include "client/trainer/blas.h"
#include "client/trainer/network.h"
#include "client/trainer/vector_math.h"

/* Each gets `context`, where its backend remembers what failed: the pass goes on, and whoever
 * started it asks afterwards. */
struct network_math {
    /* C = A B^T, C = A B, C = A^T B, as in blas.h. */
    void (*times_transposed)(void *context, struct blas_sizes sizes, const float *a, const float *b,
                             float *c);
    void (*times)(void *context, struct blas_sizes sizes, const float *a, const float *b, float *c);
    void (*transposed_times)(void *context, struct blas_sizes sizes, const float *a, const float *b,
                             float *c);

    /* As in vector_math.h: hidden layers, and the narrow ones at the end. tanh and sums of columns
     * are within 1e-6 of the CPU's, relative to the largest element. */
    void (*add_bias_tanh)(void *context, size_t rows, size_t cols, const float *bias, float *y);
    void (*tanh_backward)(void *context, size_t rows, size_t cols, const float *h, float *d,
                          float *sums);
    void (*narrow_forward)(void *context, const struct narrow_layer *layer, const float *x,
                           float *y);
    void (*narrow_gradient)(void *context, const struct narrow_layer *layer, const float *x,
                            const float *d_y, float *d_weight, float *d_bias);
    void (*narrow_backward)(void *context, const struct narrow_layer *layer, const float *d_y,
                            float *d_x);

    void (*clear)(void *context, float *to, size_t n);
    void (*copy)(void *context, const float *from, float *to, size_t n);
};

/* The CPU's; its context is NULL. */
extern const struct network_math network_math_cpu;

/* One batch under way: borrowed for the call, and where operations are queued until they are done.
 */
struct network_pass {
    const struct network_math *math;
    void *context;
    const struct network *network;
    const float *parameters;
    const float *observations; /* [batch, observation_dim] */
    size_t batch;
    struct network_room *room;
};

/* network_forward and its kin, and network_backward, by the pass's own operations. */
void network_pass_forward(const struct network_pass *pass);
void network_pass_value(const struct network_pass *pass);
void network_pass_head(const struct network_pass *pass);
struct network_slopes {
    const float *d_head;
    const float *d_value;
    const float *d_log_std; /* only if gaussian */
};
void network_pass_backward(const struct network_pass *pass, const struct network_slopes *slopes,
                           float *gradient);

#endif
