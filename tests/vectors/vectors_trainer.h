/* The checks of the trainer's families, one per family, each in the file of its subject. */
#ifndef GRADWEIR_TESTS_VECTORS_VECTORS_TRAINER_H
#define GRADWEIR_TESTS_VECTORS_VECTORS_TRAINER_H

#include "tests/vectors/vector_case.h"

void check_gae(const struct vector_case *c);
void check_vtrace(const struct vector_case *c);
void check_stats(const struct vector_case *c);
void check_stats_merge(const struct vector_case *c);
void check_reward_norm(const struct vector_case *c);
void check_env_step(const struct vector_case *c);
void check_env_trace(const struct vector_case *c);
void check_ppo(const struct vector_case *c);
void check_ppo_loss(const struct vector_case *c);
void check_ppo_train(const struct vector_case *c);

#endif
