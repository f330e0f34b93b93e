/* A learner behind the servers: the public client library, and nothing else of the house. */
#ifndef GRADWEIR_TRAINER_LEARNER_REMOTE_H
#define GRADWEIR_TRAINER_LEARNER_REMOTE_H

#include "client/trainer/learner.h"

struct learner_remote_options {
    const char *address;  /* the coordinator's */
    const char *identity; /* this worker's name */
    const char *transport;
    const float *first;  /* parameters to offer, the same in every worker */
    uint64_t patience_s; /* how long servers may be away, or not answer */
    uint64_t poison;     /* make the gradient of this number NaN; 0: none */
};

/* Joins the job and waits until it has first parameters. On failure gradweir_last_error tells why.
 */
gradweir_status learner_remote_open(const struct train_settings *settings,
                                    const struct network *network,
                                    const struct learner_remote_options *options,
                                    struct learner **learner);

#endif
