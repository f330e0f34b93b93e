/* Rewards normalised by what all workers have seen: --stable. */
#ifndef GRADWEIR_TRAINER_REWARD_SHARE_H
#define GRADWEIR_TRAINER_REWARD_SHARE_H

#include "client/trainer/learner.h"

/* A normaliser that nobody shares yet. */
struct reward_normaliser reward_start(const struct train_settings *settings);

/* Hands over what this worker has seen since the last time, and goes on from what all have seen:
 * between rollouts, so that one rollout's rewards are scaled alike by all workers but for what each
 * sees meanwhile. Without --stable it does nothing: every worker has its own. */
gradweir_status reward_share(const struct train_settings *settings, struct learner *learner,
                             struct reward_normaliser *normaliser);

#endif
