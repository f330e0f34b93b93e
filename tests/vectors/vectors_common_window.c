/* A parameter server in small: the law decides, the arithmetic steps; events, verdicts, weights,
 * averages and parameters are those of the reference. */
#include "tests/vectors/vectors_common.h"

#include "common/law.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIM_MAX = 32, SLOTS = LAW_WINDOW_MAX + 1 };

struct server {
    const struct vector_case *c;
    const struct arithmetic *set;
    size_t dim, window, updates;
    struct law law;
    struct law_step step;
    struct arithmetic_plan plan;
    float slots[SLOTS][DIM_MAX];
    uint64_t taken_by_stacks;
    bool stacks; /* by partial sums, where that may be */
    float back[DIM_MAX], fronts[LAW_WINDOW_MAX / LAW_FRONT_EVERY][DIM_MAX];
    bool taken[SLOTS];
    float theta[DIM_MAX], m[DIM_MAX], v[DIM_MAX];
};

static struct law_settings settings_of(const struct vector_case *c)
{
    struct law_settings s = law_classic();
    s.window = (uint32_t)vector_size(c, "W");
    s.stride = (uint32_t)vector_size(c, "S");
    s.samples_exponent = vector_number(c, "alpha");
    s.decay = vector_is(c, "decay", "uniform") ? LAW_UNIFORM
              : vector_is(c, "decay", "exp")   ? LAW_EXP
                                               : LAW_POLY;
    s.decay_beta = vector_number(c, "beta");
    s.decay_power = vector_number(c, "a");
    s.staleness_max = (int64_t)vector_number(c, "max_staleness");
    s.recheck = vector_number(c, "recheck") != 0;
    s.staleness_at = vector_is(c, "tau_at", "arrival") ? LAW_AT_ARRIVAL : LAW_AT_STEP;
    s.clip_average = vector_number(c, "clip_norm");
    s.algorithm = vector_is(c, "optimizer", "sgd") ? ARITHMETIC_SGD : ARITHMETIC_ADAM;
    s.learning_rate = vector_number(c, "lr");
    s.beta1 = vector_number(c, "beta1");
    s.beta2 = vector_number(c, "beta2");
    return s;
}

static struct vector_tolerance tolerance(const struct vector_case *c, bool wide)
{
    return (struct vector_tolerance){
        .rtol = vector_number(c, wide ? "tol.f64_rtol" : "tol.f32_rtol"),
        .atol = vector_number(c, wide ? "tol.f64_atol" : "tol.f32_atol")};
}

static void check_weights(const struct server *s, size_t u)
{
    const struct vector_case *c = s->c;
    const int32_t *tau = vector_i32(c, "entry_tau") + u * s->window;
    const double *expected = vector_f64(c, "norm_weights") + u * s->window;
    cr_expect_eq((int32_t)s->step.n, vector_i32(c, "used")[u], "%s: update %zu uses %u", c->name, u,
                 s->step.n);
    for (uint32_t i = 0; i < s->step.n; i++) {
        const struct law_step_entry *entry = &s->step.entries[i];
        const double rounded = (double)entry->weight;
        cr_expect_eq((int64_t)entry->staleness, tau[i], "%s: update %zu entry %u", c->name, u, i);
        vector_near(c, "weight", &entry->weight_exact, &expected[i], 1, tolerance(c, true));
        vector_near(c, "rounded weight", &rounded, &expected[i], 1, tolerance(c, false));
    }
}

/* By stacks a term is rounded up to 2 (W + 4) times on its way (common/arithmetic_stacks.h), and no
 * Kahan term makes up for it. All vectors are of the order of 1. */
static struct vector_tolerance float_tolerance(const struct server *s)
{
    struct vector_tolerance allowed = tolerance(s->c, false);
    const double more = s->stacks ? 2.0 * (double)(s->window + 4) * 0x1p-24 : 0;
    return (struct vector_tolerance){.rtol = allowed.rtol + more, .atol = allowed.atol + more};
}

static void check_floats(const struct server *s, const char *name, const float *actual, size_t u)
{
    double wide[DIM_MAX];
    for (size_t i = 0; i < s->dim; i++)
        wide[i] = (double)actual[i];
    vector_near(s->c, name, wide, vector_f64(s->c, name) + u * s->dim, s->dim, float_tolerance(s));
}

/* Two tiles and a finished average, as a shard whose step needs a round. */
static void take_step(struct server *s)
{
    const struct law_settings *settings = &s->law.settings;
    const struct arithmetic_sources sources = {.base = s->slots,
                                               .stride_bytes = sizeof s->slots[0],
                                               .back = s->back,
                                               .fronts = s->fronts[0],
                                               .front_stride = DIM_MAX,
                                               .stripe = 1};
    const struct arithmetic_range range = {.begin = 0, .end = s->dim};
    float average[DIM_MAX];
    law_plan(settings, &s->step, &s->plan);
    s->plan.epsilon = (float)vector_number(s->c, "adam_eps");
    arithmetic_plan_group(&s->plan, 0,
                          &(struct arithmetic_group_numbers){
                              .learning_rate = s->step.learning_rate,
                              .beta1 = settings->beta1,
                              .beta2 = settings->beta2,
                              .bias1 = s->step.bias1,
                              .bias2 = s->step.bias2,
                          });
    s->set->average(&s->plan, &sources, 0, s->dim, average);
    check_floats(s, "gbar", average, s->updates);
    double sum;
    (void)arithmetic_measure_blocks(s->set, ARITHMETIC_F32, average, s->dim, &sum);
    const double norm = sqrt(sum);
    vector_near(s->c, "gbar_norm", &norm, vector_f64(s->c, "gbar_norm") + s->updates, 1,
                float_tolerance(s));
    s->plan.scale = (float)arithmetic_clip_factor(norm, settings->clip_average);
    const struct arithmetic_work work = {.average = average,
                                         .parameters = s->theta,
                                         .parameters_next = s->theta,
                                         .state = {s->m, s->v},
                                         .state_next = {s->m, s->v},
                                         .ranges = &range,
                                         .ranges_n = 1};
    s->set->step(&s->plan, &work, 0, s->dim / 2);
    s->set->step(&s->plan, &work, s->dim / 2, s->dim);
    check_floats(s, "theta", s->theta, s->updates);
}

static void release(struct server *s)
{
    struct law_entry gone;
    while (law_retired(&s->law, &gone)) {
        cr_assert(s->taken[gone.slot]);
        s->taken[gone.slot] = false;
    }
}

static void admit(struct server *s, const struct law_arrival *arrival, const float *gradient)
{
    struct law_entry entry = law_entry(&s->law, arrival);
    while (s->taken[entry.slot])
        entry.slot++;
    cr_assert(entry.slot <= s->window);
    s->taken[entry.slot] = true;
    memcpy(s->slots[entry.slot], gradient, s->dim * sizeof *gradient);
    law_admit(&s->law, &entry);
    release(s);
}

static void check_event(struct server *s, size_t k)
{
    static const int32_t statuses[] = {
        [LAW_FINE] = 0, [LAW_STALE] = 1, [LAW_NOT_FINITE] = 2, [LAW_FUTURE] = 3};
    const struct vector_case *c = s->c;
    const float *gradient = vector_f32(c, "grads") + k * s->dim;
    double sum;
    const uint32_t largest =
        arithmetic_measure_blocks(s->set, ARITHMETIC_F32, gradient, s->dim, &sum);
    const struct law_arrival arrival = {.finite = arithmetic_finite(largest),
                                        .largest = arithmetic_largest(largest),
                                        .basis = (uint64_t)vector_i32(c, "base_version")[k],
                                        .samples = (uint64_t)vector_i32(c, "samples")[k],
                                        .norm = sqrt(sum)};
    const enum law_verdict verdict = law_judge(&s->law, &arrival);
    cr_expect_eq(statuses[verdict], vector_i32(c, "status")[k], "%s: event %zu is %s", c->name, k,
                 law_verdict_name(verdict));
    if (verdict == LAW_FINE) {
        admit(s, &arrival, gradient);
        if (law_due(&s->law, LAW_DUE)) {
            law_step(&s->law, LAW_DUE, &s->step);
            cr_expect_eq(vector_i32(c, "update_event")[s->updates], (int32_t)k);
            check_weights(s, s->updates);
            take_step(s);
            s->taken_by_stacks += s->step.stacks.on;
            law_apply(&s->law, &s->step);
            release(s);
            s->updates++;
        }
    }
    cr_expect_eq((int64_t)s->law.version, vector_i32(c, "version_after")[k], "%s: event %zu",
                 c->name, k);
}

/* How many steps were taken by stacks. */
static uint64_t run_case(const struct vector_case *c, const struct arithmetic *set, bool stacks)
{
    struct server *s = calloc(1, sizeof *s);
    cr_assert(s != NULL);
    s->c = c;
    s->set = set;
    s->stacks = stacks;
    s->dim = vector_size(c, "dim");
    s->window = vector_size(c, "W");
    struct law_settings settings = settings_of(c);
    settings.window_algorithm = stacks ? LAW_STACKS : LAW_DIRECT;
    law_init(&s->law, &settings);
    memcpy(s->theta, vector_f32(c, "theta0"), s->dim * sizeof(float));
    for (size_t k = 0; k < vector_size(c, "events"); k++)
        check_event(s, k);
    cr_expect_eq(s->updates, vector_size(c, "updates"));
    const uint64_t taken = s->taken_by_stacks;
    free(s);
    return taken;
}

void check_window(const struct vector_case *c)
{
    struct law_settings settings = settings_of(c);
    const bool may = law_stacks_separable(&settings) && settings.window > settings.stride;
    for (size_t i = 0; check_set_at(i) != NULL; i++)
        cr_expect_eq(run_case(c, check_set_at(i), false), 0);
    for (size_t i = 0; may && arithmetic_at(i) != NULL; i++)
        cr_expect_gt(run_case(c, arithmetic_at(i), true), 0, "%s", c->name);
}
