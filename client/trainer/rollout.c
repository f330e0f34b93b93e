/* See rollout.h. */
#include "client/trainer/rollout.h"

#include <stdlib.h>
#include <string.h>

static void allocate(struct rollout *r, size_t observation_dim)
{
    const size_t n = r->steps * r->environments;
    r->observations = malloc((n + r->environments) * observation_dim * sizeof(float));
    r->final_observations = malloc(r->environments * observation_dim * sizeof(float));
    r->final_values = malloc(r->environments * sizeof(float));
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
    return r->observations != NULL && r->final_observations != NULL && r->final_values != NULL &&
           r->actions != NULL && r->log_behaviour != NULL && r->rewards != NULL &&
           r->values != NULL && r->next_values != NULL && r->terminated != NULL &&
           r->truncated != NULL && r->returns != NULL && r->finished != NULL &&
           r->accumulators != NULL && r->normalised != NULL;
}

size_t rollout_group(const struct rollout *rollout, size_t group)
{
    return group * rollout->environments / rollout->groups;
}

static size_t group_size(const struct rollout *r, size_t group)
{
    return rollout_group(r, group + 1) - rollout_group(r, group);
}

static bool start_environments(struct rollout *r, const struct rollout_shape *shape)
{
    static const enum chance_use uses[ENGINE_GROUPS_MAX] = {CHANCE_ENVIRONMENT,
                                                            CHANCE_ENVIRONMENT_SECOND};
    const size_t seen = shape->environment->observation_dim;
    float *last = r->observations + r->steps * r->environments * seen;
    for (size_t g = 0; g < r->groups; g++) {
        struct chance chance;
        chance_init_for(&chance, shape->seed, shape->worker, uses[g]);
        if (!environment_batch_init(&r->batch[g], shape->environment, group_size(r, g), &chance))
            return false;
        environment_batch_reset(&r->batch[g], last + rollout_group(r, g) * seen);
    }
    return true;
}

bool rollout_init(struct rollout *rollout, const struct rollout_shape *shape)
{
    const struct environment *environment = shape->environment;
    *rollout = (struct rollout){
        .steps = shape->steps,
        .environments = shape->environments,
        .groups = shape->groups,
        .action_width = environment->discrete ? 1 : environment->action_dim,
    };
    allocate(rollout, environment->observation_dim);
    return is_whole(rollout) && start_environments(rollout, shape);
}

void rollout_deinit(struct rollout *r)
{
    void *all[] = {r->observations,  r->final_observations,
                   r->final_values,  r->actions,
                   r->log_behaviour, r->rewards,
                   r->values,        r->next_values,
                   r->terminated,    r->truncated,
                   r->returns,       r->finished,
                   r->accumulators,  r->normalised};
    for (size_t g = 0; g < ENGINE_GROUPS_MAX; g++)
        environment_batch_deinit(&r->batch[g]);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
    *r = (struct rollout){.steps = 0};
}

void rollout_normalise(struct rollout *r, struct reward_normaliser *normaliser)
{
    for (size_t t = 0; t < r->steps; t++) {
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
}

/* A rollout under way. */
struct collecting {
    struct rollout *rollout;
    struct engine_running running;
    size_t seen; /* observation_dim */
    bool
        cut[ENGINE_GROUPS_MAX]; /* episodes of its last step were, and their values are asked for */
};

/* Group g acts on row t; after the last step only values are wanted. With it go the observations
 * where episodes were cut in the step before. */
static gradweir_status act(const struct collecting *c, size_t g, size_t t)
{
    const struct rollout *r = c->rollout;
    const size_t first = rollout_group(r, g), at = t * r->environments + first;
    const struct engine_act act = {
        .group = g,
        .observations = r->observations + at * c->seen,
        .actions = t < r->steps ? r->actions + at * r->action_width : NULL,
        .log_probabilities = t < r->steps ? r->log_behaviour + at : NULL,
        .values = r->values + at,
        .finals = c->cut[g] ? r->final_observations + first * c->seen : NULL,
        .final_values = r->final_values + first,
    };
    return c->running.engine->act(c->running.state, &act);
}

/* Waits for what group g was told at row t. */
static gradweir_status hear(const struct collecting *c, size_t g, size_t t)
{
    struct rollout *r = c->rollout;
    const gradweir_status status = c->running.engine->wait(c->running.state, g);
    for (size_t i = rollout_group(r, g); c->cut[g] && i < rollout_group(r, g + 1); i++)
        if (r->truncated[(t - 1) * r->environments + i])
            r->next_values[(t - 1) * r->environments + i] = r->final_values[i];
    return status;
}

static void step(struct collecting *c, size_t g, size_t t)
{
    struct rollout *r = c->rollout;
    const size_t n = r->environments, first = rollout_group(r, g), at = t * n + first;
    const struct environment_outcome outcome = {
        .observations = r->observations + (at + n) * c->seen,
        .final_observations = r->final_observations + first * c->seen,
        .rewards = r->rewards + at,
        .terminated = r->terminated + at,
        .truncated = r->truncated + at,
        .finished_returns = r->finished + first,
    };
    environment_batch_step(&r->batch[g], r->actions + at, &outcome);
    c->cut[g] = false;
    for (size_t i = 0; i < group_size(r, g); i++) {
        if (r->terminated[at + i] || r->truncated[at + i])
            r->returns[r->n_returns++] = r->finished[first + i];
        c->cut[g] = c->cut[g] || (r->truncated[at + i] && !r->terminated[at + i]);
    }
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

gradweir_status rollout_collect(struct rollout *r, struct engine_running running)
{
    struct collecting c = {
        .rollout = r, .running = running, .seen = r->batch[0].environment->observation_dim};
    const size_t row = r->environments * c.seen;
    gradweir_status status = GRADWEIR_OK;
    memcpy(r->observations, r->observations + r->steps * row, row * sizeof(float));
    r->n_returns = 0;
    r->kept = false;
    for (size_t g = 0; g < r->groups && status == GRADWEIR_OK; g++)
        status = act(&c, g, 0);
    for (size_t t = 0; t < r->steps; t++)
        for (size_t g = 0; g < r->groups && status == GRADWEIR_OK; g++) {
            status = hear(&c, g, t);
            if (status != GRADWEIR_OK)
                break;
            step(&c, g, t);
            status = act(&c, g, t + 1);
        }
    for (size_t g = 0; g < r->groups && status == GRADWEIR_OK; g++)
        status = hear(&c, g, r->steps);
    if (status == GRADWEIR_OK)
        link_values(r);
    return status;
}
