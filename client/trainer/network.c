/* The layout of the parameters, their first values, and the room for a batch. */
#include "client/trainer/network.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t add_tensor(struct network *network, const char *name, size_t rows, size_t cols)
{
    assert(network->n_tensors < NETWORK_TENSORS_MAX);
    struct network_tensor *tensor = &network->tensors[network->n_tensors++];
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    tensor->offset = network->n_parameters;
    tensor->rows = rows;
    tensor->cols = cols;
    network->n_parameters += rows * cols;
    return tensor->offset;
}

static struct network_layer add_layer(struct network *network, const char *name, size_t in,
                                      size_t out)
{
    char full[24];
    struct network_layer layer = {.in = in, .out = out};
    snprintf(full, sizeof(full), "%s.W", name);
    layer.weight = add_tensor(network, full, out, in);
    snprintf(full, sizeof(full), "%s.b", name);
    layer.bias = add_tensor(network, full, out, 1);
    return layer;
}

static void add_log_std(struct network *network)
{
    if (network->shape.gaussian)
        network->log_std = add_tensor(network, "log_std", network->shape.action_dim, 1);
}

static void lay_out_shared(struct network *network)
{
    const struct network_shape *shape = &network->shape;
    struct network_layer *policy = network->stacks[0], *value = network->stacks[1];
    policy[0] = value[0] = add_layer(network, "trunk.l1", shape->observation_dim, shape->hidden[0]);
    policy[1] = value[1] = add_layer(network, "trunk.l2", shape->hidden[0], shape->hidden[1]);
    policy[2] = add_layer(network, "policy", shape->hidden[1], shape->action_dim);
    add_log_std(network);
    value[2] = add_layer(network, "value", shape->hidden[1], 1);
}

static void lay_out_separate(struct network *network)
{
    const struct network_shape *shape = &network->shape;
    struct network_layer *policy = network->stacks[0], *value = network->stacks[1];
    policy[0] = add_layer(network, "actor.l1", shape->observation_dim, shape->hidden[0]);
    policy[1] = add_layer(network, "actor.l2", shape->hidden[0], shape->hidden[1]);
    policy[2] = add_layer(network, "actor.l3", shape->hidden[1], shape->action_dim);
    add_log_std(network);
    value[0] = add_layer(network, "critic.l1", shape->observation_dim, shape->hidden[0]);
    value[1] = add_layer(network, "critic.l2", shape->hidden[0], shape->hidden[1]);
    value[2] = add_layer(network, "critic.l3", shape->hidden[1], 1);
}

void network_init(struct network *network, const struct network_shape *shape)
{
    *network = (struct network){.shape = *shape};
    if (shape->shared)
        lay_out_shared(network);
    else
        lay_out_separate(network);
}

static double dot(const float *a, const float *b, size_t n, size_t stride)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i * stride] * (double)b[i * stride];
    return sum;
}

/* Takes out of vector v what it shares with the vectors before it (twice, for rounding) and makes
 * its length 1. A matrix with fewer rows than columns gets orthonormal rows, else orthonormal
 * columns: `stride` and `step` are the distances within and between vectors. */
static void orthonormalise(float *matrix, size_t v, size_t n, size_t stride, size_t step)
{
    float *vector = matrix + v * step;
    for (int round = 0; round < 2; round++)
        for (size_t u = 0; u < v; u++) {
            const float *other = matrix + u * step;
            const double share = dot(vector, other, n, stride);
            for (size_t i = 0; i < n; i++)
                vector[i * stride] -= (float)(share * (double)other[i * stride]);
        }
    const double length = sqrt(dot(vector, vector, n, stride));
    for (size_t i = 0; i < n; i++)
        vector[i * stride] = (float)((double)vector[i * stride] / length);
}

static void fill_orthogonal(float *matrix, size_t rows, size_t cols, double gain,
                            struct chance *chance)
{
    for (size_t i = 0; i < rows * cols; i++)
        matrix[i] = (float)chance_normal(chance);
    const size_t vectors = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
    const size_t stride = rows < cols ? 1 : cols, step = rows < cols ? cols : 1;
    for (size_t v = 0; v < vectors; v++)
        orthonormalise(matrix, v, n, stride, step);
    for (size_t i = 0; i < rows * cols; i++)
        matrix[i] = (float)((double)matrix[i] * gain);
}

void network_first_parameters(const struct network *network, struct chance *chance, float log_std,
                              float *parameters)
{
    static const double output_gains[2] = {0.01, 1.0};
    memset(parameters, 0, network->n_parameters * sizeof(float));
    for (size_t s = 0; s < 2; s++)
        for (size_t l = network->shape.shared && s == 1 ? 2 : 0; l < 3; l++) {
            const struct network_layer *layer = &network->stacks[s][l];
            fill_orthogonal(parameters + layer->weight, layer->out, layer->in,
                            l < 2 ? sqrt(2) : output_gains[s], chance);
        }
    if (network->shape.gaussian)
        for (size_t i = 0; i < network->shape.action_dim; i++)
            parameters[network->log_std + i] = log_std;
}

static float *floats(size_t n)
{
    return aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
}

bool network_room_init(struct network_room *room, const struct network *network, size_t batch_max)
{
    const struct network_shape *shape = &network->shape;
    *room = (struct network_room){.batch_max = batch_max};
    for (size_t l = 0; l < 2; l++) {
        room->hidden[0][l] = floats(batch_max * shape->hidden[l]);
        room->hidden[1][l] =
            shape->shared ? room->hidden[0][l] : floats(batch_max * shape->hidden[l]);
        room->delta[l] = floats(batch_max * shape->hidden[l]);
    }
    room->head = floats(batch_max * shape->action_dim);
    room->value = floats(batch_max);
    bool whole = room->head != NULL && room->value != NULL;
    for (size_t l = 0; l < 2; l++)
        whole = whole && room->hidden[0][l] != NULL && room->hidden[1][l] != NULL &&
                room->delta[l] != NULL;
    return whole;
}

void network_room_deinit(struct network_room *room)
{
    free(room->value);
    free(room->head);
    for (size_t l = 0; l < 2; l++) {
        free(room->delta[l]);
        if (room->hidden[1][l] != room->hidden[0][l])
            free(room->hidden[1][l]);
        free(room->hidden[0][l]);
    }
    *room = (struct network_room){.batch_max = 0};
}
