/* The transformer of the examples, compiled with double: so a wrong derivative differs from a
 * rounding by many orders of magnitude. */
#include "client/examples/transformer_policy.h"

#include <assert.h>
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(real) == sizeof(double), "this test is built with double");

enum { RANKS_MAX = 4 };

static const struct transformer_shape shape = {
    .words = 7, .places = 6, .width = 16, .heads = 4, .inner = 12, .layers = 2};
static const struct transformer_settings settings = {
    .batch = 8, .samples = 4, .discount = 0.5, .clip = 0.2};

static bool alone(void *context, real *x, size_t n)
{
    (void)context;
    (void)x;
    (void)n;
    return true;
}

static const struct transformer_team nobody = {.sum = alone};

/* ---- Ranks are threads; they meet at a barrier. ---- */

struct meeting {
    pthread_barrier_t barrier;
    size_t ranks;
    real *of[RANKS_MAX];
    real total[4096];
};

struct rank {
    struct meeting *meeting;
    size_t rank;
    const struct transformer_rollout *rollout;
    struct transformer_model *model;
    double loss;
    bool well;
};

static bool sum_together(void *context, real *x, size_t n)
{
    struct rank *rank = context;
    struct meeting *meeting = rank->meeting;
    if (n > sizeof meeting->total / sizeof *meeting->total)
        return false;
    meeting->of[rank->rank] = x;
    pthread_barrier_wait(&meeting->barrier);
    if (rank->rank == 0)
        for (size_t i = 0; i < n; i++) {
            meeting->total[i] = 0;
            for (size_t r = 0; r < meeting->ranks; r++)
                meeting->total[i] += meeting->of[r][i];
        }
    pthread_barrier_wait(&meeting->barrier);
    memcpy(x, meeting->total, n * sizeof *x);
    pthread_barrier_wait(&meeting->barrier);
    return true;
}

/* ---- A model, a pass and a rollout. ---- */

struct bench {
    struct transformer_model *model;
    struct transformer_pass *pass;
    struct transformer_rollout *rollout;
};

static struct bench bench_new(uint64_t seed)
{
    struct bench bench = {.model = transformer_model_new(&shape, 0, 1, seed)};
    cr_assert_not_null(bench.model);
    bench.pass = transformer_pass_new(bench.model, &nobody, settings.batch);
    bench.rollout = transformer_rollout_new(&shape, &settings);
    cr_assert(bench.pass != NULL && bench.rollout != NULL);
    return bench;
}

static void bench_free(struct bench *bench)
{
    transformer_rollout_free(bench->rollout);
    transformer_pass_free(bench->pass);
    transformer_model_free(bench->model);
}

static void sample(struct bench *bench, uint64_t seed)
{
    cr_assert(transformer_sample(bench->rollout, bench->model, bench->pass, &nobody, seed));
}

static double noise(uint64_t x)
{
    return (double)(transformer_mix(x * UINT64_C(0x9e3779b97f4a7c15)) >> 11) /
               (double)(1ULL << 52) -
           1;
}

/* Another policy than the one that sampled, and a head that is not nearly nothing; the same however
 * the model is cut. */
static void move_weights(struct transformer_model *model, double by)
{
    for (size_t t = 0; t < model->tensors_count; t++)
        for (size_t i = 0; i < model->tensors[t].elements; i++)
            model->tensors[t].weights[i] +=
                by * noise((uint64_t)t << 32 | transformer_place(&model->tensors[t], i));
}

static void set_advantages(struct transformer_rollout *rollout)
{
    for (size_t i = 0; i < settings.batch * rollout->length; i++)
        rollout->advantage[i] = noise(i + 77);
}

static double learn(struct bench *bench)
{
    double loss;
    cr_assert(transformer_learn(bench->rollout, bench->pass, &loss, NULL));
    return loss;
}

static double loss_of(struct bench *bench)
{
    const size_t length = bench->rollout->length;
    cr_assert(transformer_forward(bench->pass, bench->rollout->words, length, 0, length - 1));
    return transformer_loss(bench->rollout, transformer_scores(bench->pass), NULL);
}

/* The element `i` of a tensor, moved both ways. */
static double slope(struct bench *bench, struct transformer_tensor *tensor, size_t i)
{
    const double step = 1e-5, was = tensor->weights[i];
    tensor->weights[i] = was + step;
    const double above = loss_of(bench);
    tensor->weights[i] = was - step;
    const double below = loss_of(bench);
    tensor->weights[i] = was;
    return (above - below) / (2 * step);
}

Test(transformer, gradient_is_the_slope_of_the_loss_for_elements_of_every_tensor)
{
    struct bench bench = bench_new(3);
    move_weights(bench.model, 0.2);
    sample(&bench, 5);
    set_advantages(bench.rollout);
    move_weights(bench.model, 0.02);
    learn(&bench);
    for (size_t t = 0; t < bench.model->tensors_count; t++) {
        struct transformer_tensor *tensor = &bench.model->tensors[t];
        double largest = 0;
        for (size_t i = t % 5; i < tensor->elements; i += 1 + tensor->elements / 12) {
            const double gradient = tensor->gradient[i], found = slope(&bench, tensor, i);
            cr_assert(fabs(gradient - found) < 1e-8 + 1e-5 * fabs(found), "%s[%zu]: %g, slope %g",
                      tensor->name, i, gradient, found);
            largest = fmax(largest, fabs(gradient));
        }
        cr_assert(largest > 1e-6, "%s has no gradient to speak of", tensor->name);
    }
    bench_free(&bench);
}

static void *work(void *argument)
{
    struct rank *rank = argument;
    const struct transformer_team team = {.sum = sum_together, .context = rank};
    rank->model = transformer_model_new(&shape, rank->rank, rank->meeting->ranks, 3);
    move_weights(rank->model, 0.2);
    struct transformer_pass *pass = transformer_pass_new(rank->model, &team, settings.batch);
    rank->well = transformer_learn(rank->rollout, pass, &rank->loss, NULL);
    transformer_pass_free(pass);
    return NULL;
}

static void compare(const struct rank *rank, const struct transformer_model *one, double loss)
{
    cr_assert(rank->well && fabs(rank->loss - loss) < 1e-12);
    for (size_t t = 0; t < one->tensors_count; t++) {
        const struct transformer_tensor *part = &rank->model->tensors[t];
        for (size_t i = 0; i < part->elements; i++) {
            const double whole = one->tensors[t].gradient[transformer_place(part, i)];
            cr_assert(fabs(part->gradient[i] - whole) < 1e-12, "rank %zu, %s[%zu]: %g, one has %g",
                      rank->rank, part->name, i, part->gradient[i], whole);
        }
    }
}

Test(transformer, ranks_together_have_the_loss_and_the_gradient_of_one)
{
    for (size_t ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
        struct bench bench = bench_new(3);
        sample(&bench, 5);
        set_advantages(bench.rollout);
        move_weights(bench.model, 0.2);
        const double loss = learn(&bench);
        struct meeting *meeting = calloc(1, sizeof *meeting);
        struct rank them[RANKS_MAX];
        pthread_t threads[RANKS_MAX];
        meeting->ranks = ranks;
        pthread_barrier_init(&meeting->barrier, NULL, (unsigned)ranks);
        for (size_t r = 0; r < ranks; r++) {
            them[r] = (struct rank){.meeting = meeting, .rank = r, .rollout = bench.rollout};
            cr_assert(pthread_create(&threads[r], NULL, work, &them[r]) == 0);
        }
        size_t held = 0;
        for (size_t r = 0; r < ranks; r++) {
            pthread_join(threads[r], NULL);
            compare(&them[r], bench.model, loss);
            held += them[r].model->elements;
            transformer_model_free(them[r].model);
        }
        cr_assert(held < 2 * bench.model->elements, "ranks hold parts, not the whole");
        pthread_barrier_destroy(&meeting->barrier);
        free(meeting);
        bench_free(&bench);
    }
}

Test(transformer, sampling_word_by_word_gives_the_chances_of_all_at_once)
{
    struct bench bench = bench_new(8);
    move_weights(bench.model, 0.3);
    sample(&bench, 9);
    for (size_t i = 0; i < settings.batch * bench.rollout->length; i++)
        bench.rollout->advantage[i] = 1;
    cr_assert_float_eq(loss_of(&bench), -1, 1e-12, "every ratio is 1");
    bench_free(&bench);
}

Test(transformer, words_after_a_prompt_earn_by_the_rule)
{
    struct bench bench = bench_new(1);
    double sum = 0;
    sample(&bench, 2);
    for (size_t b = 0; b < settings.batch; b++) {
        const int *words = bench.rollout->words + b * bench.rollout->length;
        cr_assert(words[0] >= 1 && words[0] <= TRANSFORMER_STRIDES);
        cr_assert(words[0] == bench.rollout->words[b / settings.samples * settings.samples *
                                                   bench.rollout->length],
                  "samples of a prompt have one prompt");
        for (size_t place = TRANSFORMER_PROMPT; place < bench.rollout->length; place++) {
            const bool right = words[place] == (words[place - 1] + words[0]) % 7;
            cr_assert(bench.rollout->reward[b * bench.rollout->length + place] == (right ? 1 : 0));
            sum += right;
        }
    }
    cr_assert_float_eq(bench.rollout->mean_reward, sum / (8 * 5), 1e-12);
    bench_free(&bench);
}

Test(transformer, advantages_of_the_samples_of_a_prompt_sum_to_nothing_at_each_place)
{
    struct transformer_rollout *rollout = transformer_rollout_new(&shape, &settings);
    for (size_t i = 0; i < settings.batch * rollout->length; i++)
        rollout->reward[i] = noise(i) > 0;
    transformer_advantages(rollout);
    double squares = 0;
    for (size_t b = 0; b < settings.batch; b += settings.samples)
        for (size_t place = TRANSFORMER_PROMPT; place < rollout->length; place++) {
            double sum = 0;
            for (size_t s = 0; s < settings.samples; s++) {
                const double a = rollout->advantage[(b + s) * rollout->length + place];
                sum += a;
                squares += a * a / (8 * 5);
            }
            cr_assert_float_eq(sum, 0, 1e-12);
        }
    cr_assert(squares > 0.7 && squares <= 1, "%g", squares);
    transformer_rollout_free(rollout);
}

/* Log chances are log 1/7 in uniform scores; what the word had then makes the ratio. */
static double derivative_at(double ratio, double advantage)
{
    struct transformer_rollout *rollout = transformer_rollout_new(&shape, &settings);
    real scores[8 * 6 * 7] = {0};
    rollout->advantage[TRANSFORMER_PROMPT] = advantage;
    rollout->log_chance[TRANSFORMER_PROMPT] = log(1.0 / 7) - log(ratio);
    double share;
    transformer_loss(rollout, scores, &share);
    const double derivative = scores[7 * (TRANSFORMER_PROMPT - 1)] * (8 * 5);
    cr_assert((share > 0) == (derivative == 0));
    transformer_rollout_free(rollout);
    return derivative;
}

Test(transformer, words_whose_chance_has_gone_far_enough_are_not_driven_on)
{
    const double by_score = 1 - 1.0 / 7;
    cr_assert_float_eq(derivative_at(1, 2), -2 * by_score, 1e-12);
    cr_assert_float_eq(derivative_at(1.1, 2), -2.2 * by_score, 1e-12);
    cr_assert_float_eq(derivative_at(1.3, 2), 0, 0);
    cr_assert_float_eq(derivative_at(0.5, 2), -1 * by_score, 1e-12);
    cr_assert_float_eq(derivative_at(0.7, -1), 0, 0);
    cr_assert_float_eq(derivative_at(1.5, -1), 1.5 * by_score, 1e-12);
}

Test(transformer, first_values_are_the_same_however_the_model_is_cut)
{
    struct transformer_model *one = transformer_model_new(&shape, 0, 1, 11);
    cr_assert(transformer_model_size(one) == one->elements);
    for (size_t rank = 0; rank < 2; rank++) {
        struct transformer_model *part = transformer_model_new(&shape, rank, 2, 11);
        cr_assert(transformer_model_size(part) == one->elements);
        for (size_t t = 0; t < part->tensors_count; t++)
            for (size_t i = 0; i < part->tensors[t].elements; i++)
                cr_assert(part->tensors[t].weights[i] ==
                          one->tensors[t].weights[transformer_place(&part->tensors[t], i)]);
        transformer_model_free(part);
    }
    transformer_model_free(one);
    cr_assert_null(transformer_model_new(&shape, 0, 3, 11), "three ranks do not divide four heads");
}
