/* MountainCarContinuous-v0: rock a weak car out of a valley, paying for the force used. */
#include "client/trainer/environment.h"

#include "common/element_environment.h"

static void reset(double *state, struct chance *chance)
{
    double units[1];
    for (size_t i = 0; i < 1; i++)
        units[i] = chance_uniform(chance, 0, 1);
    element_mountain_car_reset(state, units);
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
    .step = element_mountain_car_step,
    .observe = element_mountain_car_observe,
};
