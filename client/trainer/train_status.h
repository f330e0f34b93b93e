/* What the servers say of themselves, and whether it agrees with what the workers say. */
#ifndef GRADWEIR_TRAINER_TRAIN_STATUS_H
#define GRADWEIR_TRAINER_TRAIN_STATUS_H

#include "client/trainer/learner.h"

#include <gradweir/gradweir.h>

struct train_status {
    bool known;
    uint64_t queue, queue_peak, pushes, admitted, refused, duplicates;
};

/* Leaves `known` false when there is no answer within a second. */
void train_status_ask(gradweir_client *client, struct train_status *status);

/* Prints the audit: every push that was described has exactly one verdict. Workers that were killed
 * could not report their last ones, so the servers' numbers may be the higher. */
void train_status_audit(const struct train_status *status, const struct learner_counts *counts);

#endif
