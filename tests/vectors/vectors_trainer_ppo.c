/* Families ppo, ppo_loss and ppo_train, in float. */
#include "client/trainer/blas.h"
#include "client/trainer/local_optimizer.h"
#include "client/trainer/loss.h"
#include "client/trainer/network.h"
#include "tests/vectors/vectors_trainer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct loss_settings settings_of(const struct vector_case *c)
{
    struct loss_settings settings = {
        .gaussian = vector_is(c, "policy", "diag_gaussian"),
        .action_dim = vector_size(c, "act_dim"),
        .clip = (float)vector_number(c, "clip"),
        .clip_value = vector_size(c, "clip_vloss") == 1,
        .value_clip = (float)vector_number(c, "vclip"),
        .entropy_coefficient = (float)vector_number(c, "ent_coef"),
        .value_coefficient = (float)vector_number(c, "vf_coef"),
        .advantages = vector_size(c, "norm_adv") == 1 ? LOSS_ADVANTAGES_BATCH : LOSS_ADVANTAGES_RAW,
        .decoupled = vector_size(c, "decoupled") == 1,
        .behaviour_cap = (float)vector_number(c, "behav_cap"),
        .dual_clip = (float)vector_number(c, "dual_clip"),
    };
    if (vector_is(c, "behav_mode", "truncate"))
        settings.behaviour = LOSS_BEHAVIOUR_TRUNCATE;
    else if (vector_is(c, "behav_mode", "mask"))
        settings.behaviour = LOSS_BEHAVIOUR_MASK;
    else
        cr_assert(vector_is(c, "behav_mode", "none"));
    return settings;
}

/* Batch k of the case's arrays, without head and value. Discrete actions become floats in
 * `actions`. */
static struct loss_batch batch_of(const struct vector_case *c, size_t k, float *actions)
{
    const size_t n = vector_size(c, "batch"), dim = vector_size(c, "act_dim");
    const bool gaussian = vector_is(c, "policy", "diag_gaussian");
    const size_t width = gaussian ? dim : 1;
    for (size_t i = 0; i < n * width; i++)
        actions[i] = gaussian ? vector_f32(c, "actions")[k * n * width + i]
                              : (float)vector_i32(c, "actions")[k * n + i];
    return (struct loss_batch){
        .n = n,
        .actions = actions,
        .log_behaviour = vector_f32(c, "logp_behav") + k * n,
        .log_proximal =
            vector_has_array(c, "logp_prox") ? vector_f32(c, "logp_prox") + k * n : NULL,
        .advantages = vector_f32(c, "advantages") + k * n,
        .targets = vector_f32(c, "returns") + k * n,
        .old_values = vector_f32(c, "old_values") + k * n,
    };
}

static float *floats(size_t n)
{
    float *p = calloc(n + 1, sizeof(float));
    cr_assert(p != NULL);
    return p;
}

static struct loss_result result_init(size_t n, size_t dim)
{
    return (struct loss_result){.arrays = {
                                    .d_head = floats(n * dim),
                                    .d_value = floats(n),
                                    .d_log_std = floats(dim),
                                    .log_new = floats(n),
                                    .entropy = floats(n),
                                    .ratio = floats(n),
                                    .advantage = floats(n),
                                    .weight = floats(n),
                                }};
}

static void result_deinit(struct loss_result *r)
{
    float *all[] = {r->arrays.d_head,  r->arrays.d_value, r->arrays.d_log_std, r->arrays.log_new,
                    r->arrays.entropy, r->arrays.ratio,   r->arrays.advantage, r->arrays.weight};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

static void compare_result(const struct vector_case *c, const struct loss_result *r)
{
    const size_t n = vector_size(c, "batch"), dim = vector_size(c, "act_dim");
    vector_compare_f32(c, "logp_new", r->arrays.log_new, n);
    vector_compare_f32(c, "entropy_per_sample", r->arrays.entropy, n);
    vector_compare_f32(c, "ratio", r->arrays.ratio, n);
    vector_compare_f32(c, "adv_used", r->arrays.advantage, n);
    vector_compare_f32(c, "d_head", r->arrays.d_head, n * dim);
    vector_compare_f32(c, "d_value", r->arrays.d_value, n);
    if (vector_has_array(c, "behav_weight"))
        vector_compare_f32(c, "behav_weight", r->arrays.weight, n);
    vector_compare_scalar_f32(c, "loss", r->loss);
    vector_compare_scalar_f32(c, "pg_loss", r->policy_loss);
    vector_compare_scalar_f32(c, "v_loss", r->value_loss);
    vector_compare_scalar_f32(c, "entropy", r->entropy_mean);
    vector_compare_scalar_f32(c, "approx_kl", r->approx_kl);
    vector_compare_scalar_f32(c, "old_approx_kl", r->old_approx_kl);
    vector_compare_scalar_f32(c, "clipfrac", r->clip_fraction);
    vector_compare_scalar_f32(c, "explained_variance", r->explained_variance);
    if (vector_has(c, "expect.behav_weight_mean"))
        vector_compare_scalar_f32(c, "behav_weight_mean", r->weight_mean);
}

void check_ppo_loss(const struct vector_case *c)
{
    const struct loss_settings settings = settings_of(c);
    const size_t n = vector_size(c, "batch");
    float *actions = floats(n * settings.action_dim);
    struct loss_batch batch = batch_of(c, 0, actions);
    struct loss_result result = result_init(n, settings.action_dim);
    batch.head = vector_f32(c, "head");
    batch.value = vector_f32(c, "value");
    loss_compute(&settings, &batch, &result);
    compare_result(c, &result);
    result_deinit(&result);
    free(actions);
}

/* The network of the case; its layout must be the one the case describes. */
static void network_of(const struct vector_case *c, struct network *network)
{
    const struct network_shape shape = {
        .observation_dim = vector_size(c, "obs_dim"),
        .hidden = {vector_size(c, "hidden1"), vector_size(c, "hidden2")},
        .action_dim = vector_size(c, "act_dim"),
        .shared = vector_is(c, "net", "shared"),
        .gaussian = vector_is(c, "policy", "diag_gaussian"),
    };
    network_init(network, &shape);
    cr_assert_eq(network->n_parameters, vector_size(c, "n_params"));
    for (size_t i = 0; i < network->n_tensors; i++) {
        const struct network_tensor *tensor = &network->tensors[i];
        char key[96];
        snprintf(key, sizeof(key), "tensor.%s.offset", tensor->name);
        cr_assert_eq(tensor->offset, vector_size(c, key), "%s: %s", c->directory, key);
        snprintf(key, sizeof(key), "tensor.%s.rows", tensor->name);
        cr_assert_eq(tensor->rows, vector_size(c, key), "%s: %s", c->directory, key);
        snprintf(key, sizeof(key), "tensor.%s.cols", tensor->name);
        cr_assert_eq(tensor->cols, vector_size(c, key), "%s: %s", c->directory, key);
    }
}

struct ppo_check {
    struct network network;
    struct network_room room;
    struct loss_settings settings;
    struct loss_result result;
    float *actions;
    float *gradient;
};

static void ppo_init(struct ppo_check *p, const struct vector_case *c)
{
    const size_t n = vector_size(c, "batch");
    blas_init();
    network_of(c, &p->network);
    cr_assert(network_room_init(&p->room, &p->network, n));
    p->settings = settings_of(c);
    p->result = result_init(n, p->settings.action_dim);
    p->actions = floats(n * p->settings.action_dim);
    p->gradient = floats(p->network.n_parameters);
}

static void ppo_deinit(struct ppo_check *p)
{
    free(p->gradient);
    free(p->actions);
    result_deinit(&p->result);
    network_room_deinit(&p->room);
}

/* Forward, loss and backward on batch k. */
static void ppo_gradient(struct ppo_check *p, const struct vector_case *c, const float *theta,
                         size_t k)
{
    const size_t n = vector_size(c, "batch");
    const float *observations = vector_f32(c, "obs") + k * n * p->network.shape.observation_dim;
    struct loss_batch batch = batch_of(c, k, p->actions);
    network_forward(&p->network, theta, observations, n, &p->room);
    batch.head = p->room.head;
    batch.value = p->room.value;
    batch.log_std = p->settings.gaussian ? theta + p->network.log_std : NULL;
    loss_compute(&p->settings, &batch, &p->result);
    const struct network_backward_input input = {
        .parameters = theta,
        .observations = observations,
        .batch = n,
        .d_head = p->result.arrays.d_head,
        .d_value = p->result.arrays.d_value,
        .d_log_std = p->result.arrays.d_log_std,
    };
    network_backward(&p->network, &input, &p->room, p->gradient);
}

void check_ppo(const struct vector_case *c)
{
    struct ppo_check p;
    ppo_init(&p, c);
    ppo_gradient(&p, c, vector_f32(c, "theta"), 0);
    vector_compare_f32(c, "head", p.room.head, vector_size(c, "batch") * p.settings.action_dim);
    vector_compare_f32(c, "value", p.room.value, vector_size(c, "batch"));
    compare_result(c, &p.result);
    vector_compare_f32(c, "grad", p.gradient, p.network.n_parameters);
    ppo_deinit(&p);
}

void check_ppo_train(const struct vector_case *c)
{
    struct ppo_check p;
    struct local_optimizer optimizer;
    ppo_init(&p, c);
    const size_t updates = vector_size(c, "updates"), n = p.network.n_parameters;
    cr_assert(vector_is(c, "optimizer", "adam"));
    cr_assert(local_optimizer_init(&optimizer, n, vector_number(c, "adam_eps"),
                                   vector_number(c, "max_grad_norm")));
    optimizer.beta1 = vector_number(c, "beta1");
    optimizer.beta2 = vector_number(c, "beta2");
    float *theta = floats(n), *thetas = floats(updates * n), *losses = floats(updates),
          *norms = floats(updates);
    memcpy(theta, vector_f32(c, "theta0"), n * sizeof(float));
    for (size_t k = 0; k < updates; k++) {
        ppo_gradient(&p, c, theta, k);
        losses[k] = (float)p.result.loss;
        norms[k] =
            (float)local_optimizer_step(&optimizer, vector_number(c, "lr"), p.gradient, theta);
        memcpy(thetas + k * n, theta, n * sizeof(float));
    }
    vector_compare_f32(c, "theta", thetas, updates * n);
    vector_compare_f32(c, "loss", losses, updates);
    vector_compare_f32(c, "grad_norm_before_clip", norms, updates);
    free(norms);
    free(losses);
    free(thetas);
    free(theta);
    local_optimizer_deinit(&optimizer);
    ppo_deinit(&p);
}
