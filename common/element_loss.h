/* The PPO loss of one sample with its derivatives: clipped surrogate, coupled or decoupled (Hilton
 * et al., 2022), dual clip (Ye et al., 2020), clipped value loss, entropy. The definition is
 * tests/vectors/README.md, family ppo. Per sample in float; sums over the batch in double, in the
 * caller's order. */
#ifndef GRADWEIR_COMMON_ELEMENT_LOSS_H
#define GRADWEIR_COMMON_ELEMENT_LOSS_H

#include "common/element_advantage.h"
#include "common/element_policy.h"
#include "common/element_statistics.h"

enum loss_advantages {
    LOSS_ADVANTAGES_RAW,
    LOSS_ADVANTAGES_BATCH, /* normalised by the batch's own mean and deviation (divisor n - 1) */
    LOSS_ADVANTAGES_GIVEN, /* normalised by advantage_mean and advantage_deviation, which workers
                              may share */
};

enum loss_behaviour {
    LOSS_BEHAVIOUR_NONE,
    LOSS_BEHAVIOUR_TRUNCATE, /* weights above the cap become the cap */
    LOSS_BEHAVIOUR_MASK,     /* samples with weights above the cap are left out */
};

struct loss_settings {
    bool gaussian;
    size_t action_dim;
    float clip;
    bool clip_value;
    float value_clip;
    float entropy_coefficient;
    float value_coefficient;
    enum loss_advantages advantages;
    float advantage_mean;
    float advantage_deviation;
    bool decoupled; /* ratio against the proximal policy, weighted by proximal / behaviour */
    enum loss_behaviour behaviour;
    float behaviour_cap;
    float dual_clip; /* 0: off */
};

struct loss_batch {
    size_t n;
    const float *actions;       /* [n] numbers of discrete actions, or [n, action_dim] */
    const float *log_behaviour; /* [n] log-probability under the policy that acted, as stored when
                                   it acted */
    const float *log_proximal;  /* [n], only if decoupled */
    const float *advantages;    /* [n] */
    const float *targets;       /* [n] of the value */
    const float *old_values;    /* [n] */
    const float *head;          /* [n, action_dim] logits or means */
    const float *value;         /* [n] */
    const float *log_std;       /* [action_dim], only if gaussian */
};

/* The arrays a loss writes. */
struct loss_arrays {
    float *d_head;    /* [n, action_dim] */
    float *d_value;   /* [n] */
    float *d_log_std; /* [action_dim]; written only if gaussian */
    float *log_new;   /* [n] log-probability of the actions now */
    float *entropy;   /* [n] */
    float *ratio;     /* [n] */
    float *advantage; /* [n] as used */
    float *weight;    /* [n] behaviour weight, 1 unless decoupled */
};

/* Over samples: their sums, then (element_loss_means) their means. */
struct loss_sums {
    double policy_loss;
    double value_loss;
    double entropy;
    double approx_kl;     /* (ratio - 1) - log ratio */
    double old_approx_kl; /* -log ratio */
    double clip_fraction;
    double weight;
};

/* What advantages are normalised by: element_advantage_used. */
struct loss_centre {
    double mean, divisor;
};

/* From the batch's own statistics, which are read in LOSS_ADVANTAGES_BATCH only. */
ELEMENT struct loss_centre element_loss_centre(const struct loss_settings *settings,
                                               struct statistics batch)
{
    struct loss_centre centre = {0, 1};
    if (settings->advantages == LOSS_ADVANTAGES_BATCH && batch.count > 1) {
        centre.mean = batch.mean;
        centre.divisor = element_advantage_divisor(batch.m2, batch.count);
    } else if (settings->advantages == LOSS_ADVANTAGES_GIVEN) {
        centre.mean = (double)settings->advantage_mean;
        centre.divisor = (double)settings->advantage_deviation + 1e-8;
    }
    return centre;
}

struct element_slope {
    float value;
    float slope;
};

/* min(ratio A, clamp(ratio) A), not below dual_clip A where A < 0; the slope is with respect to the
 * ratio. */
ELEMENT struct element_slope element_surrogate(const struct loss_settings *settings, float ratio,
                                               float advantage)
{
    const float clamped = fminf(fmaxf(ratio, 1 - settings->clip), 1 + settings->clip);
    struct element_slope s = {ratio * advantage, advantage};
    if (clamped * advantage < s.value) {
        s.value = clamped * advantage;
        s.slope = 0;
    }
    if (settings->dual_clip > 0 && advantage < 0 && settings->dual_clip * advantage > s.value) {
        s.value = settings->dual_clip * advantage;
        s.slope = 0;
    }
    return s;
}

/* Half the squared error of the value, the larger of the clipped and the plain one. */
ELEMENT struct element_slope element_value_loss(const struct loss_settings *settings, float value,
                                                float target, float old)
{
    const float error = value - target;
    struct element_slope s = {0.5f * error * error, error};
    if (!settings->clip_value)
        return s;
    const float moved = value - old;
    const float clamped = fminf(fmaxf(moved, -settings->value_clip), settings->value_clip);
    const float clipped_error = old + clamped - target;
    if (clipped_error * clipped_error <= error * error)
        return s;
    s.value = 0.5f * clipped_error * clipped_error;
    s.slope = clamped == moved ? clipped_error : 0;
    return s;
}

ELEMENT float element_behaviour_weight(const struct loss_settings *settings,
                                       const struct loss_batch *batch, size_t i)
{
    if (!settings->decoupled)
        return 1;
    const float weight = expf(element_log_ratio(batch->log_proximal[i], batch->log_behaviour[i]));
    if (settings->behaviour == LOSS_BEHAVIOUR_NONE || weight <= settings->behaviour_cap)
        return weight;
    return settings->behaviour == LOSS_BEHAVIOUR_TRUNCATE ? settings->behaviour_cap : 0;
}

/* Where head and action of sample i lie. */
ELEMENT const float *element_action_of(const struct loss_settings *settings,
                                       const struct loss_batch *batch, size_t i)
{
    return batch->actions + i * (settings->gaussian ? settings->action_dim : 1);
}

ELEMENT struct policy element_policy_of(const struct loss_settings *settings,
                                        const struct loss_batch *batch)
{
    struct policy policy;
    policy.gaussian = settings->gaussian;
    policy.action_dim = settings->action_dim;
    policy.log_std = batch->log_std;
    return policy;
}

/* Sample i: reads arrays->advantage[i] (as used), writes the other arrays' element i and row i of
 * d_head, adds to the sums, and returns the slope of log-probability and entropy, from which
 * d_log_std follows (element_log_std_slope). */
ELEMENT struct policy_slope element_loss_sample(const struct loss_settings *settings,
                                                const struct loss_batch *batch, size_t i,
                                                const struct loss_arrays *arrays,
                                                struct loss_sums *sums)
{
    const struct policy policy = element_policy_of(settings, batch);
    const float *head = batch->head + i * settings->action_dim;
    const float *action = element_action_of(settings, batch, i);
    const float scale = 1 / (float)batch->n;
    float entropy = 0;
    const float log_new = element_policy_log(&policy, head, action, &entropy);
    const float log_ratio = element_log_ratio(
        log_new, (settings->decoupled ? batch->log_proximal : batch->log_behaviour)[i]);
    const float ratio = expf(log_ratio);
    const float weight = element_behaviour_weight(settings, batch, i);
    const struct element_slope surrogate = element_surrogate(settings, ratio, arrays->advantage[i]);
    const struct element_slope value =
        element_value_loss(settings, batch->value[i], batch->targets[i], batch->old_values[i]);
    sums->policy_loss -= (double)(weight * surrogate.value);
    sums->value_loss += (double)value.value;
    sums->entropy += (double)entropy;
    sums->approx_kl += (double)ratio - 1 - (double)log_ratio;
    sums->old_approx_kl -= (double)log_ratio;
    sums->clip_fraction += fabsf(ratio - 1) > settings->clip ? 1 : 0;
    sums->weight += (double)weight;
    struct policy_slope slope;
    slope.d_log = surrogate.slope != 0 ? -scale * weight * surrogate.slope * ratio : 0;
    slope.d_entropy = -scale * settings->entropy_coefficient;
    slope.entropy = entropy;
    element_policy_backward(&policy, head, action, &slope,
                            arrays->d_head + i * settings->action_dim);
    arrays->d_value[i] = scale * settings->value_coefficient * value.slope;
    arrays->log_new[i] = log_new;
    arrays->entropy[i] = entropy;
    arrays->ratio[i] = ratio;
    arrays->weight[i] = weight;
    return slope;
}

/* Sample i's term of the derivative with respect to log_std[j]. */
ELEMENT float element_log_std_slope(const struct loss_settings *settings,
                                    const struct loss_batch *batch, size_t i, size_t j,
                                    const struct policy_slope *slope)
{
    return element_gaussian_log_std_slope(slope, element_action_of(settings, batch, i)[j],
                                          batch->head[i * settings->action_dim + j],
                                          batch->log_std[j]);
}

ELEMENT struct loss_sums element_loss_add(struct loss_sums a, struct loss_sums b)
{
    a.policy_loss += b.policy_loss;
    a.value_loss += b.value_loss;
    a.entropy += b.entropy;
    a.approx_kl += b.approx_kl;
    a.old_approx_kl += b.old_approx_kl;
    a.clip_fraction += b.clip_fraction;
    a.weight += b.weight;
    return a;
}

ELEMENT struct loss_sums element_loss_means(struct loss_sums s, double n)
{
    s.policy_loss /= n;
    s.value_loss /= n;
    s.entropy /= n;
    s.approx_kl /= n;
    s.old_approx_kl /= n;
    s.clip_fraction /= n;
    s.weight /= n;
    return s;
}

/* The loss from the means. */
ELEMENT double element_loss_total(const struct loss_settings *settings,
                                  const struct loss_sums *means)
{
    return means->policy_loss - (double)settings->entropy_coefficient * means->entropy +
           (double)settings->value_coefficient * means->value_loss;
}

/* How far the old value was off, of which explained variance is made. */
ELEMENT float element_value_error(float target, float old)
{
    return target - old;
}

/* 1 - var(targets - old) / var(targets), from the two sums of squared distances; NaN when the
 * targets do not vary. */
ELEMENT double element_explained_variance(double targets_m2, double errors_m2)
{
    return targets_m2 > 0 ? 1 - errors_m2 / targets_m2 : NAN;
}

#endif
