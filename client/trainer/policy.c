/* See policy.h. */
#include "client/trainer/policy.h"

float policy_log_probability(const struct policy *policy, const float *head, const float *action,
                             float *entropy)
{
    return element_policy_log(policy, head, action, entropy);
}

float policy_sample(const struct policy *policy, const float *head, struct chance *chance,
                    float *action)
{
    float entropy = 0;
    if (!policy->gaussian)
        action[0] =
            (float)element_categorical_draw(head, policy->action_dim, chance_uniform(chance, 0, 1));
    else
        for (size_t i = 0; i < policy->action_dim; i++)
            action[i] = element_gaussian_draw(head[i], policy->log_std[i], chance_normal(chance));
    return element_policy_log(policy, head, action, &entropy);
}

void policy_greedy(const struct policy *policy, const float *head, float *action)
{
    if (policy->gaussian)
        for (size_t i = 0; i < policy->action_dim; i++)
            action[i] = head[i];
    else
        action[0] = (float)element_categorical_best(head, policy->action_dim);
}
