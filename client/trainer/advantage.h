/* Advantages and value targets from a rollout: GAE (Schulman et al., 2016) and V-trace (Espeholt et
 * al., 2018). The arrays and what happens to one step are common/element_advantage.h. */
#ifndef GRADWEIR_TRAINER_ADVANTAGE_H
#define GRADWEIR_TRAINER_ADVANTAGE_H

#include "common/element_advantage.h"

/* Both write advantages and targets, [T, N]. */
void advantage_gae(const struct advantage_input *input, float gamma, float lambda,
                   float *advantages, float *targets);

/* log_ratios [T, N] = log pi - log mu of the actions taken. Formulas: tests/vectors/README.md,
 * family vtrace. */
void advantage_vtrace(const struct advantage_input *input,
                      const struct advantage_vtrace_settings *settings, const float *log_ratios,
                      float *advantages, float *targets);

#endif
