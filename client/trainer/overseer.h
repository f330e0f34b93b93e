/* Who hears how the episodes of a worker end and decides when training is over. The loop tells it
 * after every rollout; overseer_local.c judges by this worker's returns alone, a run of several
 * workers pools them. */
#ifndef GRADWEIR_TRAINER_OVERSEER_H
#define GRADWEIR_TRAINER_OVERSEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OVERSEER_WINDOW = 100 };

/* The mean of the last 100 returns. */
struct return_window {
    double returns[OVERSEER_WINDOW];
    uint64_t count; /* ever added */
};
void return_window_add(struct return_window *window, double value);
double return_window_mean(const struct return_window *window); /* NaN when empty */
bool return_window_full(const struct return_window *window);

/* What a rollout brought. */
struct overseer_news {
    const double *returns; /* of the episodes that ended, in order */
    size_t n_returns;
    uint64_t environment_steps; /* of this rollout */
    const float *parameters;    /* the newest this worker knows; NULL: the host has not seen them */
    uint64_t version;
    double kl;
};

struct overseer {
    /* Returns true when training is over. */
    bool (*hear)(struct overseer *overseer, const struct overseer_news *news);
};

/* Training is over when the mean of the last 100 returns reaches `until` and then `confirm`, a
 * trial of the parameters on fresh episodes, does too: sampled returns of a policy that still moves
 * are not yet a promise for the greedy one. After a trial that fails, the next one waits for 25
 * more returns. */
enum { OVERSEER_TRIAL_DISTANCE = 25 };

struct overseer_local {
    struct overseer overseer;
    double (*confirm)(void *context,
                      const float *parameters); /* mean return of a trial; NULL: none is made */
    void *context;
    double until;
    uint64_t steps_max;
    uint64_t trial_at; /* count of returns from which a trial may be made */
    struct return_window window;
    uint64_t environment_steps;
    bool solved;
};
void overseer_local_init(struct overseer_local *local, double until, uint64_t steps_max);

#endif
