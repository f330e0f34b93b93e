/* See advantage.h. */
#include "client/trainer/advantage.h"

#include <math.h>
#include <stdbool.h>

void advantage_gae(const struct advantage_input *input, float gamma, float lambda,
                   float *advantages, float *targets)
{
    const size_t n = input->environments;
    for (size_t t = input->steps; t-- > 0;)
        for (size_t i = t * n; i < (t + 1) * n; i++) {
            const bool done = input->terminated[i] || input->truncated[i];
            const float next = input->terminated[i] ? 0 : input->next_values[i];
            const float delta = input->rewards[i] + gamma * next - input->values[i];
            const float later = done || t + 1 == input->steps ? 0 : advantages[i + n];
            advantages[i] = delta + gamma * lambda * later;
            targets[i] = advantages[i] + input->values[i];
        }
}

void advantage_vtrace(const struct advantage_input *input,
                      const struct advantage_vtrace_settings *settings, const float *log_ratios,
                      float *advantages, float *targets)
{
    const size_t n = input->environments;
    const float gamma = settings->gamma;
    for (size_t t = input->steps; t-- > 0;)
        for (size_t i = t * n; i < (t + 1) * n; i++) {
            const bool done = input->terminated[i] || input->truncated[i];
            const bool cut = done || t + 1 == input->steps;
            const float alive = input->terminated[i] ? 0 : gamma;
            const float rho = expf(log_ratios[i]);
            const float value = input->values[i], next = input->next_values[i];
            const float delta =
                fminf(rho, settings->rho_bar) * (input->rewards[i] + alive * next - value);
            const float later = cut ? 0 : targets[i + n] - input->values[i + n];
            const float ahead = cut ? next : targets[i + n];
            targets[i] = value + delta + gamma * fminf(rho, settings->c_bar) * later;
            advantages[i] =
                fminf(rho, settings->policy_rho_bar) * (input->rewards[i] + alive * ahead - value);
        }
}
