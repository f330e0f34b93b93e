/* The trainer's functions of a rollout and a loss, by the kernels: the reference vectors are run
 * through these in the place of client/trainer's. */
#ifndef GRADWEIR_TESTS_GPU_GPU_TRAINER_H
#define GRADWEIR_TESTS_GPU_GPU_TRAINER_H

#include "client/trainer/advantage.h"
#include "client/trainer/loss.h"

void gpu_trainer_gae(const struct advantage_input *input, float gamma, float lambda,
                     float *advantages, float *targets);
void gpu_trainer_vtrace(const struct advantage_input *input,
                        const struct advantage_vtrace_settings *settings, const float *log_ratios,
                        float *advantages, float *targets);
void gpu_trainer_loss(const struct loss_settings *settings, const struct loss_batch *batch,
                      struct loss_result *result);

#endif
