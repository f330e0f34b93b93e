/* One element's average of a window by two stacks: what arithmetic_stacks.h, where the picture is,
 * does to a stripe. gcc, clang and nvcc read this file alike; tests/unit/element_set.c holds it
 * against the CPU's loops. Fronts and back of an element are read and written by it alone. */
#ifndef GRADWEIR_COMMON_ELEMENT_STACKS_H
#define GRADWEIR_COMMON_ELEMENT_STACKS_H

#include "common/element_step.h"

/* What a stripe does in a step. DIRECT: it is averaged from its gradients. */
enum element_way { ELEMENT_DIRECT, ELEMENT_TURN, ELEMENT_SLIDE };

struct element_stripe {
    enum element_way way;
    uint64_t first;  /* log position of the oldest entry */
    uint64_t turned; /* SLIDE: where it turned last; entries from there on are in the back */
    uint64_t front;  /* SLIDE: log position whose front is next; there is one before `turned` */
    float weight;    /* SLIDE: of that front */
    bool begins;     /* SLIDE: the back begins anew */
};

/* Of the stripe in which element i of the shard lies. */
ELEMENT struct element_stripe element_stripe_of(const struct arithmetic_plan *plan,
                                                const struct arithmetic_sources *sources,
                                                uint64_t i)
{
    const struct arithmetic_stacks *stacks = &plan->stacks;
    const uint64_t window = stacks->window, number = (sources->first + i) / sources->stripe;
    const uint64_t age = (stacks->position % window + window - number % window) % window;
    struct element_stripe stripe;
    stripe.first = stacks->position - plan->entries_n;
    stripe.front = (stripe.first + stacks->every - 1) / stacks->every * stacks->every;
    stripe.turned = stacks->position;
    stripe.weight = 0.0f;
    stripe.begins = false;
    stripe.way = ELEMENT_TURN;
    if (age < stacks->fresh)
        return stripe;
    const uint32_t behind = stacks->ages[age].behind;
    stripe.turned = stacks->position - behind;
    stripe.weight = stacks->ages[age].weight;
    stripe.begins = behind == stacks->fresh;
    stripe.way = behind > 0 ? ELEMENT_SLIDE : ELEMENT_DIRECT;
    return stripe;
}

/* Elements from i on that lie in the same stripe. */
ELEMENT uint64_t element_stripe_rest(const struct arithmetic_sources *sources, uint64_t i)
{
    return sources->stripe - (sources->first + i) % sources->stripe;
}

/* TURN goes from the newest entry to the oldest; the sum from entry k on is kept as a front. The
 * oldest entry of a full window is not in the next one, so nobody would read its front. */
ELEMENT bool element_turn_keeps(const struct arithmetic_plan *plan,
                                const struct element_stripe *stripe, uint32_t k)
{
    return (stripe->first + k) % plan->stacks.every == 0 &&
           (k > 0 || plan->entries_n < plan->stacks.window);
}

/* Where the front of a log position lies: element i of the shard is at front + i. */
ELEMENT float *element_front(const struct arithmetic_plan *plan,
                             const struct arithmetic_sources *sources, uint64_t position)
{
    return sources->fronts +
           position / plan->stacks.every % plan->stacks.fronts * sources->front_stride;
}

/* SLIDE: entry k is in no front and in no back, and is added by itself, the oldest first. */
ELEMENT bool element_slide_adds(const struct element_stripe *stripe, uint32_t k)
{
    return stripe->first + k < stripe->front && stripe->first + k < stripe->turned;
}

/* One more term of a sum. */
ELEMENT float element_term(float sum, float weight, float x)
{
    return sum + weight * x;
}

/* The back as it goes on: by the change of all weights, and the first of the new entries. */
ELEMENT float element_back(float back, bool begins, float keep, float weight, float x)
{
    return (begins ? 0.0f : back * keep) + weight * x;
}

ELEMENT float element_entry(const struct arithmetic_plan *plan,
                            const struct arithmetic_sources *sources, enum arithmetic_codec codec,
                            uint32_t k, uint64_t i)
{
    return element_decode(codec, element_slot(plan, sources, k), i);
}

ELEMENT float element_stacks_turn(const struct arithmetic_plan *plan,
                                  const struct arithmetic_sources *sources,
                                  enum arithmetic_codec codec, const struct element_stripe *stripe,
                                  uint64_t i)
{
    float sum = 0.0f;
    for (uint32_t k = plan->entries_n; k-- > 0;) {
        sum = element_term(sum, plan->entries[k].weight, element_entry(plan, sources, codec, k, i));
        if (element_turn_keeps(plan, stripe, k))
            element_front(plan, sources, stripe->first + k)[i] = sum;
    }
    return sum;
}

ELEMENT float element_stacks_slide(const struct arithmetic_plan *plan,
                                   const struct arithmetic_sources *sources,
                                   enum arithmetic_codec codec, const struct element_stripe *stripe,
                                   uint64_t i)
{
    uint32_t k = plan->entries_n - plan->stacks.fresh;
    float sum =
        element_back(stripe->begins ? 0.0f : sources->back[i], stripe->begins, plan->stacks.rescale,
                     plan->entries[k].weight, element_entry(plan, sources, codec, k, i));
    for (k++; k < plan->entries_n; k++)
        sum = element_term(sum, plan->entries[k].weight, element_entry(plan, sources, codec, k, i));
    sources->back[i] = sum;
    if (stripe->front < stripe->turned)
        sum = element_term(sum, stripe->weight, element_front(plan, sources, stripe->front)[i]);
    for (k = 0; element_slide_adds(stripe, k); k++)
        sum = element_term(sum, plan->entries[k].weight, element_entry(plan, sources, codec, k, i));
    return sum;
}

/* The window average of element i by a plan with stacks. */
ELEMENT float element_stacks_average(const struct arithmetic_plan *plan,
                                     const struct arithmetic_sources *sources,
                                     enum arithmetic_codec codec, uint64_t i)
{
    const struct element_stripe stripe = element_stripe_of(plan, sources, i);
    if (stripe.way == ELEMENT_DIRECT)
        return element_average(plan, sources, codec, i);
    return element_scaled(stripe.way == ELEMENT_TURN
                              ? element_stacks_turn(plan, sources, codec, &stripe, i)
                              : element_stacks_slide(plan, sources, codec, &stripe, i),
                          plan->scale);
}

/* By whatever plan it is. */
ELEMENT float element_window_average(const struct arithmetic_plan *plan,
                                     const struct arithmetic_sources *sources,
                                     enum arithmetic_codec codec, uint64_t i)
{
    return plan->stacks.window > 0 ? element_stacks_average(plan, sources, codec, i)
                                   : element_average(plan, sources, codec, i);
}

#endif
