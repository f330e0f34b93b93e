/* Where a worker's parameters come from and its gradients go to. The training loop knows this
 * struct and no more: learner_local.c steps an optimizer in the same process, learner_remote.c
 * talks to the servers. */
#ifndef GRADWEIR_TRAINER_LEARNER_H
#define GRADWEIR_TRAINER_LEARNER_H

#include "client/include/gradweir/status.h"
#include "client/trainer/network.h"
#include "client/trainer/statistics.h"
#include "client/trainer/train_settings.h"

#include <stdbool.h>
#include <stdint.h>

/* Statistics that workers share. */
enum learner_shared { LEARNER_REWARD_STATISTICS, LEARNER_ADVANTAGE_STATISTICS };

struct learner_counts {
    uint64_t pushes;
    uint64_t admitted;
    uint64_t refused;
    uint64_t not_finite; /* of the refused */
    uint64_t
        not_finite_in_row; /* of all workers, as far as known; 0 again after one that is admitted */
    double staleness_sum;  /* of the admitted */
    uint64_t staleness_max;
};

struct learner {
    /* Parameters and gradients lie in the engine's own arrays (engine.h), which this learner writes
     * and reads by itself: pull and push are given NULL. */
    bool far;

    /* Writes the newest parameters and sets `version` to theirs. May wait. */
    gradweir_status (*pull)(struct learner *learner, float *parameters);

    /* Hands over the mean gradient of `samples` samples, computed from the parameters of the last
     * pull. The floats are free again on return. The verdict may come later; it is counted in
     * `counts`. May wait for a place. */
    gradweir_status (*push)(struct learner *learner, const float *gradient, uint64_t samples);

    /* Adds `increment` to the statistic shared under that name and writes what all workers have
     * seen. An increment that is not finite is left out: it would spoil everybody's for good. */
    gradweir_status (*share)(struct learner *learner, enum learner_shared name,
                             const struct statistics *increment, struct statistics *total);

    /* Tells whoever looks after the run how this worker fares; changes nothing. */
    void (*report)(struct learner *learner, double mean_return, double kl);

    /* Waits until every push has its verdict. */
    gradweir_status (*flush)(struct learner *learner);

    void (*close)(struct learner *learner);

    uint64_t version;
    struct learner_counts counts;
};

/* Adam and norm clipping in this process. `first` are the parameters to start from. NULL when there
 * is no memory. */
struct learner *learner_local_open(const struct train_settings *settings,
                                   const struct network *network, const float *first);

/* The learning rate at a version: falls linearly to 0 over the versions that anneal_steps
 * environment steps make when every gradient makes one. */
double learner_rate(const struct train_settings *settings, uint64_t version);

#endif
