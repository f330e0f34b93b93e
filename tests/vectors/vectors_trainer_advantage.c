/* Families gae and vtrace, in float. */
#include "client/trainer/advantage.h"
#include "tests/vectors/vectors_trainer.h"

#include <stdlib.h>

static struct advantage_input input_of(const struct vector_case *c)
{
    return (struct advantage_input){
        .steps = vector_size(c, "T"),
        .environments = vector_size(c, "N"),
        .rewards = vector_f32(c, "rewards"),
        .values = vector_f32(c, "values"),
        .next_values = vector_f32(c, "next_values"),
        .terminated = vector_u8(c, "terminated"),
        .truncated = vector_u8(c, "truncated"),
    };
}

/* A truncation is treated as a termination when the truncated flags are given as terminated ones
 * too. */
static void check_without_bootstrap(const struct vector_case *c, struct advantage_input input,
                                    float *advantages, float *targets)
{
    const size_t n = input.steps * input.environments;
    uint8_t *ended = calloc(n + 1, 1);
    for (size_t i = 0; i < n; i++)
        ended[i] = input.terminated[i] || input.truncated[i];
    input.terminated = ended;
    advantage_gae(&input, (float)vector_number(c, "gamma"), (float)vector_number(c, "lam"),
                  advantages, targets);
    vector_compare_f32(c, "advantages_no_trunc_bootstrap", advantages, n);
    vector_compare_f32(c, "returns_no_trunc_bootstrap", targets, n);
    free(ended);
}

void check_gae(const struct vector_case *c)
{
    const struct advantage_input input = input_of(c);
    const size_t n = input.steps * input.environments;
    float *advantages = calloc(n + 1, sizeof(float)), *targets = calloc(n + 1, sizeof(float));
    advantage_gae(&input, (float)vector_number(c, "gamma"), (float)vector_number(c, "lam"),
                  advantages, targets);
    vector_compare_f32(c, "advantages", advantages, n);
    vector_compare_f32(c, "returns", targets, n);
    check_without_bootstrap(c, input, advantages, targets);
    free(targets);
    free(advantages);
}

void check_vtrace(const struct vector_case *c)
{
    const struct advantage_input input = input_of(c);
    const size_t n = input.steps * input.environments;
    const struct advantage_vtrace_settings settings = {
        .gamma = (float)vector_number(c, "gamma"),
        .rho_bar = (float)vector_number(c, "rho_bar"),
        .c_bar = (float)vector_number(c, "c_bar"),
        .policy_rho_bar = (float)vector_number(c, "pg_rho_bar"),
    };
    const float *log_pi = vector_f32(c, "log_pi"), *log_mu = vector_f32(c, "log_mu");
    float *advantages = calloc(n + 1, sizeof(float)), *targets = calloc(n + 1, sizeof(float));
    float *log_ratios = calloc(n + 1, sizeof(float));
    for (size_t i = 0; i < n; i++)
        log_ratios[i] = log_pi[i] - log_mu[i];
    advantage_vtrace(&input, &settings, log_ratios, advantages, targets);
    vector_compare_f32(c, "vs", targets, n);
    vector_compare_f32(c, "pg_advantages", advantages, n);
    free(log_ratios);
    free(targets);
    free(advantages);
}
