/* See loss.h. Per sample in float, sums over the batch in double. */
#include "client/trainer/loss.h"

#include "client/trainer/statistics.h"

static void use_advantages(const struct loss_settings *settings, const struct loss_batch *batch,
                           float *advantage)
{
    struct statistics own = {0};
    if (settings->advantages == LOSS_ADVANTAGES_BATCH)
        own = statistics_of(batch->advantages, batch->n, 1);
    const struct loss_centre centre = element_loss_centre(settings, own);
    for (size_t i = 0; i < batch->n; i++)
        advantage[i] = element_advantage_used(batch->advantages[i], centre.mean, centre.divisor);
}

/* Of targets - old values. */
static double error_at(const struct loss_batch *batch, size_t i)
{
    return (double)element_value_error(batch->targets[i], batch->old_values[i]);
}

static double explained_variance(const struct loss_batch *batch)
{
    const struct statistics targets = statistics_of(batch->targets, batch->n, 1);
    const double n = (double)batch->n;
    double mean = 0, m2 = 0;
    for (size_t i = 0; i < batch->n; i++)
        mean = element_mean_add(mean, error_at(batch, i), n);
    for (size_t i = 0; i < batch->n; i++)
        m2 = element_m2_add(m2, error_at(batch, i), mean);
    return element_explained_variance(targets.m2, m2);
}

void loss_tell(const struct loss_settings *settings, const struct loss_sums *sums, size_t n,
               struct loss_result *result)
{
    const struct loss_sums means = element_loss_means(*sums, (double)n);
    result->policy_loss = means.policy_loss;
    result->value_loss = means.value_loss;
    result->entropy_mean = means.entropy;
    result->approx_kl = means.approx_kl;
    result->old_approx_kl = means.old_approx_kl;
    result->clip_fraction = means.clip_fraction;
    result->weight_mean = means.weight;
    result->loss = element_loss_total(settings, &means);
}

void loss_compute(const struct loss_settings *settings, const struct loss_batch *batch,
                  struct loss_result *result)
{
    const struct loss_arrays *arrays = &result->arrays;
    struct loss_sums sums = {0};
    use_advantages(settings, batch, arrays->advantage);
    for (size_t j = 0; settings->gaussian && j < settings->action_dim; j++)
        arrays->d_log_std[j] = 0;
    for (size_t i = 0; i < batch->n; i++) {
        const struct policy_slope slope = element_loss_sample(settings, batch, i, arrays, &sums);
        for (size_t j = 0; settings->gaussian && j < settings->action_dim; j++)
            arrays->d_log_std[j] += element_log_std_slope(settings, batch, i, j, &slope);
    }
    loss_tell(settings, &sums, batch->n, result);
    result->explained_variance = explained_variance(batch);
}
