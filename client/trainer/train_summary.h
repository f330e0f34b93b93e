/* What a run came to, as JSON and as one line. */
#ifndef GRADWEIR_TRAINER_TRAIN_SUMMARY_H
#define GRADWEIR_TRAINER_TRAIN_SUMMARY_H

#include "client/trainer/learner.h"

/* What one worker did; of a run with servers. */
struct train_share {
    uint64_t env_steps, pushes, admitted;
};

struct train_summary {
    bool solved;        /* by the training returns, by a trial, and by the final episodes */
    uint64_t env_steps; /* of training; those of trials and of the final episodes are not counted */
    uint64_t trials;
    uint64_t learn_steps; /* until it was solved or over, without what came while all ended */
    double learn_s;       /* for these, from the start of the workers on */
    double wall_s;
    double cpu_s;             /* of all processes, with the trials, without the final episodes */
    double mean_return;       /* of the last 100 training episodes */
    double final_mean_return; /* of the fresh episodes with the final parameters, greedy */
    bool has_parameters;      /* else version, digest and final_mean_return are not known */
    uint64_t version;
    struct learner_counts counts;
    const struct train_share *shares; /* of each worker; borrowed, NULL without servers */
    size_t n_shares;
    uint64_t digest;    /* of the final parameters */
    const char *failed; /* why this is no result; NULL: it is one */
    bool unrecorded;    /* --record was given, and the recording is not whole */
};

/* FNV-1a over the bytes of the parameters. */
uint64_t train_summary_digest(const float *parameters, size_t n);

/* False when the file cannot be written; errno says why. */
bool train_summary_write(const struct train_summary *summary, const struct train_settings *settings,
                         const char *path);

/* The line that a run with servers begins with. What servers that run already are set to is theirs
 * to say. */
void train_summary_begin(const struct train_settings *settings, const char *address);
void train_summary_print(const struct train_summary *summary);

#endif
