/* How good parameters are: fresh episodes under the greedy policy, which nothing learns from. */
#ifndef GRADWEIR_TRAINER_EVALUATION_H
#define GRADWEIR_TRAINER_EVALUATION_H

#include "client/trainer/environment.h"
#include "client/trainer/network.h"

/* The mean return of `episodes` episodes, all played side by side; NaN when there are none or no
 * memory. */
double evaluation_greedy(const struct environment *environment, const struct network *network,
                         const float *parameters, size_t episodes, uint64_t seed);

#endif
