/* Environments, one step from any state, and drawn actions, against the CPU's functions. sin, cos,
 * exp and log are the GPU's own: within tolerance; which episodes end is compared where the state
 * is not on a border. */
#include "gpu/kernels_environment.h"
#include "tests/gpu/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 4, TURNS = 12 };

struct set {
    struct gpu_environments on_gpu;
    struct gpu_outcome outcome;
    struct element_shape shape;
    struct array states, scores, steps, episodes;
    struct array observations, final_observations, rewards, terminated, truncated, finished,
        actions;
};

static void set_open(struct set *s, enum element_environment kind, size_t n, uint64_t seed)
{
    const struct element_shape shape = element_shape_of(kind);
    s->shape = shape;
    s->states = array_new(shape.state_dim * n * sizeof(double), 0);
    s->scores = array_new(n * sizeof(double), 0);
    s->steps = array_new(n * sizeof(uint32_t), 0);
    s->episodes = array_new(n * sizeof(uint64_t), 0);
    s->observations = array_new(n * shape.observation_dim * sizeof(float), 4);
    s->final_observations = array_new(n * shape.observation_dim * sizeof(float), 4);
    s->rewards = array_new(n * sizeof(float), 4);
    s->terminated = array_new(n, 1);
    s->truncated = array_new(n, 1);
    s->finished = array_new(n * sizeof(double), 0);
    s->actions = array_new(n * sizeof(float), 4);
    s->on_gpu = (struct gpu_environments){.environment = kind,
                                          .n = n,
                                          .seed = seed,
                                          .first = 100,
                                          .states = (double *)(void *)s->states.device,
                                          .scores = (double *)(void *)s->scores.device,
                                          .steps = (uint32_t *)(void *)s->steps.device,
                                          .episodes = (uint64_t *)(void *)s->episodes.device};
    s->outcome = (struct gpu_outcome){.observations = there(&s->observations),
                                      .final_observations = there(&s->final_observations),
                                      .rewards = there(&s->rewards),
                                      .terminated = s->terminated.device,
                                      .truncated = s->truncated.device,
                                      .finished_scores = (double *)(void *)s->finished.device};
}

static void set_close(struct set *s)
{
    struct array *const all[] = {&s->states,   &s->scores,       &s->steps,
                                 &s->episodes, &s->observations, &s->final_observations,
                                 &s->rewards,  &s->terminated,   &s->truncated,
                                 &s->finished, &s->actions};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        array_end(all[k]);
}

/* What the GPU has now is where the CPU goes on from: a step is compared, not a path. */
static void fetch_states(struct set *s)
{
    memory_fetch(s->states.host, s->states.device, s->states.bytes);
    memory_fetch(s->scores.host, s->scores.device, s->scores.bytes);
    memory_fetch(s->steps.host, s->steps.device, s->steps.bytes);
    memory_fetch(s->episodes.host, s->episodes.device, s->episodes.bytes);
    memory_fetch(s->finished.host, s->finished.device, s->finished.bytes);
}

static struct element_episode episode_at(const struct set *s, size_t i)
{
    struct element_episode episode;
    for (size_t j = 0; j < s->shape.state_dim; j++)
        memcpy(&episode.state[j], s->states.host + (j * s->on_gpu.n + i) * sizeof(double),
               sizeof(double));
    memcpy(&episode.score, s->scores.host + i * sizeof(double), sizeof(double));
    memcpy(&episode.steps, s->steps.host + i * sizeof(uint32_t), sizeof(uint32_t));
    memcpy(&episode.episode, s->episodes.host + i * sizeof(uint64_t), sizeof(uint64_t));
    return episode;
}

static void expect_near_doubles(const struct array *array, const char *what, uint64_t number)
{
    double *got = malloc(array->bytes ? array->bytes : 1), expected;
    if (got == NULL)
        abort();
    memory_fetch(got, array->device, array->bytes);
    for (size_t i = 0; i < array->bytes / sizeof(double); i++) {
        memcpy(&expected, array->host + i * sizeof expected, sizeof expected);
        expect(fabs(got[i] - expected) <= 1e-9 * (1 + fabs(expected)), what, number);
    }
    free(got);
}

static void put_episode(struct set *s, size_t i, const struct element_episode *episode)
{
    for (size_t j = 0; j < s->shape.state_dim; j++)
        memcpy(s->states.host + (j * s->on_gpu.n + i) * sizeof(double), &episode->state[j],
               sizeof(double));
    memcpy(s->scores.host + i * sizeof(double), &episode->score, sizeof(double));
    memcpy(s->steps.host + i * sizeof(uint32_t), &episode->steps, sizeof(uint32_t));
    memcpy(s->episodes.host + i * sizeof(uint64_t), &episode->episode, sizeof(uint64_t));
}

static void step_on_cpu(struct set *s, size_t i)
{
    const enum element_environment kind = s->on_gpu.environment;
    const size_t dim = s->shape.observation_dim;
    struct element_episode episode = episode_at(s, i);
    const struct element_outcome outcome =
        element_episode_step(kind, &episode, (double)here(&s->actions)[i]);
    here(&s->rewards)[i] = (float)outcome.reward;
    s->terminated.host[i] = outcome.terminated;
    s->truncated.host[i] = outcome.truncated;
    element_environment_observe(kind, episode.state, here(&s->final_observations) + i * dim);
    if (outcome.terminated || outcome.truncated) {
        memcpy(s->finished.host + i * sizeof(double), &episode.score, sizeof(double));
        element_episode_next(kind, s->on_gpu.seed, s->on_gpu.first + i, &episode);
    }
    element_environment_observe(kind, episode.state, here(&s->observations) + i * dim);
    put_episode(s, i, &episode);
}

static void compare(const struct set *s, const char *what)
{
    const uint64_t kind = (uint64_t)s->on_gpu.environment;
    expect_same(&s->terminated, what, kind);
    expect_same(&s->truncated, what, kind);
    expect_same(&s->steps, what, kind);
    expect_same(&s->episodes, what, kind);
    expect_near(&s->rewards, 1e-5, what, kind);
    expect_near(&s->observations, 1e-5, what, kind);
    expect_near(&s->final_observations, 1e-5, what, kind);
    expect_near_doubles(&s->states, what, kind);
    expect_near_doubles(&s->scores, what, kind);
    expect_near_doubles(&s->finished, what, kind);
}

static void reset_both(struct set *s)
{
    expect_ran(gpu_environments_reset(memory_stream(), &s->on_gpu, there(&s->observations)),
               "reset", s->on_gpu.n);
    for (size_t i = 0; i < s->on_gpu.n; i++) {
        struct element_episode episode = {.episode = 0};
        element_episode_start(s->on_gpu.environment, s->on_gpu.seed, s->on_gpu.first + i, 0,
                              episode.state);
        element_environment_observe(s->on_gpu.environment, episode.state,
                                    here(&s->observations) + i * s->shape.observation_dim);
        put_episode(s, i, &episode);
    }
    expect_near(&s->observations, 1e-6, "what is seen after reset", s->on_gpu.n);
    expect_near_doubles(&s->states, "states after reset", s->on_gpu.n);
    expect_same(&s->steps, "steps after reset", s->on_gpu.n);
    expect_same(&s->episodes, "episodes after reset", s->on_gpu.n);
}

/* Now and then an episode is old: it is about to be cut. */
static void age(struct set *s, struct random *random)
{
    const size_t i = random_below(random, s->on_gpu.n);
    const uint32_t steps = s->shape.time_limit - 1;
    memcpy(s->steps.host + i * sizeof steps, &steps, sizeof steps);
    array_send(&s->steps);
}

static void run_environments(struct random *random)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct set s;
        set_open(&s, (enum element_environment)kind, 1 + random_below(random, 400),
                 random_next(random));
        reset_both(&s);
        for (int turn = 0; turn < TURNS; turn++) {
            for (size_t i = 0; i < s.on_gpu.n; i++)
                here(&s.actions)[i] = s.shape.discrete
                                          ? (float)random_below(random, s.shape.action_dim)
                                          : (float)(5.0 * random_uniform(random) - 2.5);
            array_send(&s.actions);
            fetch_states(&s);
            age(&s, random);
            expect_ran(
                gpu_environments_step(memory_stream(), &s.on_gpu, there(&s.actions), &s.outcome),
                "step of environments", (uint64_t)kind);
            for (size_t i = 0; i < s.on_gpu.n; i++)
                step_on_cpu(&s, i);
            compare(&s, "step of environment");
        }
        set_close(&s);
    }
}

static void run_act(struct random *random)
{
    const bool gaussian = random_below(random, 2) == 0;
    const size_t n = 1 + random_below(random, 3000), dim = 2 + random_below(random, 4);
    const uint64_t turn = random_below(random, 1000);
    struct array head = floats_uniform(random, n * dim, -1, 1),
                 log_std = floats_uniform(random, dim, -1, 0);
    struct array actions = floats_new(random, gaussian ? n * dim : n), logs = floats_new(random, n);
    struct array place = array_of(&turn, sizeof turn, 0);
    const struct gpu_act_work work = {
        .policy = {.gaussian = gaussian, .action_dim = dim, .log_std = there(&log_std)},
        .n = n,
        .seed = random_next(random),
        .first = 7,
        .head = there(&head),
        .turn = (uint64_t *)(void *)place.device,
        .actions = there(&actions),
        .log_probabilities = there(&logs)};
    const struct policy policy = {
        .gaussian = gaussian, .action_dim = dim, .log_std = here(&log_std)};
    expect_ran(gpu_act(memory_stream(), &work), "drawing actions", n);
    for (size_t i = 0; i < n; i++) {
        const uint64_t at[2] = {work.first + i, turn};
        here(&logs)[i] = element_policy_draw(&policy, here(&head) + i * dim, work.seed, at,
                                             here(&actions) + i * (gaussian ? dim : 1));
    }
    const uint64_t after = turn + 1;
    memcpy(place.host, &after, sizeof after);
    expect_same(&place, "the turn", n);
    /* At a border between two choices the GPU's expf may decide otherwise, hardly ever. */
    if (gaussian)
        expect_near(&actions, 1e-5, "actions", n);
    else
        expect_same(&actions, "choices", n);
    expect_near(&logs, 2e-5, "log-probabilities", n);
    array_end(&head);
    array_end(&log_std);
    array_end(&actions);
    array_end(&logs);
    array_end(&place);
}

static void call_step(void *context)
{
    const struct set *s = context;
    (void)gpu_environments_step(memory_stream(), &s->on_gpu, there(&s->actions), &s->outcome);
}

static double time_cartpole(double *bytes)
{
    const size_t n = memory_timed() / 1024;
    struct set s;
    set_open(&s, ELEMENT_CARTPOLE, n, 1);
    for (size_t i = 0; i < n; i++)
        here(&s.actions)[i] = (float)(i % 2);
    array_send(&s.actions);
    reset_both(&s);
    const double seconds = memory_seconds(call_step, &s, 50);
    printf("  %zu CartPoles at once: %.0f million steps/s\n", n, (double)n / seconds / 1e6);
    *bytes = (double)n * (2.0 * (4 * 8 + 8 + 4 + 8) + 4 + 2 * 16 + 4 + 2);
    set_close(&s);
    return seconds;
}

static void call_act(void *context)
{
    (void)gpu_act(memory_stream(), context);
}

/* Choices between two. */
static double time_act(double *bytes)
{
    const size_t n = memory_timed() / 8;
    const uint64_t turn = 1;
    float *head = timed_floats(2 * n), *drawn = timed_floats(2 * n);
    struct array place = array_of(&turn, sizeof turn, 0);
    struct gpu_act_work work = {.policy = {.action_dim = 2},
                                .n = n,
                                .seed = 1,
                                .head = head,
                                .turn = (uint64_t *)(void *)place.device,
                                .actions = drawn,
                                .log_probabilities = drawn + n};
    const double seconds = memory_seconds(call_act, &work, 5);
    *bytes = 4.0 * (double)n * sizeof(float);
    memory_free(head);
    memory_free(drawn);
    array_end(&place);
    return seconds;
}

const struct check checks_environment[] = {
    {"environments: a step of any (times: CartPole)", "ends, 1e-5", run_environments, time_cartpole,
     0},
    {"drawing actions", "choices, 1e-5", run_act, time_act, 0},
    {NULL, NULL, NULL, NULL, 0},
};
