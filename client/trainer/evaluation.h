/* How good parameters are: fresh episodes under the greedy policy, which nothing learns from. */
#ifndef GRADWEIR_TRAINER_EVALUATION_H
#define GRADWEIR_TRAINER_EVALUATION_H

#include "client/trainer/environment.h"
#include "client/trainer/network.h"

struct evaluation_episodes {
    size_t n;
    uint64_t seed;
    uint64_t stream; /* other episodes of the same seed; none are those of a worker */
};

/* The mean return of these episodes, all played side by side; NaN when there are none or no memory.
 */
double evaluation_greedy(const struct environment *environment, const struct network *network,
                         const float *parameters, struct evaluation_episodes episodes);

#endif
