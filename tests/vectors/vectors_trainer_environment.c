/* Families env_step and env_trace, in double. */
#include "client/trainer/environment.h"
#include "tests/vectors/vectors_trainer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const struct environment *environment_of(const struct vector_case *c)
{
    const struct environment *environment = environment_find(vector_word(c, "env"));
    cr_assert(environment != NULL, "%s: unknown environment", c->directory);
    return environment;
}

/* The action of that index; discrete ones are <i4, continuous ones <f8. */
static double action_at(const struct vector_case *c, const char *name, size_t i)
{
    return vector_array(c, name)->dtype[1] == 'i' ? vector_i32(c, name)[i] : vector_f64(c, name)[i];
}

/* Near +-pi Acrobot's angles are the same modulo 2 pi: brings the actual ones next to the expected
 * ones. */
static void align_angles(const struct environment *environment, double *actual,
                         const double *expected)
{
    if (environment != &environment_acrobot)
        return;
    for (size_t i = 0; i < 2; i++)
        actual[i] += 2 * 3.14159265358979323846 *
                     round((expected[i] - actual[i]) / (2 * 3.14159265358979323846));
}

void check_env_step(const struct vector_case *c)
{
    const struct environment *environment = environment_of(c);
    const size_t dim = environment->state_dim;
    const struct vector_tolerance near_state = {vector_number(c, "tol.state_rtol"),
                                                vector_number(c, "tol.state_atol")};
    const struct vector_tolerance near_reward = {0, vector_number(c, "tol.reward_atol")};
    for (size_t i = 0; i < vector_size(c, "count"); i++) {
        double state[ENVIRONMENT_STATE_MAX], reward = 0;
        memcpy(state, vector_f64(c, "state") + i * dim, dim * sizeof(double));
        const bool terminated = environment->step(state, action_at(c, "action", i), &reward);
        align_angles(environment, state, vector_f64(c, "next_state") + i * dim);
        vector_near(c, "next_state", state, vector_f64(c, "next_state") + i * dim, dim, near_state);
        vector_near(c, "reward", &reward, vector_f64(c, "reward") + i, 1, near_reward);
        cr_expect_eq(terminated, vector_u8(c, "terminated")[i], "%s: terminated[%zu]", c->directory,
                     i);
    }
}

static void check_observation(const struct vector_case *c, const struct environment *environment,
                              const double *state, size_t at)
{
    float observation[ENVIRONMENT_OBSERVATION_MAX];
    double actual[ENVIRONMENT_OBSERVATION_MAX], expected[ENVIRONMENT_OBSERVATION_MAX];
    environment->observe(state, observation);
    for (size_t j = 0; j < environment->observation_dim; j++) {
        actual[j] = (double)observation[j];
        expected[j] = (double)vector_f32(c, "obs")[at * environment->observation_dim + j];
    }
    const double atol = vector_number(c, "tol.state_atol") + 1e-6;
    vector_near(c, "obs", actual, expected, environment->observation_dim,
                (struct vector_tolerance){1e-6, atol});
}

/* obs[i, t] is what is seen after step t. */
static void check_episode(const struct vector_case *c, const struct environment *environment,
                          size_t episode)
{
    const size_t dim = environment->state_dim, max = vector_size(c, "max_steps");
    const bool free_run = vector_is(c, "check", "free_run");
    const double *states = vector_f64(c, "states") + episode * (max + 1) * dim;
    const struct vector_tolerance near_state = {0, vector_number(c, "tol.state_atol")};
    const struct vector_tolerance near_reward = {0, vector_number(c, "tol.reward_atol")};
    const size_t length = (size_t)vector_i32(c, "length")[episode];
    double state[ENVIRONMENT_STATE_MAX];
    memcpy(state, vector_f64(c, "state0") + episode * dim, dim * sizeof(double));
    for (size_t t = 0; t < length; t++) {
        const size_t at = episode * max + t;
        double reward = 0;
        if (!free_run)
            memcpy(state, states + t * dim, dim * sizeof(double));
        const bool terminated = environment->step(state, action_at(c, "actions", at), &reward);
        align_angles(environment, state, states + (t + 1) * dim);
        vector_near(c, "states", state, states + (t + 1) * dim, dim, near_state);
        vector_near(c, "rewards", &reward, vector_f64(c, "rewards") + at, 1, near_reward);
        cr_expect_eq(terminated, vector_u8(c, "terminated")[at], "%s: terminated at %zu",
                     c->directory, t);
        cr_expect_eq(t + 1 >= vector_size(c, "time_limit"), vector_u8(c, "truncated")[at],
                     "%s: truncated at %zu", c->directory, t);
        if (vector_has_array(c, "obs"))
            check_observation(c, environment, state, at);
    }
}

void check_env_trace(const struct vector_case *c)
{
    const struct environment *environment = environment_of(c);
    cr_expect_eq(environment->time_limit, vector_size(c, "time_limit"), "%s: time limit",
                 c->directory);
    for (size_t episode = 0; episode < vector_size(c, "episodes"); episode++)
        check_episode(c, environment, episode);
}
