/* CartPole-v1: keep a pole upright on a cart by pushing the cart left or right. */
#include "client/trainer/environment.h"

#include <math.h>

static const double gravity = 9.8;
static const double mass_total = 1.1;
static const double mass_pole = 0.1;
static const double half_length = 0.5;
static const double pole_moment = 0.05; /* mass_pole * half_length */
static const double force_size = 10.0;
static const double dt = 0.02;
static const double x_limit = 2.4;
static const double theta_limit = 12 * 2 * 3.14159265358979323846 / 360;

static void reset(double *state, struct chance *chance)
{
    for (size_t i = 0; i < 4; i++)
        state[i] = chance_uniform(chance, -0.05, 0.05);
}

/* Explicit Euler: the positions move with the old velocities. */
static bool step(double *state, double action, double *reward)
{
    const double x = state[0], x_dot = state[1], theta = state[2], theta_dot = state[3];
    const double force = action > 0.5 ? force_size : -force_size;
    const double cosine = cos(theta), sine = sin(theta);
    const double k = (force + pole_moment * (theta_dot * theta_dot) * sine) / mass_total;
    const double theta_acc =
        (gravity * sine - cosine * k) /
        (half_length * (4.0 / 3.0 - mass_pole * (cosine * cosine) / mass_total));
    const double x_acc = k - pole_moment * theta_acc * cosine / mass_total;
    state[0] = x + dt * x_dot;
    state[1] = x_dot + dt * x_acc;
    state[2] = theta + dt * theta_dot;
    state[3] = theta_dot + dt * theta_acc;
    *reward = 1;
    return fabs(state[0]) > x_limit || fabs(state[2]) > theta_limit;
}

static void observe(const double *state, float *observation)
{
    for (size_t i = 0; i < 4; i++)
        observation[i] = (float)state[i];
}

const struct environment environment_cartpole = {
    .name = "CartPole-v1",
    .state_dim = 4,
    .observation_dim = 4,
    .action_dim = 2,
    .discrete = true,
    .time_limit = 500,
    .reset = reset,
    .step = step,
    .observe = observe,
};
