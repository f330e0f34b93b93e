/* A synchronous trainer in one process, in plain C: what `mode = sync` must equal to the bit. It
 * includes nothing of the house, and is written from the following definition alone.
 *
 * One step t = 1, 2, … over the gradients g_0 … g_(N-1) of workers 0 … N-1 with s_0 … s_(N-1)
 * samples. Everything is IEEE 754, rounded to nearest even after each single operation (no
 * contraction into multiply-add), from left to right as written; (f) marks a rounding to binary32,
 * everything per element is binary32, everything else binary64.
 *
 *   total   = ((0 + s_0) + s_1) + …
 *   w_k     = (f)(s_k / total)
 *   a       = ((+0 + w_0 g_0) + w_1 g_1) + …             in worker order
 *   g       = a + (f)decay θ                             Adam's weight decay, as in PyTorch
 *   m      := m (f)β1 + g (f)(1 - β1)
 *   v      := v (f)β2 + ((f)(1 - β2) g) g
 *   θ      := θ - (f)(rate / (1 - β1^t)) (m / (√v / (f)√(1 - β2^t) + (f)ε))
 *
 * β^t is the product of those of β, β², β⁴, … whose bit is set in t, the lowest first. */
#ifndef GRADWEIR_INTEGRATION_SYNC_REFERENCE_H
#define GRADWEIR_INTEGRATION_SYNC_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

struct sync_reference {
    size_t elements;
    double rate, beta1, beta2, epsilon, decay;
    uint64_t t;                         /* steps taken */
    float *parameters, *first, *second; /* θ, m, v: the caller's, `elements` each */
};

/* gradients[k] and samples[k] are worker k's. */
void sync_reference_step(struct sync_reference *reference, const float *const *gradients,
                         const uint64_t *samples, size_t workers);

#endif
