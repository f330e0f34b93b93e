/* What stands between the matrix products of the network: bias and tanh, and tanh's derivative.
 *
 * tanh is the rational approximation x p(x^2) / q(x^2) of Eigen (MathFunctionsImpl.h,
 * generic_fast_tanh_float), odd of degree 13 over even of degree 6; beyond the limit float tanh is
 * +-1. Within 5e-7 of the exact value, relative. IEEE operations only: the same bits on the CPU and
 * the GPU for the same input. */
#ifndef GRADWEIR_COMMON_ELEMENT_NETWORK_H
#define GRADWEIR_COMMON_ELEMENT_NETWORK_H

#include "common/arithmetic_element.h"

ELEMENT float element_tanh(float x)
{
    const float limit = 7.90531110763549805f;
    x = x > limit ? limit : x;
    x = x < -limit ? -limit : x;
    const float x2 = x * x;
    float p = -2.76076847742355e-16f;
    p = p * x2 + 2.00018790482477e-13f;
    p = p * x2 + -8.60467152213735e-11f;
    p = p * x2 + 5.12229709037114e-08f;
    p = p * x2 + 1.48572235717979e-05f;
    p = p * x2 + 6.37261928875436e-04f;
    p = p * x2 + 4.89352455891786e-03f;
    float q = 1.19825839466702e-06f;
    q = q * x2 + 1.18534705686654e-04f;
    q = q * x2 + 2.26843463243900e-03f;
    q = q * x2 + 4.89352518554385e-03f;
    return x * p / q;
}

ELEMENT float element_bias_tanh(float y, float bias)
{
    return element_tanh(y + bias);
}

/* d times the slope of tanh where its value is h. */
ELEMENT float element_tanh_backward(float d, float h)
{
    return d * (1 - h * h);
}

#endif
