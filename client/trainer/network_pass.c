/* The network forward and backward over a batch. Hidden layers are matrix products, with bias and
 * tanh in one pass after them; outputs are narrow layers of vector_math. */
#include "client/trainer/blas.h"
#include "client/trainer/network.h"
#include "client/trainer/vector_math.h"

#include <assert.h>
#include <string.h>

/* One batch under way. */
struct pass {
    const struct network *network;
    const float *parameters;
    const float *observations;
    size_t batch;
    struct network_room *room;
};

static struct narrow_layer output_layer(const struct pass *pass, size_t stack)
{
    const struct network_layer *layer = &pass->network->stacks[stack][2];
    return (struct narrow_layer){
        .batch = pass->batch,
        .in = layer->in,
        .out = layer->out,
        .weight = pass->parameters + layer->weight,
        .bias = pass->parameters + layer->bias,
    };
}

static void forward_hidden(const struct pass *pass, const struct network_layer *layer,
                           const float *x, float *y)
{
    const struct blas_sizes sizes = {.m = pass->batch, .n = layer->out, .k = layer->in};
    blas_times_transposed(sizes, x, pass->parameters + layer->weight, y);
    vector_add_bias_tanh(pass->batch, layer->out, pass->parameters + layer->bias, y);
}

static void forward_trunk(const struct pass *pass, size_t stack)
{
    const struct network_layer *layers = pass->network->stacks[stack];
    float *const *hidden = pass->room->hidden[stack];
    forward_hidden(pass, &layers[0], pass->observations, hidden[0]);
    forward_hidden(pass, &layers[1], hidden[0], hidden[1]);
}

static void forward_output(const struct pass *pass, size_t stack)
{
    const struct narrow_layer layer = output_layer(pass, stack);
    vector_narrow_forward(&layer, pass->room->hidden[stack][1],
                          stack == 0 ? pass->room->head : pass->room->value);
}

void network_forward(const struct network *network, const float *parameters,
                     const float *observations, size_t batch, struct network_room *room)
{
    assert(batch <= room->batch_max);
    const struct pass pass = {network, parameters, observations, batch, room};
    forward_trunk(&pass, 0);
    if (!network->shape.shared)
        forward_trunk(&pass, 1);
    forward_output(&pass, 0);
    forward_output(&pass, 1);
}

void network_forward_head(const struct network *network, const float *parameters,
                          const float *observations, size_t batch, struct network_room *room)
{
    assert(batch <= room->batch_max);
    const struct pass pass = {network, parameters, observations, batch, room};
    forward_trunk(&pass, 0);
    forward_output(&pass, 0);
}

void network_forward_value(const struct network *network, const float *parameters,
                           const float *observations, size_t batch, struct network_room *room)
{
    assert(batch <= room->batch_max);
    const struct pass pass = {network, parameters, observations, batch, room};
    forward_trunk(&pass, 1);
    forward_output(&pass, 1);
}

/* Adds to delta of the second hidden layer what comes from the stack's output, and writes the
 * output's gradient. */
static void backward_output(const struct pass *pass, size_t stack, const float *d_output,
                            float *gradient)
{
    const struct narrow_layer layer = output_layer(pass, stack);
    const struct network_layer *at = &pass->network->stacks[stack][2];
    vector_narrow_gradient(&layer, pass->room->hidden[stack][1], d_output, gradient + at->weight,
                           gradient + at->bias);
    vector_narrow_backward(&layer, d_output, pass->room->delta[1]);
}

/* From delta of the second hidden layer's output down to the observations. */
static void backward_trunk(const struct pass *pass, size_t stack, float *gradient)
{
    const struct network_layer *first = &pass->network->stacks[stack][0],
                               *second = &pass->network->stacks[stack][1];
    float *const *delta = pass->room->delta, *const *hidden = pass->room->hidden[stack];
    const size_t batch = pass->batch;
    vector_tanh_backward(batch, second->out, hidden[1], delta[1], gradient + second->bias);
    blas_transposed_times((struct blas_sizes){second->out, second->in, batch}, delta[1], hidden[0],
                          gradient + second->weight);
    blas_times((struct blas_sizes){batch, second->in, second->out}, delta[1],
               pass->parameters + second->weight, delta[0]);
    vector_tanh_backward(batch, first->out, hidden[0], delta[0], gradient + first->bias);
    blas_transposed_times((struct blas_sizes){first->out, first->in, batch}, delta[0],
                          pass->observations, gradient + first->weight);
}

static void clear_delta(const struct pass *pass)
{
    memset(pass->room->delta[1], 0, pass->batch * pass->network->shape.hidden[1] * sizeof(float));
}

void network_backward(const struct network *network, const struct network_backward_input *input,
                      struct network_room *room, float *gradient)
{
    assert(input->batch <= room->batch_max);
    const struct pass pass = {network, input->parameters, input->observations, input->batch, room};
    clear_delta(&pass);
    backward_output(&pass, 0, input->d_head, gradient);
    if (!network->shape.shared) {
        backward_trunk(&pass, 0, gradient);
        clear_delta(&pass);
    }
    backward_output(&pass, 1, input->d_value, gradient);
    backward_trunk(&pass, network->shape.shared ? 0 : 1, gradient);
    if (network->shape.gaussian)
        memcpy(gradient + network->log_std, input->d_log_std,
               network->shape.action_dim * sizeof(float));
}
