/* What the GPU's engine learns from a rollout: advantages, and gradients of its minibatches. */
#include "gpu/engine_cuda.h"

#include <string.h>

/* A rollout that was collected here needs its rewards only, for they may have been normalised. */
static void upload(struct engine_state *state, const struct rollout *r)
{
    const struct cuda_rollout *to = &state->rollout;
    cudaStream_t stream = state->groups[0].math.stream;
    const size_t n = state->samples, seen = state->options.network->shape.observation_dim;
    cuda_copy(state, stream, r->rewards, to->rewards, n * sizeof(float));
    if (r->kept)
        return;
    cuda_copy(state, stream, r->observations, to->observations, n * seen * sizeof(float));
    cuda_copy(state, stream, r->actions, to->actions, n * state->width * sizeof(float));
    cuda_copy(state, stream, r->log_behaviour, to->log_behaviour, n * sizeof(float));
    cuda_copy(state, stream, r->values, to->values, n * sizeof(float));
    cuda_copy(state, stream, r->next_values, to->next_values, n * sizeof(float));
    cuda_copy(state, stream, r->terminated, to->terminated, n);
    cuda_copy(state, stream, r->truncated, to->truncated, n);
}

/* Log-probabilities of the rollout's actions under the present parameters, in pieces of a
 * minibatch. */
static void look_back(struct engine_state *state)
{
    struct cuda_math *math = &state->groups[0].math;
    const struct cuda_rollout *r = &state->rollout;
    const size_t piece = state->options.minibatch_max;
    const size_t seen = state->options.network->shape.observation_dim;
    for (size_t start = 0; start < state->samples; start += piece) {
        const size_t n = state->samples - start < piece ? state->samples - start : piece;
        const struct network_pass pass =
            cuda_pass(math, r->observations + start * seen, n, &state->minibatch.room);
        const struct gpu_look_back_work work = {.policy = cuda_policy(state),
                                                .n = n,
                                                .head = state->minibatch.room.head,
                                                .actions = r->actions + start * state->width,
                                                .log_then = r->log_behaviour + start,
                                                .log_now = r->log_proximal + start,
                                                .log_ratios = r->log_ratios + start};
        network_pass_head(&pass);
        cuda_note(state, gpu_look_back(math->stream, &work), "log-probabilities");
    }
}

gradweir_status engine_cuda_estimate(struct engine_state *state, const struct rollout *rollout,
                                     float *advantages)
{
    const struct engine_options *o = &state->options;
    const struct cuda_rollout *r = &state->rollout;
    cudaStream_t stream = state->groups[0].math.stream;
    const struct advantage_input input = {.steps = o->steps,
                                          .environments = o->environments,
                                          .rewards = r->rewards,
                                          .values = r->values,
                                          .next_values = r->next_values,
                                          .terminated = r->terminated,
                                          .truncated = r->truncated};
    const struct element_estimates to = {r->advantages, r->targets};
    const struct advantage_vtrace_settings caps = {o->gamma, 1, o->lambda, 1};
    upload(state, rollout);
    if (o->decoupled || o->vtrace)
        look_back(state);
    if (o->vtrace)
        cuda_note(state, gpu_vtrace(stream, &input, &caps, r->log_ratios, to), "V-trace");
    else
        cuda_note(state, gpu_gae(stream, &input, o->gamma, o->lambda, to), "GAE");
    cuda_copy(state, stream, r->advantages, advantages, state->samples * sizeof(float));
    return cuda_wait(state, stream);
}

static void gather(struct engine_state *state, size_t n)
{
    const struct cuda_minibatch *m = &state->minibatch;
    const struct cuda_rollout *r = &state->rollout;
    struct gpu_gather_work work = {
        .order = m->order,
        .n = n,
        .observation_dim = state->options.network->shape.observation_dim,
        .action_width = state->width,
        .observations = r->observations,
        .actions = r->actions,
        .columns = {r->log_behaviour, r->log_proximal, r->advantages, r->targets, r->values},
        .to_observations = m->observations,
        .to_actions = m->actions,
    };
    memcpy(work.to_columns, m->columns, sizeof work.to_columns);
    cuda_note(state, gpu_gather(state->groups[0].math.stream, &work), "gathering");
}

static void compute_loss(struct engine_state *state, const struct cuda_gradient *g)
{
    const struct cuda_minibatch *m = &state->minibatch;
    cudaStream_t stream = state->groups[0].math.stream;
    const struct gpu_statistics_work statistics = {
        .values = m->columns[2], .n = g->n, .scratch = m->scratch, .to = m->statistics};
    const struct gpu_loss_work work = {.batch = {.n = g->n,
                                                 .actions = m->actions,
                                                 .log_behaviour = m->columns[0],
                                                 .log_proximal = m->columns[1],
                                                 .advantages = m->columns[2],
                                                 .targets = m->columns[3],
                                                 .old_values = m->columns[4],
                                                 .head = m->room.head,
                                                 .value = m->room.value,
                                                 .log_std = cuda_policy(state).log_std},
                                       .arrays = m->arrays,
                                       .centre = m->centre,
                                       .scratch = m->scratch,
                                       .sums = m->sums};
    cuda_note(state, gpu_statistics(stream, &statistics), "the advantages' statistics");
    cuda_note(state, gpu_loss_centre(stream, &g->loss, m->statistics, m->centre), "normalising");
    cuda_note(state, gpu_loss(stream, &g->loss, &work), "the loss");
}

static void enqueue_gradient(struct engine_state *state, void *context)
{
    const struct cuda_gradient *g = context;
    const struct cuda_minibatch *m = &state->minibatch;
    struct cuda_math *math = &state->groups[0].math;
    const struct network_pass pass = cuda_pass(math, m->observations, g->n, &state->minibatch.room);
    const struct network_slopes slopes = {m->arrays.d_head, m->arrays.d_value, m->arrays.d_log_std};
    cuda_copy(state, math->stream, m->order_host, m->order, g->n * sizeof *m->order);
    gather(state, g->n);
    network_pass_forward(&pass);
    compute_loss(state, g);
    network_pass_backward(&pass, &slopes, m->gradient);
    if (!g->stays)
        cuda_copy(state, math->stream, m->gradient, m->gradient_host,
                  state->options.network->n_parameters * sizeof(float));
    cuda_copy(state, math->stream, m->sums, m->sums_host, sizeof *m->sums);
}

static bool same_loss(const struct loss_settings *a, const struct loss_settings *b)
{
    return a->gaussian == b->gaussian && a->action_dim == b->action_dim && a->clip == b->clip &&
           a->clip_value == b->clip_value && a->value_clip == b->value_clip &&
           a->entropy_coefficient == b->entropy_coefficient &&
           a->value_coefficient == b->value_coefficient && a->advantages == b->advantages &&
           a->advantage_mean == b->advantage_mean &&
           a->advantage_deviation == b->advantage_deviation && a->decoupled == b->decoupled &&
           a->behaviour == b->behaviour && a->behaviour_cap == b->behaviour_cap &&
           a->dual_clip == b->dual_clip;
}

/* The sequence for that size and these settings; the older one gives way to a new one. Settings
 * change between rollouts only where statistics of advantages are shared. */
static struct cuda_gradient *find_sequence(struct engine_state *state,
                                           const struct engine_minibatch *minibatch, bool stays)
{
    for (size_t i = 0; i < CUDA_GRADIENTS; i++)
        if (state->gradients[i].n == minibatch->n && state->gradients[i].stays == stays &&
            same_loss(&state->gradients[i].loss, minibatch->loss))
            return &state->gradients[i];
    struct cuda_gradient *g = &state->gradients[state->gradient_next++ % CUDA_GRADIENTS];
    if (g->graph.exec != NULL)
        (void)cudaGraphExecDestroy(g->graph.exec);
    *g = (struct cuda_gradient){.n = minibatch->n, .stays = stays, .loss = *minibatch->loss};
    return g;
}

static struct engine_losses losses_of(const struct loss_settings *settings,
                                      const struct loss_sums *sums, size_t n)
{
    const struct loss_sums means = element_loss_means(*sums, (double)n);
    return (struct engine_losses){.loss = element_loss_total(settings, &means),
                                  .policy_loss = means.policy_loss,
                                  .value_loss = means.value_loss,
                                  .entropy = means.entropy,
                                  .approx_kl = means.approx_kl,
                                  .old_approx_kl = means.old_approx_kl,
                                  .clip_fraction = means.clip_fraction,
                                  .weight = means.weight};
}

gradweir_status engine_cuda_gradient(struct engine_state *state,
                                     const struct engine_minibatch *minibatch, float *gradient,
                                     struct engine_losses *losses)
{
    const struct cuda_minibatch *m = &state->minibatch;
    struct cuda_gradient *g = find_sequence(state, minibatch, gradient == NULL);
    const struct cuda_sequence sequence = {state->groups[0].math.stream, &g->graph,
                                           enqueue_gradient, g};
    memcpy(m->order_host, minibatch->order, minibatch->n * sizeof *m->order);
    cuda_run(state, &sequence);
    const gradweir_status status = cuda_wait(state, sequence.stream);
    if (status != GRADWEIR_OK)
        return status;
    if (gradient != NULL)
        memcpy(gradient, m->gradient_host, state->options.network->n_parameters * sizeof(float));
    *losses = losses_of(minibatch->loss, m->sums_host, minibatch->n);
    return GRADWEIR_OK;
}
