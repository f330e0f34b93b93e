/* See loss.h. Per sample in float, sums over the batch in double. */
#include "client/trainer/loss.h"

#include "client/trainer/statistics.h"

static void use_advantages(const struct loss_settings *settings, const struct loss_batch *batch,
                           float *advantage)
{
    double mean = 0, divisor = 1;
    if (settings->advantages == LOSS_ADVANTAGES_BATCH && batch->n > 1) {
        const struct statistics s = statistics_of(batch->advantages, batch->n, 1);
        mean = s.mean;
        divisor = element_advantage_divisor(s.m2, s.count);
    } else if (settings->advantages == LOSS_ADVANTAGES_GIVEN) {
        mean = (double)settings->advantage_mean;
        divisor = (double)settings->advantage_deviation + 1e-8;
    }
    for (size_t i = 0; i < batch->n; i++)
        advantage[i] = element_advantage_used(batch->advantages[i], mean, divisor);
}

/* 1 - var(targets - old) / var(targets). */
static double explained_variance(const struct loss_batch *batch)
{
    const struct statistics targets = statistics_of(batch->targets, batch->n, 1);
    const double n = (double)batch->n;
    double mean = 0, m2 = 0;
    for (size_t i = 0; i < batch->n; i++)
        mean = element_mean_add(mean, (double)(batch->targets[i] - batch->old_values[i]), n);
    for (size_t i = 0; i < batch->n; i++)
        m2 = element_m2_add(m2, (double)(batch->targets[i] - batch->old_values[i]), mean);
    return element_explained_variance(targets.m2, m2);
}

static struct loss_arrays arrays_of(const struct loss_result *result)
{
    return (struct loss_arrays){
        .d_head = result->d_head,
        .d_value = result->d_value,
        .d_log_std = result->d_log_std,
        .log_new = result->log_new,
        .entropy = result->entropy,
        .ratio = result->ratio,
        .advantage = result->advantage,
        .weight = result->weight,
    };
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
    const struct loss_arrays arrays = arrays_of(result);
    struct loss_sums sums = {0};
    use_advantages(settings, batch, result->advantage);
    for (size_t j = 0; settings->gaussian && j < settings->action_dim; j++)
        result->d_log_std[j] = 0;
    for (size_t i = 0; i < batch->n; i++) {
        const struct policy_slope slope = element_loss_sample(settings, batch, i, &arrays, &sums);
        for (size_t j = 0; settings->gaussian && j < settings->action_dim; j++)
            result->d_log_std[j] += element_log_std_slope(settings, batch, i, j, &slope);
    }
    loss_tell(settings, &sums, batch->n, result);
    result->explained_variance = explained_variance(batch);
}
