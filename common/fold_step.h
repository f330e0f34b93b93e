/* A step of SGD on what is in registers: the same operations in the same order as loop_sgd of
 * arithmetic_optimizers.h, so that they round alike. For the passes of landed.h that fold
 * (fold.h). */
#ifndef GRADWEIR_COMMON_FOLD_STEP_H
#define GRADWEIR_COMMON_FOLD_STEP_H

#include "common/fold.h"
#include "common/landed.h"

#ifdef FOLD_HERE

/* Parameters come from the memory itself, and beside two streams past the caches the processor does
 * not ask for them early enough: about a tenth of the pass, measured on a busy machine, where this
 * distance could not be told from its neighbours. In floats. */
#define FOLD_STEP_AHEAD ((size_t)512)

struct fold_step {
    const float *theta;
    float *next;
    __m512 weight, scale, decay, keep, rate;
};

/* Of the elements from landing->at on, which lie in one range. */
static inline struct fold_step fold_step_of(const struct landing *landing)
{
    const struct arithmetic_plan *plan = landing->plan;
    const struct arithmetic_work *work = landing->work;
    const size_t range = arithmetic_range_at(work, landing->at);
    const struct arithmetic_group *group = &plan->groups[work->ranges[range].group];
    return (struct fold_step){.theta = work->parameters + landing->at,
                              .next = work->parameters_next + landing->at,
                              .weight = _mm512_set1_ps(plan->entries[0].weight),
                              .scale = _mm512_set1_ps(plan->scale),
                              .decay = _mm512_set1_ps(group->weight_decay),
                              .keep = _mm512_set1_ps(group->keep),
                              .rate = _mm512_set1_ps(group->rate)};
}

/* Elements i to i + 15 of them. */
FOLD_INLINE void fold_step_on(const struct fold_step *s, size_t i, __m512 x, bool streams)
{
    __builtin_prefetch(s->theta + i + FOLD_STEP_AHEAD);
    const __m512 theta = _mm512_loadu_ps(s->theta + i);
    const __m512 weighted = _mm512_add_ps(_mm512_setzero_ps(), _mm512_mul_ps(s->weight, x));
    const __m512 scaled = _mm512_mul_ps(weighted, s->scale);
    const __m512 g = _mm512_add_ps(scaled, _mm512_mul_ps(s->decay, theta));
    const __m512 next = _mm512_sub_ps(_mm512_mul_ps(theta, s->keep), _mm512_mul_ps(s->rate, g));
    fold_put(s->next + i, _mm512_castps_si512(next), streams);
}

/* Whether the step's parameters may be stored past the caches. */
static inline bool fold_step_streams(const struct landing *landing)
{
    return landing->work->streams && fold_aligned(landing->work->parameters_next + landing->at);
}

#endif
#endif
