/* What a training run is told: one struct, one table of options that parsing, help, checks and the
 * JSON summary read, and the presets of the environments. */
#ifndef GRADWEIR_TRAINER_TRAIN_SETTINGS_H
#define GRADWEIR_TRAINER_TRAIN_SETTINGS_H

#include "client/include/gradweir/status.h"
#include "client/trainer/environment.h"

#include <stdio.h>

/* A worker and a number that goes with it. */
struct train_pair {
    bool given;
    uint64_t worker;
    double value;
};

struct train_settings {
    const char *env;
    const char *json;     /* file of the summary, or NULL */
    const char *servers;  /* addresses, or NULL: start one's own */
    const char *identity; /* workers are IDENTITY-0, IDENTITY-1, ... */
    const char *keys;     /* folder or file with their keys, or NULL */
    bool insecure;        /* no keys, though the servers are not on loopback */
    uint64_t seed;
    uint64_t workers;
    uint64_t ranks; /* so many of them are one worker to the servers, a group */
    uint64_t shards;
    bool local; /* no server: the optimizer runs in this process */

    /* Of the server that a run starts for itself. */
    uint64_t window; /* 0: as many as workers */
    uint64_t stride;
    uint64_t queue;
    const char *mode;            /* async or sync */
    const char *gradient_dtype;  /* of its own server */
    const char *feedback;        /* auto, on or off */
    const char *memory_path;     /* auto, staging or direct */
    const char *server_settings; /* words for its command line, or NULL */
    const char *transport;
    uint64_t patience_s;    /* how long servers may be away, or not answer */
    const char *record;     /* folder of the recording, or NULL */
    const char *server_log; /* file of the server's lines, or NULL: its warnings come through */

    bool progress;     /* a line a second, also where nobody sits at a terminal */
    const char *curve; /* CURVE.csv and CURVE.svg get the learning curve; or NULL */
    bool narrate;      /* the demo: headings between the lines */

    /* Trouble on purpose. */
    uint64_t poison;               /* worker 0 makes its gradient number `poison` NaN; 0: none */
    struct train_pair slow_worker; /* takes `value` times as long */
    struct train_pair kill_worker; /* is killed after `value` seconds */

    /* How a run starts its workers; nobody else gives these. */
    uint64_t worker;  /* the number of this one, from 1; 0: this process is the run */
    uint64_t channel; /* descriptor of the socket to the run */
    double slowness;  /* 1, or of the slow worker: how many times as long its work takes */

    double until; /* mean of the last 100 returns that counts as solved */
    uint64_t max_steps;
    uint64_t evaluate; /* fresh episodes at the end */
    uint64_t pace_ms;

    const char *device;     /* cpu, cuda or cuda:N */
    const char *env_device; /* cpu or cuda */
    uint64_t envs;
    uint64_t rollout;
    uint64_t epochs;
    uint64_t minibatches;
    uint64_t accumulate;   /* minibatch gradients averaged into one push */
    bool pull_per_rollout; /* else before every gradient */

    double lr;
    uint64_t anneal_steps; /* environment steps of all workers until the learning rate is 0; 0:
                              constant */
    double adam_eps;
    double grad_norm;

    double gamma;
    double lambda;
    double clip;
    bool no_value_clip;
    double entropy;
    double value;
    double dual_clip; /* 0: off */
    double target_kl; /* 0: off */
    bool decoupled;
    double behaviour_cap; /* 0: no cap */
    bool vtrace;
    bool reward_norm;
    bool raw_advantages;

    uint64_t hidden;
    bool shared_trunk;
    double log_std;

    bool stable;
    uint64_t not_finite_max; /* with stable: end after so many in a row */

    const struct environment *environment; /* found by its name */
    uint64_t given;                        /* a bit for each option that the command line has */
};

/* CleanRL's values for CartPole. */
void train_settings_init(struct train_settings *settings);

/* Reads the command line over the defaults and the preset of the environment it names. Strings are
 * borrowed from argv. On failure `reason` [size] says which option, what range, and the nearest
 * name of an unknown one. `--help` gives GRADWEIR_ERR_STOPPED. */
struct train_reason {
    char text[448];
};
gradweir_status train_settings_parse(struct train_settings *settings, int argc, char **argv,
                                     struct train_reason *reason);

/* Whether the command line has --NAME. */
bool train_settings_given(const struct train_settings *settings, const char *name);

/* One line per option: name, range, value in force, help. */
void train_settings_help(const struct train_settings *settings, FILE *file);

/* "name": value, for every option, each followed by a comma. Null is what servers that run already
 * have chosen for themselves. */
void train_settings_json(const struct train_settings *settings, FILE *file);

/* What the mode means for window, stride and queue. False, with the reason, for an unknown one. */
bool train_mode_apply(struct train_settings *settings, struct train_reason *reason);
bool train_is_sync(const struct train_settings *settings);

/* Known-good values for an environment, by its name; none for CartPole, whose values are the
 * defaults. */
void train_preset_apply(struct train_settings *settings, const char *environment);

#endif
