/* How the GPU's engine gets things done: failures, graphs, waiting, and the operations of a pass
 * over the network. */
#include "gpu/engine_cuda.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

enum { DEADLINE_S = 60 };

bool cuda_note(struct engine_state *state, int error, const char *what)
{
    if (error == 0 || state->broken != GRADWEIR_OK)
        return state->broken == GRADWEIR_OK;
    state->broken = error == cudaErrorMemoryAllocation ? GRADWEIR_ERR_NO_MEMORY : GRADWEIR_ERR_LOST;
    snprintf(state->reason.text, sizeof state->reason.text, "%s: %s: %s", state->name, what,
             cudaGetErrorString((cudaError_t)error));
    return false;
}

static bool capture(struct engine_state *state, const struct cuda_sequence *s)
{
    cudaGraph_t graph = NULL;
    if (!cuda_note(state, cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal),
                   "beginning a graph"))
        return false;
    s->enqueue(state, s->context);
    cuda_note(state, cudaStreamEndCapture(s->stream, &graph), "ending a graph");
    if (state->broken == GRADWEIR_OK)
        cuda_note(state, cudaGraphInstantiate(&s->graph->exec, graph, 0), "making a graph");
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    return state->broken == GRADWEIR_OK;
}

void cuda_run(struct engine_state *state, const struct cuda_sequence *s)
{
    if (state->broken != GRADWEIR_OK)
        return;
    if (!s->graph->warm) {
        s->graph->warm = true;
        s->enqueue(state, s->context);
        return;
    }
    if (s->graph->exec != NULL || capture(state, s))
        cuda_note(state, cudaGraphLaunch(s->graph->exec, s->stream), "starting a graph");
}

/* The thread has nothing else to do, and a GPU answers within microseconds: so it asks again and
 * again, and lets others run between. */
gradweir_status cuda_wait(struct engine_state *state, cudaStream_t stream)
{
    const time_t until = time(NULL) + DEADLINE_S;
    cudaError_t error = cudaErrorNotReady;
    while (state->broken == GRADWEIR_OK && error == cudaErrorNotReady && time(NULL) <= until) {
        error = cudaStreamQuery(stream);
        if (error == cudaErrorNotReady)
            (void)sched_yield();
    }
    if (state->broken == GRADWEIR_OK && error == cudaErrorNotReady) {
        state->broken = GRADWEIR_ERR_TIMEOUT;
        snprintf(state->reason.text, sizeof state->reason.text,
                 "%s: has not finished within %d seconds", state->name, DEADLINE_S);
    }
    cuda_note(state, error, "a computation");
    return state->broken;
}

void cuda_copy(struct engine_state *state, cudaStream_t stream, const void *from, void *to,
               size_t bytes)
{
    cuda_note(state, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copying");
}

struct network_pass cuda_pass(struct cuda_math *math, const float *observations, size_t batch,
                              struct network_room *room)
{
    return (struct network_pass){.math = &network_math_cuda,
                                 .context = math,
                                 .network = math->state->options.network,
                                 .parameters = math->state->parameters,
                                 .observations = observations,
                                 .batch = batch,
                                 .room = room};
}

struct policy cuda_policy(const struct engine_state *state)
{
    const struct network *network = state->options.network;
    return (struct policy){.gaussian = network->shape.gaussian,
                           .action_dim = network->shape.action_dim,
                           .log_std = state->parameters + network->log_std};
}

uint64_t cuda_first_number(const struct engine_state *state)
{
    return state->options.worker << 32;
}

/* The operations of a pass. */

static void multiply(struct cuda_math *math, const struct cublas_product *product)
{
    struct engine_state *state = math->state;
    const cublasStatus_t status = cublas_stream_multiply(&math->blas, product);
    if (status == CUBLAS_STATUS_SUCCESS || state->broken != GRADWEIR_OK)
        return;
    state->broken = GRADWEIR_ERR_LOST;
    snprintf(state->reason.text, sizeof state->reason.text, "%s: a matrix product: %s", state->name,
             state->cublas.status_text(status));
}

static void times_transposed(void *context, struct blas_sizes sizes, const float *a, const float *b,
                             float *c)
{
    const struct cublas_product product = {CUBLAS_SECOND_TRANSPOSED, sizes, a, b, c, 0};
    multiply(context, &product);
}

static void times(void *context, struct blas_sizes sizes, const float *a, const float *b, float *c)
{
    const struct cublas_product product = {CUBLAS_PLAIN, sizes, a, b, c, 0};
    multiply(context, &product);
}

static void transposed_times(void *context, struct blas_sizes sizes, const float *a, const float *b,
                             float *c)
{
    const struct cublas_product product = {CUBLAS_FIRST_TRANSPOSED, sizes, a, b, c, 0};
    multiply(context, &product);
}

static void add_bias_tanh(void *context, size_t rows, size_t cols, const float *bias, float *y)
{
    struct cuda_math *math = context;
    cuda_note(math->state, gpu_bias_tanh(math->stream, rows, cols, bias, y), "bias and tanh");
}

static void tanh_backward(void *context, size_t rows, size_t cols, const float *h, float *d,
                          float *sums)
{
    struct cuda_math *math = context;
    const struct gpu_tanh_work work = {
        .rows = rows, .cols = cols, .h = h, .d = d, .sums = sums, .scratch = math->scratch};
    cuda_note(math->state, gpu_tanh_backward(math->stream, &work), "the slope of tanh");
}

static void narrow_forward(void *context, const struct narrow_layer *layer, const float *x,
                           float *y)
{
    struct cuda_math *math = context;
    const struct blas_sizes sizes = {.m = layer->batch, .n = layer->out, .k = layer->in};
    times_transposed(context, sizes, x, layer->weight, y);
    cuda_note(math->state, gpu_add_bias(math->stream, layer->batch, layer->out, layer->bias, y),
              "a bias");
}

static void narrow_gradient(void *context, const struct narrow_layer *layer, const float *x,
                            const float *d_y, float *d_weight, float *d_bias)
{
    struct cuda_math *math = context;
    const struct blas_sizes sizes = {.m = layer->out, .n = layer->in, .k = layer->batch};
    const struct gpu_columns_work work = {.rows = layer->batch,
                                          .cols = layer->out,
                                          .d = d_y,
                                          .sums = d_bias,
                                          .scratch = math->scratch};
    transposed_times(context, sizes, d_y, x, d_weight);
    cuda_note(math->state, gpu_column_sums(math->stream, &work), "the gradient of a bias");
}

static void narrow_backward(void *context, const struct narrow_layer *layer, const float *d_y,
                            float *d_x)
{
    const struct blas_sizes sizes = {.m = layer->batch, .n = layer->in, .k = layer->out};
    const struct cublas_product product = {CUBLAS_PLAIN, sizes, d_y, layer->weight, d_x, 1};
    multiply(context, &product);
}

static void clear(void *context, float *to, size_t n)
{
    struct cuda_math *math = context;
    cuda_note(math->state, cudaMemsetAsync(to, 0, n * sizeof *to, math->stream), "clearing");
}

static void copy(void *context, const float *from, float *to, size_t n)
{
    struct cuda_math *math = context;
    cuda_copy(math->state, math->stream, from, to, n * sizeof *to);
}

const struct network_math network_math_cuda = {.times_transposed = times_transposed,
                                               .times = times,
                                               .transposed_times = transposed_times,
                                               .add_bias_tanh = add_bias_tanh,
                                               .tanh_backward = tanh_backward,
                                               .narrow_forward = narrow_forward,
                                               .narrow_gradient = narrow_gradient,
                                               .narrow_backward = narrow_backward,
                                               .clear = clear,
                                               .copy = copy};
