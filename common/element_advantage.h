/* One step of the backward recursions of GAE (Schulman et al., 2016) and V-trace (Espeholt et al.,
 * 2018), and the normalisation of advantages. Who walks over time and environments, and in which
 * order the sums of a normalisation are taken, is the caller's: the CPU's loops are
 * client/trainer/advantage.c, the GPU's gpu/kernels_learn_advantage.cu.
 *
 * Arrays are [T, N], time major. next_values[t] is the value of the state that step t led to: of
 * the final observation where the episode ended. So a truncated episode bootstraps from where it
 * was cut, never from the next one. */
#ifndef GRADWEIR_COMMON_ELEMENT_ADVANTAGE_H
#define GRADWEIR_COMMON_ELEMENT_ADVANTAGE_H

#include "common/arithmetic_element.h"

#include <stdbool.h>
#include <stddef.h>

struct advantage_input {
    size_t steps;        /* T */
    size_t environments; /* N */
    const float *rewards;
    const float *values;
    const float *next_values;
    const uint8_t *terminated;
    const uint8_t *truncated;
};

struct advantage_vtrace_settings {
    float gamma;
    float rho_bar;        /* cap of the importance weight in the temporal difference */
    float c_bar;          /* cap in the trace */
    float policy_rho_bar; /* cap in the policy's advantage */
};

/* Where they go, [T, N]. */
struct element_estimates {
    float *advantages;
    float *targets;
};

/* What one step gives. */
struct element_estimate {
    float advantage, target;
};

/* `later` points to what the recursion carries from the step after it,
 * A_{t+1} of GAE or vs_{t+1} of V-trace, and is NULL in the last row. */
ELEMENT bool element_advantage_cut(const struct advantage_input *input, size_t i,
                                   const float *later)
{
    return later == NULL || input->terminated[i] || input->truncated[i];
}

/* delta = r + gamma (1 - terminated) next_value - value;  A_t = delta_t + gamma lambda (1 - done_t)
 * A_{t+1}; target = A + value. */
ELEMENT struct element_estimate element_gae(const struct advantage_input *input, size_t i,
                                            float gamma, float lambda, const float *later)
{
    const float next = input->terminated[i] ? 0 : input->next_values[i];
    const float delta = input->rewards[i] + gamma * next - input->values[i];
    struct element_estimate e;
    e.advantage = delta + gamma * lambda * (element_advantage_cut(input, i, later) ? 0 : *later);
    e.target = e.advantage + input->values[i];
    return e;
}

/* tests/vectors/README.md, family vtrace. log_ratio = log pi - log mu. */
ELEMENT struct element_estimate element_vtrace(const struct advantage_input *input, size_t i,
                                               const struct advantage_vtrace_settings *settings,
                                               float log_ratio, const float *later)
{
    const bool cut = element_advantage_cut(input, i, later);
    const float gamma = settings->gamma, alive = input->terminated[i] ? 0 : gamma;
    const float rho = expf(log_ratio);
    const float value = input->values[i], next = input->next_values[i];
    const float delta = fminf(rho, settings->rho_bar) * (input->rewards[i] + alive * next - value);
    const float moved = cut ? 0 : *later - input->values[i + input->environments];
    const float ahead = cut ? next : *later;
    struct element_estimate e;
    e.target = value + delta + gamma * fminf(rho, settings->c_bar) * moved;
    e.advantage =
        fminf(rho, settings->policy_rho_bar) * (input->rewards[i] + alive * ahead - value);
    return e;
}

/* What advantages are divided by, from their sum of squared distances: the deviation with divisor
 * count - 1. */
ELEMENT double element_advantage_divisor(double m2, double count)
{
    return sqrt(m2 / (count - 1)) + 1e-8;
}

ELEMENT float element_advantage_used(float advantage, double mean, double divisor)
{
    return (float)(((double)advantage - mean) / divisor);
}

#endif
