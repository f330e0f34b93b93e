/* A learner behind the servers: the public client library, and nothing else of the house. */
#ifndef GRADWEIR_TRAINER_LEARNER_REMOTE_H
#define GRADWEIR_TRAINER_LEARNER_REMOTE_H

#include "client/trainer/engine.h"
#include "client/trainer/learner.h"

struct learner_remote_options {
    const char *address;  /* the coordinator's */
    const char *identity; /* this worker's name */
    const char *transport;
    const float *first;                 /* parameters to offer, the same in every worker */
    uint64_t patience_s;                /* how long servers may be away, or not answer */
    uint64_t poison;                    /* make the gradient of this number NaN; 0: none */
    uint32_t rank;                      /* with settings.ranks > 1: of the group `identity` */
    const struct engine_arrays *arrays; /* that floats come from and go to, with `first` in them, of
                                           a worker by itself; NULL: they pass through the host */
    int channel; /* and where a rank hears that the run is over, whoever has left first */
};

/* Joins the job and waits until it has first parameters. On failure gradweir_last_error tells why.
 */
gradweir_status learner_remote_open(const struct train_settings *settings,
                                    const struct network *network,
                                    const struct learner_remote_options *options,
                                    struct learner **learner);

/* The same for one rank of a group: all its ranks pull and push together, each has gradients of its
 * own samples, and what they push is one gradient. When one of them is lost the others go on: the
 * gradient under way counts as refused. ERR_STOPPED: the run has said stop. */
gradweir_status learner_group_open(const struct train_settings *settings,
                                   const struct network *network,
                                   const struct learner_remote_options *options,
                                   struct learner **learner);

#endif
