/* The PPO loss over a batch with its derivatives. Settings, the batch and what happens to one
 * sample are common/element_loss.h. */
#ifndef GRADWEIR_TRAINER_LOSS_H
#define GRADWEIR_TRAINER_LOSS_H

#include "common/element_loss.h"

enum { LOSS_ACTION_MAX = 64 };

struct loss_result {
    struct loss_arrays arrays; /* the caller's */

    double loss;
    double policy_loss;
    double value_loss;
    double entropy_mean;
    double approx_kl;     /* mean((ratio - 1) - log ratio) */
    double old_approx_kl; /* mean(-log ratio) */
    double clip_fraction;
    double explained_variance; /* of the targets by old_values; NaN when the targets do not vary */
    double weight_mean;
};

/* What the sums of n samples say, without explained_variance: for whoever has summed elsewhere. */
void loss_tell(const struct loss_settings *settings, const struct loss_sums *sums, size_t n,
               struct loss_result *result);

void loss_compute(const struct loss_settings *settings, const struct loss_batch *batch,
                  struct loss_result *result);

#endif
