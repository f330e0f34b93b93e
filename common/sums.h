/* Sums over the whole model, for the round of a step: what each member sends, and what follows once
 * all have. Sums are nodes of the fixed binary tree over the model's blocks (arithmetic.h), so any
 * number of members gives the same bits.
 *
 * A series is one such sum over a stretch of elements. Who needs which:
 *
 *   clip of the average    SUMS_AVERAGE: one series, the squares of the average, over all blocks
 *   LAMB                   SUMS_TENSORS: two for each parameter tensor in the order of offsets,
 *                          squares of the parameters, then squares of the update
 *
 * For each series that touches a member's range, in that order, the member sends the nodes that
 * cover its blocks of it, left to right, numbered from 0 over all series, SUM_NODES_MAX a message.
 * Places follow from the model; only sums travel. */
#ifndef GRADWEIR_COMMON_SUMS_H
#define GRADWEIR_COMMON_SUMS_H

#include "common/ledger.h"
#include "common/message.h"
#include "common/model.h"

#include <stdbool.h>

enum sums_kind { SUMS_AVERAGE, SUMS_TENSORS };

struct sums; /* the sums of one step, as they come: opaque */

/* Which of the two a job with this optimizer takes. */
enum sums_kind sums_kind_of(const struct law_settings *law);

/* How many nodes a member sends. */
uint64_t sums_count(const struct model *model, enum sums_kind kind, uint32_t members,
                    uint32_t member);

/* Blocks of a tensor within a range: the first (of the model), how many; false when there are none.
 */
bool sums_blocks(const struct model *model, const struct model_tensor *tensor,
                 const struct model_range *range, uint64_t *first, uint64_t *count);

/* Room for the sums of all members; borrows the model. ERR_NO_MEMORY. */
gradweir_status sums_new(const struct model *model, enum sums_kind kind, uint32_t members,
                         struct sums **sums);
void sums_free(struct sums *sums);

/* Forgets what has come: the sums of this version are wanted. */
void sums_begin(struct sums *sums, uint64_t version);
uint64_t sums_version(const struct sums *sums);

/* Twice does no harm, and messages may overtake each other. False, and nothing taken: it is not of
 * this version, or cannot be the member's. */
bool sums_take(struct sums *sums, uint32_t member, const struct message_sums *message);
bool sums_has(const struct sums *sums, uint32_t member); /* all of its nodes */
bool sums_whole(const struct sums *sums);

/* SUMS_AVERAGE, whole: the norm. */
double sums_norm(const struct sums *sums);

/* SUMS_TENSORS, whole: the trust ratio of every parameter tensor, as float32 bits; 1 for a frozen
 * group's. False when one is no finite number. `ratios` has room for parameter_tensors. */
bool sums_ratios(const struct sums *sums, const struct optimizer_options *optimizer,
                 uint32_t *ratios);

#endif
