#include "client/trainer/reward_share.h"
#include "client/trainer/train_loop.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A learner of two workers that only shares: one total for both. */
struct pool {
    struct learner learner;
    struct statistics shared[2];
    uint64_t calls[2];
};

static gradweir_status share(struct learner *learner, enum learner_shared name,
                             const struct statistics *increment, struct statistics *total)
{
    struct pool *pool = (struct pool *)learner;
    pool->calls[name]++;
    statistics_merge(&pool->shared[name], increment);
    *total = pool->shared[name];
    return GRADWEIR_OK;
}

static struct train_settings stable(void)
{
    struct train_settings s;
    train_settings_init(&s);
    s.environment = environment_find(s.env);
    s.stable = s.reward_norm = true;
    return s;
}

/* A step of one environment that ends, so that what enters the statistics is the reward itself. */
static double step(struct reward_normaliser *normaliser, float reward)
{
    const uint8_t yes = 1;
    double accumulator = 0, normalised = 0;
    const struct reward_step one = {.n = 1,
                                    .rewards = &reward,
                                    .terminated = &yes,
                                    .truncated = &yes,
                                    .accumulators = &accumulator};
    reward_normaliser_step(normaliser, &one, &normalised);
    return normalised;
}

Test(reward_share, two_workers_scale_by_what_both_have_seen_and_a_third_by_its_own)
{
    struct pool pool = {.learner = {.share = share}};
    const struct train_settings s = stable();
    struct reward_normaliser small = reward_start(&s), large = reward_start(&s),
                             alone = reward_start(&s), all = reward_start(&s);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 50; i++) {
            const float sign = i % 2 ? 1 : -1;
            step(&small, sign);
            step(&large, 9 * sign);
            step(&alone, sign);
            step(&all, sign);
            step(&all, 9 * sign);
        }
        cr_assert_eq(reward_share(&s, &pool.learner, &small), GRADWEIR_OK);
        cr_assert_eq(reward_share(&s, &pool.learner, &large), GRADWEIR_OK);
        cr_assert_eq(reward_share(&s, &pool.learner, &small), GRADWEIR_OK);
    }
    cr_expect_float_eq(pool.shared[LEARNER_REWARD_STATISTICS].count, 2000, 1e-9,
                       "everything once, and the start's pseudo-observations never");
    cr_expect_float_eq(small.statistics.m2, all.statistics.m2, 1e-6 * all.statistics.m2);
    cr_expect_float_eq(small.statistics.m2, large.statistics.m2, 1e-9 * all.statistics.m2);
    cr_expect_float_eq(step(&small, 1), 1 / sqrt(41), 1e-3);
    cr_expect_float_eq(step(&alone, 1), 1, 1e-2);
}

Test(reward_share, without_stable_nothing_is_shared_and_no_bit_changes)
{
    struct pool pool = {.learner = {.share = share}};
    struct train_settings s = stable();
    s.stable = false;
    struct reward_normaliser one = reward_start(&s), other = reward_start(&s);
    for (int i = 0; i < 100; i++) {
        const double a = step(&one, (float)i / 7), b = step(&other, (float)i / 7);
        cr_assert_eq(memcmp(&a, &b, sizeof a), 0);
        cr_assert_eq(reward_share(&s, &pool.learner, &one), GRADWEIR_OK);
    }
    cr_expect_eq(pool.calls[LEARNER_REWARD_STATISTICS], 0);
    cr_expect_eq(memcmp(&one.statistics, &other.statistics, sizeof one.statistics), 0);
}

Test(reward_share, what_is_not_finite_reaches_nobody)
{
    static float parameters[16384];
    struct train_settings s = stable();
    struct network network;
    train_network(&s, &network);
    struct learner *learner = learner_local_open(&s, &network, parameters);
    struct reward_normaliser bad = reward_start(&s), good = reward_start(&s);
    step(&bad, NAN);
    cr_assert_eq(reward_share(&s, learner, &bad), GRADWEIR_OK);
    cr_expect(statistics_finite(&bad.statistics), "the next rollout begins with what others know");
    for (int i = 0; i < 10; i++)
        step(&good, i % 2 ? 2 : -2);
    cr_assert_eq(reward_share(&s, learner, &good), GRADWEIR_OK);
    cr_expect_float_eq(statistics_variance(&good.statistics), 4, 1e-2);
    learner->close(learner);
}

/* The loop itself: a learner that counts what is shared, and ends after some rollouts. */
static gradweir_status pull(struct learner *learner, float *parameters)
{
    (void)learner;
    memset(parameters, 0, sizeof(float));
    return GRADWEIR_OK;
}

static gradweir_status push(struct learner *learner, const float *gradient, uint64_t samples)
{
    (void)gradient;
    (void)samples;
    learner->counts.pushes++;
    return GRADWEIR_OK;
}

static void report(struct learner *learner, double mean_return, double kl)
{
    (void)kl;
    cr_expect_gt(mean_return, 0);
    learner->counts.admitted++; /* how often */
}

static gradweir_status flush(struct learner *learner)
{
    (void)learner;
    return GRADWEIR_OK;
}

static bool hear(struct overseer *overseer, const struct overseer_news *news)
{
    (void)overseer;
    (void)news;
    static int rollouts;
    return ++rollouts % 3 == 0;
}

Test(reward_share, the_loop_shares_once_before_and_once_after_each_rollout)
{
    for (int is_stable = 0; is_stable < 2; is_stable++) {
        struct pool pool = {
            .learner = {
                .pull = pull, .push = push, .share = share, .report = report, .flush = flush}};
        struct train_settings s = stable();
        struct overseer overseer = {.hear = hear};
        struct train_outcome outcome;
        s.stable = is_stable;
        cr_assert_eq(train_loop(&s, 0, &pool.learner, &overseer, &outcome), GRADWEIR_OK);
        cr_expect_eq(pool.calls[LEARNER_REWARD_STATISTICS], is_stable ? 1 + 3 : 0);
        cr_expect_float_eq(pool.shared[LEARNER_REWARD_STATISTICS].count, is_stable ? 3.0 * 512 : 0,
                           1e-6);
        cr_expect_eq(pool.learner.counts.admitted, 3, "each rollout reports its returns");
    }
}
