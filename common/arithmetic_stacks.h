/* The average of a window by two stacks, per stripe: a run of elements of the model that turn
 * together. Included by arithmetic_loops.h, so compiled once per instruction set.
 *
 *      log positions     first .. p-1 | p ........ b-1 | b ......... position - 1
 *      what is read        entries    |   front(p)     |   back
 *
 * At its turn, the step of position b, a stripe's entries are summed from the newest to the oldest,
 * and on the way the sums from every other position p to b - 1 are kept: the fronts. From then on
 * the newest entries are added to the back, and what is left of the old ones is one front and at
 * most one entry (`every` - 1). When the window has left b behind, the stripe turns again. Nothing
 * is ever subtracted: what leaves the window leaves no trace, be it infinite.
 *
 * Stripe i turns when the log passes a position that is i modulo the window: its age is how many
 * positions ago that was. So each step turns as many stripes as there are new entries in a window's
 * worth, spread over the whole model, and costs the same as any other. A stripe that has not turned
 * since the schedule began (ages[].behind 0) is averaged directly.
 *
 * Fronts and back have the weights of the step that wrote them; all weights change by one factor
 * from step to step, so a front is multiplied at use (ages[].weight) and the back as it goes on
 * (rescale).
 *
 * Fronts are stored past the caches: whoever calls ends that (stream_end) once, behind all.
 *
 * Error beside the exact average: each term passes through at most W additions and as many
 * products, each rounded once: 2 (W + 2) × 2^-24 × Σ |w g| at worst, about its root as a rule. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_STACKS_H
#define GRADWEIR_COMMON_ARITHMETIC_STACKS_H

#include "common/arithmetic_stream.h"

/* One stripe, or a part of one: elements [at, at + n) of the shard. */
struct stripe {
    const struct arithmetic_plan *plan;
    const struct arithmetic_sources *sources;
    uint64_t first; /* log position of the oldest entry */
    size_t at, n;
    float *sum;
};

static float *front_at(const struct stripe *s, uint64_t position)
{
    const struct arithmetic_stacks *stacks = &s->plan->stacks;
    return s->sources->fronts +
           position / stacks->every % stacks->fronts * s->sources->front_stride + s->at;
}

static const float *stripe_source(const struct stripe *s, uint32_t k, float *room)
{
    return source_of(s->plan, s->sources, k, s->at, s->n, room);
}

/* Each source is a run of its own, too short for the machine to see it coming. */
static void fetch(const struct stripe *s, uint32_t k)
{
    if (s->sources->codec != ARITHMETIC_F32)
        return;
    const float *x = stripe_source(s, k, NULL);
    for (size_t i = 0; i < s->n; i += 16)
        __builtin_prefetch(x + i, 0, 2);
}

/* The beginning of a sum: two of its terms. */
static void two_terms(float weight, const float *x, float other_weight, const float *y, size_t n,
                      float *sum)
{
    INDEPENDENT
    for (size_t i = 0; i < n; i++)
        sum[i] = (0.0f + weight * x[i]) + other_weight * y[i];
}

/* What is kept of the sum so far, from entry k on. The oldest entry of a full window is not in the
 * next one, so nobody would read its front. */
static void turn_keep(const struct stripe *s, uint32_t k, const float *sum)
{
    const struct arithmetic_stacks *stacks = &s->plan->stacks;
    if ((s->first + k) % stacks->every == 0 && (k > 0 || s->plan->entries_n < stacks->window))
        stream(front_at(s, s->first + k), sum, s->n);
}

/* One entry into the sum, or as the first of it. */
static void turn_one(const struct stripe *s, uint32_t k, float *sum)
{
    float room[CHUNK];
    const float weight = s->plan->entries[k].weight, *x = stripe_source(s, k, room);
    if (k + 1 < s->plan->entries_n) {
        add_term(weight, x, s->n, sum, NULL);
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        sum[i] = 0.0f + weight * x[i];
}

/* Two entries, the newer first. */
static void turn_pair(const struct stripe *s, uint32_t k, float *sum)
{
    float room[CHUNK], room_older[CHUNK];
    const float weight = s->plan->entries[k].weight, *x = stripe_source(s, k, room),
                older_weight = s->plan->entries[k - 1].weight,
                *older = stripe_source(s, k - 1, room_older);
    if (k + 1 == s->plan->entries_n) {
        two_terms(weight, x, older_weight, older, s->n, sum);
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        sum[i] = (sum[i] + weight * x[i]) + older_weight * older[i];
}

static void stripe_turn(const struct stripe *s)
{
    const uint32_t every = s->plan->stacks.every;
    for (uint32_t k = s->plan->entries_n; k-- > 0;) {
        if (k >= 3) {
            fetch(s, k - 2);
            fetch(s, k - 3);
        }
        if (k > 0 && (s->first + k) % every != 0 && (s->first + k - 1) % every == 0)
            turn_pair(s, k--, s->sum);
        else
            turn_one(s, k, s->sum);
        turn_keep(s, k, s->sum);
    }
}

/* The new entries into the back, which begins with them when the stripe turned a step ago. */
static void stripe_back(const struct stripe *s, bool begins)
{
    const struct arithmetic_plan *plan = s->plan;
    float room[CHUNK], *back = s->sources->back + s->at;
    uint32_t k = plan->entries_n - plan->stacks.fresh;
    const float weight = plan->entries[k].weight, keep = plan->stacks.rescale,
                *x = stripe_source(s, k, room);
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++)
        back[i] = (begins ? 0.0f : back[i] * keep) + weight * x[i];
    for (k++; k < plan->entries_n; k++)
        add_term(plan->entries[k].weight, stripe_source(s, k, room), s->n, back, NULL);
}

/* What is done nearly always at a stride of 1, in one loop. */
static void slide_one(const struct stripe *s, const float *front, float front_weight, bool old)
{
    float room[CHUNK], old_room[CHUNK], *back = s->sources->back + s->at, *sum = s->sum;
    const uint32_t k = s->plan->entries_n - 1;
    const float weight = s->plan->entries[k].weight, keep = s->plan->stacks.rescale,
                *x = stripe_source(s, k, room);
    if (!old) {
        INDEPENDENT
        for (size_t i = 0; i < s->n; i++) {
            const float next = back[i] * keep + weight * x[i];
            back[i] = next;
            sum[i] = next + front_weight * front[i];
        }
        return;
    }
    const float old_weight = s->plan->entries[0].weight, *y = stripe_source(s, 0, old_room);
    INDEPENDENT
    for (size_t i = 0; i < s->n; i++) {
        const float next = back[i] * keep + weight * x[i];
        back[i] = next;
        sum[i] = (next + front_weight * front[i]) + old_weight * y[i];
    }
}

/* In a window of two a stripe turns at every other step, so its back is of one entry, and nobody
 * reads it: the newer entry, and of the older one the front or the entry itself. */
static void slide_two(const struct stripe *s, const float *front, float front_weight)
{
    float room[CHUNK], old_room[CHUNK];
    const struct arithmetic_entry *entries = s->plan->entries;
    const float *y = front ? front : stripe_source(s, 0, old_room);
    two_terms(entries[1].weight, stripe_source(s, 1, room),
              front ? front_weight : entries[0].weight, y, s->n, s->sum);
}

static void stripe_slide(const struct stripe *s, const struct arithmetic_age *age)
{
    const struct arithmetic_stacks *stacks = &s->plan->stacks;
    const uint64_t turned = stacks->position - age->behind;
    const uint64_t p = (s->first + stacks->every - 1) / stacks->every * stacks->every;
    const bool begins = age->behind == stacks->fresh;
    const float *back = s->sources->back + s->at, weight = age->weight;
    float room[CHUNK], *sum = s->sum;
    if (stacks->fresh == 1 && stacks->window == 2 && s->plan->entries_n == 2) {
        slide_two(s, p < turned ? front_at(s, p) : NULL, weight);
        return;
    }
    if (stacks->fresh == 1 && !begins && p < turned && p - s->first < 2) {
        slide_one(s, front_at(s, p), weight, p > s->first);
        return;
    }
    stripe_back(s, begins);
    if (p < turned) {
        const float *front = front_at(s, p);
        INDEPENDENT
        for (size_t i = 0; i < s->n; i++)
            sum[i] = back[i] + weight * front[i];
    } else {
        memcpy(sum, back, s->n * sizeof *sum);
    }
    for (uint32_t k = 0; s->first + k < p && s->first + k < turned; k++)
        add_term(s->plan->entries[k].weight, stripe_source(s, k, room), s->n, sum, NULL);
}

/* How many positions ago the stripe of element `at` turned, and how much of it is left there. */
static uint64_t age_at(const struct arithmetic_plan *plan, const struct arithmetic_sources *sources,
                       size_t at, size_t *rest)
{
    const uint64_t window = plan->stacks.window, stripe = sources->stripe;
    const uint64_t element = sources->first + at;
    *rest = (size_t)(stripe - element % stripe);
    return (plan->stacks.position % window + window - element / stripe % window) % window;
}

/* sum[i] = the average of element at + i, not scaled yet. */
static void stacks_chunk(const struct arithmetic_plan *plan,
                         const struct arithmetic_sources *sources, size_t at, size_t n, float *sum)
{
    const struct arithmetic_stacks *stacks = &plan->stacks;
    struct stripe s = {.plan = plan, .sources = sources, .at = at, .sum = sum};
    s.first = stacks->position - plan->entries_n;
    for (const size_t end = at + n; s.at < end; s.at += s.n, s.sum += s.n) {
        size_t rest;
        const uint64_t age = age_at(plan, sources, s.at, &rest);
        s.n = end - s.at < rest ? end - s.at : rest;
        if (age < stacks->fresh)
            stripe_turn(&s);
        else if (stacks->ages[age].behind > 0)
            stripe_slide(&s, &stacks->ages[age]);
        else
            direct_chunk(plan, sources, s.at, s.n, s.sum);
    }
}

#endif
