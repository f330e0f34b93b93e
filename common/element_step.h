/* One element through a whole step: window average, optimizer, new parameter. The same compositions
 * of element_* functions as the CPU's loops (common/arithmetic_optimizers.h), in one pass instead
 * of several short ones; tests/unit/element_set.c holds the two against each other, bit by
 * bit. nvcc and the C compilers read this file alike. */
#ifndef GRADWEIR_COMMON_ELEMENT_STEP_H
#define GRADWEIR_COMMON_ELEMENT_STEP_H

#include "common/arithmetic.h"

/* What one element has: read before, written after. */
struct element_item {
    float theta;
    float state[ARITHMETIC_STATES_MAX];
};

/* What of a plan an optimizer's step of one element needs: small, so that a kernel made for one
 * algorithm has it as constants. */
struct element_law {
    enum arithmetic_algorithm algorithm;
    bool first, centered, momentum;
    float epsilon;
};

ELEMENT struct element_law element_law_of(const struct arithmetic_plan *plan)
{
    struct element_law law;
    law.algorithm = plan->algorithm;
    law.first = plan->first;
    law.centered = plan->centered;
    law.momentum = plan->momentum;
    law.epsilon = plan->epsilon;
    return law;
}

/* Element i of a gradient that waits as `codec`. */
ELEMENT float element_decode(enum arithmetic_codec codec, const void *data, uint64_t i)
{
    switch (codec) {
    case ARITHMETIC_BF16: return element_from_bf16(((const uint16_t *)data)[i]);
    case ARITHMETIC_F16: return element_from_f16(((const uint16_t *)data)[i]);
    case ARITHMETIC_INT8: {
        const unsigned char *block = (const unsigned char *)data +
                                     i / ELEMENT_INT8_BLOCK * (sizeof(float) + ELEMENT_INT8_BLOCK);
        float scale;
        memcpy(&scale, block, sizeof scale);
        return element_from_int8((int8_t)block[sizeof scale + i % ELEMENT_INT8_BLOCK], scale);
    }
    case ARITHMETIC_F32: break;
    }
    return ((const float *)data)[i];
}

/* Where entry k's gradient lies. */
ELEMENT const void *element_slot(const struct arithmetic_plan *plan,
                                 const struct arithmetic_sources *sources, uint32_t k)
{
    return (const unsigned char *)sources->base +
           (uint64_t)plan->entries[k].slot * sources->stride_bytes;
}

/* One more gradient of a window average, with a Kahan term for long windows. */
ELEMENT struct element_sum element_average_add(struct element_sum s, bool compensated, float weight,
                                               float x)
{
    const float term = weight * x;
    if (compensated)
        return element_kahan(s.sum, s.owed, term);
    s.sum = s.sum + term;
    return s;
}

/* The window average of element i: terms in log order. */
ELEMENT float element_average(const struct arithmetic_plan *plan,
                              const struct arithmetic_sources *sources, enum arithmetic_codec codec,
                              uint64_t i)
{
    const bool compensated = plan->entries_n >= ARITHMETIC_COMPENSATED_MIN;
    struct element_sum s = {0.0f, 0.0f};
    for (uint32_t k = 0; k < plan->entries_n; k++) {
        const float x = element_decode(codec, element_slot(plan, sources, k), i);
        s = element_average_add(s, compensated, plan->entries[k].weight, x);
    }
    return element_scaled(s.sum, plan->scale);
}

ELEMENT void element_step_momentum(const struct element_law *law,
                                   const struct arithmetic_group *group, float g,
                                   struct element_item *item)
{
    const float keep = law->first ? 0.0f : group->beta1;
    const float rest = law->first ? 1.0f : group->beta1_rest;
    item->state[0] = element_blend(item->state[0], keep, g, rest);
    const float direction = law->algorithm == ARITHMETIC_MOMENTUM
                                ? item->state[0]
                                : element_plus(g, group->beta1, item->state[0]);
    item->theta = element_descend(item->theta * group->keep, group->rate, direction);
}

ELEMENT void element_step_rmsprop(const struct element_law *law,
                                  const struct arithmetic_group *group, float g,
                                  struct element_item *item)
{
    const int buffer = law->centered ? 2 : 1;
    item->state[0] = element_blend_square(item->state[0], group->beta2, g, group->beta2_rest);
    float square = item->state[0];
    if (law->centered) {
        item->state[1] = element_blend(item->state[1], group->beta2, g, group->beta2_rest);
        square = element_variance(square, item->state[1]);
    }
    float direction = element_rmsprop(g, square, law->epsilon);
    if (law->momentum) {
        item->state[buffer] = element_blend(item->state[buffer], group->beta1, direction, 1.0f);
        direction = item->state[buffer];
    }
    item->theta = element_descend(item->theta * group->keep, group->rate, direction);
}

ELEMENT void element_step_moments(const struct arithmetic_group *group, float g,
                                  struct element_item *item)
{
    item->state[0] = element_blend(item->state[0], group->beta1, g, group->beta1_rest);
    item->state[1] = element_blend_square(item->state[1], group->beta2, g, group->beta2_rest);
}

ELEMENT void element_step_adam(const struct element_law *law, const struct arithmetic_group *group,
                               float g, struct element_item *item)
{
    element_step_moments(group, g, item);
    float v = item->state[1];
    if (law->algorithm == ARITHMETIC_AMSGRAD)
        v = item->state[2] = element_larger(item->state[2], v);
    const float direction = element_adam(item->state[0], v, group->bias2_root, law->epsilon);
    item->theta = element_descend(item->theta * group->keep, group->rate_bias1, direction);
}

/* LAMB's update from finished moments, and its second pass with the tensor's trust ratio. */
ELEMENT float element_lamb_update(const struct element_law *law,
                                  const struct arithmetic_group *group,
                                  const struct element_item *item)
{
    const float u = element_adam(item->state[0] / group->bias1, item->state[1], group->bias2_root,
                                 law->epsilon);
    return element_plus(u, group->weight_decay, item->theta);
}

ELEMENT void element_lamb_apply(const struct element_law *law, const struct arithmetic_group *group,
                                float ratio, struct element_item *item)
{
    const float u = element_lamb_update(law, group, item);
    item->theta = element_descend(item->theta * group->keep, group->rate * ratio, u);
}

/* The whole step of one element, from its averaged gradient; of LAMB the phase of moments. */
ELEMENT void element_step(const struct element_law *law, const struct arithmetic_group *group,
                          float g, struct element_item *item)
{
    if (law->algorithm != ARITHMETIC_ADAMW && law->algorithm != ARITHMETIC_LAMB)
        g = element_plus(g, group->weight_decay, item->theta);
    switch (law->algorithm) {
    case ARITHMETIC_SGD:
        item->theta = element_descend(item->theta * group->keep, group->rate, g);
        return;
    case ARITHMETIC_MOMENTUM:
    case ARITHMETIC_NESTEROV: element_step_momentum(law, group, g, item); return;
    case ARITHMETIC_RMSPROP: element_step_rmsprop(law, group, g, item); return;
    case ARITHMETIC_ADAM:
    case ARITHMETIC_AMSGRAD:
    case ARITHMETIC_ADAMW: element_step_adam(law, group, g, item); return;
    case ARITHMETIC_LAMB: element_step_moments(group, g, item); return;
    }
}

#endif
