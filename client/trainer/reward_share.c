/* See reward_share.h. The start's pseudo-observations are each worker's own and never shared: they
 * would add up. */
#include "client/trainer/reward_share.h"

static const double start_count = 1e-4; /* as Gymnasium's */

struct reward_normaliser reward_start(const struct train_settings *settings)
{
    return (struct reward_normaliser){.gamma = settings->gamma,
                                      .epsilon = 1e-8,
                                      .limit = 10,
                                      .reset_at_terminated = true,
                                      .statistics = statistics_start(start_count)};
}

gradweir_status reward_share(const struct train_settings *settings, struct learner *learner,
                             struct reward_normaliser *normaliser)
{
    struct statistics total;
    if (!settings->stable || !settings->reward_norm)
        return GRADWEIR_OK;
    const gradweir_status status =
        learner->share(learner, LEARNER_REWARD_STATISTICS, &normaliser->fresh, &total);
    if (status != GRADWEIR_OK)
        return status;
    normaliser->fresh = (struct statistics){.count = 0};
    normaliser->statistics = statistics_start(start_count);
    statistics_merge(&normaliser->statistics, &total);
    return GRADWEIR_OK;
}
