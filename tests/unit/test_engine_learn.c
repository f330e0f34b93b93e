/* What every engine promises of learning: advantages and gradients are those of the trainer's own
 * functions. */
#include "client/trainer/advantage.h"
#include "tests/unit/engine_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The gradient by the trainer's own functions, from the rollout's arrays. */
struct reference {
    float *advantages, *targets, *log_proximal, *log_ratios;
    float *gathered, *actions, *columns[5], *gradient;
    struct loss_result result;
};

static struct reference start_reference(const struct engine_rig *rig)
{
    const size_t dim = rig->network.shape.action_dim;
    struct reference ref = {.advantages = engine_floats(RIG_SAMPLES),
                            .targets = engine_floats(RIG_SAMPLES),
                            .log_proximal = engine_floats(RIG_SAMPLES),
                            .log_ratios = engine_floats(RIG_SAMPLES),
                            .gathered = engine_floats(RIG_MINIBATCH * RIG_SEEN),
                            .actions = engine_floats(RIG_MINIBATCH * dim),
                            .gradient = engine_floats(rig->network.n_parameters),
                            .result.arrays = {.d_head = engine_floats(RIG_MINIBATCH * dim),
                                              .d_value = engine_floats(RIG_MINIBATCH),
                                              .d_log_std = engine_floats(dim),
                                              .log_new = engine_floats(RIG_MINIBATCH),
                                              .entropy = engine_floats(RIG_MINIBATCH),
                                              .ratio = engine_floats(RIG_MINIBATCH),
                                              .advantage = engine_floats(RIG_MINIBATCH),
                                              .weight = engine_floats(RIG_MINIBATCH)}};
    for (size_t c = 0; c < 5; c++)
        ref.columns[c] = engine_floats(RIG_MINIBATCH);
    return ref;
}

static void end_reference(struct reference *ref)
{
    float *all[] = {ref->advantages,
                    ref->targets,
                    ref->log_proximal,
                    ref->log_ratios,
                    ref->gathered,
                    ref->actions,
                    ref->gradient,
                    ref->result.arrays.d_head,
                    ref->result.arrays.d_value,
                    ref->result.arrays.ratio,
                    ref->result.arrays.d_log_std,
                    ref->result.arrays.log_new,
                    ref->result.arrays.entropy,
                    ref->result.arrays.weight,
                    ref->result.arrays.advantage};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
    for (size_t c = 0; c < 5; c++)
        free(ref->columns[c]);
}

static void refer_advantages(struct engine_rig *rig, const struct rollout *r, struct reference *ref)
{
    const struct advantage_input input = {.steps = RIG_STEPS,
                                          .environments = RIG_ENVIRONMENTS,
                                          .rewards = r->rewards,
                                          .values = r->values,
                                          .next_values = r->next_values,
                                          .terminated = r->terminated,
                                          .truncated = r->truncated};
    const struct advantage_vtrace_settings caps = {rig->options.gamma, 1, rig->options.lambda, 1};
    const size_t seen = rig->network.shape.observation_dim;
    for (size_t at = 0; at < RIG_SAMPLES; at += RIG_MINIBATCH) { /* as the cpu's engine cuts it */
        const size_t n = RIG_SAMPLES - at < RIG_MINIBATCH ? RIG_SAMPLES - at : RIG_MINIBATCH;
        static float values[RIG_MINIBATCH];
        float *right[2] = {ref->log_proximal + at, values};
        engine_refer(rig, r->observations + at * seen, r->actions + at * engine_width(rig), n,
                     right);
    }
    for (size_t i = 0; i < RIG_SAMPLES; i++)
        ref->log_ratios[i] = ref->log_proximal[i] - r->log_behaviour[i];
    if (rig->options.vtrace)
        advantage_vtrace(&input, &caps, ref->log_ratios, ref->advantages, ref->targets);
    else
        advantage_gae(&input, rig->options.gamma, rig->options.lambda, ref->advantages,
                      ref->targets);
}

static void refer_gradient(struct engine_rig *rig, const struct rollout *r,
                           const struct engine_minibatch *m, struct reference *ref)
{
    const size_t seen = rig->network.shape.observation_dim, width = engine_width(rig);
    const float *from[5] = {r->log_behaviour, ref->log_proximal, ref->advantages, ref->targets,
                            r->values};
    for (size_t i = 0; i < m->n; i++) {
        memcpy(ref->gathered + i * seen, r->observations + m->order[i] * seen,
               seen * sizeof(float));
        memcpy(ref->actions + i * width, r->actions + m->order[i] * width, width * sizeof(float));
        for (size_t c = 0; c < 5; c++)
            ref->columns[c][i] = from[c][m->order[i]];
    }
    const struct loss_batch batch = {.n = m->n,
                                     .actions = ref->actions,
                                     .log_behaviour = ref->columns[0],
                                     .log_proximal = ref->columns[1],
                                     .advantages = ref->columns[2],
                                     .targets = ref->columns[3],
                                     .old_values = ref->columns[4],
                                     .head = rig->room.head,
                                     .value = rig->room.value,
                                     .log_std = engine_policy(rig).log_std};
    const struct network_backward_input input = {rig->parameters,
                                                 ref->gathered,
                                                 m->n,
                                                 ref->result.arrays.d_head,
                                                 ref->result.arrays.d_value,
                                                 ref->result.arrays.d_log_std};
    network_forward(&rig->network, rig->parameters, ref->gathered, m->n, &rig->room);
    loss_compute(m->loss, &batch, &ref->result);
    network_backward(&rig->network, &input, &rig->room, ref->gradient);
}

static void check_losses(const struct engine_rig *rig, const struct engine_losses *losses,
                         const struct loss_result *right)
{
    const double pairs[][2] = {{losses->loss, right->loss},
                               {losses->policy_loss, right->policy_loss},
                               {losses->value_loss, right->value_loss},
                               {losses->entropy, right->entropy_mean},
                               {losses->approx_kl, right->approx_kl},
                               {losses->old_approx_kl, right->old_approx_kl},
                               {losses->clip_fraction, right->clip_fraction},
                               {losses->weight, right->weight_mean}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        cr_expect_float_eq(
            pairs[i][0], pairs[i][1], rig->tolerance * 10 * fmax(1, fabs(pairs[i][1])),
            "%s: statistic %zu is %g, not %g", rig->what, i, pairs[i][0], pairs[i][1]);
}

static void check_minibatches(struct engine_rig *rig, const struct rollout *r,
                              struct reference *ref)
{
    static uint32_t order[RIG_MINIBATCH];
    struct engine_losses losses;
    struct chance chance;
    float *gradient = engine_floats(rig->network.n_parameters);
    struct loss_settings loss = {.gaussian = rig->network.shape.gaussian,
                                 .action_dim = rig->network.shape.action_dim,
                                 .clip = 0.1f,
                                 .clip_value = true,
                                 .value_clip = 0.2f,
                                 .entropy_coefficient = 0.01f,
                                 .value_coefficient = 0.5f,
                                 .decoupled = rig->options.decoupled,
                                 .behaviour = LOSS_BEHAVIOUR_TRUNCATE,
                                 .behaviour_cap = 1.01f,
                                 .dual_clip = 3};
    chance_init(&chance, 3, 0);
    for (int k = 0; k < 12; k++) { /* each kind as it is, captured, replayed */
        const size_t n = RIG_MINIBATCH - (size_t)(k & 1);
        const struct engine_minibatch minibatch = {order, n, &loss};
        loss.advantages = k < 4   ? LOSS_ADVANTAGES_BATCH
                          : k < 8 ? LOSS_ADVANTAGES_RAW
                                  : LOSS_ADVANTAGES_GIVEN;
        loss.advantage_mean = k < 8 ? 0 : 0.5f;
        loss.advantage_deviation = k < 8 ? 0 : 2;
        for (size_t i = 0; i < n; i++)
            order[i] = (uint32_t)chance_uniform(&chance, 0, RIG_SAMPLES);
        memset(gradient, 0xff, rig->network.n_parameters * sizeof(float));
        cr_assert_eq(rig->engine->gradient(rig->state, &minibatch, gradient, &losses), GRADWEIR_OK,
                     "%s", rig->engine->reason(rig->state));
        refer_gradient(rig, r, &minibatch, ref);
        expect_alike(rig, gradient, ref->gradient, rig->network.n_parameters);
        check_losses(rig, &losses, &ref->result);
    }
    free(gradient);
}

/* The parameters move on after the rollout, so that ratios are not 1 and the clips engage. */
static void check_learning(struct engine_rig *rig)
{
    struct rollout rollout = engine_start_rollout(rig);
    struct reference ref = start_reference(rig);
    struct chance chance;
    float *advantages = engine_floats(RIG_SAMPLES);
    chance_init(&chance, 9, 0);
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(rig->engine->collect(rig->state, &rollout), GRADWEIR_OK);
        for (int move = 0; move < 2; move++) {
            for (size_t i = 0; i < rig->network.n_parameters; i++)
                rig->parameters[i] += 0.01f * (float)chance_normal(&chance);
            cr_assert_eq(rig->engine->load(rig->state, rig->parameters), GRADWEIR_OK);
            if (move == 0) {
                cr_assert_eq(rig->engine->estimate(rig->state, &rollout, advantages), GRADWEIR_OK);
                refer_advantages(rig, &rollout, &ref);
                expect_alike(rig, advantages, ref.advantages, RIG_SAMPLES);
            }
            check_minibatches(rig, &rollout, &ref);
        }
    }
    free(advantages);
    end_reference(&ref);
    rollout_deinit(&rollout);
}

Test(engine, gives_the_advantages_and_gradients_of_the_trainers_own_functions)
{
    engine_on_each(check_learning);
}
