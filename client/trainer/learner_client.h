/* What the learners that talk to servers share: options, tensors, and how verdicts are counted. */
#ifndef GRADWEIR_TRAINER_LEARNER_CLIENT_H
#define GRADWEIR_TRAINER_LEARNER_CLIENT_H

#include "client/trainer/learner_remote.h"

#include <gradweir/gradweir.h>

enum { LEARNER_SHARED = 2 };

/* Of a client: all parameters, their gradient, and the shared statistics, LEARNER_SHARED of each:
 * those of all workers, and those that go with the next gradient. */
struct learner_memory {
    float *parameters; /* these may lie in a GPU's memory */
    const float *gradient;
    struct statistics *pulled, *carried;
};

gradweir_options learner_client_options(const struct train_settings *settings,
                                        const struct learner_remote_options *options,
                                        uint32_t patience_ms);

/* Writes at most NETWORK_TENSORS_MAX + LEARNER_SHARED tensors; how many. Their memory is the
 * learner's. */
size_t learner_client_tensors(const struct network *network, const struct learner_memory *memory,
                              gradweir_tensor *tensors);

/* Counts a verdict, and says on stderr when a gradient was not finite. */
void learner_client_count(struct learner_counts *counts, gradweir_client *client,
                          const gradweir_receipt *receipt);

#endif
