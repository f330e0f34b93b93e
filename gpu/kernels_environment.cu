/* Environments, one thread each, and the drawing of their actions. */
#include "gpu/kernels_environment.h"

#include <type_traits>

namespace
{

constexpr int THREADS = 128;

/* Within a kernel of one environment the shape is a constant, and so are its loops. */
template <element_environment KIND>
__device__ void write_observation(const double *state, uint64_t i, float *to)
{
    const element_shape shape = element_shape_of(KIND);
    float seen[ELEMENT_OBSERVATION_MAX];
    element_environment_observe(KIND, state, seen);
    for (uint32_t j = 0; j < shape.observation_dim; j++)
        to[i * shape.observation_dim + j] = seen[j];
}

template <element_environment KIND>
__device__ element_episode read_episode(const gpu_environments &all, uint64_t i)
{
    const element_shape shape = element_shape_of(KIND);
    element_episode episode;
    for (uint32_t j = 0; j < shape.state_dim; j++)
        episode.state[j] = all.states[j * all.n + i];
    episode.score = all.scores[i];
    episode.steps = all.steps[i];
    episode.episode = all.episodes[i];
    return episode;
}

template <element_environment KIND>
__device__ void write_episode(const gpu_environments &all, uint64_t i,
                              const element_episode &episode)
{
    const element_shape shape = element_shape_of(KIND);
    for (uint32_t j = 0; j < shape.state_dim; j++)
        all.states[j * all.n + i] = episode.state[j];
    all.scores[i] = episode.score;
    all.steps[i] = episode.steps;
    all.episodes[i] = episode.episode;
}

template <element_environment KIND>
__global__ void __launch_bounds__(THREADS)
    reset_kernel(const __grid_constant__ gpu_environments all, float *observations)
{
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x;
    element_episode episode;
    if (i >= all.n)
        return;
    episode.episode = 0;
    episode.steps = 0;
    episode.score = 0;
    element_episode_start(KIND, all.seed, all.first + i, 0, episode.state);
    write_episode<KIND>(all, i, episode);
    write_observation<KIND>(episode.state, i, observations);
}

template <element_environment KIND>
__global__ void __launch_bounds__(THREADS)
    environment_kernel(const __grid_constant__ gpu_environments all, const float *actions,
                       const __grid_constant__ gpu_outcome to)
{
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= all.n)
        return;
    element_episode episode = read_episode<KIND>(all, i);
    const element_outcome outcome =
        element_episode_step(KIND, &episode, static_cast<double>(actions[i]));
    to.rewards[i] = static_cast<float>(outcome.reward);
    to.terminated[i] = outcome.terminated;
    to.truncated[i] = outcome.truncated;
    write_observation<KIND>(episode.state, i, to.final_observations);
    if (outcome.terminated || outcome.truncated) {
        to.finished_scores[i] = episode.score;
        element_episode_next(KIND, all.seed, all.first + i, &episode);
    }
    write_observation<KIND>(episode.state, i, to.observations);
    write_episode<KIND>(all, i, episode);
}

template <bool GAUSSIAN>
__global__ void __launch_bounds__(THREADS) act_kernel(const __grid_constant__ gpu_act_work work)
{
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x;
    policy policy = work.policy;
    if (i >= work.n)
        return;
    policy.gaussian = GAUSSIAN;
    const uint64_t number_and_turn[2] = {work.first + i, *work.turn};
    float *action = work.actions + i * (GAUSSIAN ? policy.action_dim : 1);
    work.log_probabilities[i] = element_policy_draw(&policy, work.head + i * policy.action_dim,
                                                    work.seed, number_and_turn, action);
}

__global__ void turn_kernel(uint64_t *turn)
{
    ++*turn;
}

template <element_environment KIND>
using constant = std::integral_constant<element_environment, KIND>;

template <typename Start> void dispatch(element_environment environment, const Start &start)
{
    switch (environment) {
    case ELEMENT_CARTPOLE: start(constant<ELEMENT_CARTPOLE>{}); return;
    case ELEMENT_PENDULUM: start(constant<ELEMENT_PENDULUM>{}); return;
    case ELEMENT_MOUNTAIN_CAR: start(constant<ELEMENT_MOUNTAIN_CAR>{}); return;
    case ELEMENT_ACROBOT: start(constant<ELEMENT_ACROBOT>{}); return;
    }
}

unsigned grid_of(uint64_t n)
{
    return static_cast<unsigned>((n + THREADS - 1) / THREADS);
}

} // namespace

extern "C" int gpu_environments_reset(gpu_stream stream,
                                      const struct gpu_environments *environments,
                                      float *observations)
{
    if (environments->n == 0)
        return 0;
    dispatch(environments->environment, [&](auto kind) {
        reset_kernel<kind>
            <<<grid_of(environments->n), THREADS, 0, stream>>>(*environments, observations);
    });
    return cudaGetLastError();
}

extern "C" int gpu_environments_step(gpu_stream stream, const struct gpu_environments *environments,
                                     const float *actions, const struct gpu_outcome *outcome)
{
    if (environments->n == 0)
        return 0;
    dispatch(environments->environment, [&](auto kind) {
        environment_kernel<kind>
            <<<grid_of(environments->n), THREADS, 0, stream>>>(*environments, actions, *outcome);
    });
    return cudaGetLastError();
}

extern "C" int gpu_act(gpu_stream stream, const struct gpu_act_work *work)
{
    if (work->n == 0)
        return 0;
    if (work->policy.gaussian)
        act_kernel<true><<<grid_of(work->n), THREADS, 0, stream>>>(*work);
    else
        act_kernel<false><<<grid_of(work->n), THREADS, 0, stream>>>(*work);
    turn_kernel<<<1, 1, 0, stream>>>(work->turn);
    return cudaGetLastError();
}
