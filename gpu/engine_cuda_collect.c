/* A rollout in environments on the GPU: all its steps are put on the stream at once, and the host
 * hears of them when the last is done. With environments on the host it is rollout_collect's. */
#include "gpu/engine_cuda.h"

#include <string.h>

/* Longer rollouts are put on the stream anew each time: as a graph they would be too large. */
enum { GRAPH_STEPS_MAX = 512 };

static void draw(struct engine_state *state, size_t at)
{
    struct cuda_group *g = &state->groups[0];
    const struct gpu_act_work work = {.policy = cuda_policy(state),
                                      .n = g->n,
                                      .seed = state->options.seed,
                                      .first = cuda_first_number(state),
                                      .head = g->room.head,
                                      .turn = g->turn,
                                      .actions = state->rollout.actions + at * state->width,
                                      .log_probabilities = state->rollout.log_behaviour + at};
    cuda_note(state, gpu_act(g->math.stream, &work), "drawing actions");
}

static void step_environments(struct engine_state *state, size_t at)
{
    struct cuda_group *g = &state->groups[0];
    const struct cuda_environments *e = &state->environments;
    const size_t seen = state->options.network->shape.observation_dim;
    const struct cuda_rollout *r = &state->rollout;
    const struct gpu_outcome outcome = {.observations = r->observations + (at + g->n) * seen,
                                        .final_observations = e->final_observations,
                                        .rewards = r->rewards + at,
                                        .terminated = r->terminated + at,
                                        .truncated = r->truncated + at,
                                        .finished_scores = e->scores + at};
    cuda_note(
        state,
        gpu_environments_step(g->math.stream, &e->all, r->actions + at * state->width, &outcome),
        "a step of the environments");
}

/* The values of all final observations: where an episode went on they are replaced afterwards. */
static void enqueue_step(struct engine_state *state, size_t t)
{
    struct cuda_group *g = &state->groups[0];
    const size_t at = t * g->n, seen = state->options.network->shape.observation_dim;
    const struct cuda_rollout *r = &state->rollout;
    const struct network_pass pass =
        cuda_pass(&g->math, r->observations + at * seen, g->n, &g->room);
    const struct network_pass finals =
        cuda_pass(&g->math, state->environments.final_observations, g->n, &g->room);
    network_pass_forward(&pass);
    cuda_copy(state, g->math.stream, g->room.value, r->values + at, g->n * sizeof(float));
    draw(state, at);
    step_environments(state, at);
    network_pass_value(&finals);
    cuda_copy(state, g->math.stream, g->room.value, r->next_values + at, g->n * sizeof(float));
}

static void enqueue_rollout(struct engine_state *state, void *context)
{
    struct cuda_group *g = context;
    struct cuda_environments *e = &state->environments;
    const struct cuda_rollout *r = &state->rollout;
    const size_t steps = state->options.steps, n = state->samples;
    const size_t row = g->n * state->options.network->shape.observation_dim;
    float *last = r->observations + steps * row;
    const struct network_pass pass = cuda_pass(&g->math, last, g->n, &g->room);
    const struct gpu_link_work work = {.steps = steps,
                                       .environments = g->n,
                                       .terminated = r->terminated,
                                       .truncated = r->truncated,
                                       .values = r->values,
                                       .next_values = r->next_values};
    cudaStream_t stream = g->math.stream;
    cuda_copy(state, stream, last, r->observations, row * sizeof(float));
    for (size_t t = 0; t < steps; t++)
        enqueue_step(state, t);
    network_pass_value(&pass);
    cuda_copy(state, stream, g->room.value, r->values + n, g->n * sizeof(float));
    cuda_note(state, gpu_link_values(stream, &work), "values of what follows");
    cuda_copy(state, stream, r->rewards, e->rewards_host, n * sizeof(float));
    cuda_copy(state, stream, r->terminated, e->terminated_host, n);
    cuda_copy(state, stream, r->truncated, e->truncated_host, n);
    cuda_copy(state, stream, e->scores, e->scores_host, n * sizeof(double));
}

static void bring(const struct engine_state *state, struct rollout *rollout)
{
    const struct cuda_environments *e = &state->environments;
    const size_t n = state->samples;
    memcpy(rollout->rewards, e->rewards_host, n * sizeof(float));
    memcpy(rollout->terminated, e->terminated_host, n);
    memcpy(rollout->truncated, e->truncated_host, n);
    rollout->n_returns = 0;
    for (size_t i = 0; i < n; i++)
        if (rollout->terminated[i] || rollout->truncated[i])
            rollout->returns[rollout->n_returns++] = e->scores_host[i];
    rollout->kept = true;
}

static gradweir_status collect_here(struct engine_state *state, struct rollout *rollout)
{
    struct cuda_group *g = &state->groups[0];
    struct cuda_environments *e = &state->environments;
    const size_t seen = state->options.network->shape.observation_dim;
    const struct cuda_sequence sequence = {g->math.stream, &e->graph, enqueue_rollout, g};
    if (!e->begun)
        cuda_note(state,
                  gpu_environments_reset(g->math.stream, &e->all,
                                         state->rollout.observations + state->samples * seen),
                  "starting the environments");
    e->begun = true;
    if (state->options.steps <= GRAPH_STEPS_MAX)
        cuda_run(state, &sequence);
    else
        enqueue_rollout(state, g);
    if (cuda_wait(state, g->math.stream) == GRADWEIR_OK)
        bring(state, rollout);
    return state->broken;
}

gradweir_status engine_cuda_collect(struct engine_state *state, struct rollout *rollout)
{
    return state->options.own_environments
               ? collect_here(state, rollout)
               : rollout_collect(rollout, (struct engine_running){&engine_cuda, state});
}
