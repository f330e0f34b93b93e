/* The two kinds of policy, one action of one sample: log-probability, entropy, their derivatives,
 * and drawing. A head is the network's output: logits of a categorical, or the means of a diagonal
 * Gaussian whose log_std is a parameter of its own. Nothing is squashed.
 *
 * Log-probabilities of a categorical are logits minus their log-sum-exp, taken from the largest
 * one, so that logits of any size give finite results. expf and logf are the device's own: the CPU
 * and the GPU agree within tolerance here, not in bits. */
#ifndef GRADWEIR_COMMON_ELEMENT_POLICY_H
#define GRADWEIR_COMMON_ELEMENT_POLICY_H

#include "common/element_random.h"

#include <stdbool.h>
#include <stddef.h>

#define ELEMENT_HALF_LOG_2_PI 0.91893853320467274178f

struct policy {
    bool gaussian;
    size_t action_dim;
    const float *log_std; /* [action_dim], only if gaussian */
};

/* The derivatives with respect to one sample's log-probability and entropy; `entropy` is as
 * element_policy_log returned it. */
struct policy_slope {
    float d_log;
    float d_entropy;
    float entropy;
};

ELEMENT float element_log_sum_exp(const float *logits, size_t n)
{
    float largest = logits[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        largest = fmaxf(largest, logits[i]);
    for (size_t i = 0; i < n; i++)
        sum += expf(logits[i] - largest);
    return largest + logf(sum);
}

ELEMENT float element_categorical_log(const float *logits, size_t n, size_t action, float *entropy)
{
    const float total = element_log_sum_exp(logits, n);
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum -= expf(logits[i] - total) * (logits[i] - total);
    *entropy = sum;
    return logits[action] - total;
}

/* The derivative with respect to one logit, from that choice's log-probability. */
ELEMENT float element_categorical_slope(const struct policy_slope *slope, float log_p, bool taken)
{
    const float p = expf(log_p);
    const float d_logit = 0.0f + slope->d_log * ((taken ? 1.0f : 0.0f) - p);
    return d_logit - slope->d_entropy * p * (log_p + slope->entropy);
}

/* One dimension of a Gaussian: its term of the log-probability, of the entropy, and of their
 * derivatives. */
ELEMENT float element_gaussian_distance(float action, float mean, float inverse)
{
    return (action - mean) * inverse;
}

ELEMENT float element_gaussian_log(float action, float mean, float log_std)
{
    const float z = element_gaussian_distance(action, mean, expf(-log_std));
    return -0.5f * z * z - log_std - ELEMENT_HALF_LOG_2_PI;
}

ELEMENT float element_gaussian_entropy(float log_std)
{
    return 0.5f + ELEMENT_HALF_LOG_2_PI + log_std;
}

ELEMENT float element_gaussian_mean_slope(const struct policy_slope *slope, float action,
                                          float mean, float log_std)
{
    const float inverse = expf(-log_std);
    const float z = element_gaussian_distance(action, mean, inverse);
    return 0.0f + slope->d_log * z * inverse; /* never -0 */
}

ELEMENT float element_gaussian_log_std_slope(const struct policy_slope *slope, float action,
                                             float mean, float log_std)
{
    const float z = element_gaussian_distance(action, mean, expf(-log_std));
    return slope->d_log * (z * z - 1) + slope->d_entropy;
}

/* Log-probability of one action and the entropy there. A discrete action is its number, as a float.
 */
ELEMENT float element_policy_log(const struct policy *policy, const float *head,
                                 const float *action, float *entropy)
{
    if (!policy->gaussian)
        return element_categorical_log(head, policy->action_dim, (size_t)action[0], entropy);
    float log_probability = 0, sum = 0;
    for (size_t i = 0; i < policy->action_dim; i++) {
        log_probability += element_gaussian_log(action[i], head[i], policy->log_std[i]);
        sum += element_gaussian_entropy(policy->log_std[i]);
    }
    *entropy = sum;
    return log_probability;
}

/* d_head = the derivative of d_log * log-probability + d_entropy * entropy. */
ELEMENT void element_policy_backward(const struct policy *policy, const float *head,
                                     const float *action, const struct policy_slope *slope,
                                     float *d_head)
{
    if (policy->gaussian) {
        for (size_t i = 0; i < policy->action_dim; i++)
            d_head[i] = element_gaussian_mean_slope(slope, action[i], head[i], policy->log_std[i]);
        return;
    }
    const float total = element_log_sum_exp(head, policy->action_dim);
    const size_t taken = (size_t)action[0];
    for (size_t i = 0; i < policy->action_dim; i++)
        d_head[i] = element_categorical_slope(slope, head[i] - total, i == taken);
}

/* Of the same action under two policies. */
ELEMENT float element_log_ratio(float log_now, float log_then)
{
    return log_now - log_then;
}

/* Inverts the cumulative sum at a uniform of [0, 1). Rounding may leave the sum a little below 1:
 * then it is the last action. */
ELEMENT size_t element_categorical_draw(const float *logits, size_t n, double unit)
{
    const float total = element_log_sum_exp(logits, n);
    for (size_t i = 0; i + 1 < n; i++) {
        unit -= (double)expf(logits[i] - total);
        if (unit < 0)
            return i;
    }
    return n - 1;
}

ELEMENT float element_gaussian_draw(float mean, float log_std, double normal)
{
    return mean + expf(log_std) * (float)normal;
}

/* An action drawn by place (element_random.h), and its log-probability: turn `turn` of environment
 * `number`. */
ELEMENT float element_policy_draw(const struct policy *policy, const float *head, uint64_t seed,
                                  const uint64_t number_and_turn[2], float *action)
{
    const uint64_t stream = element_stream(ELEMENT_FOR_ACTIONS, number_and_turn[0]);
    const uint64_t first = number_and_turn[1] * policy->action_dim;
    float entropy = 0;
    struct element_words words = element_random(seed, stream, first);
    if (!policy->gaussian)
        action[0] =
            (float)element_categorical_draw(head, policy->action_dim, element_unit_of(&words, 0));
    for (size_t i = 0; policy->gaussian && i < policy->action_dim; i++) {
        words = element_random(seed, stream, first + i);
        action[i] = element_gaussian_draw(
            head[i], policy->log_std[i],
            element_normal(element_unit_of(&words, 0), element_unit_of(&words, 1)));
    }
    return element_policy_log(policy, head, action, &entropy);
}

ELEMENT size_t element_categorical_best(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

#endif
