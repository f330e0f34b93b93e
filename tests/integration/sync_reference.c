/* See sync_reference.h, whose formulas stand here one by one. */
#include "tests/integration/sync_reference.h"

#include <math.h>

enum { WORKERS_MOST = 64 };

static double to_the(double beta, uint64_t t)
{
    double product = 1.0, factor = beta;
    while (t != 0) {
        if (t % 2 == 1)
            product = product * factor;
        factor = factor * factor;
        t = t / 2;
    }
    return product;
}

void sync_reference_step(struct sync_reference *reference, const float *const *gradients,
                         const uint64_t *samples, size_t workers)
{
    float weights[WORKERS_MOST];
    double total = 0.0;
    for (size_t k = 0; k < workers; k++)
        total = total + (double)samples[k];
    for (size_t k = 0; k < workers; k++)
        weights[k] = (float)((double)samples[k] / total);

    const uint64_t t = ++reference->t;
    const double correction1 = 1.0 - to_the(reference->beta1, t);
    const double correction2 = 1.0 - to_the(reference->beta2, t);
    const float rate = (float)(reference->rate / correction1);
    const float root = (float)sqrt(correction2);
    const float keep1 = (float)reference->beta1, rest1 = (float)(1.0 - reference->beta1);
    const float keep2 = (float)reference->beta2, rest2 = (float)(1.0 - reference->beta2);
    const float decay = (float)reference->decay, epsilon = (float)reference->epsilon;
    for (size_t i = 0; i < reference->elements; i++) {
        float *theta = &reference->parameters[i];
        float *m = &reference->first[i], *v = &reference->second[i];
        float g = 0.0f;
        for (size_t k = 0; k < workers; k++)
            g = g + weights[k] * gradients[k][i];
        g = g + decay * *theta;
        *m = *m * keep1 + g * rest1;
        *v = *v * keep2 + (rest2 * g) * g;
        *theta = *theta - rate * (*m / (sqrtf(*v) / root + epsilon));
    }
}
