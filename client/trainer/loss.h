/* The PPO loss with its derivatives: clipped surrogate, coupled or decoupled (Hilton et al., 2022),
 * dual clip (Ye et al., 2020), clipped value loss, entropy. The definition is
 * tests/vectors/README.md, family ppo. */
#ifndef GRADWEIR_TRAINER_LOSS_H
#define GRADWEIR_TRAINER_LOSS_H

#include <stdbool.h>
#include <stddef.h>

enum { LOSS_ACTION_MAX = 64 };

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

/* Arrays are the caller's. */
struct loss_result {
    float *d_head;    /* [n, action_dim] */
    float *d_value;   /* [n] */
    float *d_log_std; /* [action_dim]; written only if gaussian */
    float *log_new;   /* [n] log-probability of the actions now */
    float *entropy;   /* [n] */
    float *ratio;     /* [n] */
    float *advantage; /* [n] as used */
    float *weight;    /* [n] behaviour weight, 1 unless decoupled */

    double loss;
    double policy_loss;
    double value_loss;
    double entropy_mean;
    double approx_kl;     /* mean((ratio - 1) - log ratio) */
    double old_approx_kl; /* mean(-log ratio) */
    double clip_fraction;
    double explained_variance; /* of the targets by old_values; NaN when the targets do not vary */
    double weight_mean;
};

void loss_compute(const struct loss_settings *settings, const struct loss_batch *batch,
                  struct loss_result *result);

#endif
