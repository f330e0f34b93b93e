/* The GPU's engine looked for, opened and closed. Everything that it will need is allocated here.
 */
#include "gpu/engine_cuda.h"

#include "gpu/cuda_absent.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gradweir_status no_gpu(cudaError_t error, struct engine_reason *reason)
{
    cuda_absent(error, reason->text, sizeof reason->text);
    return GRADWEIR_ERR_UNSUPPORTED;
}

static bool has_environment(const struct environment *environment, enum element_environment *which)
{
    static const char *const names[] = {[ELEMENT_CARTPOLE] = "CartPole-v1",
                                        [ELEMENT_PENDULUM] = "Pendulum-v1",
                                        [ELEMENT_MOUNTAIN_CAR] = "MountainCarContinuous-v0",
                                        [ELEMENT_ACROBOT] = "Acrobot-v1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(environment->name, names[i]) == 0) {
            *which = (enum element_environment)i;
            return true;
        }
    return false;
}

/* Which GPU, and its name. Nothing is taken on it. */
static gradweir_status find_gpu(const struct engine_options *options, struct engine_state *state,
                                struct engine_reason *reason)
{
    int count = 0;
    struct cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        return no_gpu(error == cudaSuccess ? cudaErrorNoDevice : error, reason);
    if (options->gpu >= count) {
        snprintf(reason->text, sizeof reason->text,
                 "cuda: there is no GPU %d; this machine has %d, from 0 on", options->gpu, count);
        return GRADWEIR_ERR_INVALID;
    }
    state->gpu =
        options->gpu != ENGINE_GPU_ANY ? options->gpu : (int)(options->worker % (uint64_t)count);
    const cudaError_t asked = cudaGetDeviceProperties(&properties, state->gpu);
    if (asked != cudaSuccess)
        return no_gpu(asked, reason);
    snprintf(state->name, sizeof state->name, "cuda:%d %.48s sm_%d%d", state->gpu, properties.name,
             properties.major, properties.minor);
    return GRADWEIR_OK;
}

gradweir_status engine_cuda_probe(const struct engine_options *options,
                                  struct engine_reason *reason)
{
    struct engine_state found = {.gpu = 0};
    gradweir_status status = find_gpu(options, &found, reason);
    if (status == GRADWEIR_OK)
        status = cublas_link_open(&found.cublas, reason);
    cublas_link_close(&found.cublas);
    return status;
}

/* Memory of the GPU, zeroed, until the engine is closed. */
static void *take(struct engine_state *state, size_t bytes)
{
    void *memory = NULL;
    if (state->broken != GRADWEIR_OK)
        return NULL;
    assert(state->device_n < CUDA_BLOCKS_MAX);
    bytes = bytes == 0 ? sizeof(double) : bytes;
    if (!cuda_note(state, cudaMalloc(&memory, bytes), "memory"))
        return NULL;
    state->device_blocks[state->device_n++] = memory;
    state->device_bytes += bytes;
    cuda_note(state, cudaMemset(memory, 0, bytes), "clearing memory");
    return memory;
}

static float *floats(struct engine_state *state, size_t n)
{
    return take(state, n * sizeof(float));
}

/* Pinned memory of the host, likewise: copies from and to it need nobody to wait. */
static void *pin(struct engine_state *state, size_t bytes)
{
    void *memory = NULL;
    if (state->broken != GRADWEIR_OK)
        return NULL;
    assert(state->host_n < CUDA_BLOCKS_MAX);
    if (!cuda_note(state, cudaMallocHost(&memory, bytes), "pinned memory of the host"))
        return NULL;
    state->host_blocks[state->host_n++] = memory;
    memset(memory, 0, bytes);
    return memory;
}

static struct network_room take_room(struct engine_state *state, size_t batch)
{
    const struct network_shape *shape = &state->options.network->shape;
    struct network_room room = {.batch_max = batch};
    for (size_t l = 0; l < 2; l++) {
        room.hidden[0][l] = floats(state, batch * shape->hidden[l]);
        room.hidden[1][l] =
            shape->shared ? room.hidden[0][l] : floats(state, batch * shape->hidden[l]);
        room.delta[l] = floats(state, batch * shape->hidden[l]);
    }
    room.head = floats(state, batch * shape->action_dim);
    room.value = floats(state, batch);
    return room;
}

static void take_group(struct engine_state *state, size_t index)
{
    struct cuda_group *g = &state->groups[index];
    const size_t all = state->options.environments;
    const size_t seen = state->options.network->shape.observation_dim * sizeof(float);
    g->first = index * all / state->groups_n;
    g->n = (index + 1) * all / state->groups_n - g->first;
    g->math.state = state;
    if (!cuda_note(state, cudaStreamCreateWithFlags(&g->math.stream, cudaStreamNonBlocking),
                   "a stream"))
        return;
    const gradweir_status status =
        cublas_stream_open(&g->math.blas, &state->cublas, g->math.stream, &state->reason);
    if (status != GRADWEIR_OK) {
        state->broken = status;
        return;
    }
    g->room = take_room(state, g->n);
    g->turn = take(state, sizeof *g->turn);
    g->device = (struct cuda_act_arrays){.observations = take(state, g->n * seen),
                                         .finals = take(state, g->n * seen),
                                         .actions = floats(state, g->n * state->width),
                                         .log_probabilities = floats(state, g->n)};
    g->host = (struct cuda_act_arrays){.observations = pin(state, g->n * seen),
                                       .finals = pin(state, g->n * seen),
                                       .actions = pin(state, g->n * state->width * sizeof(float)),
                                       .log_probabilities = pin(state, g->n * sizeof(float)),
                                       .values = pin(state, g->n * sizeof(float)),
                                       .final_values = pin(state, g->n * sizeof(float))};
}

static void take_rollout(struct engine_state *state)
{
    const size_t n = state->samples, row = state->options.environments;
    const size_t seen = state->options.network->shape.observation_dim;
    state->rollout = (struct cuda_rollout){.observations = floats(state, (n + row) * seen),
                                           .actions = floats(state, n * state->width),
                                           .log_behaviour = floats(state, n),
                                           .rewards = floats(state, n),
                                           .values = floats(state, n + row),
                                           .next_values = floats(state, n),
                                           .terminated = take(state, n),
                                           .truncated = take(state, n),
                                           .advantages = floats(state, n),
                                           .targets = floats(state, n),
                                           .log_proximal = floats(state, n),
                                           .log_ratios = floats(state, n)};
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* What sums over the rows of a minibatch need: of hidden layers, of outputs, and of the loss. */
static void take_scratch(struct engine_state *state)
{
    const struct network_shape *shape = &state->options.network->shape;
    const size_t n = state->options.minibatch_max;
    const struct loss_settings loss = {.gaussian = shape->gaussian,
                                       .action_dim = shape->action_dim};
    const size_t wide = gpu_tanh_scratch(n, larger(shape->hidden[0], shape->hidden[1]));
    state->groups[0].math.scratch =
        take(state, larger(wide, gpu_columns_scratch(n, shape->action_dim)));
    state->minibatch.scratch =
        take(state, larger(gpu_loss_scratch(&loss, n), GPU_STATISTICS_SCRATCH));
}

static void take_minibatch(struct engine_state *state)
{
    struct cuda_minibatch *m = &state->minibatch;
    const struct network *network = state->options.network;
    const size_t n = state->options.minibatch_max, dim = network->shape.action_dim;
    m->room = take_room(state, n);
    m->order = take(state, n * sizeof *m->order);
    m->order_host = pin(state, n * sizeof *m->order);
    m->observations = floats(state, n * network->shape.observation_dim);
    m->actions = floats(state, n * state->width);
    for (size_t c = 0; c < GPU_COLUMNS; c++)
        m->columns[c] = floats(state, n);
    m->arrays = (struct loss_arrays){.d_head = floats(state, n * dim),
                                     .d_value = floats(state, n),
                                     .d_log_std = floats(state, dim),
                                     .log_new = floats(state, n),
                                     .entropy = floats(state, n),
                                     .ratio = floats(state, n),
                                     .advantage = floats(state, n),
                                     .weight = floats(state, n)};
    m->statistics = take(state, sizeof *m->statistics);
    m->centre = take(state, sizeof *m->centre);
    m->sums = take(state, sizeof *m->sums);
    m->sums_host = pin(state, sizeof *m->sums);
    m->gradient = floats(state, network->n_parameters);
    m->gradient_host = pin(state, network->n_parameters * sizeof(float));
}

static void take_environments(struct engine_state *state)
{
    struct cuda_environments *e = &state->environments;
    const size_t n = state->samples, all = state->options.environments;
    enum element_environment which = ELEMENT_CARTPOLE;
    (void)has_environment(state->options.environment, &which);
    const struct element_shape shape = element_shape_of(which);
    e->all =
        (struct gpu_environments){.environment = which,
                                  .n = all,
                                  .seed = state->options.seed,
                                  .first = cuda_first_number(state),
                                  .states = take(state, all * shape.state_dim * sizeof(double)),
                                  .scores = take(state, all * sizeof(double)),
                                  .steps = take(state, all * sizeof(uint32_t)),
                                  .episodes = take(state, all * sizeof(uint64_t))};
    e->final_observations = floats(state, all * shape.observation_dim);
    e->scores = take(state, n * sizeof(double));
    e->scores_host = pin(state, n * sizeof(double));
    e->rewards_host = pin(state, n * sizeof(float));
    e->terminated_host = pin(state, n);
    e->truncated_host = pin(state, n);
}

/* One group is enough where the environments are on the GPU, or where there is only one. */
static void take_all(struct engine_state *state)
{
    const struct engine_options *o = &state->options;
    const size_t suits = o->own_environments || o->environments < 2 ? 1 : 2;
    state->groups_n = o->groups == 0 || o->own_environments ? suits : o->groups;
    state->parameters = floats(state, o->network->n_parameters);
    state->parameters_host = pin(state, o->network->n_parameters * sizeof(float));
    cuda_note(state, cudaEventCreateWithFlags(&state->loaded, cudaEventDisableTiming), "an event");
    for (size_t g = 0; g < state->groups_n && state->broken == GRADWEIR_OK; g++)
        take_group(state, g);
    take_rollout(state);
    take_minibatch(state);
    take_scratch(state);
    if (o->own_environments)
        take_environments(state);
    cuda_note(state, cudaDeviceSynchronize(), "clearing memory");
}

/* The first allocation is where a kernel of ours, and the driver, are tried in earnest. */
static gradweir_status start(struct engine_state *state)
{
    struct cudaFuncAttributes attributes;
    struct cudaDeviceProp properties;
    if (!cuda_note(state, cudaSetDevice(state->gpu), "opening the GPU") ||
        !cuda_note(state, cudaGetDeviceProperties(&properties, state->gpu), "opening the GPU"))
        return state->broken;
    if (cudaFuncGetAttributes(&attributes, gpu_engine_kernel()) != cudaSuccess) {
        snprintf(state->reason.text, sizeof state->reason.text,
                 "%s: this program has no code for it; build with -DCMAKE_CUDA_ARCHITECTURES=%d%d",
                 state->name, properties.major, properties.minor);
        return GRADWEIR_ERR_UNSUPPORTED;
    }
    take_all(state);
    return state->broken;
}

static void say_full(const struct engine_state *state, struct engine_reason *reason)
{
    size_t unused = 0, all = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&unused, &all);
    snprintf(
        reason->text, sizeof reason->text,
        "%s: its memory is full: %zu MiB of %zu MiB are free, and %zu environments x %zu steps "
        "need more than the %zu MiB taken so far; fewer of them, or more minibatches",
        state->name, unused >> 20, all >> 20, state->options.environments, state->options.steps,
        state->device_bytes >> 20);
}

gradweir_status engine_cuda_open(const struct engine_options *options, struct engine_state **out,
                                 struct engine_reason *reason)
{
    enum element_environment which = ELEMENT_CARTPOLE;
    if (options->own_environments && !has_environment(options->environment, &which)) {
        snprintf(reason->text, sizeof reason->text,
                 "cuda: has no environment %.60s; step it on the cpu", options->environment->name);
        return GRADWEIR_ERR_INVALID;
    }
    struct engine_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        snprintf(reason->text, sizeof reason->text, "cuda: no memory on the host");
        return GRADWEIR_ERR_NO_MEMORY;
    }
    state->options = *options;
    state->samples = options->steps * options->environments;
    state->width = options->network->shape.gaussian ? options->network->shape.action_dim : 1;
    gradweir_status status = find_gpu(options, state, reason);
    if (status == GRADWEIR_OK)
        status = cublas_link_open(&state->cublas, reason);
    if (status == GRADWEIR_OK) {
        status = start(state);
        *reason = state->reason;
    }
    if (status == GRADWEIR_ERR_NO_MEMORY)
        say_full(state, reason);
    if (status != GRADWEIR_OK) {
        engine_cuda_close(state);
        return status;
    }
    *out = state;
    return GRADWEIR_OK;
}

static void drop(struct cuda_graph *graph)
{
    if (graph->exec != NULL)
        (void)cudaGraphExecDestroy(graph->exec);
}

/* What is under way still uses what is given back. A GPU that has not answered for a minute is not
 * waited for again. */
static void settle(struct engine_state *state)
{
    for (size_t g = 0; g < ENGINE_GROUPS_MAX && state->broken != GRADWEIR_ERR_TIMEOUT; g++)
        if (state->groups[g].math.stream != NULL)
            (void)cudaStreamSynchronize(state->groups[g].math.stream);
}

void engine_cuda_close(struct engine_state *state)
{
    if (state == NULL)
        return;
    settle(state);
    drop(&state->environments.graph);
    for (size_t i = 0; i < CUDA_GRADIENTS; i++)
        drop(&state->gradients[i].graph);
    for (size_t i = 0; i < ENGINE_GROUPS_MAX; i++) {
        struct cuda_group *g = &state->groups[i];
        for (size_t k = 0; k < CUDA_ACTS; k++)
            drop(&g->graphs[k]);
        cublas_stream_close(&g->math.blas);
        if (g->math.stream != NULL)
            (void)cudaStreamDestroy(g->math.stream);
    }
    for (size_t i = 0; i < state->device_n; i++)
        (void)cudaFree(state->device_blocks[i]);
    for (size_t i = 0; i < state->host_n; i++)
        (void)cudaFreeHost(state->host_blocks[i]);
    if (state->loaded != NULL)
        (void)cudaEventDestroy(state->loaded);
    cublas_link_close(&state->cublas);
    free(state);
}
