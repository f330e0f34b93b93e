/* See loss.h. Per sample in float, sums over the batch in double. */
#include "client/trainer/loss.h"

#include "client/trainer/policy.h"
#include "client/trainer/statistics.h"

#include <math.h>
#include <string.h>

static void use_advantages(const struct loss_settings *settings, const struct loss_batch *batch,
                           float *advantage)
{
    double mean = 0, divisor = 1;
    if (settings->advantages == LOSS_ADVANTAGES_BATCH && batch->n > 1) {
        const struct statistics s = statistics_of(batch->advantages, batch->n, 1);
        mean = s.mean;
        divisor = sqrt(s.m2 / (s.count - 1)) + 1e-8;
    } else if (settings->advantages == LOSS_ADVANTAGES_GIVEN) {
        mean = (double)settings->advantage_mean;
        divisor = (double)settings->advantage_deviation + 1e-8;
    }
    for (size_t i = 0; i < batch->n; i++)
        advantage[i] = (float)(((double)batch->advantages[i] - mean) / divisor);
}

static float behaviour_weight(const struct loss_settings *settings, const struct loss_batch *batch,
                              size_t i)
{
    if (!settings->decoupled)
        return 1;
    const float weight = expf(batch->log_proximal[i] - batch->log_behaviour[i]);
    if (settings->behaviour == LOSS_BEHAVIOUR_NONE || weight <= settings->behaviour_cap)
        return weight;
    return settings->behaviour == LOSS_BEHAVIOUR_TRUNCATE ? settings->behaviour_cap : 0;
}

struct surrogate {
    float value;
    float slope; /* with respect to the ratio */
};

/* min(ratio A, clamp(ratio) A), not below dual_clip A where A < 0. */
static struct surrogate surrogate_of(const struct loss_settings *settings, float ratio,
                                     float advantage)
{
    const float clamped = fminf(fmaxf(ratio, 1 - settings->clip), 1 + settings->clip);
    struct surrogate s = {.value = ratio * advantage, .slope = advantage};
    if (clamped * advantage < s.value)
        s = (struct surrogate){.value = clamped * advantage, .slope = 0};
    if (settings->dual_clip > 0 && advantage < 0 && settings->dual_clip * advantage > s.value)
        s = (struct surrogate){.value = settings->dual_clip * advantage, .slope = 0};
    return s;
}

/* Half the squared error of the value, the larger of the clipped and the plain one; writes its
 * derivative. */
static float value_loss(const struct loss_settings *settings, const struct loss_batch *batch,
                        size_t i, float *slope)
{
    const float error = batch->value[i] - batch->targets[i];
    *slope = error;
    if (!settings->clip_value)
        return 0.5f * error * error;
    const float moved = batch->value[i] - batch->old_values[i];
    const float clamped = fminf(fmaxf(moved, -settings->value_clip), settings->value_clip);
    const float clipped_error = batch->old_values[i] + clamped - batch->targets[i];
    if (clipped_error * clipped_error <= error * error)
        return 0.5f * error * error;
    *slope = clamped == moved ? clipped_error : 0;
    return 0.5f * clipped_error * clipped_error;
}

static void add_sample(const struct loss_settings *settings, const struct loss_batch *batch,
                       size_t i, struct loss_result *result)
{
    const size_t dim = settings->action_dim;
    const struct policy policy = {settings->gaussian, dim, batch->log_std};
    const float *head = batch->head + i * dim;
    const float *action = batch->actions + i * (settings->gaussian ? dim : 1);
    const float scale = 1 / (float)batch->n;
    float entropy = 0, value_slope = 0;
    result->log_new[i] = policy_log_probability(&policy, head, action, &entropy);
    result->entropy[i] = entropy;
    const float log_ratio =
        result->log_new[i] - (settings->decoupled ? batch->log_proximal : batch->log_behaviour)[i];
    const float ratio = result->ratio[i] = expf(log_ratio);
    const float weight = result->weight[i] = behaviour_weight(settings, batch, i);
    const struct surrogate s = surrogate_of(settings, ratio, result->advantage[i]);
    result->policy_loss -= (double)(weight * s.value);
    result->value_loss += (double)value_loss(settings, batch, i, &value_slope);
    result->entropy_mean += (double)entropy;
    result->approx_kl += (double)ratio - 1 - (double)log_ratio;
    result->old_approx_kl -= (double)log_ratio;
    result->clip_fraction += fabsf(ratio - 1) > settings->clip;
    result->weight_mean += (double)weight;
    const struct policy_slope slope = {
        .d_log = s.slope != 0 ? -scale * weight * s.slope * ratio : 0,
        .d_entropy = -scale * settings->entropy_coefficient,
        .entropy = entropy,
    };
    policy_backward(&policy, head, action, &slope, result->d_head + i * dim, result->d_log_std);
    result->d_value[i] = scale * settings->value_coefficient * value_slope;
}

/* 1 - var(targets - old) / var(targets). */
static double explained_variance(const struct loss_batch *batch)
{
    const struct statistics targets = statistics_of(batch->targets, batch->n, 1);
    double mean = 0, m2 = 0;
    for (size_t i = 0; i < batch->n; i++)
        mean += (double)(batch->targets[i] - batch->old_values[i]) / (double)batch->n;
    for (size_t i = 0; i < batch->n; i++) {
        const double d = (double)(batch->targets[i] - batch->old_values[i]) - mean;
        m2 += d * d;
    }
    return targets.m2 > 0 ? 1 - m2 / targets.m2 : NAN;
}

static void clear(const struct loss_settings *settings, const struct loss_batch *batch,
                  struct loss_result *result)
{
    result->policy_loss = result->value_loss = result->entropy_mean = 0;
    result->approx_kl = result->old_approx_kl = result->clip_fraction = result->weight_mean = 0;
    memset(result->d_head, 0, batch->n * settings->action_dim * sizeof(float));
    if (settings->gaussian)
        memset(result->d_log_std, 0, settings->action_dim * sizeof(float));
}

void loss_compute(const struct loss_settings *settings, const struct loss_batch *batch,
                  struct loss_result *result)
{
    clear(settings, batch, result);
    use_advantages(settings, batch, result->advantage);
    for (size_t i = 0; i < batch->n; i++)
        add_sample(settings, batch, i, result);
    const double n = (double)batch->n;
    result->policy_loss /= n;
    result->value_loss /= n;
    result->entropy_mean /= n;
    result->approx_kl /= n;
    result->old_approx_kl /= n;
    result->clip_fraction /= n;
    result->weight_mean /= n;
    result->explained_variance = explained_variance(batch);
    result->loss = result->policy_loss -
                   (double)settings->entropy_coefficient * result->entropy_mean +
                   (double)settings->value_coefficient * result->value_loss;
}
