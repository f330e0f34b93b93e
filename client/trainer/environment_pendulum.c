/* Pendulum-v1: swing a pendulum up with a weak motor and hold it there. It never terminates. */
#include "client/trainer/environment.h"

#include "common/element_environment.h"

static void reset(double *state, struct chance *chance)
{
    double units[2];
    for (size_t i = 0; i < 2; i++)
        units[i] = chance_uniform(chance, 0, 1);
    element_pendulum_reset(state, units);
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
    .step = element_pendulum_step,
    .observe = element_pendulum_observe,
};
