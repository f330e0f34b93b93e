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

/* Elements of a stripe that turns are summed up to so many at once, where its gradients are read
 * where they lie. Each gradient is read in a run as long, and what reads memory is faster the
 * longer its runs are and the more of them are under way: hence eight of them at once, too. */
#define TURN_RUN    8192
#define EIGHT_BLOCK 32 /* elements of eight runs between stores of fronts */

struct eight {
    const float *x[8]; /* the newest first */
    float weight[8];
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

/* The beginning of a sum: two of its terms. */
static void two_terms(float weight, const float *x, float other_weight, const float *y, size_t n,
                      float *sum)
{
    INDEPENDENT
    for (size_t i = 0; i < n; i++)
        sum[i] = (0.0f + weight * x[i]) + other_weight * y[i];
}

/* Is the sum so far kept, from entry k on? The oldest entry of a full window is not in the next
 * one, so nobody would read its front. */
static bool turn_keeps(const struct stripe *s, uint32_t k)
{
    const struct arithmetic_stacks *stacks = &s->plan->stacks;
    return (s->first + k) % stacks->every == 0 && (k > 0 || s->plan->entries_n < stacks->window);
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

/* Eight entries into the sums of a few elements, the newest first, and what the sums were after
 * each other entry but the last: all in registers. */
static inline __attribute__((always_inline)) void
eight_terms(const struct eight *e, size_t i, size_t n, float *sum, float kept[3][EIGHT_BLOCK])
{
    const float *w = e->weight, *a = e->x[0] + i, *b = e->x[1] + i, *c = e->x[2] + i,
                *d = e->x[3] + i, *f = e->x[4] + i, *g = e->x[5] + i, *h = e->x[6] + i,
                *l = e->x[7] + i;
    const float wa = w[0], wb = w[1], wc = w[2], wd = w[3], wf = w[4], wg = w[5], wh = w[6],
                wl = w[7];
    float *first = kept[0], *second = kept[1], *third = kept[2];
    INDEPENDENT
    for (size_t j = 0; j < n; j++) {
        float x = (sum[j] + wa * a[j]) + wb * b[j];
        first[j] = x;
        x = (x + wc * c[j]) + wd * d[j];
        second[j] = x;
        x = (x + wf * f[j]) + wg * g[j];
        third[j] = x;
        sum[j] = (x + wh * h[j]) + wl * l[j];
    }
}

static void turn_eight(const struct stripe *s, uint32_t k, float *sum)
{
    float kept[3][EIGHT_BLOCK];
    struct eight e;
    float *front[4];
    const uint32_t keep = turn_keeps(s, k - 7) ? 4 : 3;
    for (uint32_t j = 0; j < 8; j++) {
        e.x[j] = stripe_source(s, k - j, NULL);
        e.weight[j] = s->plan->entries[k - j].weight;
    }
    for (uint32_t j = 0; j < keep; j++)
        front[j] = front_at(s, s->first + k - 2 * j - 1);
    for (size_t i = 0, n; i < s->n; i += n) {
        n = EIGHT_BLOCK - (s->at + i) % EIGHT_BLOCK;
        n = s->n - i < n ? s->n - i : n;
        if (k + 1 == s->plan->entries_n)
            memset(sum + i, 0, n * sizeof *sum);
        if (n == EIGHT_BLOCK)
            eight_terms(&e, i, EIGHT_BLOCK, sum + i, kept);
        else
            eight_terms(&e, i, n, sum + i, kept);
        for (uint32_t j = 0; j < keep; j++)
            stream(front[j] + i, j < 3 ? kept[j] : sum + i, n);
    }
}

/* May entries k to k - 7 be summed in one pass? Fronts lie behind each other one of them. */
static bool turns_eight(const struct stripe *s, uint32_t k)
{
    return s->sources->codec == ARITHMETIC_F32 && k >= 7 && s->plan->stacks.every == 2 &&
           (s->first + k) % 2 != 0;
}

static void stripe_turn(const struct stripe *s)
{
    const uint32_t every = s->plan->stacks.every;
    for (uint32_t k = s->plan->entries_n; k-- > 0;) {
        if (turns_eight(s, k)) {
            turn_eight(s, k, s->sum);
            k -= 7;
            continue;
        }
        if (k > 0 && (s->first + k) % every != 0 && (s->first + k - 1) % every == 0)
            turn_pair(s, k--, s->sum);
        else
            turn_one(s, k, s->sum);
        if (turn_keeps(s, k))
            stream(front_at(s, s->first + k), s->sum, s->n);
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

static void stripe_slide(const struct stripe *s, const struct arithmetic_age *age)
{
    const struct arithmetic_stacks *stacks = &s->plan->stacks;
    const uint64_t turned = stacks->position - age->behind;
    const uint64_t p = (s->first + stacks->every - 1) / stacks->every * stacks->every;
    const bool begins = age->behind == stacks->fresh;
    const float *back = s->sources->back + s->at, weight = age->weight;
    float room[CHUNK], *sum = s->sum;
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

/* Elements from `at` on that turn, up to so many as are summed at once; 0: this one does not. */
static size_t turn_run(const struct arithmetic_plan *plan, const struct arithmetic_sources *sources,
                       size_t at)
{
    const size_t most = sources->codec == ARITHMETIC_F32 ? TURN_RUN : CHUNK;
    size_t rest;
    if (plan->stacks.window == 0 || age_at(plan, sources, at, &rest) >= plan->stacks.fresh)
        return 0;
    return rest < most ? rest : most;
}

/* sum[i] = the average of element at + i, not scaled yet; n: a CHUNK, or a turn_run. */
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
