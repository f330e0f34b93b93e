/* A rig for what every engine promises: each that this build has and this machine can open is set
 * up with networks of several kinds, beside the functions of the trainer that are the definition.
 * The cpu gives their bits; others stay within a tolerance, for their products sum in another
 * order. */
#ifndef GRADWEIR_UNIT_ENGINE_RIG_H
#define GRADWEIR_UNIT_ENGINE_RIG_H

#include "client/trainer/engine.h"
#include "client/trainer/policy.h"
#include "client/trainer/rollout.h"

enum {
    RIG_ENVIRONMENTS = 37,
    RIG_STEPS = 300,
    RIG_SAMPLES = RIG_ENVIRONMENTS * RIG_STEPS,
    RIG_MINIBATCH = 1009,
    RIG_SEEN = 6 /* floats of an observation at most */
};

/* One engine, its network, and what a reference needs. */
struct engine_rig {
    const struct engine *engine;
    struct engine_state *state;
    struct engine_options options;
    struct network network;
    struct network_room room;
    float *parameters;
    double tolerance;
    char what[160];
};

/* The rig of variant v, before the engine is opened; and down again, whatever became of it. */
void engine_build(struct engine_rig *rig, const struct engine *engine, size_t v);
void engine_take_down(struct engine_rig *rig);

/* Runs a check on every engine and variant. An engine that cannot be opened here is told on stderr:
 * nothing of it has been tested. */
void engine_on_each(void (*check)(struct engine_rig *));

/* The largest distance, of the largest element of b; infinite when a has one that is not finite. */
double engine_worst(const float *a, const float *b, size_t n);
#define expect_alike(rig, a, b, n)                                                                 \
    cr_expect_leq(engine_worst(a, b, n), (rig)->tolerance, "%s: %s is off by %g", (rig)->what, #a, \
                  engine_worst(a, b, n))

size_t engine_width(const struct engine_rig *rig); /* floats of an action */
struct policy engine_policy(const struct engine_rig *rig);

/* The log-probabilities of actions, and the values, as the definition has them. Leaves the heads in
 * the room. */
void engine_refer(struct engine_rig *rig, const float *observations, const float *actions, size_t n,
                  float *log_and_value[2]);

struct rollout engine_start_rollout(const struct engine_rig *rig);

/* Zeroed, and for the caller to free. */
float *engine_floats(size_t n);

#endif
