/* The reference cases of the trainer's families. */
#include "tests/vectors/vectors_trainer.h"

#include <criterion/criterion.h>

Test(vectors_trainer, every_case_of_the_trainer_is_within_its_tolerance)
{
    static const struct vector_family families[] = {
        {"gae", check_gae},
        {"vtrace", check_vtrace},
        {"stats", check_stats},
        {"stats_merge", check_stats_merge},
        {"reward_norm", check_reward_norm},
        {"env_step", check_env_step},
        {"env_trace", check_env_trace},
        {"ppo", check_ppo},
        {"ppo_loss", check_ppo_loss},
        {"ppo_train", check_ppo_train},
    };
    vector_run("trainer", families, sizeof(families) / sizeof(families[0]));
}
