/* What a worker does with a rollout: advantages, then epochs of shuffled minibatches, each of which
 * becomes a gradient for the learner. All room is taken at init. */
#ifndef GRADWEIR_TRAINER_UPDATE_H
#define GRADWEIR_TRAINER_UPDATE_H

#include "client/trainer/learner.h"
#include "client/trainer/loss.h"
#include "client/trainer/rollout.h"

struct update {
    const struct train_settings *settings;
    const struct network *network;
    size_t samples;       /* of a rollout */
    size_t minibatch_max; /* of a minibatch: they differ by one sample where the rollout cannot be
                             cut evenly */
    struct chance chance; /* of the shuffle */
    struct network_room room;
    struct loss_settings loss;
    struct loss_result result;

    float *advantages;   /* [samples] */
    float *targets;      /* [samples] */
    float *log_proximal; /* [samples] under the parameters at the rollout's end; only if decoupled
                            or V-trace */
    float *log_ratios;   /* [samples] */
    uint32_t *order;     /* [samples] */

    float *observations; /* the minibatch, gathered */
    float *actions;
    float *columns; /* [5, minibatch_max]: log_behaviour, log_proximal, advantages, targets, old
                       values */

    float *parameters;  /* as pulled last */
    float *gradient;    /* of one minibatch */
    float *accumulated; /* their mean, while accumulating */
    uint64_t accumulated_samples;
    uint64_t accumulated_count;
    bool fresh;                          /* the parameters have just been pulled */
    struct statistics advantages_before; /* of all workers, at the last rollout */
    double kl;                           /* mean approximate KL of the last epoch */
};

/* False when there is no memory. deinit accepts what a failed init left. */
bool update_init(struct update *update, const struct train_settings *settings,
                 const struct network *network, uint64_t worker);
void update_deinit(struct update *update);

/* All gradients of one rollout, pulling and pushing through the learner. */
gradweir_status update_run(struct update *update, const struct rollout *rollout,
                           struct learner *learner);

#endif
