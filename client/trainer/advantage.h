/* Advantages and value targets from a rollout: GAE (Schulman et al., 2016) and V-trace (Espeholt et
 * al., 2018).
 *
 * Arrays are [T, N], time major. next_values[t] is the value of the state that step t led to: of
 * the final observation where the episode ended. So a truncated episode bootstraps from where it
 * was cut, never from the next one. */
#ifndef GRADWEIR_TRAINER_ADVANTAGE_H
#define GRADWEIR_TRAINER_ADVANTAGE_H

#include <stddef.h>
#include <stdint.h>

struct advantage_input {
    size_t steps;        /* T */
    size_t environments; /* N */
    const float *rewards;
    const float *values;
    const float *next_values;
    const uint8_t *terminated;
    const uint8_t *truncated;
};

/* delta = r + gamma (1 - terminated) next_value - value;  A_t = delta_t + gamma lambda (1 - done_t)
 * A_{t+1}; targets = A + values. */
void advantage_gae(const struct advantage_input *input, float gamma, float lambda,
                   float *advantages, float *targets);

struct advantage_vtrace_settings {
    float gamma;
    float rho_bar;        /* cap of the importance weight in the temporal difference */
    float c_bar;          /* cap in the trace */
    float policy_rho_bar; /* cap in the policy's advantage */
};

/* log_ratios [T, N] = log pi - log mu of the actions taken. Formulas: tests/vectors/README.md,
 * family vtrace. */
void advantage_vtrace(const struct advantage_input *input,
                      const struct advantage_vtrace_settings *settings, const float *log_ratios,
                      float *advantages, float *targets);

#endif
