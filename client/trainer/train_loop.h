/* The training loop of one worker: rollout, update, news, until the overseer says it is over. It
 * knows neither where gradients go (learner.h) nor who else trains (overseer.h). */
#ifndef GRADWEIR_TRAINER_TRAIN_LOOP_H
#define GRADWEIR_TRAINER_TRAIN_LOOP_H

#include "client/trainer/engine.h"
#include "client/trainer/learner.h"
#include "client/trainer/overseer.h"

/* The network that the settings describe. */
void train_network(const struct train_settings *settings, struct network *network);

/* Writes the first parameters [n_parameters] of that seed; the same for every worker. */
void train_first_parameters(const struct train_settings *settings, const struct network *network,
                            float *parameters);

enum train_end {
    TRAIN_OVER,       /* as the overseer said */
    TRAIN_NOT_FINITE, /* with --stable: too many gradients in a row were not finite */
};

struct train_outcome {
    enum train_end end;
    struct engine_reason reason; /* of the engine, when it is what failed; else "" */
};

/* A worker and what computes for it: number `worker` (0, 1, ...) of a run. */
struct trainer {
    const struct train_settings *settings; /* borrowed */
    uint64_t worker;
    struct network network;
    struct engine_running running;
};

/* Opens the engine that the settings ask for; the trainer stays where it is until it is closed. The
 * reason is the engine's. close accepts what a failed open left. */
gradweir_status trainer_open(const struct train_settings *settings, uint64_t worker,
                             struct trainer *trainer, struct engine_reason *reason);
void trainer_close(struct trainer *trainer);

/* Trains until it is over. A failure of the learner or the engine is returned as it is;
 * GRADWEIR_ERR_NO_MEMORY when there is none at the start. */
gradweir_status trainer_run(const struct trainer *trainer, struct learner *learner,
                            struct overseer *overseer, struct train_outcome *outcome);

/* All of it: opens, trains, closes. */
gradweir_status train_loop(const struct train_settings *settings, uint64_t worker,
                           struct learner *learner, struct overseer *overseer,
                           struct train_outcome *outcome);

#endif
