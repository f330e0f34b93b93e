/* The actor-critic: two hidden layers with tanh, linear outputs, actor and critic apart or on one
 * trunk. The parameters are one flat array of floats with named ranges, in the order of
 * tests/vectors/README.md, family ppo. Weights are row-major [out, in]. A diagonal Gaussian has
 * log_std, one number per action dimension, independent of the state. */
#ifndef GRADWEIR_TRAINER_NETWORK_H
#define GRADWEIR_TRAINER_NETWORK_H

#include "client/trainer/chance.h"

#include <stdbool.h>
#include <stddef.h>

enum { NETWORK_TENSORS_MAX = 13, NETWORK_LAYERS_MAX = 6 };

struct network_shape {
    size_t observation_dim;
    size_t hidden[2];
    size_t action_dim;
    bool shared;   /* one trunk for policy and value */
    bool gaussian; /* else categorical */
};

struct network_tensor {
    char name[24];
    size_t offset;
    size_t rows;
    size_t cols; /* 1 for biases and log_std */
};

struct network_layer {
    size_t in;
    size_t out;
    size_t weight; /* offsets in the parameters */
    size_t bias;
};

/* A stack of three layers ends in an output. With a shared trunk the two stacks have their first
 * two layers in common, and `stacks[1][0]` equals `stacks[0][0]`. */
struct network {
    struct network_shape shape;
    struct network_tensor tensors[NETWORK_TENSORS_MAX];
    size_t n_tensors;
    struct network_layer stacks[2][3]; /* [policy, value] */
    size_t log_std;                    /* offset; only if gaussian */
    size_t n_parameters;
};

/* Works out the layout. */
void network_init(struct network *network, const struct network_shape *shape);

/* First parameters as CleanRL: orthogonal weights, gain sqrt 2 in the hidden layers, 0.01 for the
 * policy, 1 for the value; biases 0; log_std as given. */
void network_first_parameters(const struct network *network, struct chance *chance, float log_std,
                              float *parameters);

/* Room for one batch: what forward leaves for backward. */
struct network_room {
    size_t batch_max;
    float *hidden[2][2]; /* [policy, value][layer], [batch, hidden]; shared: the second stack's are
                            the first's */
    float *delta[2];     /* [batch, hidden of that layer] */
    float *head;         /* [batch, action_dim]: logits or means */
    float *value;        /* [batch] */
};

/* False when there is no memory. deinit accepts what a failed init left. */
bool network_room_init(struct network_room *room, const struct network *network, size_t batch_max);
void network_room_deinit(struct network_room *room);

/* Writes room->head and room->value for `batch` observations [batch, observation_dim]. */
void network_forward(const struct network *network, const float *parameters,
                     const float *observations, size_t batch, struct network_room *room);

/* The same with only the value, or only the policy's head. */
void network_forward_value(const struct network *network, const float *parameters,
                           const float *observations, size_t batch, struct network_room *room);
void network_forward_head(const struct network *network, const float *parameters,
                          const float *observations, size_t batch, struct network_room *room);

/* The gradient of the loss with respect to the parameters, from its derivatives with respect to
 * head, value and (if gaussian) log_std, right after network_forward on the same batch. Every
 * element of gradient is written. */
struct network_backward_input {
    const float *parameters;
    const float *observations;
    size_t batch;
    const float *d_head;
    const float *d_value;
    const float *d_log_std;
};
void network_backward(const struct network *network, const struct network_backward_input *input,
                      struct network_room *room, float *gradient);

#endif
