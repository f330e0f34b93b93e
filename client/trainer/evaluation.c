/* See evaluation.h. */
#include "client/trainer/evaluation.h"

#include "client/trainer/environment_batch.h"
#include "client/trainer/policy.h"

#include <math.h>
#include <stdlib.h>

/* Far from the streams of any worker. */
static const uint64_t stream_evaluation = 1u << 30;

struct evaluation {
    struct environment_batch batch;
    struct network_room room;
    float *observations; /* twice [n, observation_dim]: now and final */
    float *actions;      /* twice [n]: actions and rewards */
    uint8_t *flags;      /* three times [n]: terminated, truncated, counted */
    double *finished;    /* [n] */
};

static bool evaluation_init(struct evaluation *e, const struct environment *environment,
                            const struct network *network, struct evaluation_episodes episodes)
{
    const size_t n = episodes.n;
    struct chance chance;
    *e = (struct evaluation){.batch.n = 0};
    chance_init(&chance, episodes.seed, stream_evaluation + episodes.stream);
    e->observations = calloc(2 * n * environment->observation_dim, sizeof(float));
    e->actions = calloc(2 * n, sizeof(float));
    e->flags = calloc(3 * n, 1);
    e->finished = calloc(n, sizeof(double));
    return e->observations != NULL && e->actions != NULL && e->flags != NULL &&
           e->finished != NULL && network_room_init(&e->room, network, n) &&
           environment_batch_init(&e->batch, environment, n, &chance);
}

static void evaluation_deinit(struct evaluation *e)
{
    environment_batch_deinit(&e->batch);
    network_room_deinit(&e->room);
    free(e->finished);
    free(e->flags);
    free(e->actions);
    free(e->observations);
}

/* One step of all; adds the returns of first episodes that end to *sum and returns how many did. */
static size_t play(struct evaluation *e, const struct network *network, const float *parameters,
                   double *sum)
{
    const size_t n = e->batch.n, dim = network->shape.action_dim;
    const struct policy policy = {network->shape.gaussian, dim, parameters + network->log_std};
    uint8_t *counted = e->flags + 2 * n;
    const struct environment_outcome outcome = {
        .observations = e->observations,
        .final_observations = e->observations + n * network->shape.observation_dim,
        .rewards = e->actions + n,
        .terminated = e->flags,
        .truncated = e->flags + n,
        .finished_returns = e->finished,
    };
    size_t ended = 0;
    network_forward_head(network, parameters, e->observations, n, &e->room);
    for (size_t i = 0; i < n; i++)
        policy_greedy(&policy, e->room.head + i * dim, e->actions + i);
    environment_batch_step(&e->batch, e->actions, &outcome);
    for (size_t i = 0; i < n; i++)
        if (!counted[i] && (outcome.terminated[i] || outcome.truncated[i])) {
            counted[i] = 1;
            *sum += e->finished[i];
            ended++;
        }
    return ended;
}

double evaluation_greedy(const struct environment *environment, const struct network *network,
                         const float *parameters, struct evaluation_episodes episodes)
{
    struct evaluation e;
    double sum = 0;
    if (episodes.n == 0)
        return NAN;
    const bool whole = evaluation_init(&e, environment, network, episodes);
    if (whole) {
        environment_batch_reset(&e.batch, e.observations);
        for (size_t ended = 0; ended < episodes.n;)
            ended += play(&e, network, parameters, &sum);
    }
    evaluation_deinit(&e);
    return whole ? sum / (double)episodes.n : NAN;
}
