/* See rollout.h. */
#include "client/trainer/rollout.h"

#include <stdlib.h>
#include <string.h>

/* Streams of chance of one worker. */
enum { STREAM_ENVIRONMENT = 1, STREAM_POLICY = 2, STREAMS = 16 };

static void allocate(struct rollout *r, size_t observation_dim)
{
    const size_t n = r->steps * r->environments;
    r->observations = malloc((n + r->environments) * observation_dim * sizeof(float));
    r->final_observations = malloc(r->environments * observation_dim * sizeof(float));
    r->actions = malloc(n * r->action_width * sizeof(float));
    r->log_behaviour = malloc(n * sizeof(float));
    r->rewards = malloc(n * sizeof(float));
    r->values = malloc((n + r->environments) * sizeof(float));
    r->next_values = malloc(n * sizeof(float));
    r->terminated = malloc(n);
    r->truncated = malloc(n);
    r->returns = malloc(n * sizeof(double));
    r->finished = malloc(r->environments * sizeof(double));
    r->accumulators = calloc(r->environments, sizeof(double));
    r->normalised = malloc(r->environments * sizeof(double));
}

static bool is_whole(const struct rollout *r)
{
    return r->observations != NULL && r->final_observations != NULL && r->actions != NULL &&
           r->log_behaviour != NULL && r->rewards != NULL && r->values != NULL &&
           r->next_values != NULL && r->terminated != NULL && r->truncated != NULL &&
           r->returns != NULL && r->finished != NULL && r->accumulators != NULL &&
           r->normalised != NULL;
}

bool rollout_init(struct rollout *rollout, const struct rollout_shape *shape,
                  const struct network *network)
{
    const struct environment *environment = shape->environment;
    struct chance chance;
    *rollout = (struct rollout){
        .steps = shape->steps,
        .environments = shape->environments,
        .action_width = environment->discrete ? 1 : environment->action_dim,
    };
    allocate(rollout, environment->observation_dim);
    chance_init(&rollout->chance, shape->seed, shape->worker * STREAMS + STREAM_POLICY);
    chance_init(&chance, shape->seed, shape->worker * STREAMS + STREAM_ENVIRONMENT);
    if (!is_whole(rollout) || !network_room_init(&rollout->room, network, shape->environments) ||
        !environment_batch_init(&rollout->batch, environment, shape->environments, &chance))
        return false;
    environment_batch_reset(&rollout->batch,
                            rollout->observations +
                                shape->steps * shape->environments * environment->observation_dim);
    return true;
}

void rollout_deinit(struct rollout *r)
{
    environment_batch_deinit(&r->batch);
    network_room_deinit(&r->room);
    void *all[] = {
        r->observations, r->final_observations, r->actions,    r->log_behaviour, r->rewards,
        r->values,       r->next_values,        r->terminated, r->truncated,     r->returns,
        r->finished,     r->accumulators,       r->normalised};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
    *r = (struct rollout){.steps = 0};
}

/* Values of the observations where episodes were cut; elsewhere next_values come from the row
 * below. */
static void bootstrap_truncated(struct rollout *r, const struct network *network,
                                const float *parameters, size_t t)
{
    const size_t n = r->environments;
    bool any = false;
    for (size_t i = t * n; i < (t + 1) * n; i++)
        any = any || (r->truncated[i] && !r->terminated[i]);
    if (!any)
        return;
    network_forward_value(network, parameters, r->final_observations, n, &r->room);
    for (size_t i = 0; i < n; i++)
        if (r->truncated[t * n + i])
            r->next_values[t * n + i] = r->room.value[i];
}

static void normalise_rewards(struct rollout *r, struct reward_normaliser *normaliser, size_t t)
{
    const size_t at = t * r->environments;
    const struct reward_step step = {
        .n = r->environments,
        .rewards = r->rewards + at,
        .terminated = r->terminated + at,
        .truncated = r->truncated + at,
        .accumulators = r->accumulators,
    };
    reward_normaliser_step(normaliser, &step, r->normalised);
    for (size_t i = 0; i < r->environments; i++)
        r->rewards[at + i] = (float)r->normalised[i];
}

static void act(struct rollout *r, const struct network *network, const float *parameters, size_t t)
{
    const struct network_shape *shape = &network->shape;
    const size_t n = r->environments, at = t * n;
    const struct policy policy = {shape->gaussian, shape->action_dim,
                                  parameters + network->log_std};
    network_forward(network, parameters, r->observations + at * shape->observation_dim, n,
                    &r->room);
    memcpy(r->values + at, r->room.value, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        r->log_behaviour[at + i] =
            policy_sample(&policy, r->room.head + i * shape->action_dim, &r->chance,
                          r->actions + (at + i) * r->action_width);
}

static void step(struct rollout *r, size_t observation_dim, size_t t)
{
    const size_t n = r->environments, at = t * n;
    const struct environment_outcome outcome = {
        .observations = r->observations + (at + n) * observation_dim,
        .final_observations = r->final_observations,
        .rewards = r->rewards + at,
        .terminated = r->terminated + at,
        .truncated = r->truncated + at,
        .finished_returns = r->finished,
    };
    environment_batch_step(&r->batch, r->actions + at, &outcome);
    for (size_t i = 0; i < n; i++)
        if (r->terminated[at + i] || r->truncated[at + i])
            r->returns[r->n_returns++] = r->finished[i];
}

/* next_values of steps that did not end an episode are the values of the row below. */
static void link_values(struct rollout *r)
{
    const size_t n = r->environments;
    for (size_t i = 0; i < r->steps * n; i++)
        if (!r->terminated[i] && !r->truncated[i])
            r->next_values[i] = r->values[i + n];
        else if (r->terminated[i])
            r->next_values[i] = 0;
}

void rollout_collect(struct rollout *r, const struct network *network, const float *parameters,
                     struct reward_normaliser *normaliser)
{
    const size_t n = r->environments, row = n * network->shape.observation_dim;
    memcpy(r->observations, r->observations + r->steps * row, row * sizeof(float));
    r->n_returns = 0;
    for (size_t t = 0; t < r->steps; t++) {
        act(r, network, parameters, t);
        step(r, network->shape.observation_dim, t);
        bootstrap_truncated(r, network, parameters, t);
        if (normaliser != NULL)
            normalise_rewards(r, normaliser, t);
    }
    network_forward_value(network, parameters, r->observations + r->steps * row, n, &r->room);
    memcpy(r->values + r->steps * n, r->room.value, n * sizeof(float));
    link_values(r);
}
