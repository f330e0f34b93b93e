/* A sequential server: it takes the log's records one after the other and applies them to the whole
 * model, in the plainest way. What shards hold must equal what it holds, to the bit; and the
 * numbers in the records must be those of the window law, worked out here once more. */
#include "tests/sim/sim_calls.h"

#include <math.h>
#include <string.h>

void reference_init(struct sim *sim)
{
    memset(sim->reference, 0, offsetof(struct reference, bodies));
}

static void remember_version(struct sim *sim, const struct moments *moments)
{
    struct reference *reference = sim->reference;
    uint8_t body[SIM_BODY_BYTES];
    const size_t floats = sim->model->elements * sizeof(float);
    memcpy(body, reference->parameters, floats);
    memcpy(body + floats, moments, sim->model->moments * sizeof *moments);
    reference->bodies[reference->versions++] = sim_remember(sim, body, sim->body_bytes);
}

/* Chan, Golub and LeVeque 1979. */
static void merge(struct sim *sim, const struct sim_name *known)
{
    const uint8_t *tail = known->body + sim_tail(sim, known->purpose);
    for (uint64_t i = 0; i < sim->model->moments; i++) {
        struct moments *ours = &sim->reference->moments[i], theirs;
        memcpy(&theirs, tail + i * sizeof theirs, sizeof theirs);
        const double total = ours->count + theirs.count, delta = theirs.mean - ours->mean;
        if (theirs.count <= 0)
            continue;
        ours->mean += delta * (theirs.count / total);
        ours->m2 += theirs.m2 + delta * delta * (ours->count * (theirs.count / total));
        ours->count = total;
    }
}

/* The window: the last W admitted. */
static void drop_beyond(struct reference *reference, uint32_t most)
{
    if (reference->window_n <= most)
        return;
    const uint32_t over = reference->window_n - most;
    reference->window_n = most;
    memmove(reference->window, reference->window + over, most * sizeof *reference->window);
}

static double decay_of(const struct law_settings *law, uint64_t tau)
{
    switch (law->decay) {
    case LAW_EXP: return pow(law->decay_beta, (double)tau);
    case LAW_POLY: return pow(1.0 + (double)tau, -law->decay_power);
    default: return 1;
    }
}

static uint64_t tau_of(const struct reference *reference, const struct law_settings *law,
                       const struct reference_entry *entry)
{
    return (law->staleness_at == LAW_AT_STEP ? reference->version : entry->admitted) - entry->basis;
}

/* Samples to the power, decay; not the clip, which stands outside the mean. */
static double weight_of(const struct reference *reference, const struct law_settings *law,
                        const struct reference_entry *entry)
{
    const double samples = entry->samples ? (double)entry->samples : 1.0;
    return pow(samples, law->samples_exponent) * decay_of(law, tau_of(reference, law, entry));
}

static double clip_of(const struct law_settings *law, const struct reference_entry *entry)
{
    const double factor = law->clip > 0 ? law->clip / (entry->norm + 1e-6) : 1.0;
    return factor < 1 ? factor : 1.0;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * (fabs(a) + fabs(b)) + 1e-30;
}

static void check_admit(struct sim *sim, const struct record_admit *admit)
{
    const struct law_settings *law = &sim->before;
    const struct reference_entry entry = {.samples = admit->samples, .norm = admit->norm};
    const double samples = pow(admit->samples ? (double)admit->samples : 1, law->samples_exponent);
    if (!near(admit->sample_weight, samples) || !near(admit->clip, clip_of(law, &entry)))
        sim_fail(sim, "record %llu admits with weight %g and clip %g; by the law it is %g and %g",
                 (unsigned long long)sim->index, admit->sample_weight, admit->clip, samples,
                 clip_of(law, &entry));
}

static bool usable(const struct reference *reference, const struct law_settings *law,
                   const struct reference_entry *entry)
{
    return !law->recheck || law->staleness_max < 0 ||
           tau_of(reference, law, entry) <= (uint64_t)law->staleness_max;
}

static void check_step(struct sim *sim, const struct record_step *step)
{
    struct reference *reference = sim->reference;
    const struct law_settings *law = &sim->before;
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < reference->window_n; i++)
        if (usable(reference, law, &reference->window[i])) {
            sum += weight_of(reference, law, &reference->window[i]);
            if (n >= step->entries_count || step->entries[n++].slot != reference->window[i].slot)
                sim_fail(sim, "step %llu does not read the last %u admitted gradients in order",
                         (unsigned long long)step->version, reference->window_n);
        }
    if (n != step->entries_count || step->version != reference->version + 1)
        sim_fail(sim, "step %llu reads %u gradients; the window has %u, and %llu is the version",
                 (unsigned long long)step->version, step->entries_count, n,
                 (unsigned long long)reference->version);
    for (uint32_t i = 0, k = 0; i < reference->window_n; i++) {
        struct reference_entry *entry = &reference->window[i];
        if (!usable(reference, law, entry))
            continue;
        float weight;
        memcpy(&weight, &step->entries[k++].weight, sizeof weight);
        entry->weight =
            weight_of(reference, law, entry) / (law->normalise == LAW_MEAN ? sum : (double)n);
        const double exact = entry->weight * clip_of(law, entry);
        if (!near(weight, exact))
            sim_fail(sim, "step %llu gives slot %u the weight %g; by the law it is %g",
                     (unsigned long long)step->version, entry->slot, (double)weight, exact);
    }
}

void reference_plan(const struct sim *sim, const struct record_step *step,
                    struct arithmetic_plan *plan)
{
    const struct order_options *order = &sim->settings.order;
    *plan = (struct arithmetic_plan){.algorithm = order->law.algorithm,
                                     .first = step->t == 1,
                                     .centered = order->optimizer.centered,
                                     .momentum = order->optimizer.momentum,
                                     .epsilon = (float)order->optimizer.epsilon,
                                     .scale = 1};
    for (uint32_t i = 0; i < sim->model->groups_count; i++) {
        const struct model_group *group = &sim->model->groups[i];
        const struct arithmetic_group_numbers numbers = {
            .learning_rate = step->groups[i].learning_rate,
            .weight_decay =
                group->weight_decay >= 0 ? group->weight_decay : order->optimizer.weight_decay,
            .beta1 = group->beta1 >= 0 ? group->beta1 : order->law.beta1,
            .beta2 = group->beta2 >= 0 ? group->beta2 : order->law.beta2,
            .dampening = order->optimizer.dampening,
            .bias1 = step->groups[i].bias_correction1,
            .bias2 = step->groups[i].bias_correction2,
            .frozen = group->frozen};
        arithmetic_plan_group(plan, i, &numbers);
    }
}

static void average(struct sim *sim)
{
    struct reference *reference = sim->reference;
    memset(reference->average, 0, sizeof reference->average);
    for (uint32_t k = 0; k < reference->step.entries_count; k++) {
        float weight;
        memcpy(&weight, &reference->step.entries[k].weight, sizeof weight);
        for (uint64_t i = 0; i < sim->model->elements; i++) {
            const float term =
                codec_element(sim_codec(sim, PURPOSE_GRADIENT), reference->sources[k], i);
            reference->average[i] = reference->average[i] + weight * term;
        }
    }
}

/* The whole model as one range a tensor. */
static void whole_work(struct sim *sim, struct arithmetic_range ranges[16],
                       struct arithmetic_work *work)
{
    struct reference *reference = sim->reference;
    *work = (struct arithmetic_work){.average = reference->average,
                                     .parameters = reference->parameters,
                                     .parameters_next = reference->parameters,
                                     .ranges = ranges,
                                     .ranges_n = sim->model->parameter_tensors};
    for (uint32_t i = 0; i < ARITHMETIC_STATES_MAX; i++)
        work->state[i] = work->state_next[i] = reference->states[i];
    for (uint32_t i = 0; i < work->ranges_n; i++) {
        const struct model_tensor *tensor = sim->model->by_offset[i];
        ranges[i] = (struct arithmetic_range){.begin = tensor->offset,
                                              .end = tensor->offset + tensor->elements,
                                              .group = tensor->group,
                                              .tensor = i};
    }
}

static void take_step(struct sim *sim, float scale)
{
    struct reference *reference = sim->reference;
    struct arithmetic_range ranges[16];
    struct arithmetic_plan plan;
    struct arithmetic_work work;
    reference_plan(sim, &reference->step, &plan);
    plan.scale = scale;
    whole_work(sim, ranges, &work);
    arithmetic_scalar.step(&plan, &work, 0, sim->model->elements);
    reference->waits = false;
    remember_version(sim, reference->at_step);
}

/* A tensor's trust ratio, summed straight on: |theta| / |update|. */
static double ratio_of(const struct sim *sim, const struct arithmetic_plan *plan,
                       const struct arithmetic_work *work, const struct arithmetic_range *range)
{
    const struct arithmetic_group *group = &plan->groups[range->group];
    double theta = 0, update = 0;
    for (uint64_t i = range->begin; i < range->end; i++) {
        const double m = (double)work->state[0][i], v = (double)work->state[1][i];
        const double old = (double)work->parameters[i];
        const double u = m / (double)group->bias1 /
                             (sqrt(v) / (double)group->bias2_root + (double)plan->epsilon) +
                         (double)group->weight_decay * old;
        theta += old * old;
        update += u * u;
    }
    const bool adapts = group->weight_decay != 0 || sim->settings.order.optimizer.always_adapt;
    return group->frozen || !adapts || theta <= 0 || update <= 0 ? 1 : sqrt(theta) / sqrt(update);
}

static void take_lamb(struct sim *sim, const struct record_summed *record)
{
    struct reference *reference = sim->reference;
    struct arithmetic_range ranges[16];
    struct arithmetic_plan plan;
    struct arithmetic_work work;
    float ratios[16];
    reference_plan(sim, &reference->step, &plan);
    whole_work(sim, ranges, &work);
    plan.phase = ARITHMETIC_MOMENTS;
    arithmetic_scalar.step(&plan, &work, 0, sim->model->elements);
    if (record->ratios_count != work.ranges_n)
        sim_fail(sim, "%u trust ratios for %zu tensors", record->ratios_count, work.ranges_n);
    for (uint32_t i = 0; i < record->ratios_count; i++) {
        const double exact = ratio_of(sim, &plan, &work, &ranges[i]);
        memcpy(&ratios[i], &record->ratios[i], sizeof *ratios);
        if (!near(ratios[i], exact))
            sim_fail(sim,
                     "the trust ratio of tensor %u in version %llu is %g; it was recorded as %g", i,
                     (unsigned long long)record->version, exact, (double)ratios[i]);
    }
    plan.phase = ARITHMETIC_APPLY;
    work.ratios = ratios;
    arithmetic_scalar.step(&plan, &work, 0, sim->model->elements);
    reference->waits = false;
    remember_version(sim, reference->at_step);
}

static void step(struct sim *sim, const struct record_step *record)
{
    struct reference *reference = sim->reference;
    const struct law_settings *law = &sim->before;
    check_step(sim, record);
    if (reference->waits)
        sim_fail(sim, "step %llu is taken before the sums of the one before are there",
                 (unsigned long long)record->version);
    if ((record->cause == STEP_DUE && reference->fresh < law->stride) || reference->fresh == 0)
        sim_fail(sim, "step %llu is taken with %llu fresh gradients; the stride is %u",
                 (unsigned long long)record->version, (unsigned long long)reference->fresh,
                 law->stride);
    reference->step = *record;
    for (uint32_t i = 0, k = 0; i < reference->window_n; i++)
        if (usable(reference, law, &reference->window[i]))
            reference->sources[k++] = reference->window[i].body;
    average(sim);
    reference_stacks(sim);
    memcpy(reference->at_step, reference->moments, sizeof reference->moments);
    reference->version = record->version;
    reference->fresh = 0;
    if (law->window == law->stride)
        reference->window_n = 0;
    reference->waits = record->rounds > 0;
    if (!reference->waits)
        take_step(sim, 1);
}

static void summed(struct sim *sim, const struct record_summed *record)
{
    struct reference *reference = sim->reference;
    if (sim->settings.order.law.algorithm == ARITHMETIC_LAMB) {
        if (!reference->waits || record->version != reference->version)
            sim_fail(sim, "nobody waits for the ratios of version %llu",
                     (unsigned long long)record->version);
        take_lamb(sim, record);
        return;
    }
    double squares = 0;
    for (uint64_t i = 0; i < sim->model->elements; i++)
        squares += (double)reference->average[i] * (double)reference->average[i];
    float factor;
    memcpy(&factor, &record->factor, sizeof factor);
    const double limit = sim->settings.order.law.clip_average;
    const double exact = limit / (sqrt(squares) + 1e-6);
    if (!reference->waits || record->version != reference->version ||
        !near(factor, exact < 1 ? exact : 1))
        sim_fail(sim, "the sums of version %llu give a factor of %g; it is %g",
                 (unsigned long long)record->version, (double)factor, exact < 1 ? exact : 1);
    take_step(sim, factor);
}

void reference_apply(struct sim *sim, const struct record *record, const struct sim_name *known)
{
    struct reference *reference = sim->reference;
    const struct law_settings *law = &sim->ledger.law.settings;
    reference_stacks_tuned(sim, law);
    if (record->kind == RECORD_FIRST) {
        memcpy(reference->parameters, known->body, sim->model->elements * sizeof(float));
        merge(sim, known);
        reference->first = true;
        remember_version(sim, reference->moments);
    } else if (record->kind == RECORD_ADMIT) {
        check_admit(sim, &record->admit);
        drop_beyond(reference, law->window - 1);
        reference->window[reference->window_n++] =
            (struct reference_entry){.slot = record->admit.slot,
                                     .basis = record->admit.basis,
                                     .samples = record->admit.samples,
                                     .admitted = reference->version,
                                     .norm = record->admit.norm,
                                     .body = known->body};
        reference->fresh++;
        reference->admitted++;
        merge(sim, known);
    } else if (record->kind == RECORD_STEP) {
        step(sim, &record->step);
    } else if (record->kind == RECORD_SUMMED) {
        summed(sim, &record->summed);
    }
    drop_beyond(reference, law->window);
}
