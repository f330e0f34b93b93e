/* CartPole-v1: keep a pole upright on a cart by pushing the cart left or right. */
#include "client/trainer/environment.h"

#include "common/element_environment.h"

static void reset(double *state, struct chance *chance)
{
    double units[4];
    for (size_t i = 0; i < 4; i++)
        units[i] = chance_uniform(chance, 0, 1);
    element_cartpole_reset(state, units);
}

const struct environment environment_cartpole = {
    .name = "CartPole-v1",
    .state_dim = 4,
    .observation_dim = 4,
    .action_dim = 2,
    .discrete = true,
    .time_limit = 500,
    .reset = reset,
    .step = element_cartpole_step,
    .observe = element_cartpole_observe,
};
