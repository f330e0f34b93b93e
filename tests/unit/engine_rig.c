/* See engine_rig.h. */
#include "tests/unit/engine_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct variant {
    const char *environment;
    bool shared, vtrace, decoupled;
    size_t groups;
};

static const struct variant variants[] = {{"CartPole-v1", false, false, false, 0},
                                          {"CartPole-v1", true, true, false, 2},
                                          {"Pendulum-v1", false, false, true, 1},
                                          {"Pendulum-v1", true, true, true, 2},
                                          {"Acrobot-v1", false, false, true, 2}};
enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

void engine_build(struct engine_rig *rig, const struct engine *engine, size_t which)
{
    const struct variant *v = &variants[which];
    const struct environment *environment = environment_find(v->environment);
    struct chance chance;
    const struct network_shape shape = {.observation_dim = environment->observation_dim,
                                        .hidden = {64, 40},
                                        .action_dim = environment->action_dim,
                                        .shared = v->shared,
                                        .gaussian = !environment->discrete};
    *rig = (struct engine_rig){.engine = engine, .tolerance = engine == &engine_cpu ? 0 : 1e-4};
    network_init(&rig->network, &shape);
    rig->parameters = calloc(rig->network.n_parameters, sizeof(float));
    cr_assert(rig->parameters != NULL && network_room_init(&rig->room, &rig->network, RIG_SAMPLES));
    chance_init(&chance, 11, 0);
    network_first_parameters(&rig->network, &chance, -0.5f, rig->parameters);
    for (size_t i = 0; i < rig->network.n_parameters; i++) /* heads that differ by observation */
        rig->parameters[i] += 0.05f * (float)chance_normal(&chance);
    rig->options = (struct engine_options){.network = &rig->network,
                                           .environment = environment,
                                           .steps = RIG_STEPS,
                                           .environments = RIG_ENVIRONMENTS,
                                           .minibatch_max = RIG_MINIBATCH,
                                           .seed = 5,
                                           .worker = 1,
                                           .gamma = 0.97f,
                                           .lambda = 0.9f,
                                           .vtrace = v->vtrace,
                                           .decoupled = v->decoupled,
                                           .gpu = ENGINE_GPU_ANY,
                                           .groups = v->groups};
    snprintf(rig->what, sizeof(rig->what), "%s, %s%s%s%s in %zu groups", engine->name,
             v->environment, v->shared ? ", shared" : "", v->vtrace ? ", V-trace" : "",
             v->decoupled ? ", decoupled" : "", v->groups);
}

void engine_take_down(struct engine_rig *rig)
{
    rig->engine->close(rig->state);
    network_room_deinit(&rig->room);
    free(rig->parameters);
}

/* An engine that cannot be opened here is told: nothing of it has been tested. */
static bool open_engine(struct engine_rig *rig)
{
    struct engine_reason reason = {.text = ""};
    const gradweir_status status = rig->engine->open(&rig->options, &rig->state, &reason);
    cr_assert(status == GRADWEIR_OK || rig->engine != &engine_cpu, "%s", reason.text);
    if (status == GRADWEIR_OK) {
        cr_assert_eq(rig->engine->load(rig->state, rig->parameters), GRADWEIR_OK);
        return true;
    }
    cr_assert_eq(status, GRADWEIR_ERR_UNSUPPORTED, "%s", reason.text);
    cr_assert_eq(rig->engine->probe(&rig->options, &reason), GRADWEIR_ERR_UNSUPPORTED);
    cr_assert_null(rig->state);
    fprintf(stderr, "SKIPPED: engine %s: %s\n", rig->engine->name, reason.text);
    return false;
}

void engine_on_each(void (*check)(struct engine_rig *))
{
    cr_assert(engine_at(0) == &engine_cpu);
    for (size_t e = 0; engine_at(e) != NULL; e++)
        for (size_t v = 0; v < VARIANTS; v++) {
            struct engine_rig rig;
            engine_build(&rig, engine_at(e), v);
            const bool is_open = open_engine(&rig);
            if (is_open)
                check(&rig);
            engine_take_down(&rig);
            if (!is_open)
                break;
        }
}

double engine_worst(const float *a, const float *b, size_t n)
{
    double largest = 1e-30, worst = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        worst = isfinite(a[i]) ? fmax(worst, fabs((double)a[i] - (double)b[i])) : INFINITY;
    }
    return worst / largest;
}

size_t engine_width(const struct engine_rig *rig)
{
    return rig->network.shape.gaussian ? rig->network.shape.action_dim : 1;
}

struct policy engine_policy(const struct engine_rig *rig)
{
    return (struct policy){rig->network.shape.gaussian, rig->network.shape.action_dim,
                           rig->parameters + rig->network.log_std};
}

/* The log-probabilities of actions, and the values, as the definition has them. Leaves the heads in
 * the room. */
void engine_refer(struct engine_rig *rig, const float *observations, const float *actions, size_t n,
                  float *log_and_value[2])
{
    const struct policy policy = engine_policy(rig);
    const size_t dim = policy.action_dim;
    network_forward(&rig->network, rig->parameters, observations, n, &rig->room);
    for (size_t i = 0; i < n; i++) {
        float entropy = 0;
        log_and_value[0][i] = policy_log_probability(&policy, rig->room.head + i * dim,
                                                     actions + i * engine_width(rig), &entropy);
        log_and_value[1][i] = rig->room.value[i];
    }
}

float *engine_floats(size_t n)
{
    float *p = calloc(n, sizeof(float));
    cr_assert_not_null(p);
    return p;
}

struct rollout engine_start_rollout(const struct engine_rig *rig)
{
    struct rollout rollout;
    struct engine_info info;
    rig->engine->info(rig->state, &info);
    const struct rollout_shape shape = {rig->options.environment, RIG_STEPS, RIG_ENVIRONMENTS,
                                        rig->options.seed,        1,         info.groups};
    cr_assert(rollout_init(&rollout, &shape));
    return rollout;
}
