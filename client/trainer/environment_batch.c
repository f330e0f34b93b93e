/* See environment_batch.h. */
#include "client/trainer/environment_batch.h"

#include "common/element_environment.h"

#include <stdlib.h>
#include <string.h>

bool environment_batch_init(struct environment_batch *batch, const struct environment *environment,
                            size_t n, const struct chance *chance)
{
    *batch = (struct environment_batch){.environment = environment, .n = n, .chance = *chance};
    batch->states = calloc(n * environment->state_dim, sizeof(*batch->states));
    batch->steps = calloc(n, sizeof(*batch->steps));
    batch->returns = calloc(n, sizeof(*batch->returns));
    return batch->states != NULL && batch->steps != NULL && batch->returns != NULL;
}

void environment_batch_deinit(struct environment_batch *batch)
{
    free(batch->returns);
    free(batch->steps);
    free(batch->states);
    *batch = (struct environment_batch){.n = 0};
}

static void start(struct environment_batch *batch, size_t i, float *observation)
{
    double *state = batch->states + i * batch->environment->state_dim;
    batch->environment->reset(state, &batch->chance);
    batch->environment->observe(state, observation);
    batch->steps[i] = 0;
    batch->returns[i] = 0;
}

void environment_batch_reset(struct environment_batch *batch, float *observations)
{
    for (size_t i = 0; i < batch->n; i++)
        start(batch, i, observations + i * batch->environment->observation_dim);
}

static void step_one(struct environment_batch *batch, size_t i, double action,
                     const struct environment_outcome *outcome)
{
    const struct environment *environment = batch->environment;
    const size_t seen = environment->observation_dim;
    double *state = batch->states + i * environment->state_dim;
    float *observation = outcome->observations + i * seen;
    double reward = 0;
    if (!environment->discrete)
        action = element_clamp(action, environment->action_low, environment->action_high);
    const bool terminated = environment->step(state, action, &reward);
    const bool truncated = ++batch->steps[i] >= environment->time_limit;
    batch->returns[i] += reward;
    outcome->rewards[i] = (float)reward;
    outcome->terminated[i] = terminated;
    outcome->truncated[i] = truncated;
    environment->observe(state, observation);
    memcpy(outcome->final_observations + i * seen, observation, seen * sizeof(float));
    if (terminated || truncated) {
        outcome->finished_returns[i] = batch->returns[i];
        start(batch, i, observation);
    }
}

void environment_batch_step(struct environment_batch *batch, const float *actions,
                            const struct environment_outcome *outcome)
{
    for (size_t i = 0; i < batch->n; i++)
        step_one(batch, i, actions[i], outcome);
}
