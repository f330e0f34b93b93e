/* See advantage.h. A row of all environments after the other, from the last one. */
#include "client/trainer/advantage.h"

void advantage_gae(const struct advantage_input *input, float gamma, float lambda,
                   float *advantages, float *targets)
{
    const size_t n = input->environments;
    for (size_t t = input->steps; t-- > 0;)
        for (size_t i = t * n; i < (t + 1) * n; i++) {
            const float *later = t + 1 == input->steps ? NULL : &advantages[i + n];
            const struct element_estimate e = element_gae(input, i, gamma, lambda, later);
            advantages[i] = e.advantage;
            targets[i] = e.target;
        }
}

void advantage_vtrace(const struct advantage_input *input,
                      const struct advantage_vtrace_settings *settings, const float *log_ratios,
                      float *advantages, float *targets)
{
    const size_t n = input->environments;
    for (size_t t = input->steps; t-- > 0;)
        for (size_t i = t * n; i < (t + 1) * n; i++) {
            const float *later = t + 1 == input->steps ? NULL : &targets[i + n];
            const struct element_estimate e =
                element_vtrace(input, i, settings, log_ratios[i], later);
            advantages[i] = e.advantage;
            targets[i] = e.target;
        }
}
