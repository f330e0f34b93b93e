/* The learner of a run without a server: Adam after clipping by the global norm, stepped at every
 * push. */
#include "client/trainer/learner.h"
#include "client/trainer/local_optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct learner_local {
    struct learner learner;
    const struct train_settings *settings;
    struct local_optimizer optimizer;
    struct statistics shared[2];
    float *parameters;
};

double learner_rate(const struct train_settings *settings, uint64_t version)
{
    if (settings->anneal_steps == 0)
        return settings->lr;
    const double pushes =
        ceil((double)(settings->epochs * settings->minibatches) / (double)settings->accumulate);
    const double versions =
        (double)settings->anneal_steps / (double)(settings->envs * settings->rollout) * pushes;
    return settings->lr * fmax(0, 1 - (double)version / versions);
}

static gradweir_status pull(struct learner *learner, float *parameters)
{
    const struct learner_local *local = (const struct learner_local *)learner;
    memcpy(parameters, local->parameters, local->optimizer.n * sizeof(float));
    learner->version = local->optimizer.steps;
    return GRADWEIR_OK;
}

static gradweir_status push(struct learner *learner, const float *gradient, uint64_t samples)
{
    struct learner_local *local = (struct learner_local *)learner;
    const double rate = learner_rate(local->settings, local->optimizer.steps);
    (void)samples;
    learner->counts.pushes++;
    if (!isfinite(local_optimizer_step(&local->optimizer, rate, gradient, local->parameters))) {
        learner->counts.refused++;
        learner->counts.not_finite++;
        learner->counts.not_finite_in_row++;
        return GRADWEIR_OK;
    }
    const uint64_t staleness = local->optimizer.steps - 1 - learner->version;
    learner->counts.admitted++;
    learner->counts.not_finite_in_row = 0;
    learner->counts.staleness_sum += (double)staleness;
    if (staleness > learner->counts.staleness_max)
        learner->counts.staleness_max = staleness;
    return GRADWEIR_OK;
}

static gradweir_status share(struct learner *learner, enum learner_shared name,
                             const struct statistics *increment, struct statistics *total)
{
    struct learner_local *local = (struct learner_local *)learner;
    if (statistics_finite(increment))
        statistics_merge(&local->shared[name], increment);
    *total = local->shared[name];
    return GRADWEIR_OK;
}

static void report(struct learner *learner, double mean_return, double kl)
{
    (void)learner;
    (void)mean_return;
    (void)kl;
}

static gradweir_status flush(struct learner *learner)
{
    (void)learner;
    return GRADWEIR_OK;
}

static void close_local(struct learner *learner)
{
    struct learner_local *local = (struct learner_local *)learner;
    local_optimizer_deinit(&local->optimizer);
    free(local->parameters);
    free(local);
}

struct learner *learner_local_open(const struct train_settings *settings,
                                   const struct network *network, const float *first)
{
    const size_t n = network->n_parameters;
    struct learner_local *local = calloc(1, sizeof(*local));
    if (local == NULL)
        return NULL;
    local->learner = (struct learner){.pull = pull,
                                      .push = push,
                                      .share = share,
                                      .report = report,
                                      .flush = flush,
                                      .close = close_local};
    local->settings = settings;
    local->parameters = malloc(n * sizeof(float));
    if (local->parameters == NULL ||
        !local_optimizer_init(&local->optimizer, n, settings->adam_eps, settings->grad_norm)) {
        close_local(&local->learner);
        return NULL;
    }
    memcpy(local->parameters, first, n * sizeof(float));
    return &local->learner;
}
