/* MountainCarContinuous-v0: rock a weak car out of a valley, paying for the force used. */
#include "client/trainer/environment.h"

#include <math.h>

static void reset(double *state, struct chance *chance)
{
    state[0] = chance_uniform(chance, -0.6, -0.4);
    state[1] = 0;
}

static double clamp(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

/* The action costs as given; only the force is clamped. */
static bool step(double *state, double action, double *reward)
{
    const double force = clamp(action, -1, 1);
    double velocity = state[1] + (force * 0.0015 - 0.0025 * cos(3 * state[0]));
    velocity = clamp(velocity, -0.07, 0.07);
    const double position = clamp(state[0] + velocity, -1.2, 0.6);
    if (position == -1.2 && velocity < 0)
        velocity = 0;
    state[0] = position;
    state[1] = velocity;
    const bool arrived = position >= 0.45 && velocity >= 0;
    *reward = (arrived ? 100.0 : 0.0) - action * action * 0.1;
    return arrived;
}

static void observe(const double *state, float *observation)
{
    observation[0] = (float)state[0];
    observation[1] = (float)state[1];
}

const struct environment environment_mountain_car = {
    .name = "MountainCarContinuous-v0",
    .state_dim = 2,
    .observation_dim = 2,
    .action_dim = 1,
    .discrete = false,
    .action_low = -1,
    .action_high = 1,
    .time_limit = 999,
    .reset = reset,
    .step = step,
    .observe = observe,
};
