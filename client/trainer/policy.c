/* See policy.h. Log-probabilities of a categorical are logits minus their log-sum-exp, taken from
 * the largest one, so logits of any size give finite results. */
#include "client/trainer/policy.h"

#include <math.h>

static const float half_log_2_pi = 0.91893853320467274178f;

static float log_sum_exp(const float *logits, size_t n)
{
    float largest = logits[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        largest = fmaxf(largest, logits[i]);
    for (size_t i = 0; i < n; i++)
        sum += expf(logits[i] - largest);
    return largest + logf(sum);
}

static float categorical_log(const struct policy *policy, const float *head, size_t action,
                             float *entropy)
{
    const float total = log_sum_exp(head, policy->action_dim);
    float sum = 0;
    for (size_t i = 0; i < policy->action_dim; i++)
        sum -= expf(head[i] - total) * (head[i] - total);
    *entropy = sum;
    return head[action] - total;
}

static float gaussian_log(const struct policy *policy, const float *head, const float *action,
                          float *entropy)
{
    float log_probability = 0, sum = 0;
    for (size_t i = 0; i < policy->action_dim; i++) {
        const float z = (action[i] - head[i]) * expf(-policy->log_std[i]);
        log_probability += -0.5f * z * z - policy->log_std[i] - half_log_2_pi;
        sum += 0.5f + half_log_2_pi + policy->log_std[i];
    }
    *entropy = sum;
    return log_probability;
}

float policy_log_probability(const struct policy *policy, const float *head, const float *action,
                             float *entropy)
{
    return policy->gaussian ? gaussian_log(policy, head, action, entropy)
                            : categorical_log(policy, head, (size_t)action[0], entropy);
}

static void categorical_backward(const struct policy *policy, const float *head, size_t action,
                                 const struct policy_slope *slope, float *d_head)
{
    const float total = log_sum_exp(head, policy->action_dim);
    for (size_t i = 0; i < policy->action_dim; i++) {
        const float log_p = head[i] - total, p = expf(log_p);
        d_head[i] += slope->d_log * ((i == action ? 1.0f : 0.0f) - p);
        d_head[i] -= slope->d_entropy * p * (log_p + slope->entropy);
    }
}

static void gaussian_backward(const struct policy *policy, const float *head, const float *action,
                              const struct policy_slope *slope, float *d_head, float *d_log_std)
{
    for (size_t i = 0; i < policy->action_dim; i++) {
        const float inverse = expf(-policy->log_std[i]);
        const float z = (action[i] - head[i]) * inverse;
        d_head[i] += slope->d_log * z * inverse;
        d_log_std[i] += slope->d_log * (z * z - 1) + slope->d_entropy;
    }
}

void policy_backward(const struct policy *policy, const float *head, const float *action,
                     const struct policy_slope *slope, float *d_head, float *d_log_std)
{
    if (policy->gaussian)
        gaussian_backward(policy, head, action, slope, d_head, d_log_std);
    else
        categorical_backward(policy, head, (size_t)action[0], slope, d_head);
}

/* Inverts the cumulative sum. Rounding may leave the sum a little below 1: then it is the last
 * action. */
static size_t draw_category(const struct policy *policy, const float *head, struct chance *chance)
{
    const float total = log_sum_exp(head, policy->action_dim);
    double left = chance_uniform(chance, 0, 1);
    for (size_t i = 0; i + 1 < policy->action_dim; i++) {
        left -= (double)expf(head[i] - total);
        if (left < 0)
            return i;
    }
    return policy->action_dim - 1;
}

float policy_sample(const struct policy *policy, const float *head, struct chance *chance,
                    float *action)
{
    float entropy = 0;
    if (!policy->gaussian)
        action[0] = (float)draw_category(policy, head, chance);
    else
        for (size_t i = 0; i < policy->action_dim; i++)
            action[i] = head[i] + expf(policy->log_std[i]) * (float)chance_normal(chance);
    return policy_log_probability(policy, head, action, &entropy);
}

void policy_greedy(const struct policy *policy, const float *head, float *action)
{
    if (policy->gaussian) {
        for (size_t i = 0; i < policy->action_dim; i++)
            action[i] = head[i];
        return;
    }
    size_t best = 0;
    for (size_t i = 1; i < policy->action_dim; i++)
        if (head[i] > head[best])
            best = i;
    action[0] = (float)best;
}
