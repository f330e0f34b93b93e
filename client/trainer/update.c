/* See update.h. */
#include "client/trainer/update.h"

#include "client/trainer/advantage.h"
#include "client/trainer/pace.h"
#include "client/trainer/vector_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_SHUFFLE = 3, STREAMS = 16 };

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

static bool allocate_batch(struct update *u)
{
    const size_t n = u->minibatch_max, dim = u->network->shape.action_dim;
    bool whole = true;
    u->observations = floats(n * u->network->shape.observation_dim, &whole);
    u->actions = floats(n * dim, &whole);
    u->columns = floats(n * 5, &whole);
    u->result = (struct loss_result){
        .d_head = floats(n * dim, &whole),
        .d_value = floats(n, &whole),
        .d_log_std = floats(dim, &whole),
        .log_new = floats(n, &whole),
        .entropy = floats(n, &whole),
        .ratio = floats(n, &whole),
        .advantage = floats(n, &whole),
        .weight = floats(n, &whole),
    };
    return whole;
}

static bool allocate_rollout(struct update *u)
{
    bool whole = true;
    u->advantages = floats(u->samples, &whole);
    u->targets = floats(u->samples, &whole);
    u->log_proximal = floats(u->samples, &whole);
    u->log_ratios = floats(u->samples, &whole);
    u->parameters = floats(u->network->n_parameters, &whole);
    u->gradient = floats(u->network->n_parameters, &whole);
    u->accumulated = floats(u->network->n_parameters, &whole);
    u->order = calloc(u->samples, sizeof(*u->order));
    return whole && u->order != NULL;
}

bool update_init(struct update *update, const struct train_settings *settings,
                 const struct network *network, uint64_t worker)
{
    const size_t samples = settings->envs * settings->rollout;
    *update = (struct update){
        .settings = settings,
        .network = network,
        .samples = samples,
        .minibatch_max = (samples + settings->minibatches - 1) / settings->minibatches,
        .loss = loss_settings_of(settings),
    };
    chance_init(&update->chance, settings->seed, worker * STREAMS + STREAM_SHUFFLE);
    const bool whole = allocate_batch(update) && allocate_rollout(update) &&
                       network_room_init(&update->room, network, update->minibatch_max);
    for (size_t i = 0; whole && i < samples; i++)
        update->order[i] = (uint32_t)i;
    return whole;
}

void update_deinit(struct update *u)
{
    struct loss_result *r = &u->result;
    void *all[] = {u->order,        u->accumulated, u->gradient,   u->parameters,  u->log_ratios,
                   u->log_proximal, u->targets,     u->advantages, r->weight,      r->advantage,
                   r->ratio,        r->entropy,     r->log_new,    r->d_log_std,   r->d_value,
                   r->d_head,       u->columns,     u->actions,    u->observations};
    network_room_deinit(&u->room);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
    *u = (struct update){.samples = 0};
}

/* Log-probabilities of the rollout's actions under the parameters pulled last, in pieces of a
 * minibatch. */
static void evaluate_proximal(struct update *u, const struct rollout *rollout)
{
    const struct network_shape *shape = &u->network->shape;
    const struct policy policy = {shape->gaussian, shape->action_dim,
                                  u->parameters + u->network->log_std};
    for (size_t start = 0; start < u->samples; start += u->minibatch_max) {
        const size_t n =
            u->samples - start < u->minibatch_max ? u->samples - start : u->minibatch_max;
        network_forward_head(u->network, u->parameters,
                             rollout->observations + start * shape->observation_dim, n, &u->room);
        for (size_t i = 0; i < n; i++) {
            float entropy = 0;
            const size_t at = start + i;
            u->log_proximal[at] =
                policy_log_probability(&policy, u->room.head + i * shape->action_dim,
                                       rollout->actions + at * rollout->action_width, &entropy);
            u->log_ratios[at] = u->log_proximal[at] - rollout->log_behaviour[at];
        }
    }
}

static void estimate_advantages(struct update *u, const struct rollout *rollout)
{
    const struct train_settings *s = u->settings;
    const struct advantage_input input = {
        .steps = rollout->steps,
        .environments = rollout->environments,
        .rewards = rollout->rewards,
        .values = rollout->values,
        .next_values = rollout->next_values,
        .terminated = rollout->terminated,
        .truncated = rollout->truncated,
    };
    if (s->decoupled || s->vtrace)
        evaluate_proximal(u, rollout);
    if (s->vtrace) {
        const struct advantage_vtrace_settings caps = {(float)s->gamma, 1, (float)s->lambda, 1};
        advantage_vtrace(&input, &caps, u->log_ratios, u->advantages, u->targets);
    } else {
        advantage_gae(&input, (float)s->gamma, (float)s->lambda, u->advantages, u->targets);
    }
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

static struct loss_batch gather(struct update *u, const struct rollout *rollout,
                                const uint32_t *order, size_t n)
{
    const size_t seen = u->network->shape.observation_dim, width = rollout->action_width;
    float *column[5];
    for (size_t c = 0; c < 5; c++)
        column[c] = u->columns + c * u->minibatch_max;
    for (size_t i = 0; i < n; i++) {
        const size_t from = order[i];
        memcpy(u->observations + i * seen, rollout->observations + from * seen,
               seen * sizeof(float));
        memcpy(u->actions + i * width, rollout->actions + from * width, width * sizeof(float));
        column[0][i] = rollout->log_behaviour[from];
        column[1][i] = u->log_proximal[from];
        column[2][i] = u->advantages[from];
        column[3][i] = u->targets[from];
        column[4][i] = rollout->values[from];
    }
    return (struct loss_batch){
        .n = n,
        .actions = u->actions,
        .log_behaviour = column[0],
        .log_proximal = column[1],
        .advantages = column[2],
        .targets = column[3],
        .old_values = column[4],
        .head = u->room.head,
        .value = u->room.value,
        .log_std = u->parameters + u->network->log_std,
    };
}

static void compute_gradient(struct update *u, const struct rollout *rollout, const uint32_t *order,
                             size_t n)
{
    const struct loss_batch batch = gather(u, rollout, order, n);
    const struct network_backward_input input = {
        .parameters = u->parameters,
        .observations = u->observations,
        .batch = n,
        .d_head = u->result.d_head,
        .d_value = u->result.d_value,
        .d_log_std = u->result.d_log_std,
    };
    network_forward(u->network, u->parameters, u->observations, n, &u->room);
    loss_compute(&u->loss, &batch, &u->result);
    network_backward(u->network, &input, &u->room, u->gradient);
}

static gradweir_status push_accumulated(struct update *u, struct learner *learner)
{
    if (u->accumulated_samples == 0)
        return GRADWEIR_OK;
    const float scale = 1 / (float)u->accumulated_samples;
    for (size_t i = 0; i < u->network->n_parameters; i++)
        u->gradient[i] = u->accumulated[i] * scale;
    memset(u->accumulated, 0, u->network->n_parameters * sizeof(float));
    const gradweir_status status = learner->push(learner, u->gradient, u->accumulated_samples);
    u->accumulated_samples = u->accumulated_count = 0;
    return status;
}

/* The mean over all samples: each minibatch counts by its size. */
static gradweir_status hand_over(struct update *u, struct learner *learner, size_t n)
{
    if (u->settings->accumulate == 1)
        return learner->push(learner, u->gradient, n);
    vector_add_scaled(u->network->n_parameters, (float)n, u->gradient, u->accumulated);
    u->accumulated_samples += n;
    return ++u->accumulated_count < u->settings->accumulate ? GRADWEIR_OK
                                                            : push_accumulated(u, learner);
}

/* One pass over the rollout. Parameters are pulled before each gradient, but not amid an
 * accumulation. */
static gradweir_status run_epoch(struct update *u, const struct rollout *rollout,
                                 struct learner *learner)
{
    const size_t batches = u->settings->minibatches;
    u->kl = 0;
    chance_shuffle(&u->chance, u->order, u->samples);
    for (size_t b = 0; b < batches; b++) {
        const size_t start = b * u->samples / batches, n = (b + 1) * u->samples / batches - start;
        gradweir_status status = GRADWEIR_OK;
        if (!u->settings->pull_per_rollout && u->accumulated_count == 0 && !u->fresh)
            status = learner->pull(learner, u->parameters);
        u->fresh = false;
        if (status != GRADWEIR_OK)
            return status;
        const double cpu_s = pace_cpu_seconds();
        compute_gradient(u, rollout, u->order + start, n);
        pace_sleep_after(u->settings->pace_ms, u->settings->slowness, cpu_s);
        u->kl += u->result.approx_kl / (double)batches;
        status = hand_over(u, learner, n);
        if (status != GRADWEIR_OK)
            return status;
    }
    return GRADWEIR_OK;
}

gradweir_status update_run(struct update *u, const struct rollout *rollout, struct learner *learner)
{
    gradweir_status status = learner->pull(learner, u->parameters);
    if (status != GRADWEIR_OK)
        return status;
    u->fresh = true;
    estimate_advantages(u, rollout);
    status = share_advantages(u, learner);
    for (size_t epoch = 0; status == GRADWEIR_OK && epoch < u->settings->epochs; epoch++) {
        status = run_epoch(u, rollout, learner);
        if (u->settings->target_kl > 0 && u->kl > u->settings->target_kl)
            break;
    }
    return status == GRADWEIR_OK ? push_accumulated(u, learner) : status;
}
