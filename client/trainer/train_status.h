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

/* Prints the audit: every push that was described has exactly one verdict. The servers count offers
 * of first parameters among the pushes; the workers' counts are of gradients only. `offers_max` is
 * how many offers there may have been, in a run that had its servers to itself and lost no worker:
 * then the two sides must agree, one offer being admitted. 0: a lost worker could not report its
 * last pushes, or others use the servers too, so theirs may be the higher numbers. False when
 * something does not add up, though both sides could be compared. */
bool train_status_audit(const struct train_status *status, const struct learner_counts *counts,
                        uint64_t offers_max);

#endif
