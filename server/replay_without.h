/* What a recorded run would have been without the gradients of one worker.
 *
 * The worker's place in the order stays: its records, its slots, the moments of all steps, their
 * versions, schedules and bias corrections are the run's. But none of its gradients counts:
 *
 *   - A step that had read some of them reads the rest of its window, with the weights that the law
 *     gives to the rest (normalise mean: divided by the sum over the rest; count: by their number)
 *     and, with damp, the learning rate that the rest has. A step that read none of them keeps its
 *     recorded weights.
 *   - A step that had read nothing else applies nothing: its version has the parameters and the
 *     optimizer's state of the version before.
 *   - A clip of the average is computed anew, from the average over the rest.
 *   - What its gradients carried for MOMENTS is not merged.
 *   - First parameters stay, whoever offered them.
 *
 * What other workers sent is taken as it was: without the worker they would have seen other
 * parameters and computed other gradients, and no recording can tell which. */
#ifndef GRADWEIR_SERVER_REPLAY_WITHOUT_H
#define GRADWEIR_SERVER_REPLAY_WITHOUT_H

#include "common/ledger.h"
#include "common/model.h"
#include "server/replay.h"

struct replay_without;

/* Looks through the log for the worker and rewinds; ERR_INVALID names those that are there. */
gradweir_status replay_without_new(struct recording_reader *reader, const char *identity,
                                   struct replay_without **without);
void replay_without_free(struct replay_without *without); /* NULL is accepted */

/* Folds the record as the run had it, then turns it into what it is without the worker: to be
 * called with every record, in order. Counts into result. */
gradweir_status replay_without_record(struct replay_without *without, const struct model *model,
                                      struct record *record, struct replay_result *result);

/* Whether this ADMIT's gradient is left out: its body then is to be all zeros, MOMENTS too. */
bool replay_without_leaves(const struct replay_without *without, const struct record *record);

/* A SUMMED record whose factor was computed anew; gives each record its new chain hash. */
void replay_without_seal(struct replay_without *without, struct record *record);

#endif
