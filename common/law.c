/* The window and its steps. Settings, presets and their explanation are in law_settings.c. */
#include "common/law.h"

#include "common/status.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define RING (2 * (uint64_t)LAW_WINDOW_MAX)

static const struct law_entry *entry_at(const struct law *law, uint64_t position)
{
    return &law->ring[position % RING];
}

static uint64_t staleness(uint64_t version, uint64_t basis)
{
    return version > basis ? version - basis : 0;
}

static bool too_stale(const struct law_settings *settings, uint64_t tau)
{
    return settings->staleness_max >= 0 && tau > (uint64_t)settings->staleness_max;
}

/* d(τ). exp by multiplications only; poly by pow, once, here: the record carries what comes of it.
 */
static double decay(const struct law_settings *settings, uint64_t tau)
{
    switch (settings->decay) {
    case LAW_UNIFORM: return 1.0;
    case LAW_EXP: return arithmetic_power(settings->decay_beta, tau);
    case LAW_POLY: return pow(1.0 + (double)tau, -settings->decay_power);
    }
    ASSERT(!"a decay");
}

static double sample_weight(const struct law_settings *settings, uint64_t samples)
{
    return pow(samples == 0 ? 1.0 : (double)samples, settings->samples_exponent);
}

void law_init(struct law *law, const struct law_settings *settings)
{
    ASSERT(law_settings_check(settings) == GRADWEIR_OK);
    memset(law, 0, sizeof *law);
    law->settings = *settings;
    law->stacks.room = law_stacks_room(settings);
}

/* What falls out of the window stays in the ring until law_retired has handed it out. */
static void drop(struct law *law, uint64_t keep)
{
    while (law->next - law->first > keep) {
        law->unused += entry_at(law, law->first)->uses == 0;
        law->first++;
    }
}

void law_tune(struct law *law, const struct law_settings *settings)
{
    ASSERT(law_settings_check(settings) == GRADWEIR_OK);
    const struct law_settings *before = &law->settings;
    if (settings->window != before->window || settings->decay != before->decay ||
        settings->decay_beta != before->decay_beta || settings->decay_power != before->decay_power)
        law_stacks_restart(law);
    law->settings = *settings;
    drop(law, settings->window);
}

enum law_verdict law_judge_basis(const struct law *law, uint64_t basis)
{
    if (basis > law->version)
        return LAW_FUTURE;
    return too_stale(&law->settings, law->version - basis) ? LAW_STALE : LAW_FINE;
}

enum law_verdict law_judge(const struct law *law, const struct law_arrival *arrival)
{
    const struct law_settings *settings = &law->settings;
    double largest = (double)arrival->largest;
    if (!arrival->finite || !(largest <= settings->magnitude_max))
        return LAW_NOT_FINITE;
    if (settings->normalise == LAW_COUNT)
        largest *= sample_weight(settings, arrival->samples);
    if (!(largest <= (double)(FLT_MAX / 4)))
        return LAW_NOT_FINITE;
    if (settings->clip > 0.0 && !isfinite(arrival->norm))
        return LAW_NOT_FINITE;
    return law_judge_basis(law, arrival->basis);
}

const char *law_verdict_name(enum law_verdict verdict)
{
    switch (verdict) {
    case LAW_FINE: return "FINE";
    case LAW_NOT_FINITE: return "NOT_FINITE";
    case LAW_FUTURE: return "FUTURE";
    case LAW_STALE: return "STALE";
    }
    return "UNKNOWN";
}

struct law_entry law_entry(const struct law *law, const struct law_arrival *arrival)
{
    return (struct law_entry){
        .basis = arrival->basis,
        .samples = arrival->samples,
        .sample_weight = sample_weight(&law->settings, arrival->samples),
        .clip = arithmetic_clip_factor(arrival->norm, law->settings.clip),
        .admitted_version = law->version,
    };
}

double law_weight(const struct law *law, const struct law_entry *entry)
{
    const uint64_t tau = staleness(entry->admitted_version, entry->basis);
    return entry->sample_weight * entry->clip * decay(&law->settings, tau);
}

void law_admit(struct law *law, const struct law_entry *entry)
{
    ASSERT(law->next - law->retired < RING);
    if (law->fresh >= law->settings.stride)
        law->fresh = 0; /* a step was due and recheck left nothing for it */
    struct law_entry *place = &law->ring[law->next++ % RING];
    *place = *entry;
    place->uses = 0;
    law->fresh++;
    drop(law, law->settings.window);
}

bool law_retired(struct law *law, struct law_entry *entry)
{
    if (law->retired == law->first)
        return false;
    *entry = *entry_at(law, law->retired++);
    return true;
}

/* The τ of an entry if it were used now; false when recheck leaves it out. */
static bool usable(const struct law *law, const struct law_entry *entry, uint64_t *tau)
{
    const struct law_settings *settings = &law->settings;
    const bool arrival = settings->staleness_at == LAW_AT_ARRIVAL;
    *tau = staleness(arrival ? entry->admitted_version : law->version, entry->basis);
    return !settings->recheck || !too_stale(settings, *tau);
}

static bool any_usable(const struct law *law)
{
    uint64_t tau;
    for (uint64_t i = law->first; i < law->next; i++)
        if (usable(law, entry_at(law, i), &tau))
            return true;
    return false;
}

bool law_due(const struct law *law, enum law_cause cause)
{
    const uint64_t least = cause == LAW_DUE     ? law->settings.stride
                           : cause == LAW_FLUSH ? law->settings.flush_min
                                                : 1;
    return law->fresh >= least && any_usable(law);
}

static double scheduled_rate(const struct law_settings *settings, uint64_t t)
{
    const double begin = settings->learning_rate, end = settings->learning_rate_end;
    const uint64_t steps = settings->schedule_steps;
    const double part = steps == 0 || t > steps ? 1.0 : (double)(t - 1) / (double)steps;
    double rate = begin;
    if (settings->schedule == LAW_LINEAR)
        rate = begin + (end - begin) * part;
    if (settings->schedule == LAW_COSINE)
        rate = end + (begin - end) * 0.5 * (1.0 + cos(3.14159265358979323846 * part));
    if (t < settings->warmup_steps)
        rate *= (double)t / (double)settings->warmup_steps;
    return rate;
}

double law_next_rate(const struct law *law)
{
    return scheduled_rate(&law->settings, law->optimizer_step + 1);
}

/* The sums behind the weights. Dividing all decays by that of the youngest entry changes no mean,
 * and keeps old windows from underflowing to nothing: 0.5^2000 is 0. */
struct sums {
    double weights, samples, decayed;
};

static struct sums gather(const struct law *law, struct law_step *step,
                          double samples[LAW_WINDOW_MAX])
{
    const struct law_settings *settings = &law->settings;
    uint64_t youngest = UINT64_MAX;
    for (uint64_t i = law->first; i < law->next; i++) {
        const struct law_entry *entry = entry_at(law, i);
        struct law_step_entry *out = &step->entries[step->n];
        if (!usable(law, entry, &out->staleness))
            continue;
        out->slot = entry->slot;
        out->generation = entry->generation;
        out->weight_exact = entry->clip;
        samples[step->n++] = entry->sample_weight;
        youngest = out->staleness < youngest ? out->staleness : youngest;
    }
    struct sums sums = {0};
    const bool relative = settings->normalise == LAW_MEAN && settings->decay == LAW_EXP;
    for (uint32_t i = 0; i < step->n; i++) {
        struct law_step_entry *out = &step->entries[i];
        const uint64_t tau = out->staleness - (relative ? youngest : 0);
        const double weight = samples[i] * decay(settings, tau);
        sums.weights += weight;
        sums.samples += samples[i];
        sums.decayed += samples[i] * decay(settings, out->staleness);
        out->weight_exact *= weight;
    }
    return sums;
}

void law_step(const struct law *law, enum law_cause cause, struct law_step *step)
{
    const struct law_settings *settings = &law->settings;
    double samples[LAW_WINDOW_MAX];
    memset(step, 0, sizeof *step);
    step->cause = cause;
    step->version = law->version + 1;
    const struct sums sums = gather(law, step, samples);
    const double divisor = settings->normalise == LAW_MEAN ? sums.weights : (double)step->n;
    for (uint32_t i = 0; i < step->n; i++) {
        step->entries[i].weight_exact /= divisor;
        step->entries[i].weight = (float)step->entries[i].weight_exact;
    }
    const bool damped = settings->damp == LAW_DAMP_MEAN_WEIGHT && step->n > 0;
    step->optimizer_step = law->optimizer_step + 1;
    step->damp = damped ? sums.decayed / sums.samples : 1.0;
    step->learning_rate = law_next_rate(law) * step->damp;
    step->bias1 = arithmetic_bias(settings->beta1, step->optimizer_step);
    step->bias2 = arithmetic_bias(settings->beta2, step->optimizer_step);
    step->needs_sums = settings->clip_average > 0.0 || settings->algorithm == ARITHMETIC_LAMB;
    law_stacks_step(law, step);
}

/* An entry of the window by its slot: no two have the same. */
static struct law_entry *find_slot(struct law *law, uint32_t slot)
{
    for (uint64_t i = law->first; i < law->next; i++)
        if (law->ring[i % RING].slot == slot)
            return &law->ring[i % RING];
    return NULL;
}

void law_apply_record(struct law *law, uint64_t version, const uint32_t *slots, uint32_t n,
                      const struct law_step_stacks *stacks)
{
    ASSERT(version == law->version + 1 && n > 0);
    for (uint32_t i = 0; i < n; i++) {
        struct law_entry *entry = find_slot(law, slots[i]);
        ASSERT(entry != NULL);
        entry->uses++;
    }
    law_stacks_apply(law, stacks);
    law->version = version;
    law->optimizer_step++;
    law->fresh = 0;
    if (law->settings.window == law->settings.stride)
        drop(law, 0);
}

void law_apply(struct law *law, const struct law_step *step)
{
    uint32_t slots[LAW_WINDOW_MAX];
    for (uint32_t i = 0; i < step->n; i++)
        slots[i] = step->entries[i].slot;
    law_apply_record(law, step->version, slots, step->n, &step->stacks);
}

void law_clear(struct law *law, uint64_t version, uint64_t optimizer_step)
{
    drop(law, 0);
    law_stacks_restart(law);
    law->stacks.stepped = law->next;
    law->fresh = 0;
    law->version = version;
    law->optimizer_step = optimizer_step;
}

uint32_t law_size(const struct law *law)
{
    return (uint32_t)(law->next - law->first);
}

const struct law_entry *law_at(const struct law *law, uint32_t i)
{
    ASSERT(i < law_size(law));
    return entry_at(law, law->first + i);
}

void law_plan(const struct law_settings *settings, const struct law_step *step,
              struct arithmetic_plan *plan)
{
    plan->algorithm = settings->algorithm;
    plan->phase = settings->algorithm == ARITHMETIC_LAMB ? ARITHMETIC_MOMENTS : ARITHMETIC_WHOLE;
    plan->first = step->optimizer_step == 1;
    plan->scale = 1.0f;
    plan->entries_n = step->n;
    for (uint32_t i = 0; i < step->n; i++)
        plan->entries[i] = (struct arithmetic_entry){.slot = step->entries[i].slot,
                                                     .weight = step->entries[i].weight};
    law_stacks_plan(&step->stacks, &plan->stacks);
}
