/* The engine that is one GPU: parameters, and acting for environments on the host. The functions of
 * an element and the passes over the network are the CPU's; matrix products are cuBLAS's, and sum
 * in another order. */
#include "gpu/engine_cuda.h"

#include <stdio.h>
#include <string.h>

static void tell(const struct engine_state *state, struct engine_info *info)
{
    *info = (struct engine_info){.groups = state->groups_n};
    snprintf(info->text, sizeof info->text, "%s", state->name);
}

static const char *reason_of(const struct engine_state *state)
{
    return state->reason.text;
}

static gradweir_status tell_arrays(struct engine_state *state, struct engine_arrays *arrays)
{
    const gradweir_status status = cuda_wait(state, state->groups[0].math.stream);
    if (status == GRADWEIR_OK)
        *arrays = (struct engine_arrays){.parameters = state->parameters,
                                         .gradient = state->minibatch.gradient,
                                         .gpu = (uint32_t)state->gpu};
    return status;
}

/* Parameters that somebody has written here are there already, and nobody reads while he writes.
 * The pinned copy is free again when the one before has been taken. */
static gradweir_status load(struct engine_state *state, const float *parameters)
{
    if (parameters == NULL)
        return state->broken;
    const size_t bytes = state->options.network->n_parameters * sizeof(float);
    cudaStream_t stream = state->groups[0].math.stream;
    cuda_note(state, cudaEventSynchronize(state->loaded), "the parameters before");
    memcpy(state->parameters_host, parameters, bytes);
    cuda_copy(state, stream, state->parameters_host, state->parameters, bytes);
    cuda_note(state, cudaEventRecord(state->loaded, stream), "new parameters");
    return state->broken;
}

/* What an act wants decides its sequence. */
enum { ACT_VALUES_ONLY = 1, ACT_FINALS = 2 };

static size_t kind_of(const struct engine_act *act)
{
    return (act->actions == NULL ? ACT_VALUES_ONLY : 0u) | (act->finals != NULL ? ACT_FINALS : 0u);
}

static void draw(struct engine_state *state, struct cuda_group *g)
{
    const struct gpu_act_work work = {.policy = cuda_policy(state),
                                      .n = g->n,
                                      .seed = state->options.seed,
                                      .first = cuda_first_number(state) + g->first,
                                      .head = g->room.head,
                                      .turn = g->turn,
                                      .actions = g->device.actions,
                                      .log_probabilities = g->device.log_probabilities};
    cuda_note(state, gpu_act(g->math.stream, &work), "drawing actions");
}

/* The values of where episodes were cut, and then the rest, whose room they share. */
static void enqueue_act(struct engine_state *state, void *context)
{
    struct cuda_group *g = context;
    const size_t n = g->n, seen = n * state->options.network->shape.observation_dim;
    const size_t kind = kind_of(&g->asked);
    cudaStream_t stream = g->math.stream;
    const struct network_pass finals = cuda_pass(&g->math, g->device.finals, n, &g->room);
    const struct network_pass pass = cuda_pass(&g->math, g->device.observations, n, &g->room);
    if (kind & ACT_FINALS) {
        cuda_copy(state, stream, g->host.finals, g->device.finals, seen * sizeof(float));
        network_pass_value(&finals);
        cuda_copy(state, stream, g->room.value, g->host.final_values, n * sizeof(float));
    }
    cuda_copy(state, stream, g->host.observations, g->device.observations, seen * sizeof(float));
    if (kind & ACT_VALUES_ONLY) {
        network_pass_value(&pass);
    } else {
        network_pass_forward(&pass);
        draw(state, g);
        cuda_copy(state, stream, g->device.actions, g->host.actions,
                  n * state->width * sizeof(float));
        cuda_copy(state, stream, g->device.log_probabilities, g->host.log_probabilities,
                  n * sizeof(float));
    }
    cuda_copy(state, stream, g->room.value, g->host.values, n * sizeof(float));
}

static gradweir_status act(struct engine_state *state, const struct engine_act *asked)
{
    struct cuda_group *g = &state->groups[asked->group];
    const size_t seen = g->n * state->options.network->shape.observation_dim;
    const struct cuda_sequence sequence = {g->math.stream, &g->graphs[kind_of(asked)], enqueue_act,
                                           g};
    g->asked = *asked;
    memcpy(g->host.observations, asked->observations, seen * sizeof(float));
    if (asked->finals != NULL)
        memcpy(g->host.finals, asked->finals, seen * sizeof(float));
    cuda_note(state, cudaStreamWaitEvent(g->math.stream, state->loaded, 0), "parameters");
    cuda_run(state, &sequence);
    return state->broken;
}

static gradweir_status wait_for(struct engine_state *state, size_t group)
{
    const struct cuda_group *g = &state->groups[group];
    const struct engine_act *asked = &g->asked;
    const gradweir_status status = cuda_wait(state, g->math.stream);
    if (status != GRADWEIR_OK)
        return status;
    if (asked->actions != NULL) {
        memcpy(asked->actions, g->host.actions, g->n * state->width * sizeof(float));
        memcpy(asked->log_probabilities, g->host.log_probabilities, g->n * sizeof(float));
    }
    memcpy(asked->values, g->host.values, g->n * sizeof(float));
    if (asked->finals != NULL)
        memcpy(asked->final_values, g->host.final_values, g->n * sizeof(float));
    return GRADWEIR_OK;
}

const struct engine engine_cuda = {.name = "cuda",
                                   .probe = engine_cuda_probe,
                                   .open = engine_cuda_open,
                                   .close = engine_cuda_close,
                                   .info = tell,
                                   .arrays = tell_arrays,
                                   .load = load,
                                   .act = act,
                                   .wait = wait_for,
                                   .collect = engine_cuda_collect,
                                   .estimate = engine_cuda_estimate,
                                   .gradient = engine_cuda_gradient,
                                   .reason = reason_of};
