/* The four classic-control environments as Gymnasium defines them, one episode at a time: what a
 * state is, how it starts, what a step does and what is seen of it. States are double. Formulas and
 * constants: tests/vectors/README.md, families env_step and env_trace. Many episodes side by side
 * are environment_batch.h. */
#ifndef GRADWEIR_TRAINER_ENVIRONMENT_H
#define GRADWEIR_TRAINER_ENVIRONMENT_H

#include "client/trainer/chance.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ENVIRONMENT_STATE_MAX = 4, ENVIRONMENT_OBSERVATION_MAX = 6, ENVIRONMENT_ACTION_MAX = 3 };

struct environment {
    const char *name;
    size_t state_dim;
    size_t observation_dim;
    size_t action_dim; /* number of choices if discrete, else length of the action (1 in all of
                          them) */
    bool discrete;
    double action_low; /* the bounds of a continuous action; a policy's action is clamped to them
                          first */
    double action_high;
    uint32_t time_limit; /* steps; the step that reaches it is truncated */

    void (*reset)(double *state, struct chance *chance);

    /* Moves the state on by one step and writes the reward. Returns whether the episode has
     * terminated. A discrete action is its number. */
    bool (*step)(double *state, double action, double *reward);

    void (*observe)(const double *state, float *observation);
};

extern const struct environment environment_cartpole;
extern const struct environment environment_acrobot;
extern const struct environment environment_mountain_car;
extern const struct environment environment_pendulum;

/* The environment of that name, or NULL. environment_at(i) lists them; NULL past the end. */
const struct environment *environment_find(const char *name);
const struct environment *environment_at(size_t i);

#endif
