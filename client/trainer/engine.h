/* What a worker computes between a pull and a push: the seam between training and the machine that
 * does its arithmetic. An engine acts in environments, collects rollouts, estimates advantages and
 * makes gradients. `cpu` is the definition; every other engine follows the same functions of an
 * element (common/element_*.h) and agrees with it within the tolerances of
 * tests/unit/test_engine.c: matrix products sum in another order.
 *
 * The order of calls: open, then over and over load, collect, estimate and some gradients with
 * loads between them. All calls come from one thread. A call that fails leaves the engine fit only
 * to be closed, and a sentence in `reason` (see engine_reason). Everything is allocated at open. */
#ifndef GRADWEIR_TRAINER_ENGINE_H
#define GRADWEIR_TRAINER_ENGINE_H

#include "client/include/gradweir/status.h"
#include "client/trainer/environment.h"
#include "client/trainer/loss.h"
#include "client/trainer/network.h"

enum { ENGINE_GROUPS_MAX = 2, ENGINE_GPU_ANY = -1 };

struct rollout;

/* Why a call failed, in words that say what to do. */
struct engine_reason {
    char text[400];
};

struct engine_options {
    const struct network *network;         /* borrowed until close */
    const struct environment *environment; /* likewise */
    size_t steps;                          /* T of a rollout */
    size_t environments;                   /* N of a rollout */
    size_t minibatch_max;                  /* samples of a gradient */
    uint64_t seed;
    uint64_t worker; /* workers of one seed draw from different streams */

    float gamma, lambda;
    bool vtrace;    /* else GAE */
    bool decoupled; /* log-probabilities under the parameters of `estimate` are wanted */

    int gpu;               /* which one; ENGINE_GPU_ANY: by the worker's number */
    bool own_environments; /* they are stepped where the engine computes */
    size_t groups;         /* in which environments act by turns; 0: as suits the engine */
};

struct engine_info {
    size_t groups; /* environments g N / groups to (g + 1) N / groups are group g */
    char text[96]; /* for the log: "cpu", "cuda:0 NVIDIA H200 sm_90" */
};

/* Observations of one group, and where to put what follows from them: on the host all of them, and
 * borrowed until `wait`. */
struct engine_act {
    size_t group;
    const float *observations; /* [n, observation_dim], n of the group */
    float *actions;            /* [n, action width]; NULL: only values are wanted */
    float *log_probabilities;  /* [n] of those actions, when drawn */
    float *values;             /* [n] */
    const float *finals;       /* [n, observation_dim] where episodes were cut, or NULL */
    float *final_values;       /* [n]: their values; only if finals */
};

/* Samples of the rollout of the last `estimate`, by number in [0, T N). */
struct engine_minibatch {
    const uint32_t *order; /* [n] */
    size_t n;
    const struct loss_settings *loss;
};

/* Means over a minibatch, as loss.h defines them. */
struct engine_losses {
    double loss;
    double policy_loss;
    double value_loss;
    double entropy;
    double approx_kl;
    double old_approx_kl;
    double clip_fraction;
    double weight;
};

/* Arrays of an engine's own in a GPU's memory, for who knows CUDA: between the engine's calls he
 * may write parameters and read the gradient that was made last. */
struct engine_arrays {
    float *parameters;     /* [n_parameters]; NULL: it has none, and floats pass through the host */
    const float *gradient; /* [n_parameters] */
    uint32_t gpu;          /* whose memory that is */
};

struct engine_state; /* the backend's own */

/* All members are there in every backend. A status other than OK comes with a reason. */
struct engine {
    const char *name;

    /* Whether an engine could be opened here, for what can be told without taking memory:
     * ERR_UNSUPPORTED when there is no such device, driver, or library, ERR_INVALID for a GPU or an
     * environment that it does not have. Leaves nothing behind. */
    gradweir_status (*probe)(const struct engine_options *options, struct engine_reason *reason);

    /* As probe, and ERR_NO_MEMORY, of host or device. */
    gradweir_status (*open)(const struct engine_options *options, struct engine_state **state,
                            struct engine_reason *reason);

    /* NULL is accepted. */
    void (*close)(struct engine_state *state);

    void (*info)(const struct engine_state *state, struct engine_info *info);

    /* Where floats may come and go without the host. What was loaded is there when it returns. */
    gradweir_status (*arrays)(struct engine_state *state, struct engine_arrays *arrays);

    /* The parameters [n_parameters] that all calls go by from here on. Borrowed until the next load
     * or close, and not to be changed meanwhile without another load. NULL: they have been written
     * into the engine's own array. */
    gradweir_status (*load)(struct engine_state *state, const float *parameters);

    /* Starts acting, and waits for what was started for that group; a group acts once at a time.
     * Actions are drawn from chance of the engine's own: the same after the same calls. */
    gradweir_status (*act)(struct engine_state *state, const struct engine_act *act);
    gradweir_status (*wait)(struct engine_state *state, size_t group);

    /* One rollout. In environments of its own an engine fills rewards, terminated, truncated and
     * returns, keeps the rest where it computes, and sets rollout->kept; else rollout_collect does
     * it, by act and wait, and fills all. */
    gradweir_status (*collect)(struct engine_state *state, struct rollout *rollout);

    /* Takes over the samples of the rollout, with its rewards as they are now, and writes
     * advantages [T N]; targets, and log-probabilities under the present parameters where they are
     * asked for, it keeps. A rollout that was kept is the one collected last. */
    gradweir_status (*estimate)(struct engine_state *state, const struct rollout *rollout,
                                float *advantages);

    /* The mean gradient [n_parameters] of a minibatch under the present parameters. Every element
     * is written. NULL: it stays in the engine's own array. */
    gradweir_status (*gradient)(struct engine_state *state,
                                const struct engine_minibatch *minibatch, float *gradient,
                                struct engine_losses *losses);

    /* Of the last call that failed; "" when none did. */
    const char *(*reason)(const struct engine_state *state);
};

/* The backends, for the table in engine.c; everybody else asks engine_find. engine_cuda is defined
 * by gpu/ in builds with GRADWEIR_CUDA. */
extern const struct engine engine_cpu, engine_cuda;

/* An engine that is open. */
struct engine_running {
    const struct engine *engine;
    struct engine_state *state;
};

/* The i-th engine of this build, NULL past the last. */
const struct engine *engine_at(size_t i);

/* The engine called name, or NULL: then the reason says whether this build is without it or nobody
 * has one of that name. */
const struct engine *engine_find(const char *name, struct engine_reason *reason);

/* What people write: "cpu", "cuda" or "cuda:N". Sets options->gpu. */
const struct engine *engine_parse(const char *device, struct engine_options *options,
                                  struct engine_reason *reason);

#endif
