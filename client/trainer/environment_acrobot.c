/* Acrobot-v1: swing the tip of a two-link arm above a line with a motor in the middle joint only.
 */
#include "client/trainer/environment.h"

#include "common/element_environment.h"

static void reset(double *state, struct chance *chance)
{
    double units[4];
    for (size_t i = 0; i < 4; i++)
        units[i] = chance_uniform(chance, 0, 1);
    element_acrobot_reset(state, units);
}

const struct environment environment_acrobot = {
    .name = "Acrobot-v1",
    .state_dim = 4,
    .observation_dim = 6,
    .action_dim = 3,
    .discrete = true,
    .time_limit = 500,
    .reset = reset,
    .step = element_acrobot_step,
    .observe = element_acrobot_observe,
};
