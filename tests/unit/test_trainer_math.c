#include "client/trainer/chance.h"
#include "client/trainer/network.h"
#include "client/trainer/policy.h"
#include "client/trainer/statistics.h"
#include "client/trainer/vector_table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Test(vector_math, tanh_is_within_5e_7_of_the_exact_value)
{
    const float bias = 0;
    double worst = 0;
    for (int i = -200000; i <= 200000; i++) {
        const float x = (float)i * 1e-4f;
        float y = x;
        vector_add_bias_tanh(1, 1, &bias, &y);
        const double exact = tanh((double)x);
        cr_assert(fabsf(y) <= 1);
        if (i != 0)
            worst = fmax(worst, fabs((double)y - exact) / fabs(exact));
    }
    cr_expect_lt(worst, 5e-7, "%g", worst);
}

Test(vector_math, the_vector_loop_and_its_remainder_give_the_same_bits)
{
    float bias[37] = {0}, together[37], alone[37];
    for (size_t i = 0; i < 37; i++)
        together[i] = alone[i] = (float)i * 0.2f - 3;
    vector_add_bias_tanh(1, 37, bias, together);
    for (size_t i = 0; i < 37; i++) {
        vector_add_bias_tanh(1, 1, bias, &alone[i]);
        cr_expect_eq(alone[i], together[i]);
    }
}

/* Every loop of a table on the same made-up numbers, all results one after the other. */
static void run_table(const struct vector_table *table, float *out)
{
    enum { ROWS = 5, COLS = 37, N = ROWS * COLS };
    float x[N], y[N], d[ROWS * 3], bias[COLS], weight[3 * COLS];
    for (size_t i = 0; i < N; i++)
        x[i] = y[i] = sinf((float)i);
    for (size_t i = 0; i < COLS; i++)
        bias[i] = cosf((float)i);
    for (size_t i = 0; i < 3 * COLS; i++)
        weight[i] = sinf(3 * (float)i);
    const struct narrow_layer layer = {ROWS, COLS, 3, weight, bias};
    const struct adam_factors factors = {0.7f, 0.9f, 0.999f, 1e-3f, 1.3f, 1e-5f};
    table->add_bias_tanh(ROWS, COLS, bias, y);
    table->narrow_forward(&layer, y, d);
    table->narrow_gradient(&layer, y, d, out, out + 3 * COLS);
    table->narrow_backward(&layer, d, x);
    table->tanh_backward(ROWS, COLS, y, x, out + 4 * COLS);
    table->add_scaled(N, 0.3f, x, y);
    table->adam(COLS, &factors, x,
                (struct adam_state){out + 5 * COLS, out + 6 * COLS, out + 7 * COLS});
    out[8 * COLS] = (float)table->square_sum(N, x);
    memcpy(out + 9 * COLS, y, sizeof(y));
}

Test(vector_math, every_instruction_set_gives_the_same_bits)
{
    static float scalar[1024], other[1024];
    run_table(&vector_table_scalar, scalar);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        run_table(&vector_table_avx2, other);
        cr_expect_arr_eq(scalar, other, sizeof(scalar));
    }
    memset(other, 0, sizeof(other));
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
        run_table(&vector_table_avx512, other);
        cr_expect_arr_eq(scalar, other, sizeof(scalar));
    }
#endif
}

Test(chance, a_seed_repeats_itself_and_streams_differ)
{
    struct chance a, b, c;
    chance_init(&a, 7, 1);
    chance_init(&b, 7, 1);
    chance_init(&c, 7, 2);
    for (int i = 0; i < 100; i++) {
        const uint64_t x = chance_next(&a);
        cr_expect_eq(x, chance_next(&b));
        cr_expect_neq(x, chance_next(&c));
    }
}

Test(chance, a_shuffle_keeps_every_number_once)
{
    struct chance chance;
    uint32_t numbers[512];
    uint8_t seen[512] = {0};
    size_t moved = 0;
    chance_init(&chance, 3, 0);
    for (uint32_t i = 0; i < 512; i++)
        numbers[i] = i;
    chance_shuffle(&chance, numbers, 512);
    for (size_t i = 0; i < 512; i++) {
        cr_assert_lt(numbers[i], 512);
        cr_expect_eq(seen[numbers[i]]++, 0);
        moved += numbers[i] != i;
    }
    cr_expect_gt(moved, 400);
}

Test(chance, normal_numbers_have_mean_0_and_variance_1)
{
    struct chance chance;
    double sum = 0, squares = 0;
    const int n = 200000;
    chance_init(&chance, 5, 0);
    for (int i = 0; i < n; i++) {
        const double x = chance_normal(&chance);
        sum += x;
        squares += x * x;
    }
    cr_expect_lt(fabs(sum / n), 0.01);
    cr_expect_lt(fabs(squares / n - 1), 0.02);
}

/* Rows of W W^T (or columns) of the policy's weights are orthogonal with length = gain. */
Test(network, first_weights_are_orthogonal_with_the_gains_of_cleanrl)
{
    struct chance chance;
    struct network network;
    const struct network_shape shape = {.observation_dim = 4, .hidden = {64, 64}, .action_dim = 2};
    network_init(&network, &shape);
    float *p = calloc(network.n_parameters, sizeof(float));
    chance_init(&chance, 1, 0);
    network_first_parameters(&network, &chance, 0, p);
    const float *second = p + network.stacks[0][1].weight, *last = p + network.stacks[0][2].weight;
    for (size_t i = 0; i < 64; i++)
        for (size_t j = 0; j <= i; j++) {
            double product = 0;
            for (size_t k = 0; k < 64; k++)
                product += (double)second[i * 64 + k] * (double)second[j * 64 + k];
            cr_expect_lt(fabs(product - (i == j ? 2 : 0)), 1e-5);
        }
    double length = 0;
    for (size_t k = 0; k < 64; k++)
        length += (double)last[k] * (double)last[k];
    cr_expect_lt(fabs(length - 1e-4), 1e-8);
    free(p);
}

Test(statistics, since_is_what_was_merged_in_between)
{
    const float x[6] = {1, 4, -2, 1000, 3, 5};
    struct statistics all = statistics_of(x, 4, 1);
    const struct statistics before = all, added = statistics_of(x + 4, 2, 1);
    statistics_merge(&all, &added);
    const struct statistics since = statistics_since(&all, &before);
    cr_expect_eq(since.count, 2);
    cr_expect_lt(fabs(since.mean - 4), 1e-9);
    cr_expect_lt(fabs(since.m2 - 2), 1e-6);
    cr_expect_eq(statistics_since(&all, &all).count, 0);
}

Test(policy, samples_follow_the_probabilities_of_the_logits)
{
    struct chance chance;
    const struct policy policy = {.gaussian = false, .action_dim = 3};
    const float logits[3] = {0, logf(2), logf(3)};
    int counts[3] = {0};
    chance_init(&chance, 1, 0);
    for (int i = 0; i < 60000; i++) {
        float action = -1;
        const float log_probability = policy_sample(&policy, logits, &chance, &action);
        cr_assert(action == 0 || action == 1 || action == 2);
        counts[(int)action]++;
        cr_assert_lt(fabsf(log_probability - logf((action + 1) / 6)), 1e-5f);
    }
    for (int i = 0; i < 3; i++)
        cr_expect_lt(abs(counts[i] - 10000 * (i + 1)), 500);
}
