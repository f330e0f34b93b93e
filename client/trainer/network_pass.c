/* The network forward and backward over a batch. Hidden layers are matrix products, with bias and
 * tanh in one pass after them; outputs are narrow layers. Who carries the operations out is
 * network_math.h's. */
#include "client/trainer/network_math.h"

#include <assert.h>

static struct narrow_layer output_layer(const struct network_pass *pass, size_t stack)
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

static void forward_hidden(const struct network_pass *pass, const struct network_layer *layer,
                           const float *x, float *y)
{
    const struct blas_sizes sizes = {.m = pass->batch, .n = layer->out, .k = layer->in};
    pass->math->times_transposed(pass->context, sizes, x, pass->parameters + layer->weight, y);
    pass->math->add_bias_tanh(pass->context, pass->batch, layer->out,
                              pass->parameters + layer->bias, y);
}

static void forward_trunk(const struct network_pass *pass, size_t stack)
{
    const struct network_layer *layers = pass->network->stacks[stack];
    float *const *hidden = pass->room->hidden[stack];
    forward_hidden(pass, &layers[0], pass->observations, hidden[0]);
    forward_hidden(pass, &layers[1], hidden[0], hidden[1]);
}

static void forward_output(const struct network_pass *pass, size_t stack)
{
    const struct narrow_layer layer = output_layer(pass, stack);
    pass->math->narrow_forward(pass->context, &layer, pass->room->hidden[stack][1],
                               stack == 0 ? pass->room->head : pass->room->value);
}

void network_pass_forward(const struct network_pass *pass)
{
    assert(pass->batch <= pass->room->batch_max);
    forward_trunk(pass, 0);
    if (!pass->network->shape.shared)
        forward_trunk(pass, 1);
    forward_output(pass, 0);
    forward_output(pass, 1);
}

void network_pass_head(const struct network_pass *pass)
{
    assert(pass->batch <= pass->room->batch_max);
    forward_trunk(pass, 0);
    forward_output(pass, 0);
}

void network_pass_value(const struct network_pass *pass)
{
    assert(pass->batch <= pass->room->batch_max);
    forward_trunk(pass, 1);
    forward_output(pass, 1);
}

/* Adds to delta of the second hidden layer what comes from the stack's output, and writes the
 * output's gradient. */
static void backward_output(const struct network_pass *pass, size_t stack, const float *d_output,
                            float *gradient)
{
    const struct narrow_layer layer = output_layer(pass, stack);
    const struct network_layer *at = &pass->network->stacks[stack][2];
    pass->math->narrow_gradient(pass->context, &layer, pass->room->hidden[stack][1], d_output,
                                gradient + at->weight, gradient + at->bias);
    pass->math->narrow_backward(pass->context, &layer, d_output, pass->room->delta[1]);
}

/* From delta of the second hidden layer's output down to the observations. */
static void backward_trunk(const struct network_pass *pass, size_t stack, float *gradient)
{
    const struct network_math *math = pass->math;
    const struct network_layer *first = &pass->network->stacks[stack][0],
                               *second = &pass->network->stacks[stack][1];
    float *const *delta = pass->room->delta, *const *hidden = pass->room->hidden[stack];
    const size_t batch = pass->batch;
    math->tanh_backward(pass->context, batch, second->out, hidden[1], delta[1],
                        gradient + second->bias);
    math->transposed_times(pass->context, (struct blas_sizes){second->out, second->in, batch},
                           delta[1], hidden[0], gradient + second->weight);
    math->times(pass->context, (struct blas_sizes){batch, second->in, second->out}, delta[1],
                pass->parameters + second->weight, delta[0]);
    math->tanh_backward(pass->context, batch, first->out, hidden[0], delta[0],
                        gradient + first->bias);
    math->transposed_times(pass->context, (struct blas_sizes){first->out, first->in, batch},
                           delta[0], pass->observations, gradient + first->weight);
}

static void clear_delta(const struct network_pass *pass)
{
    pass->math->clear(pass->context, pass->room->delta[1],
                      pass->batch * pass->network->shape.hidden[1]);
}

void network_pass_backward(const struct network_pass *pass, const struct network_slopes *slopes,
                           float *gradient)
{
    const struct network *network = pass->network;
    assert(pass->batch <= pass->room->batch_max);
    clear_delta(pass);
    backward_output(pass, 0, slopes->d_head, gradient);
    if (!network->shape.shared) {
        backward_trunk(pass, 0, gradient);
        clear_delta(pass);
    }
    backward_output(pass, 1, slopes->d_value, gradient);
    backward_trunk(pass, network->shape.shared ? 0 : 1, gradient);
    if (network->shape.gaussian)
        pass->math->copy(pass->context, slopes->d_log_std, gradient + network->log_std,
                         network->shape.action_dim);
}

static struct network_pass on_cpu(const struct network *network, const float *parameters,
                                  const float *observations, size_t batch,
                                  struct network_room *room)
{
    return (struct network_pass){&network_math_cpu, NULL,  network, parameters,
                                 observations,      batch, room};
}

void network_forward(const struct network *network, const float *parameters,
                     const float *observations, size_t batch, struct network_room *room)
{
    const struct network_pass pass = on_cpu(network, parameters, observations, batch, room);
    network_pass_forward(&pass);
}

void network_forward_head(const struct network *network, const float *parameters,
                          const float *observations, size_t batch, struct network_room *room)
{
    const struct network_pass pass = on_cpu(network, parameters, observations, batch, room);
    network_pass_head(&pass);
}

void network_forward_value(const struct network *network, const float *parameters,
                           const float *observations, size_t batch, struct network_room *room)
{
    const struct network_pass pass = on_cpu(network, parameters, observations, batch, room);
    network_pass_value(&pass);
}

void network_backward(const struct network *network, const struct network_backward_input *input,
                      struct network_room *room, float *gradient)
{
    const struct network_pass pass =
        on_cpu(network, input->parameters, input->observations, input->batch, room);
    const struct network_slopes slopes = {input->d_head, input->d_value, input->d_log_std};
    network_pass_backward(&pass, &slopes, gradient);
}
