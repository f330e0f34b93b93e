/* The loops of a step: eight optimizers over one chunk at a time, and the table that makes loops a
 * set. Included like arithmetic_loops.h, by the file that names the set. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_OPTIMIZERS_H
#define GRADWEIR_COMMON_ARITHMETIC_OPTIMIZERS_H

#include "common/arithmetic_loops.h"

/* One chunk of a step within one range: pointers to its first element. g is the gradient, ours to
 * overwrite. */
struct span {
    size_t n;
    float *g;
    const float *theta;
    float *theta_next;
    const float *state[ARITHMETIC_STATES_MAX];
    float *next[ARITHMETIC_STATES_MAX];
    const struct arithmetic_plan *plan;
    const struct arithmetic_group *group;
};

static void plus(float *x, float factor, const float *y, size_t n)
{
    INDEPENDENT
    for (size_t i = 0; i < n; i++)
        x[i] = element_plus(x[i], factor, y[i]);
}

static void blend(const struct span *s, size_t k, float keep, float rest)
{
    const float *state = s->state[k], *g = s->g;
    float *next = s->next[k];
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        next[i] = element_blend(state[i], keep, g[i], rest);
}

static void blend_square(const struct span *s, size_t k)
{
    const float *state = s->state[k], *g = s->g, keep = s->group->beta2,
                rest = s->group->beta2_rest;
    float *next = s->next[k];
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        next[i] = element_blend_square(state[i], keep, g[i], rest);
}

static void descend(const struct span *s, float rate, const float *direction)
{
    const float *theta = s->theta, keep = s->group->keep;
    float *next = s->theta_next;
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        next[i] = element_descend(theta[i] * keep, rate, direction[i]);
}

static void step_momentum(const struct span *s)
{
    const bool first = s->plan->first;
    blend(s, 0, first ? 0.0f : s->group->beta1, first ? 1.0f : s->group->beta1_rest);
    if (s->plan->algorithm == ARITHMETIC_MOMENTUM) {
        descend(s, s->group->rate, s->next[0]);
        return;
    }
    plus(s->g, s->group->beta1, s->next[0], s->n);
    descend(s, s->group->rate, s->g);
}

static void step_rmsprop(const struct span *s)
{
    float square[CHUNK], *g = s->g;
    const float epsilon = s->plan->epsilon;
    blend_square(s, 0);
    memcpy(square, s->next[0], s->n * sizeof *square);
    if (s->plan->centered) {
        blend(s, 1, s->group->beta2, s->group->beta2_rest);
        const float *mean = s->next[1];
        INDEPENDENT
        for (size_t i = 0; i < s->n; i++)
            square[i] = element_variance(square[i], mean[i]);
    }
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        g[i] = element_rmsprop(g[i], square[i], epsilon);
    if (s->plan->momentum) {
        blend(s, s->plan->centered ? 2 : 1, s->group->beta1, 1.0f);
        g = s->next[s->plan->centered ? 2 : 1];
    }
    descend(s, s->group->rate, g);
}

static void step_moments(const struct span *s)
{
    blend(s, 0, s->group->beta1, s->group->beta1_rest);
    blend_square(s, 1);
}

static void step_adam(const struct span *s)
{
    const float root = s->group->bias2_root, epsilon = s->plan->epsilon;
    const float *m = s->next[0], *v = s->next[1];
    step_moments(s);
    if (s->plan->algorithm == ARITHMETIC_AMSGRAD) {
        const float *before = s->state[2];
        float *largest = s->next[2];
        INDEPENDENT
        for (size_t i = 0; i < s->n; i++)
            largest[i] = element_larger(before[i], v[i]);
        v = largest;
    }
    float *g = s->g;
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        g[i] = element_adam(m[i], v[i], root, epsilon);
    descend(s, s->group->rate_bias1, g);
}

/* g becomes LAMB's update, from moments that are finished: m / bias1 / (sqrt(v) / root + eps) +
 * decay × theta. */
static void lamb_update(const struct span *s)
{
    const float bias1 = s->group->bias1, root = s->group->bias2_root, epsilon = s->plan->epsilon;
    const float *m = s->next[0], *v = s->next[1];
    float *g = s->g;
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        g[i] = element_adam(m[i] / bias1, v[i], root, epsilon);
    plus(g, s->group->weight_decay, s->theta, s->n);
}

/* A frozen group: what this phase would have written stays as it was. */
static void carry(const struct span *s)
{
    if (s->plan->phase != ARITHMETIC_MOMENTS)
        memmove(s->theta_next, s->theta, s->n * sizeof *s->theta);
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX; k++)
        if (s->state[k] != NULL && s->plan->phase != ARITHMETIC_APPLY)
            memmove(s->next[k], s->state[k], s->n * sizeof *s->state[k]);
}

static void gradient(const struct span *s, const struct arithmetic_work *work, size_t at)
{
    if (work->average == NULL) {
        average_chunk(s->plan, &work->sources, at, s->n, s->g);
    } else {
        const float *average_at = work->average + at, scale = s->plan->scale;
        float *g = s->g;
        INDEPENDENT
        for (size_t i = 0; i < s->n; i++)
            g[i] = average_at[i] * scale;
    }
    if (s->plan->algorithm != ARITHMETIC_ADAMW && s->plan->algorithm != ARITHMETIC_LAMB)
        plus(s->g, s->group->weight_decay, s->theta, s->n);
}

static struct span span_at(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                           const struct arithmetic_range *range, size_t at)
{
    struct span s = {.theta = work->parameters + at,
                     .theta_next =
                         work->parameters_next == NULL ? NULL : work->parameters_next + at,
                     .plan = plan,
                     .group = &plan->groups[range->group]};
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX && work->state[k] != NULL; k++) {
        s.state[k] = work->state[k] + at;
        s.next[k] = work->state_next[k] + at;
    }
    return s;
}

static void step_chunk(const struct span *s, const struct arithmetic_work *work,
                       const struct arithmetic_range *range, size_t at)
{
    if (s->plan->phase == ARITHMETIC_APPLY) {
        lamb_update(s);
        descend(s, s->group->rate * work->ratios[range->tensor], s->g);
        return;
    }
    gradient(s, work, at);
    switch (s->plan->algorithm) {
    case ARITHMETIC_SGD: descend(s, s->group->rate, s->g); return;
    case ARITHMETIC_MOMENTUM:
    case ARITHMETIC_NESTEROV: step_momentum(s); return;
    case ARITHMETIC_RMSPROP: step_rmsprop(s); return;
    case ARITHMETIC_ADAM:
    case ARITHMETIC_AMSGRAD:
    case ARITHMETIC_ADAMW: step_adam(s); return;
    case ARITHMETIC_LAMB: step_moments(s); return;
    }
    ASSERT(!"an algorithm");
}

static void step(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                 size_t begin, size_t end)
{
    ASSERT((plan->algorithm == ARITHMETIC_LAMB) == (plan->phase != ARITHMETIC_WHOLE));
    arithmetic_assert_environment();
    float g[CHUNK];
    size_t at = begin;
    for (size_t r = arithmetic_range_at(work, begin); at < end; r++) {
        ASSERT(r < work->ranges_n && work->ranges[r].begin <= at);
        const struct arithmetic_range *range = &work->ranges[r];
        const size_t stop = range->end < end ? (size_t)range->end : end;
        for (; at < stop; at += stop - at < CHUNK ? stop - at : CHUNK) {
            struct span s = span_at(plan, work, range, at);
            s.n = stop - at < CHUNK ? stop - at : CHUNK;
            s.g = g;
            if (s.group->frozen)
                carry(&s);
            else
                step_chunk(&s, work, range, at);
        }
    }
}

static double lamb_sum(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                       const struct arithmetic_range *piece)
{
    float g[CHUNK];
    double lanes[LANES] = {0};
    for (size_t at = piece->begin; at < piece->end; at += CHUNK) {
        struct span s = span_at(plan, work, piece, at);
        s.n = piece->end - at < CHUNK ? (size_t)piece->end - at : CHUNK;
        s.g = g;
        lamb_update(&s);
        squares_add(lanes, g, s.n);
    }
    return lanes_sum(lanes);
}

const struct arithmetic ARITHMETIC_SET = {
    .name = ARITHMETIC_SET_NAME,
    .encode = encode,
    .decode = decode,
    .encode_rest = encode_rest,
    .decode_add = decode_add,
    .measure = measure,
    .average = average,
    .step = step,
    .lamb_sum = lamb_sum,
};

#endif
