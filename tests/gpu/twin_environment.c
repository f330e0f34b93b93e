/* Environments, done by the CPU: see twin_shard.c. */
#include "gpu/kernels_environment.h"

#include "tests/gpu/twin.h"

static void write_episode(const struct gpu_environments *all, uint64_t i,
                          const struct element_episode *episode)
{
    for (uint32_t j = 0; j < element_shape_of(all->environment).state_dim; j++)
        all->states[j * all->n + i] = episode->state[j];
    all->scores[i] = episode->score;
    all->steps[i] = episode->steps;
    all->episodes[i] = episode->episode;
}

int gpu_environments_reset(gpu_stream stream, const struct gpu_environments *environments,
                           float *observations)
{
    const uint32_t dim = element_shape_of(environments->environment).observation_dim;
    (void)stream;
    for (uint64_t i = 0; i < environments->n; i++) {
        struct element_episode episode = {.episode = 0};
        element_episode_start(environments->environment, environments->seed,
                              environments->first + (twin_planted("same-start") ? 0 : i), 0,
                              episode.state);
        write_episode(environments, i, &episode);
        element_environment_observe(environments->environment, episode.state,
                                    observations + i * dim);
    }
    return 0;
}

static struct element_episode read_episode(const struct gpu_environments *all, uint64_t i)
{
    struct element_episode episode = {
        .score = all->scores[i], .steps = all->steps[i], .episode = all->episodes[i]};
    for (uint32_t j = 0; j < element_shape_of(all->environment).state_dim; j++)
        episode.state[j] = all->states[j * all->n + i];
    return episode;
}

int gpu_environments_step(gpu_stream stream, const struct gpu_environments *environments,
                          const float *actions, const struct gpu_outcome *outcome)
{
    const enum element_environment kind = environments->environment;
    const uint32_t dim = element_shape_of(kind).observation_dim;
    (void)stream;
    for (uint64_t i = 0; i < environments->n; i++) {
        struct element_episode episode = read_episode(environments, i);
        const struct element_outcome one = element_episode_step(kind, &episode, (double)actions[i]);
        const bool cut = one.truncated && !twin_planted("never-cut");
        outcome->rewards[i] = (float)one.reward;
        outcome->terminated[i] = one.terminated;
        outcome->truncated[i] = cut;
        element_environment_observe(kind, episode.state, outcome->final_observations + i * dim);
        if (one.terminated || cut) {
            outcome->finished_scores[i] = episode.score;
            element_episode_next(kind, environments->seed, environments->first + i, &episode);
        }
        element_environment_observe(kind, episode.state, outcome->observations + i * dim);
        write_episode(environments, i, &episode);
    }
    return 0;
}

int gpu_act(gpu_stream stream, const struct gpu_act_work *work)
{
    const size_t dim = work->policy.action_dim, width = work->policy.gaussian ? dim : 1;
    (void)stream;
    for (uint64_t i = 0; i < work->n; i++) {
        const uint64_t at[2] = {work->first + i, *work->turn + twin_planted("next-turn")};
        work->log_probabilities[i] = element_policy_draw(&work->policy, work->head + i * dim,
                                                         work->seed, at, work->actions + i * width);
    }
    ++*work->turn;
    return 0;
}
