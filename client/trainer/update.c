/* See update.h. */
#include "client/trainer/update.h"

#include "client/trainer/pace.h"
#include "client/trainer/vector_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct loss_settings loss_settings_of(const struct train_settings *s)
{
    return (struct loss_settings){
        .gaussian = !s->environment->discrete,
        .action_dim = s->environment->action_dim,
        .clip = (float)s->clip,
        .clip_value = !s->no_value_clip,
        .value_clip = (float)s->clip,
        .entropy_coefficient = (float)s->entropy,
        .value_coefficient = (float)s->value,
        .advantages = s->raw_advantages ? LOSS_ADVANTAGES_RAW
                      : s->stable       ? LOSS_ADVANTAGES_GIVEN
                                        : LOSS_ADVANTAGES_BATCH,
        .decoupled = s->decoupled,
        .behaviour = s->behaviour_cap > 0 ? LOSS_BEHAVIOUR_TRUNCATE : LOSS_BEHAVIOUR_NONE,
        .behaviour_cap = (float)s->behaviour_cap,
        .dual_clip = (float)s->dual_clip,
    };
}

static float *floats(size_t n, bool *whole)
{
    float *p = calloc(n, sizeof(float));
    *whole = *whole && p != NULL;
    return p;
}

static bool allocate(struct update *u)
{
    bool whole = true;
    u->advantages = floats(u->samples, &whole);
    u->parameters = floats(u->network->n_parameters, &whole);
    u->gradient = floats(u->network->n_parameters, &whole);
    u->accumulated = floats(u->network->n_parameters, &whole);
    u->order = calloc(u->samples, sizeof(*u->order));
    return whole && u->order != NULL;
}

size_t update_samples(const struct train_settings *settings)
{
    return settings->envs * settings->rollout;
}

size_t update_minibatch_max(const struct train_settings *settings)
{
    return (update_samples(settings) + settings->minibatches - 1) / settings->minibatches;
}

bool update_init(struct update *update, const struct train_settings *settings,
                 const struct network *network, uint64_t worker, struct engine_running running)
{
    *update = (struct update){
        .settings = settings,
        .network = network,
        .running = running,
        .samples = update_samples(settings),
        .loss = loss_settings_of(settings),
    };
    chance_init_for(&update->chance, settings->seed, worker, CHANCE_SHUFFLE);
    const bool whole = allocate(update);
    for (size_t i = 0; whole && i < update->samples; i++)
        update->order[i] = (uint32_t)i;
    return whole;
}

void update_deinit(struct update *u)
{
    void *all[] = {u->order, u->accumulated, u->gradient, u->parameters, u->advantages};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
    *u = (struct update){.samples = 0};
}

gradweir_status update_pull(struct update *u, struct learner *learner)
{
    float *parameters = learner->far ? NULL : u->parameters;
    const gradweir_status status = learner->pull(learner, parameters);
    return status == GRADWEIR_OK ? u->running.engine->load(u->running.state, parameters) : status;
}

/* With --stable, advantages are normalised by what all workers have seen since this one's last
 * rollout. Over all time would be wrong: advantages shrink as the values are learned, and an old
 * mean shifts them all to one side. */
static gradweir_status share_advantages(struct update *u, struct learner *learner)
{
    if (u->loss.advantages != LOSS_ADVANTAGES_GIVEN)
        return GRADWEIR_OK;
    struct statistics total;
    const struct statistics increment = statistics_of(u->advantages, u->samples, 1);
    const gradweir_status status =
        learner->share(learner, LEARNER_ADVANTAGE_STATISTICS, &increment, &total);
    if (status != GRADWEIR_OK)
        return status;
    const struct statistics recent = statistics_since(&total, &u->advantages_before);
    u->advantages_before = total;
    u->loss.advantage_mean = (float)recent.mean;
    u->loss.advantage_deviation = (float)sqrt(statistics_variance(&recent));
    return GRADWEIR_OK;
}

/* A gradient that is far stays where it is made. */
static float *gradient_of(const struct update *u, const struct learner *learner)
{
    return learner->far ? NULL : u->gradient;
}

static gradweir_status compute_gradient(struct update *u, const struct learner *learner,
                                        const uint32_t *order, size_t n)
{
    const struct engine_minibatch minibatch = {.order = order, .n = n, .loss = &u->loss};
    return u->running.engine->gradient(u->running.state, &minibatch, gradient_of(u, learner),
                                       &u->losses);
}

static gradweir_status push_accumulated(struct update *u, struct learner *learner)
{
    if (u->accumulated_samples == 0)
        return GRADWEIR_OK;
    const float scale = 1 / (float)u->accumulated_samples;
    for (size_t i = 0; i < u->network->n_parameters; i++)
        u->gradient[i] = element_scaled(u->accumulated[i], scale);
    memset(u->accumulated, 0, u->network->n_parameters * sizeof(float));
    const gradweir_status status = learner->push(learner, u->gradient, u->accumulated_samples);
    u->accumulated_samples = u->accumulated_count = 0;
    return status;
}

/* The mean over all samples: each minibatch counts by its size. It is made on the host. */
static gradweir_status hand_over(struct update *u, struct learner *learner, size_t n)
{
    if (u->settings->accumulate == 1)
        return learner->push(learner, gradient_of(u, learner), n);
    vector_add_scaled(u->network->n_parameters, (float)n, u->gradient, u->accumulated);
    u->accumulated_samples += n;
    return ++u->accumulated_count < u->settings->accumulate ? GRADWEIR_OK
                                                            : push_accumulated(u, learner);
}

/* One pass over the rollout. Parameters are pulled before each gradient, but not amid an
 * accumulation. */
static gradweir_status run_epoch(struct update *u, struct learner *learner)
{
    const size_t batches = u->settings->minibatches;
    u->kl = 0;
    chance_shuffle(&u->chance, u->order, u->samples);
    for (size_t b = 0; b < batches; b++) {
        const size_t start = b * u->samples / batches, n = (b + 1) * u->samples / batches - start;
        gradweir_status status = GRADWEIR_OK;
        if (!u->settings->pull_per_rollout && u->accumulated_count == 0 && !u->fresh)
            status = update_pull(u, learner);
        u->fresh = false;
        if (status != GRADWEIR_OK)
            return status;
        const double cpu_s = pace_cpu_seconds();
        status = compute_gradient(u, learner, u->order + start, n);
        if (status != GRADWEIR_OK)
            return status;
        pace_sleep_after(u->settings->pace_ms, u->settings->slowness, cpu_s);
        u->kl += u->losses.approx_kl / (double)batches;
        status = hand_over(u, learner, n);
        if (status != GRADWEIR_OK)
            return status;
    }
    return GRADWEIR_OK;
}

gradweir_status update_run(struct update *u, const struct rollout *rollout, struct learner *learner)
{
    gradweir_status status = update_pull(u, learner);
    u->fresh = true;
    if (status == GRADWEIR_OK)
        status = u->running.engine->estimate(u->running.state, rollout, u->advantages);
    if (status == GRADWEIR_OK)
        status = share_advantages(u, learner);
    for (size_t epoch = 0; status == GRADWEIR_OK && epoch < u->settings->epochs; epoch++) {
        status = run_epoch(u, learner);
        if (u->settings->target_kl > 0 && u->kl > u->settings->target_kl)
            break;
    }
    return status == GRADWEIR_OK ? push_accumulated(u, learner) : status;
}
