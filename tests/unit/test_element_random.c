#include "common/element_policy.h"
#include "common/element_random.h"

#include <criterion/criterion.h>
#include <math.h>

/* The published answers of philox4x32_10 (Random123, examples/kat_vectors). */
Test(element_random, philox_gives_the_published_words)
{
    static const struct {
        uint64_t seed, stream, place;
        uint32_t expected[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
        {0x299f31d0a4093822u,
         0x0370734413198a2eu,
         0x85a308d3243f6a88u,
         {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
    };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        const struct element_words words =
            element_random(known[k].seed, known[k].stream, known[k].place);
        for (size_t i = 0; i < 4; i++)
            cr_expect_eq(words.word[i], known[k].expected[i], "%zu, word %zu: %08x", k, i,
                         words.word[i]);
    }
}

Test(element_random, units_are_within_0_and_1_and_evenly_spread)
{
    cr_expect_eq(element_unit(0), 0.0);
    cr_expect_lt(element_unit(UINT64_MAX), 1.0);
    unsigned counts[10] = {0};
    for (uint64_t i = 0; i < 50000; i++) {
        const struct element_words words = element_random(3, 1, i);
        counts[(int)(element_unit_of(&words, 0) * 10)]++;
        counts[(int)(element_unit_of(&words, 1) * 10)]++;
    }
    for (int i = 0; i < 10; i++)
        cr_expect(counts[i] > 9600 && counts[i] < 10400, "%u", counts[i]);
}

Test(element_random, purposes_and_numbers_have_streams_of_their_own)
{
    for (uint64_t number = 0; number < 100; number++) {
        cr_expect_neq(element_stream(ELEMENT_FOR_STARTS, number),
                      element_stream(ELEMENT_FOR_ACTIONS, number));
        cr_expect_neq(element_stream(ELEMENT_FOR_ACTIONS, number),
                      element_stream(ELEMENT_FOR_STARTS, number + 1));
    }
}

Test(element_random, actions_are_drawn_as_often_as_their_probability_says)
{
    enum { TURNS = 40000 };
    static const float logits[3] = {0.5f, -1.0f, 1.2f};
    const struct policy policy = {.gaussian = false, .action_dim = 3};
    const float total = element_log_sum_exp(logits, 3);
    unsigned counts[3] = {0};
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        float action;
        const float log_p =
            element_policy_draw(&policy, logits, 9, (const uint64_t[2]){4, turn}, &action);
        cr_assert(action == 0.0f || action == 1.0f || action == 2.0f);
        cr_expect_float_eq(log_p, logits[(int)action] - total, 1e-6f);
        counts[(int)action]++;
    }
    for (int i = 0; i < 3; i++)
        cr_expect_lt(fabs(counts[i] / (double)TURNS - exp((double)(logits[i] - total))), 0.01);
}

Test(element_random, gaussian_actions_have_their_mean_and_deviation_in_every_dimension)
{
    enum { TURNS = 40000 };
    static const float means[2] = {1.5f, -2.0f}, log_std[2] = {-0.5f, 0.3f};
    const struct policy policy = {.gaussian = true, .action_dim = 2, .log_std = log_std};
    double sum[2] = {0}, squares[2] = {0}, product = 0;
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        float action[2];
        (void)element_policy_draw(&policy, means, 9, (const uint64_t[2]){0, turn}, action);
        double z[2];
        for (int j = 0; j < 2; j++) {
            z[j] = ((double)action[j] - (double)means[j]) * exp(-(double)log_std[j]);
            sum[j] += z[j];
            squares[j] += z[j] * z[j];
        }
        product += z[0] * z[1];
    }
    for (int j = 0; j < 2; j++) {
        cr_expect_lt(fabs(sum[j] / TURNS), 0.02);
        cr_expect_lt(fabs(squares[j] / TURNS - 1), 0.04);
    }
    cr_expect_lt(fabs(product / TURNS), 0.02);
}
