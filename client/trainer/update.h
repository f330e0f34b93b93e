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
    struct engine_running running;
    size_t samples;       /* of a rollout */
    struct chance chance; /* of the shuffle */
    struct loss_settings loss;
    struct engine_losses losses; /* of the last minibatch */

    float *advantages; /* [samples] */
    uint32_t *order;   /* [samples] */

    float *parameters;  /* as pulled last, unless they are far; the engine has them */
    float *gradient;    /* of one minibatch */
    float *accumulated; /* their mean, while accumulating */
    uint64_t accumulated_samples;
    uint64_t accumulated_count;
    bool fresh;                          /* the parameters have just been pulled */
    struct statistics advantages_before; /* of all workers, at the last rollout */
    double kl;                           /* mean approximate KL of the last epoch */
};

/* The samples of a rollout, and of the largest of its minibatches: they differ by one where it
 * cannot be cut evenly. */
size_t update_samples(const struct train_settings *settings);
size_t update_minibatch_max(const struct train_settings *settings);

/* False when there is no memory. deinit accepts what a failed init left. */
bool update_init(struct update *update, const struct train_settings *settings,
                 const struct network *network, uint64_t worker, struct engine_running running);
void update_deinit(struct update *update);

/* The newest parameters, for the engine too. */
gradweir_status update_pull(struct update *update, struct learner *learner);

/* All gradients of one rollout, pulling and pushing through the learner. */
gradweir_status update_run(struct update *update, const struct rollout *rollout,
                           struct learner *learner);

#endif
