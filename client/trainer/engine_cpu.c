/* The engine that is this CPU, and the definition of what an engine does. It acts at once, in one
 * group; the caller's arrays are its memory. */
#include "client/trainer/advantage.h"
#include "client/trainer/blas.h"
#include "client/trainer/engine.h"
#include "client/trainer/policy.h"
#include "client/trainer/rollout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct engine_state {
    struct engine_options options;
    size_t samples;
    struct network_room room; /* for the larger of a group and a minibatch */
    struct chance chance;     /* of the policy */
    const float *parameters;
    const struct rollout *rollout; /* of the last estimate */

    float *advantages;   /* [samples] */
    float *targets;      /* [samples] */
    float *log_proximal; /* [samples] under the parameters at the rollout's end; only if decoupled
                            or V-trace */
    float *log_ratios;   /* [samples] */

    float *observations; /* the minibatch, gathered */
    float *actions;
    float *columns; /* [5, minibatch_max]: log_behaviour, log_proximal, advantages, targets, old
                       values */
    struct loss_result result;
};

static float *floats(size_t n, bool *whole)
{
    float *p = calloc(n, sizeof(float));
    *whole = *whole && p != NULL;
    return p;
}

static bool allocate_batch(struct engine_state *state)
{
    const struct network_shape *shape = &state->options.network->shape;
    const size_t n = state->options.minibatch_max, dim = shape->action_dim;
    bool whole = true;
    state->observations = floats(n * shape->observation_dim, &whole);
    state->actions = floats(n * dim, &whole);
    state->columns = floats(n * 5, &whole);
    state->result.arrays = (struct loss_arrays){
        .d_head = floats(n * dim, &whole),
        .d_value = floats(n, &whole),
        .d_log_std = floats(dim, &whole),
        .log_new = floats(n, &whole),
        .entropy = floats(n, &whole),
        .ratio = floats(n, &whole),
        .advantage = floats(n, &whole),
        .weight = floats(n, &whole),
    };
    return whole;
}

static bool allocate(struct engine_state *state)
{
    const struct engine_options *o = &state->options;
    bool whole = allocate_batch(state);
    state->advantages = floats(state->samples, &whole);
    state->targets = floats(state->samples, &whole);
    state->log_proximal = floats(state->samples, &whole);
    state->log_ratios = floats(state->samples, &whole);
    const size_t batch = o->environments > o->minibatch_max ? o->environments : o->minibatch_max;
    return whole && network_room_init(&state->room, o->network, batch);
}

static gradweir_status probe(const struct engine_options *options, struct engine_reason *reason)
{
    if (options->gpu != ENGINE_GPU_ANY) {
        snprintf(reason->text, sizeof(reason->text), "cpu: has no GPU of number %d", options->gpu);
        return GRADWEIR_ERR_INVALID;
    }
    return GRADWEIR_OK;
}

static void close_state(struct engine_state *state)
{
    if (state == NULL)
        return;
    const struct loss_arrays *r = &state->result.arrays;
    void *all[] = {state->advantages, state->targets, state->log_proximal,
                   state->log_ratios, state->columns, state->observations,
                   state->actions,    r->d_head,      r->d_value,
                   r->d_log_std,      r->log_new,     r->entropy,
                   r->ratio,          r->advantage,   r->weight};
    network_room_deinit(&state->room);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
    free(state);
}

static gradweir_status open_state(const struct engine_options *options, struct engine_state **out,
                                  struct engine_reason *reason)
{
    const gradweir_status status = probe(options, reason);
    if (status != GRADWEIR_OK)
        return status;
    blas_init();
    struct engine_state *state = calloc(1, sizeof(*state));
    if (state != NULL) {
        state->options = *options;
        state->samples = options->steps * options->environments;
        if (state->options.groups == 0)
            state->options.groups = 1;
        chance_init_for(&state->chance, options->seed, options->worker, CHANCE_POLICY);
    }
    if (state == NULL || !allocate(state)) {
        close_state(state);
        snprintf(reason->text, sizeof(reason->text),
                 "cpu: no memory for %zu environments x %zu steps; fewer of them need less",
                 options->environments, options->steps);
        return GRADWEIR_ERR_NO_MEMORY;
    }
    *out = state;
    return GRADWEIR_OK;
}

static void tell(const struct engine_state *state, struct engine_info *info)
{
    *info = (struct engine_info){.groups = state->options.groups};
    snprintf(info->text, sizeof(info->text), "cpu");
}

static gradweir_status tell_arrays(struct engine_state *state, struct engine_arrays *arrays)
{
    (void)state;
    *arrays = (struct engine_arrays){.parameters = NULL};
    return GRADWEIR_OK;
}

static gradweir_status load(struct engine_state *state, const float *parameters)
{
    state->parameters = parameters;
    return GRADWEIR_OK;
}

static struct policy policy_of(const struct engine_state *state)
{
    const struct network *network = state->options.network;
    return (struct policy){network->shape.gaussian, network->shape.action_dim,
                           state->parameters + network->log_std};
}

static gradweir_status act(struct engine_state *state, const struct engine_act *act)
{
    const struct engine_options *o = &state->options;
    const size_t n =
        (act->group + 1) * o->environments / o->groups - act->group * o->environments / o->groups;
    const size_t dim = o->network->shape.action_dim, width = o->network->shape.gaussian ? dim : 1;
    const struct policy policy = policy_of(state);
    if (act->finals != NULL) {
        network_forward_value(o->network, state->parameters, act->finals, n, &state->room);
        memcpy(act->final_values, state->room.value, n * sizeof(float));
    }
    if (act->actions == NULL)
        network_forward_value(o->network, state->parameters, act->observations, n, &state->room);
    else
        network_forward(o->network, state->parameters, act->observations, n, &state->room);
    memcpy(act->values, state->room.value, n * sizeof(float));
    for (size_t i = 0; act->actions != NULL && i < n; i++)
        act->log_probabilities[i] = policy_sample(&policy, state->room.head + i * dim,
                                                  &state->chance, act->actions + i * width);
    return GRADWEIR_OK;
}

static gradweir_status wait_for(struct engine_state *state, size_t group)
{
    (void)state;
    (void)group;
    return GRADWEIR_OK;
}

static gradweir_status collect(struct engine_state *state, struct rollout *rollout)
{
    return rollout_collect(rollout, (struct engine_running){&engine_cpu, state});
}

/* Log-probabilities of the rollout's actions under the present parameters, in pieces of a
 * minibatch. */
static void evaluate_proximal(struct engine_state *state, const struct rollout *rollout)
{
    const struct network *network = state->options.network;
    const struct network_shape *shape = &network->shape;
    const struct policy policy = policy_of(state);
    const size_t piece = state->options.minibatch_max;
    for (size_t start = 0; start < state->samples; start += piece) {
        const size_t n = state->samples - start < piece ? state->samples - start : piece;
        network_forward_head(network, state->parameters,
                             rollout->observations + start * shape->observation_dim, n,
                             &state->room);
        for (size_t i = 0; i < n; i++) {
            float entropy = 0;
            const size_t at = start + i;
            state->log_proximal[at] =
                policy_log_probability(&policy, state->room.head + i * shape->action_dim,
                                       rollout->actions + at * rollout->action_width, &entropy);
            state->log_ratios[at] =
                element_log_ratio(state->log_proximal[at], rollout->log_behaviour[at]);
        }
    }
}

static gradweir_status estimate(struct engine_state *state, const struct rollout *rollout,
                                float *advantages)
{
    const struct engine_options *o = &state->options;
    const struct advantage_input input = {
        .steps = rollout->steps,
        .environments = rollout->environments,
        .rewards = rollout->rewards,
        .values = rollout->values,
        .next_values = rollout->next_values,
        .terminated = rollout->terminated,
        .truncated = rollout->truncated,
    };
    state->rollout = rollout;
    if (o->decoupled || o->vtrace)
        evaluate_proximal(state, rollout);
    if (o->vtrace) {
        const struct advantage_vtrace_settings caps = {o->gamma, 1, o->lambda, 1};
        advantage_vtrace(&input, &caps, state->log_ratios, state->advantages, state->targets);
    } else {
        advantage_gae(&input, o->gamma, o->lambda, state->advantages, state->targets);
    }
    memcpy(advantages, state->advantages, state->samples * sizeof(float));
    return GRADWEIR_OK;
}

static struct loss_batch gather(struct engine_state *state, const struct engine_minibatch *m)
{
    const struct rollout *rollout = state->rollout;
    const struct network *network = state->options.network;
    const size_t seen = network->shape.observation_dim, width = rollout->action_width;
    float *column[5];
    for (size_t c = 0; c < 5; c++)
        column[c] = state->columns + c * state->options.minibatch_max;
    for (size_t i = 0; i < m->n; i++) {
        const size_t from = m->order[i];
        memcpy(state->observations + i * seen, rollout->observations + from * seen,
               seen * sizeof(float));
        memcpy(state->actions + i * width, rollout->actions + from * width, width * sizeof(float));
        column[0][i] = rollout->log_behaviour[from];
        column[1][i] = state->log_proximal[from];
        column[2][i] = state->advantages[from];
        column[3][i] = state->targets[from];
        column[4][i] = rollout->values[from];
    }
    return (struct loss_batch){
        .n = m->n,
        .actions = state->actions,
        .log_behaviour = column[0],
        .log_proximal = column[1],
        .advantages = column[2],
        .targets = column[3],
        .old_values = column[4],
        .head = state->room.head,
        .value = state->room.value,
        .log_std = state->parameters + network->log_std,
    };
}

static gradweir_status compute_gradient(struct engine_state *state,
                                        const struct engine_minibatch *minibatch, float *gradient,
                                        struct engine_losses *losses)
{
    const struct network *network = state->options.network;
    struct loss_result *r = &state->result;
    const struct loss_batch batch = gather(state, minibatch);
    const struct network_backward_input input = {
        .parameters = state->parameters,
        .observations = state->observations,
        .batch = minibatch->n,
        .d_head = r->arrays.d_head,
        .d_value = r->arrays.d_value,
        .d_log_std = r->arrays.d_log_std,
    };
    network_forward(network, state->parameters, state->observations, minibatch->n, &state->room);
    loss_compute(minibatch->loss, &batch, r);
    network_backward(network, &input, &state->room, gradient);
    *losses = (struct engine_losses){.loss = r->loss,
                                     .policy_loss = r->policy_loss,
                                     .value_loss = r->value_loss,
                                     .entropy = r->entropy_mean,
                                     .approx_kl = r->approx_kl,
                                     .old_approx_kl = r->old_approx_kl,
                                     .clip_fraction = r->clip_fraction,
                                     .weight = r->weight_mean};
    return GRADWEIR_OK;
}

/* Once open, nothing here fails. */
static const char *reason_of(const struct engine_state *state)
{
    (void)state;
    return "";
}

const struct engine engine_cpu = {.name = "cpu",
                                  .probe = probe,
                                  .open = open_state,
                                  .close = close_state,
                                  .info = tell,
                                  .arrays = tell_arrays,
                                  .load = load,
                                  .act = act,
                                  .wait = wait_for,
                                  .collect = collect,
                                  .estimate = estimate,
                                  .gradient = compute_gradient,
                                  .reason = reason_of};
