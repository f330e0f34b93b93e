/* The reference's window by stacks: element by element, in the plainest way, from what the record
 * says; and whether the record says what the law makes of it. */
#include "tests/sim/sim_calls.h"

#include <math.h>
#include <string.h>

/* Elements that turn together: half of 8192 again and again, until a model has four times as many
 * of them as the window at start has places. */
static uint64_t stripe_of(const struct sim *sim)
{
    uint64_t stripe = 8192;
    while (stripe > 1 && sim->model->elements / stripe < 4 * sim->settings.order.law.window)
        stripe /= 2;
    return stripe;
}

static void forget(struct reference *reference)
{
    memset(reference->turned, 0, sizeof reference->turned);
}

void reference_stacks_tuned(struct sim *sim, const struct law_settings *law)
{
    const struct law_settings *before = &sim->before;
    if (law->window != before->window || law->decay != before->decay ||
        law->decay_beta != before->decay_beta || law->decay_power != before->decay_power)
        forget(sim->reference);
}

static float entry_float(const struct sim *sim, uint32_t k, uint64_t element)
{
    return codec_element(sim_codec(sim, PURPOSE_GRADIENT), sim->reference->sources[k], element);
}

static float entry_weight(const struct reference *reference, uint32_t k)
{
    float weight;
    memcpy(&weight, &reference->step.entries[k].weight, sizeof weight);
    return weight;
}

/* The number that sums of the step at this position are multiplied by. */
static float turn_weight(const struct sim *sim, uint64_t position)
{
    const struct reference *reference = sim->reference;
    const struct step_stacks *stacks = &reference->step.stacks;
    for (uint32_t i = 0; i < stacks->turns_count; i++)
        if (stacks->position - reference->step.turns[i].behind == position) {
            float weight;
            memcpy(&weight, &reference->step.turns[i].weight, sizeof weight);
            return weight;
        }
    return NAN; /* an average of it is no number either, and so found out */
}

/* Oldest last; what is summed so far is the front of each position on the way. */
static float turn(struct sim *sim, uint64_t element)
{
    struct reference *reference = sim->reference;
    const uint32_t n = reference->window_n;
    float sum = 0;
    for (uint32_t k = n; k-- > 0;) {
        sum = sum + entry_weight(reference, k) * entry_float(sim, k, element);
        reference->fronts[(reference->admitted - n + k) % WINDOW_MAX][element] = sum;
    }
    reference->turned[element] = reference->admitted;
    return sum;
}

static float slide(struct sim *sim, uint64_t element)
{
    struct reference *reference = sim->reference;
    const uint32_t n = reference->window_n, fresh = reference->step.stacks.fresh;
    const uint64_t first = reference->admitted - n, turned = reference->turned[element];
    const uint64_t from = first + first % 2; /* fronts of every other position are kept */
    float keep, back = 0;
    memcpy(&keep, &reference->step.stacks.rescale, sizeof keep);
    if (turned != reference->stepped)
        back = reference->back[element] * keep;
    for (uint32_t k = n - fresh; k < n; k++)
        back = back + entry_weight(reference, k) * entry_float(sim, k, element);
    reference->back[element] = back;
    float sum = back;
    if (from < turned)
        sum = sum + turn_weight(sim, turned) * reference->fronts[from % WINDOW_MAX][element];
    if (from > first && first < turned)
        sum = sum + entry_weight(reference, 0) * entry_float(sim, 0, element);
    return sum;
}

static float average_element(struct sim *sim, uint64_t element, uint64_t stripe)
{
    struct reference *reference = sim->reference;
    const uint64_t window = reference->step.stacks.window;
    const uint64_t phase = element / stripe % window;
    bool turns = false;
    for (uint64_t position = reference->stepped + 1; position <= reference->admitted; position++)
        turns = turns || position % window == phase;
    if (turns)
        return turn(sim, element);
    return reference->turned[element] ? slide(sim, element) : reference->average[element];
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * (fabs(a) + fabs(b)) + 1e-30;
}

static const struct reference_entry *newest_at(const struct reference *reference, uint64_t position)
{
    for (uint32_t i = 0; i < reference->window_n; i++)
        if (reference->window[i].weight_then > 0 && reference->window[i].step_then == position)
            return &reference->window[i];
    return NULL;
}

/* All weights change by one factor: it is seen at the entry that was the newest. */
static void check_numbers(struct sim *sim)
{
    const struct reference *reference = sim->reference;
    const struct step_stacks *stacks = &reference->step.stacks;
    if (stacks->position != reference->admitted || stacks->window != sim->before.window ||
        stacks->fresh != reference->admitted - reference->stepped)
        sim_fail(sim, "step %llu is by stacks of another place in the log",
                 (unsigned long long)reference->version);
    for (uint32_t i = 0; i < stacks->turns_count; i++) {
        const uint64_t position = stacks->position - reference->step.turns[i].behind;
        const struct reference_entry *entry = newest_at(reference, position);
        float weight, rescale;
        memcpy(&weight, &reference->step.turns[i].weight, sizeof weight);
        memcpy(&rescale, &stacks->rescale, sizeof rescale);
        if (!entry || !near(weight, entry->weight / entry->weight_then) ||
            (i == 0 && !near(rescale, entry->weight / entry->weight_then)))
            sim_fail(sim, "step %llu weighs the sums of %u records ago with %g, %g; it is %g",
                     (unsigned long long)reference->version, reference->step.turns[i].behind,
                     (double)weight, (double)rescale,
                     entry ? entry->weight / entry->weight_then : 0);
    }
}

/* 2 (W + 4) 2^-24 of the sum of magnitudes; and weights may be off by 1e-5 as far as we know. */
static void check_average(struct sim *sim, uint64_t element, float by_stacks)
{
    const struct reference *reference = sim->reference;
    double sizes = 0;
    for (uint32_t k = 0; k < reference->window_n; k++)
        sizes += fabs((double)entry_weight(reference, k) * (double)entry_float(sim, k, element));
    const double bound = 2e-5 * sizes + 2 * (reference->window_n + 4) * 0x1p-24 * sizes + 1e-30;
    if (!(fabs((double)by_stacks - (double)reference->average[element]) <= bound))
        sim_fail(sim, "step %llu by stacks averages element %llu to %g; one pass has %g",
                 (unsigned long long)reference->version, (unsigned long long)element,
                 (double)by_stacks, (double)reference->average[element]);
}

static void remember_newest(struct reference *reference)
{
    struct reference_entry *newest = &reference->window[reference->window_n - 1];
    newest->weight_then = newest->weight;
    newest->step_then = reference->admitted;
    reference->stepped = reference->admitted;
}

/* reference->average is that of one pass, and becomes that by stacks where the step is taken so. */
void reference_stacks(struct sim *sim)
{
    struct reference *reference = sim->reference;
    const uint64_t stripe = stripe_of(sim);
    if (reference->step.algorithm != STEP_STACKS) {
        forget(reference);
        remember_newest(reference);
        return;
    }
    check_numbers(sim);
    for (uint64_t i = 0; i < sim->model->elements; i++) {
        const float by_stacks = average_element(sim, i, stripe);
        check_average(sim, i, by_stacks);
        reference->average[i] = by_stacks;
    }
    remember_newest(reference);
    sim->counts.stacks++;
}
