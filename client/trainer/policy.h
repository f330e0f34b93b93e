/* The two kinds of policy: what a head (logits, or means with log_std) means as a distribution.
 * What each does to one action is common/element_policy.h. */
#ifndef GRADWEIR_TRAINER_POLICY_H
#define GRADWEIR_TRAINER_POLICY_H

#include "client/trainer/chance.h"

#include "common/element_policy.h"

/* Log-probability of one action and the entropy there. A discrete action is its number, as a float.
 */
float policy_log_probability(const struct policy *policy, const float *head, const float *action,
                             float *entropy);

/* Draws an action and returns its log-probability. */
float policy_sample(const struct policy *policy, const float *head, struct chance *chance,
                    float *action);

/* The most likely action. */
void policy_greedy(const struct policy *policy, const float *head, float *action);

#endif
