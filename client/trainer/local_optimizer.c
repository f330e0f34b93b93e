/* See local_optimizer.h. */
#include "client/trainer/local_optimizer.h"

#include "client/trainer/vector_math.h"

#include <math.h>
#include <stdlib.h>

bool local_optimizer_init(struct local_optimizer *optimizer, size_t n, double epsilon,
                          double norm_max)
{
    *optimizer = (struct local_optimizer){
        .n = n, .beta1 = 0.9, .beta2 = 0.999, .epsilon = epsilon, .norm_max = norm_max};
    optimizer->m = calloc(n, sizeof(float));
    optimizer->v = calloc(n, sizeof(float));
    return optimizer->m != NULL && optimizer->v != NULL;
}

void local_optimizer_deinit(struct local_optimizer *optimizer)
{
    free(optimizer->v);
    free(optimizer->m);
    *optimizer = (struct local_optimizer){.n = 0};
}

double local_optimizer_step(struct local_optimizer *optimizer, double learning_rate,
                            const float *gradient, float *parameters)
{
    const double norm = sqrt(vector_square_sum(optimizer->n, gradient));
    if (!isfinite(norm))
        return norm;
    const double t = (double)++optimizer->steps;
    const double correction1 = 1 - pow(optimizer->beta1, t),
                 correction2 = 1 - pow(optimizer->beta2, t);
    const struct adam_factors factors = {
        .gradient_scale = (float)element_clip_factor(norm, optimizer->norm_max),
        .beta1 = (float)optimizer->beta1,
        .beta2 = (float)optimizer->beta2,
        .rate = (float)(learning_rate / correction1),
        .root_scale = (float)(1 / sqrt(correction2)),
        .epsilon = (float)optimizer->epsilon,
    };
    vector_adam(
        optimizer->n, &factors, gradient,
        (struct adam_state){.parameters = parameters, .m = optimizer->m, .v = optimizer->v});
    return norm;
}
