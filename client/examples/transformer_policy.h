/* The task, and how it is learnt: sampling, rewards, advantages, the loss of PPO.
 *
 * The task stands for any whose reward is computed: a prompt of two words, s and x, is to be gone
 * on with x + s, x + 2s, x + 3s, ... modulo the vocabulary. A word that is the one before it plus s
 * earns 1, any other 0; chance earns 1 / words. s is one of the first few numbers, so the model
 * must look back at the first word, and has nothing to learn from but what it happens to get right.
 *
 * The method is PPO's clipped loss for each word (Schulman et al. 2017), without a value head: as
 * in GRPO (Shao et al. 2024) each prompt is answered by several samples, and what a word earns is
 * measured against what the others earn at the same place. */
#ifndef GRADWEIR_EXAMPLES_TRANSFORMER_POLICY_H
#define GRADWEIR_EXAMPLES_TRANSFORMER_POLICY_H

#include "client/examples/transformer_pass.h"

enum { TRANSFORMER_PROMPT = 2, TRANSFORMER_STRIDES = 4 };

struct transformer_settings {
    size_t batch;    /* sequences of a rollout: a multiple of samples */
    size_t samples;  /* of a prompt */
    double discount; /* of the rewards of later words, in a word's return */
    double clip;     /* the ratio of chances stays within 1 +- clip */
};

/* What was sampled. Sequences have one word more than the model has places: the last one is only
 * said. */
struct transformer_rollout {
    struct transformer_settings settings;
    size_t length, words_count;
    int *words;                            /* [batch, length] */
    real *log_chance, *reward, *advantage; /* [batch, length]: of the word there; 0 in the prompt */
    real *said;                            /* [batch] */
    double mean_reward;                    /* of a word that was sampled, 0 to 1 */
};

struct transformer_rollout *transformer_rollout_new(const struct transformer_shape *shape,
                                                    const struct transformer_settings *settings);
void transformer_rollout_free(struct transformer_rollout *rollout);

/* Makes prompts of `seed`, lets the model go on with them, and fills the rollout. Rank 0 draws the
 * words, the others hear them: a rounding must not make ranks say different things. */
bool transformer_sample(struct transformer_rollout *rollout, const struct transformer_model *model,
                        struct transformer_pass *pass, const struct transformer_team *team,
                        uint64_t seed);

/* Fills advantage from reward. */
void transformer_advantages(struct transformer_rollout *rollout);

/* Forward with the model as it is now, the loss, and backward: the gradient of the mean over the
 * words that were sampled. share (or NULL): of the words, whose ratio was clipped. */
bool transformer_learn(const struct transformer_rollout *rollout, struct transformer_pass *pass,
                       double *loss, double *share);

/* The loss alone, from scores [batch, length - 1, words], which become its derivatives. */
double transformer_loss(const struct transformer_rollout *rollout, real *scores, double *share);

#endif
