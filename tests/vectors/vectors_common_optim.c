/* Twenty steps of every optimizer with given gradients: parameters after each step, states after
 * the last. */
#include "tests/vectors/vectors_common.h"

#include "common/arithmetic.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { N_MAX = 64, STEPS_MAX = 32, TENSORS_MAX = 8 };

struct trajectory {
    const struct arithmetic *set;
    struct arithmetic_plan plan;
    struct arithmetic_work work;
    struct arithmetic_group_numbers numbers;
    struct arithmetic_range ranges[TENSORS_MAX];
    float ratios[TENSORS_MAX];
    float theta[STEPS_MAX + 1][N_MAX], state[ARITHMETIC_STATES_MAX][N_MAX];
    const char *names[ARITHMETIC_STATES_MAX];
    bool always_adapt;
};

static enum arithmetic_algorithm algorithm_of(const struct vector_case *c)
{
    if (vector_is(c, "algorithm", "sgd")) {
        if (number_or(c, "nesterov", 0) != 0)
            return ARITHMETIC_NESTEROV;
        return number_or(c, "momentum", 0) != 0 ? ARITHMETIC_MOMENTUM : ARITHMETIC_SGD;
    }
    if (vector_is(c, "algorithm", "rmsprop"))
        return ARITHMETIC_RMSPROP;
    if (vector_is(c, "algorithm", "adam"))
        return number_or(c, "amsgrad", 0) != 0 ? ARITHMETIC_AMSGRAD : ARITHMETIC_ADAM;
    if (vector_is(c, "algorithm", "adamw"))
        return ARITHMETIC_ADAMW;
    cr_assert(vector_is(c, "algorithm", "lamb"), "%s: an algorithm nobody knows", c->name);
    return ARITHMETIC_LAMB;
}

static void name_states(struct trajectory *t)
{
    size_t n = 0;
    switch (t->plan.algorithm) {
    case ARITHMETIC_SGD: break;
    case ARITHMETIC_MOMENTUM:
    case ARITHMETIC_NESTEROV: t->names[n++] = "state_momentum_buffer"; break;
    case ARITHMETIC_RMSPROP:
        t->names[n++] = "state_square_avg";
        if (t->plan.centered)
            t->names[n++] = "state_grad_avg";
        if (t->plan.momentum)
            t->names[n++] = "state_momentum_buffer";
        break;
    case ARITHMETIC_AMSGRAD: t->names[2] = "state_max_exp_avg_sq"; /* fall through */
    case ARITHMETIC_ADAM:
    case ARITHMETIC_ADAMW:
    case ARITHMETIC_LAMB:
        t->names[0] = "state_exp_avg";
        t->names[1] = "state_exp_avg_sq";
        n = t->names[2] == NULL ? 2 : 3;
        break;
    }
    cr_assert_eq(n, arithmetic_states_n(t->plan.algorithm, t->plan.centered, t->plan.momentum));
}

static void trajectory_init(struct trajectory *t, const struct vector_case *c)
{
    memset(t, 0, sizeof *t);
    const enum arithmetic_algorithm algorithm = algorithm_of(c);
    const bool rmsprop = algorithm == ARITHMETIC_RMSPROP;
    const bool buffered = algorithm <= ARITHMETIC_RMSPROP;
    t->plan = (struct arithmetic_plan){.algorithm = algorithm,
                                       .centered = number_or(c, "centered", 0) != 0,
                                       .momentum = rmsprop && number_or(c, "momentum", 0) != 0,
                                       .epsilon = (float)number_or(c, "eps", 0),
                                       .scale = 1.0f,
                                       .entries_n = 1,
                                       .entries = {{.slot = 0, .weight = 1.0f}}};
    t->numbers =
        (struct arithmetic_group_numbers){.weight_decay = number_or(c, "weight_decay", 0),
                                          .beta1 = number_or(c, buffered ? "momentum" : "beta1", 0),
                                          .beta2 = number_or(c, rmsprop ? "alpha" : "beta2", 0),
                                          .dampening = number_or(c, "dampening", 0)};
    t->always_adapt = number_or(c, "always_adapt", 0) != 0;
    for (size_t j = 0; j < vector_size(c, "n_tensors"); j++) {
        char offset[64], size[64];
        snprintf(offset, sizeof offset, "tensor.%zu.offset", j);
        snprintf(size, sizeof size, "tensor.%zu.size", j);
        t->ranges[j] = (struct arithmetic_range){
            .begin = vector_size(c, offset), .tensor = (uint32_t)j, .group = 0};
        t->ranges[j].end = t->ranges[j].begin + vector_size(c, size);
    }
    t->work.ranges = t->ranges;
    t->work.ranges_n = vector_size(c, "n_tensors");
    t->work.ratios = t->ratios;
    name_states(t);
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX && t->names[k] != NULL; k++)
        t->work.state[k] = t->work.state_next[k] = t->state[k];
}

static void lamb_ratios(struct trajectory *t)
{
    for (size_t j = 0; j < t->work.ranges_n; j++) {
        const struct arithmetic_range *range = &t->ranges[j];
        struct arithmetic_measure theta;
        t->set->measure(ARITHMETIC_F32, t->work.parameters + range->begin,
                        (size_t)(range->end - range->begin), &theta);
        t->ratios[j] =
            arithmetic_trust_ratio(theta.sum_squares, t->set->lamb_sum(&t->plan, &t->work, range),
                                   t->numbers.weight_decay, t->always_adapt);
    }
}

static void take_step(struct trajectory *t, const struct vector_case *c, size_t k, size_t n)
{
    t->numbers.learning_rate = vector_f64(c, "lrs")[k];
    t->numbers.bias1 = arithmetic_bias(t->numbers.beta1, k + 1);
    t->numbers.bias2 = arithmetic_bias(t->numbers.beta2, k + 1);
    t->plan.first = k == 0;
    arithmetic_plan_group(&t->plan, 0, &t->numbers);
    t->work.sources.base = vector_f32(c, "grads") + k * n;
    t->work.parameters = t->theta[k];
    t->work.parameters_next = t->theta[k + 1];
    const bool lamb = t->plan.algorithm == ARITHMETIC_LAMB;
    t->plan.phase = lamb ? ARITHMETIC_MOMENTS : ARITHMETIC_WHOLE;
    t->set->step(&t->plan, &t->work, 0, n);
    if (!lamb)
        return;
    lamb_ratios(t);
    t->plan.phase = ARITHMETIC_APPLY;
    t->set->step(&t->plan, &t->work, 0, n);
}

void check_optim(const struct vector_case *c)
{
    const size_t n = vector_size(c, "n"), steps = vector_size(c, "steps");
    cr_assert(n <= N_MAX && steps <= STEPS_MAX);
    for (size_t i = 0; check_set_at(i) != NULL; i++) {
        struct trajectory t;
        trajectory_init(&t, c);
        t.set = check_set_at(i);
        memcpy(t.theta[0], vector_f32(c, "theta0"), n * sizeof(float));
        float theta[STEPS_MAX * N_MAX];
        for (size_t k = 0; k < steps; k++) {
            take_step(&t, c, k, n);
            memcpy(theta + k * n, t.theta[k + 1], n * sizeof(float));
        }
        vector_compare_f32(c, "theta", theta, steps * n);
        for (size_t k = 0; k < ARITHMETIC_STATES_MAX && t.names[k] != NULL; k++)
            vector_compare_f32(c, t.names[k], t.state[k], n);
    }
}
