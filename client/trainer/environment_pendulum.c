/* Pendulum-v1: swing a pendulum up with a weak motor and hold it there. It never terminates. */
#include "client/trainer/environment.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static void reset(double *state, struct chance *chance)
{
    state[0] = chance_uniform(chance, -pi, pi);
    state[1] = chance_uniform(chance, -1, 1);
}

/* To [-pi, pi), as Python's modulo does it. */
static double wrap(double angle)
{
    double rest = fmod(angle + pi, 2 * pi);
    if (rest < 0)
        rest += 2 * pi;
    return rest - pi;
}

static double clamp(double x, double limit)
{
    return fmin(fmax(x, -limit), limit);
}

/* The cost is that of the state before the step. */
static bool step(double *state, double action, double *reward)
{
    const double theta = state[0], theta_dot = state[1], torque = clamp(action, 2);
    const double angle = wrap(theta);
    *reward = -(angle * angle + 0.1 * (theta_dot * theta_dot) + 0.001 * (torque * torque));
    state[1] = clamp(theta_dot + (15 * sin(theta) + 3 * torque) * 0.05, 8);
    state[0] = theta + state[1] * 0.05;
    return false;
}

static void observe(const double *state, float *observation)
{
    observation[0] = (float)cos(state[0]);
    observation[1] = (float)sin(state[0]);
    observation[2] = (float)state[1];
}

const struct environment environment_pendulum = {
    .name = "Pendulum-v1",
    .state_dim = 2,
    .observation_dim = 3,
    .action_dim = 1,
    .discrete = false,
    .action_low = -2,
    .action_high = 2,
    .time_limit = 200,
    .reset = reset,
    .step = step,
    .observe = observe,
};
