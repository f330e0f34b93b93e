/* The loops of a step: eight optimizers, one loop each, over one chunk at a time, and the table
 * that makes loops a set. Included like arithmetic_loops.h, by the file that names the set.
 *
 * Each array is read once and written once, with everything between in registers: that is what a
 * step costs. So the one gradient of a window without others is read where it landed, its weight
 * applied on the way; a longer window is summed into the chunk g first, which stays in the first
 * cache. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_OPTIMIZERS_H
#define GRADWEIR_COMMON_ARITHMETIC_OPTIMIZERS_H

#include "common/arithmetic_loops.h"
#include "common/arithmetic_stream.h"

/* Called with constants, so that each combination is a loop of its own without a choice in it. */
#define LOOP static inline __attribute__((always_inline)) void

/* One chunk of a step within one range: pointers to its first element. */
struct span {
    size_t n;
    const float *x; /* the average, not scaled; or the one gradient that there is, not weighted */
    bool weighted;  /* x is to be weighted */
    const float *theta;
    float *theta_next;
    const float *state[ARITHMETIC_STATES_MAX];
    float *next[ARITHMETIC_STATES_MAX];
    const struct arithmetic_plan *plan;
    const struct arithmetic_group *group;
};

/* What becomes of x before an optimizer sees it. */
struct numbers {
    float weight, scale, decay;
};

static struct numbers numbers_of(const struct span *s)
{
    return (struct numbers){.weight = s->plan->entries[0].weight,
                            .scale = s->plan->scale,
                            .decay = s->group->weight_decay};
}

/* A sum begins with 0, also one of a single term: -0 becomes 0. */
static inline __attribute__((always_inline)) float
gradient_at(bool weighted, bool decays, struct numbers c, float x, float theta)
{
    const float g = (weighted ? 0.0f + c.weight * x : x) * c.scale;
    return decays ? element_plus(g, c.decay, theta) : g;
}

LOOP loop_sgd(const struct span *s, bool weighted)
{
    const struct numbers c = numbers_of(s);
    const float keep = s->group->keep, rate = s->group->rate;
    const float *x = s->x, *theta = s->theta;
    float *theta_next = s->theta_next;
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        theta_next[i] =
            element_descend(theta[i] * keep, rate, gradient_at(weighted, true, c, x[i], theta[i]));
}

LOOP loop_momentum(const struct span *s, bool weighted, bool nesterov)
{
    const struct numbers c = numbers_of(s);
    const float keep = s->group->keep, rate = s->group->rate, ahead = s->group->beta1;
    const float blend = s->plan->first ? 0.0f : s->group->beta1;
    const float rest = s->plan->first ? 1.0f : s->group->beta1_rest;
    const float *x = s->x, *theta = s->theta, *m = s->state[0];
    float *theta_next = s->theta_next, *m_next = s->next[0];
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++) {
        const float g = gradient_at(weighted, true, c, x[i], theta[i]);
        const float buffer = element_blend(m[i], blend, g, rest);
        m_next[i] = buffer;
        theta_next[i] = element_descend(theta[i] * keep, rate,
                                        nesterov ? element_plus(g, ahead, buffer) : buffer);
    }
}

LOOP loop_rmsprop(const struct span *s, bool weighted, bool centered, bool momentum)
{
    const struct numbers c = numbers_of(s);
    const size_t at = centered ? 2 : 1;
    const float keep = s->group->keep, rate = s->group->rate, epsilon = s->plan->epsilon;
    const float beta1 = s->group->beta1, beta2 = s->group->beta2, rest2 = s->group->beta2_rest;
    const float *x = s->x, *theta = s->theta, *square = s->state[0], *mean = s->state[1],
                *buffer = momentum ? s->state[at] : NULL;
    float *theta_next = s->theta_next, *square_next = s->next[0], *mean_next = s->next[1],
          *buffer_next = momentum ? s->next[at] : NULL;
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++) {
        const float g = gradient_at(weighted, true, c, x[i], theta[i]);
        const float v = element_blend_square(square[i], beta2, g, rest2);
        const float mu = centered ? element_blend(mean[i], beta2, g, rest2) : 0.0f;
        float u = element_rmsprop(g, centered ? element_variance(v, mu) : v, epsilon);
        square_next[i] = v;
        if (centered)
            mean_next[i] = mu;
        if (momentum) {
            u = element_blend(buffer[i], beta1, u, 1.0f);
            buffer_next[i] = u;
        }
        theta_next[i] = element_descend(theta[i] * keep, rate, u);
    }
}

LOOP loop_adam(const struct span *s, bool weighted, bool decays, bool largest)
{
    const struct numbers c = numbers_of(s);
    const float keep = s->group->keep, rate = s->group->rate_bias1, epsilon = s->plan->epsilon;
    const float beta1 = s->group->beta1, rest1 = s->group->beta1_rest;
    const float beta2 = s->group->beta2, rest2 = s->group->beta2_rest;
    const float root = s->group->bias2_root;
    const float *x = s->x, *theta = s->theta, *m = s->state[0], *v = s->state[1],
                *most = s->state[2];
    float *theta_next = s->theta_next, *m_next = s->next[0], *v_next = s->next[1],
          *most_next = s->next[2];
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++) {
        const float g = gradient_at(weighted, decays, c, x[i], theta[i]);
        const float mean = element_blend(m[i], beta1, g, rest1);
        float square = element_blend_square(v[i], beta2, g, rest2);
        m_next[i] = mean;
        v_next[i] = square;
        if (largest) {
            square = element_larger(most[i], square);
            most_next[i] = square;
        }
        theta_next[i] =
            element_descend(theta[i] * keep, rate, element_adam(mean, square, root, epsilon));
    }
}

/* LAMB's first phase. */
LOOP loop_moments(const struct span *s, bool weighted)
{
    const struct numbers c = numbers_of(s);
    const float beta1 = s->group->beta1, rest1 = s->group->beta1_rest;
    const float beta2 = s->group->beta2, rest2 = s->group->beta2_rest;
    const float *x = s->x, *m = s->state[0], *v = s->state[1];
    float *m_next = s->next[0], *v_next = s->next[1];
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++) {
        const float g = gradient_at(weighted, false, c, x[i], 0.0f);
        m_next[i] = element_blend(m[i], beta1, g, rest1);
        v_next[i] = element_blend_square(v[i], beta2, g, rest2);
    }
}

/* LAMB's update from moments that are finished: m / bias1 / (sqrt(v) / root + eps) + decay ×
 * theta. */
static void lamb_update(const struct span *s, float *update)
{
    const float bias1 = s->group->bias1, root = s->group->bias2_root, epsilon = s->plan->epsilon;
    const float decay = s->group->weight_decay;
    const float *m = s->next[0], *v = s->next[1], *theta = s->theta;
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        update[i] = element_plus(element_adam(m[i] / bias1, v[i], root, epsilon), decay, theta[i]);
}

/* LAMB's second phase; x is the update. */
static void lamb_apply(const struct span *s, float rate)
{
    const float keep = s->group->keep;
    const float *x = s->x, *theta = s->theta;
    float *theta_next = s->theta_next;
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        theta_next[i] = element_descend(theta[i] * keep, rate, x[i]);
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

LOOP loop_of(const struct span *s, bool weighted)
{
    const bool centered = s->plan->centered, momentum = s->plan->momentum;
    switch (s->plan->algorithm) {
    case ARITHMETIC_SGD: loop_sgd(s, weighted); return;
    case ARITHMETIC_MOMENTUM: loop_momentum(s, weighted, false); return;
    case ARITHMETIC_NESTEROV: loop_momentum(s, weighted, true); return;
    case ARITHMETIC_RMSPROP:
        if (centered && momentum)
            loop_rmsprop(s, weighted, true, true);
        else if (centered)
            loop_rmsprop(s, weighted, true, false);
        else if (momentum)
            loop_rmsprop(s, weighted, false, true);
        else
            loop_rmsprop(s, weighted, false, false);
        return;
    case ARITHMETIC_ADAM: loop_adam(s, weighted, true, false); return;
    case ARITHMETIC_AMSGRAD: loop_adam(s, weighted, true, true); return;
    case ARITHMETIC_ADAMW: loop_adam(s, weighted, false, false); return;
    case ARITHMETIC_LAMB: loop_moments(s, weighted); return;
    }
    ASSERT(!"an algorithm");
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

/* Finds what a step reads of this chunk: x, which is g where it cannot be read where it lies. */
static void read_chunk(struct span *s, const struct arithmetic_work *work, size_t at, float *g)
{
    if (s->plan->phase == ARITHMETIC_APPLY) {
        lamb_update(s, g);
        return;
    }
    s->weighted = work->average == NULL && s->plan->entries_n == 1 && s->plan->stacks.window == 0;
    if (work->average != NULL)
        s->x = work->average + at;
    else if (s->weighted)
        s->x = source_of(s->plan, &work->sources, 0, at, s->n, g);
    else
        sum_chunk(s->plan, &work->sources, at, s->n, g);
}

/* ratio: of the tensor, in LAMB's second phase. */
static void step_chunk(const struct span *s, float ratio)
{
    if (s->group->frozen)
        carry(s);
    else if (s->plan->phase == ARITHMETIC_APPLY)
        lamb_apply(s, s->group->rate * ratio);
    else if (s->weighted)
        loop_of(s, true);
    else
        loop_of(s, false);
}

/* Elements of one pass over the sources, and of one past the states and parameters behind it: few,
 * so that the processor has loads of the next pass under way while it is still at this one, and
 * loads of the next elements while it stores past the cache; but enough of them that cutting costs
 * nothing. With a whole CHUNK passes take turns at the memory, which costs half as much again. */
#define STRIP       512
#define STRIP_SHORT 256 /* where sources are summed first, or there is no state */

static void stream_chunk(const struct span *s, float ratio)
{
    _Alignas(64) float room[STRIP];
    for (size_t i = 0; i < s->n; i += STRIP) {
        struct span some = *s;
        some.n = s->n - i < STRIP ? s->n - i : STRIP;
        some.x = s->x + i;
        some.theta = s->theta + i;
        some.theta_next = room;
        for (size_t k = 0; k < ARITHMETIC_STATES_MAX && s->state[k] != NULL; k++) {
            some.state[k] = s->state[k] + i;
            some.next[k] = s->next[k] + i;
        }
        step_chunk(&some, ratio);
        stream(s->theta_next + i, room, some.n);
    }
}

/* Elements from `at` on that are stepped together. Of more sources than are read in one pass, the
 * sum must not be read and written too often, and a stripe that turns reads a run of each, which
 * should be long. */
static size_t strip_at(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                       size_t at)
{
    const bool many = plan->entries_n > TOGETHER;
    if (work->average != NULL || plan->entries_n == 1)
        return work->state[0] != NULL ? STRIP : STRIP_SHORT;
    if (plan->stacks.window == 0)
        return many ? CHUNK : STRIP_SHORT;
    const size_t run = many ? turn_run(plan, &work->sources, at) : 0;
    return run > STRIP_SHORT ? run : STRIP_SHORT;
}

static void step(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                 size_t begin, size_t end)
{
    ASSERT((plan->algorithm == ARITHMETIC_LAMB) == (plan->phase != ARITHMETIC_WHOLE));
    arithmetic_assert_environment();
    _Alignas(64) float g[TURN_RUN];
    const bool streams = work->streams && plan->phase != ARITHMETIC_MOMENTS;
    size_t at = begin;
    for (size_t r = arithmetic_range_at(work, begin); at < end; r++) {
        ASSERT(r < work->ranges_n && work->ranges[r].begin <= at);
        const struct arithmetic_range *range = &work->ranges[r];
        const float ratio = plan->phase == ARITHMETIC_APPLY ? work->ratios[range->tensor] : 1.0f;
        const size_t stop = range->end < end ? (size_t)range->end : end;
        for (size_t n; at < stop; at += n) {
            struct span s = span_at(plan, work, range, at);
            n = strip_at(plan, work, at);
            n = s.n = stop - at < n ? stop - at : n;
            s.x = g;
            if (!s.group->frozen)
                read_chunk(&s, work, at, g);
            if (streams)
                stream_chunk(&s, ratio);
            else
                step_chunk(&s, ratio);
        }
    }
    if (streams || plan->stacks.window > 0)
        stream_end();
}

static double lamb_sum(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                       const struct arithmetic_range *piece)
{
    float update[CHUNK];
    struct arithmetic_running running = {.largest_bits = 0};
    struct arithmetic_measure measured;
    for (size_t at = piece->begin; at < piece->end; at += CHUNK) {
        struct span s = span_at(plan, work, piece, at);
        s.n = piece->end - at < CHUNK ? (size_t)piece->end - at : CHUNK;
        lamb_update(&s, update);
        squares_add(running.lanes, update, s.n);
    }
    arithmetic_running_end(&running, &measured);
    return measured.sum_squares;
}

const struct arithmetic ARITHMETIC_SET = {
    .name = ARITHMETIC_SET_NAME,
    .encode = encode,
    .decode = decode,
    .encode_rest = encode_rest,
    .encode_on = encode_on,
    .decode_add = decode_add,
    .measure = measure,
    .measure_on = measure_on,
    .average = average,
    .step = step,
    .lamb_sum = lamb_sum,
};

#endif
