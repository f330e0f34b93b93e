/* The promise of equal bits: over instruction sets, tile sizes, shard cuts, alignments, compilers
 * and their levels of optimisation. The last two through one literal hash that every build must
 * meet. */
#include "common/arithmetic.h"
#include "common/checksum.h"
#include "tests/unit/element_set.h"
#include "tests/unit/step_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

extern const struct arithmetic arithmetic_contracted;

enum { SLOTS = 5, N = 2 * ARITHMETIC_BLOCK + 1237 };

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Sign, mantissa and 16 powers of two around 1. */
static float draw_float(uint64_t *seed)
{
    const uint32_t bits = (uint32_t)draw(seed);
    return element_float((bits & 0x807fffffu) | ((118u + ((bits >> 23) & 15u)) << 23));
}

/* A shard that is about to take a step. Everything lies one float off alignment. */
struct shard {
    enum arithmetic_codec codec;
    float *memory, *slots, *theta, *theta_next, *state[ARITHMETIC_STATES_MAX],
        *next[ARITHMETIC_STATES_MAX];
    float ratios[STEP_CASE_TENSORS];
    struct arithmetic_range ranges[STEP_CASE_TENSORS];
    struct arithmetic_plan plan;
    struct arithmetic_work work;
};

static void shard_arrays(struct shard *s, uint64_t *seed)
{
    const size_t arrays = SLOTS + 2 + 2 * ARITHMETIC_STATES_MAX;
    s->memory = malloc((arrays * N + 1) * sizeof *s->memory);
    cr_assert(s->memory != NULL);
    for (size_t i = 0; i < arrays * N + 1; i++)
        s->memory[i] = draw_float(seed);
    float *at = s->slots = s->memory + 1;
    uint16_t *half =
        (uint16_t *)(void *)s->slots; /* halves below 2, subnormals among them, no NaN */
    for (size_t i = 0; s->codec != ARITHMETIC_F32 && i < (size_t)SLOTS * N * 2; i++)
        half[i] &= 0xbfffu;
    s->theta = at += (size_t)SLOTS * N;
    s->theta_next = at += N;
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX; k++) {
        s->state[k] = at += N;
        s->next[k] = at += N;
        for (size_t i = 0; k > 0 && i < N; i++) /* second moments and variances are not negative */
            s->state[k][i] = 10.0f + s->state[k][i] * s->state[k][i];
    }
    for (size_t i = 0; i < N; i++)
        s->state[0][i] = s->plan.algorithm == ARITHMETIC_RMSPROP ? 300.0f : s->state[0][i];
}

static void shard_open(struct shard *s, enum arithmetic_algorithm algorithm, uint32_t entries,
                       enum arithmetic_codec codec)
{
    uint64_t seed = 0x9e3779b97f4a7c15u + (uint64_t)algorithm;
    memset(s, 0, sizeof *s);
    s->codec = codec;
    s->plan = (struct arithmetic_plan){.algorithm = algorithm,
                                       .centered = true,
                                       .momentum = true,
                                       .epsilon = 1e-8f,
                                       .scale = 0.7f,
                                       .entries_n = entries};
    for (uint32_t k = 0; k < entries; k++)
        s->plan.entries[k] = (struct arithmetic_entry){.slot = (uint32_t)(draw(&seed) % SLOTS),
                                                       .weight = 1.0f / ((float)k + 3.0f)};
    step_case_groups(&s->plan);
    shard_arrays(s, &seed);
    const uint64_t borders[STEP_CASE_TENSORS + 1] = {0, 1001, 3 * (uint64_t)ARITHMETIC_BLOCK / 2,
                                                     100003, N};
    step_case_tensors(borders, s->ranges, s->ratios);
    s->work = (struct arithmetic_work){
        .sources = {.base = s->slots, .stride_bytes = N * sizeof(float), .codec = codec},
        .parameters = s->theta,
        .parameters_next = s->theta_next,
        .ranges = s->ranges,
        .ranges_n = STEP_CASE_TENSORS,
        .ratios = s->ratios};
    for (size_t k = 0; k < arithmetic_states_n(algorithm, true, true); k++) {
        s->work.state[k] = s->state[k];
        s->work.state_next[k] = s->next[k];
    }
}

static void shard_close(struct shard *s)
{
    free(s->memory);
}

/* The digest of all that a step writes. tile 0: tiles of changing odd sizes. */
static uint64_t outcome(const struct arithmetic *set, struct shard *s, size_t tile)
{
    const bool lamb = s->plan.algorithm == ARITHMETIC_LAMB;
    for (int pass = 0; pass < (lamb ? 2 : 1); pass++) {
        s->plan.phase = !lamb       ? ARITHMETIC_WHOLE
                        : pass == 0 ? ARITHMETIC_MOMENTS
                                    : ARITHMETIC_APPLY;
        uint64_t seed = 99;
        for (size_t at = 0, end; at < N; at = end) {
            const size_t size = tile == 0 ? 1 + draw(&seed) % 20000 : tile;
            end = N - at < size ? N : at + size;
            set->step(&s->plan, &s->work, at, end);
        }
    }
    uint64_t digest = checksum_hash64(0, s->theta_next, N * sizeof(float));
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX && s->work.state[k] != NULL; k++)
        digest = checksum_hash64(digest, s->next[k], N * sizeof(float));
    return digest;
}

static uint64_t outcome_of(const struct arithmetic *set, enum arithmetic_algorithm algorithm,
                           uint32_t entries, enum arithmetic_codec codec, size_t tile)
{
    struct shard s;
    shard_open(&s, algorithm, entries, codec);
    const uint64_t digest = outcome(set, &s, tile);
    shard_close(&s);
    return digest;
}

Test(arithmetic_bits, a_step_has_the_same_bits_on_every_set_and_in_every_tiling)
{
    static const uint32_t entries[] = {1, 3, 70};
    static const size_t tiles[] = {N, ARITHMETIC_BLOCK, 0};
    for (int a = ARITHMETIC_SGD; a <= ARITHMETIC_LAMB; a++)
        for (size_t e = 0; e < 3; e++) {
            const uint64_t expected = outcome_of(&arithmetic_scalar, (enum arithmetic_algorithm)a,
                                                 entries[e], (enum arithmetic_codec)e, N);
            for (size_t k = 0; arithmetic_at(k) != NULL; k++)
                cr_expect_eq(outcome_of(arithmetic_at(k), (enum arithmetic_algorithm)a, entries[e],
                                        (enum arithmetic_codec)e, tiles[k % 3]),
                             expected, "algorithm %d, %u entries, %s", a, entries[e],
                             arithmetic_at(k)->name);
        }
}

Test(arithmetic_bits, stores_past_the_caches_have_the_same_bits)
{
    for (int a = ARITHMETIC_SGD; a <= ARITHMETIC_LAMB; a++) {
        const uint64_t expected =
            outcome_of(&arithmetic_scalar, (enum arithmetic_algorithm)a, 3, ARITHMETIC_F32, N);
        for (size_t k = 0; arithmetic_at(k) != NULL; k++) {
            struct shard s;
            shard_open(&s, (enum arithmetic_algorithm)a, 3, ARITHMETIC_F32);
            s.work.streams = true;
            cr_expect_eq(outcome(arithmetic_at(k), &s, 0), expected, "algorithm %d, %s", a,
                         arithmetic_at(k)->name);
            shard_close(&s);
        }
    }
}

/* What a GPU's threads do is this, one element after the other. */
Test(arithmetic_bits, elements_one_by_one_give_the_bits_of_the_loops)
{
    static const uint32_t entries[] = {1, 3, 70};
    const struct arithmetic elements = element_set();
    for (int a = ARITHMETIC_SGD; a <= ARITHMETIC_LAMB; a++)
        for (size_t e = 0; e < 3; e++)
            cr_expect_eq(outcome_of(&elements, (enum arithmetic_algorithm)a, entries[e],
                                    (enum arithmetic_codec)e, ARITHMETIC_BLOCK),
                         outcome_of(&arithmetic_scalar, (enum arithmetic_algorithm)a, entries[e],
                                    (enum arithmetic_codec)e, N),
                         "algorithm %d, %u entries", a, entries[e]);
}

Test(arithmetic_bits, every_compiler_and_level_meets_one_hash)
{
    uint64_t all = 0;
    for (int a = ARITHMETIC_SGD; a <= ARITHMETIC_LAMB; a++) {
        const uint64_t one = outcome_of(arithmetic_choose(NULL), (enum arithmetic_algorithm)a, 70,
                                        ARITHMETIC_F32, 0);
        all = checksum_hash64(all, &one, sizeof one);
    }
    cr_expect_eq(all, 0xea0d58ab231b220eu, "%016llx", (unsigned long long)all);
}

Test(arithmetic_bits, contraction_would_be_seen)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("fma"))
        return;
#endif
    for (int a = ARITHMETIC_SGD; a <= ARITHMETIC_LAMB; a++)
        cr_expect_neq(
            outcome_of(&arithmetic_contracted, (enum arithmetic_algorithm)a, 3, ARITHMETIC_F32, N),
            outcome_of(&arithmetic_scalar, (enum arithmetic_algorithm)a, 3, ARITHMETIC_F32, N),
            "algorithm %d", a);
}

Test(arithmetic_bits, a_step_in_place_equals_one_into_spare_memory)
{
    for (int a = ARITHMETIC_SGD; a <= ARITHMETIC_ADAMW; a++) {
        struct shard s;
        const uint64_t expected =
            outcome_of(&arithmetic_scalar, (enum arithmetic_algorithm)a, 3, ARITHMETIC_F32, N);
        shard_open(&s, (enum arithmetic_algorithm)a, 3, ARITHMETIC_F32);
        memcpy(s.theta_next, s.theta, N * sizeof(float));
        s.work.parameters = s.theta_next;
        for (size_t k = 0; k < ARITHMETIC_STATES_MAX && s.work.state[k] != NULL; k++) {
            memcpy(s.next[k], s.state[k], N * sizeof(float));
            s.work.state[k] = s.next[k];
        }
        cr_expect_eq(outcome(arithmetic_choose(NULL), &s, 0), expected, "algorithm %d", a);
        shard_close(&s);
    }
}

Test(arithmetic_bits, a_finished_average_gives_the_step_that_averages_by_itself)
{
    struct shard s;
    shard_open(&s, ARITHMETIC_ADAM, 70, ARITHMETIC_BF16);
    const uint64_t expected = outcome(&arithmetic_scalar, &s, N);
    float *average = malloc(N * sizeof *average);
    cr_assert(average != NULL);
    const float scale = s.plan.scale;
    s.plan.scale = 1.0f;
    arithmetic_choose(NULL)->average(&s.plan, &s.work.sources, 0, N, average);
    s.plan.scale = scale;
    s.work.average = average;
    cr_expect_eq(outcome(arithmetic_choose(NULL), &s, 0), expected);
    free(average);
    shard_close(&s);
}

/* Sum of squares over the whole, from shards cut at block borders. */
static double total(const struct arithmetic *set, const struct shard *s, size_t cuts)
{
    struct arithmetic_tree tree;
    arithmetic_tree_init(&tree);
    const size_t blocks = arithmetic_blocks((size_t)SLOTS * N);
    for (size_t c = 0; c < cuts; c++) {
        double sums[64];
        struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
        const size_t first = blocks * c / cuts, last = blocks * (c + 1) / cuts;
        const size_t begin = first * ARITHMETIC_BLOCK;
        const size_t end = c + 1 == cuts ? (size_t)SLOTS * N : last * ARITHMETIC_BLOCK;
        (void)arithmetic_measure_blocks(set, ARITHMETIC_F32, s->slots + begin, end - begin, sums);
        const size_t n = arithmetic_tree_cover(first, sums, last - first, nodes);
        for (size_t i = 0; i < n; i++)
            cr_assert(arithmetic_tree_add(&tree, nodes[i]));
    }
    return arithmetic_tree_sum(&tree);
}

Test(arithmetic_bits, norms_do_not_depend_on_sets_or_shard_cuts)
{
    struct shard s;
    shard_open(&s, ARITHMETIC_SGD, 1, ARITHMETIC_F32);
    const double expected = total(&arithmetic_scalar, &s, 1);
    double naive = 0.0;
    for (size_t i = 0; i < (size_t)SLOTS * N; i++)
        naive += (double)s.slots[i] * (double)s.slots[i];
    cr_expect(expected > naive * (1 - 1e-12) && expected < naive * (1 + 1e-12));
    static const size_t cuts[] = {1, 2, 3, 7};
    for (size_t k = 0; arithmetic_at(k) != NULL; k++)
        for (size_t c = 0; c < 4; c++)
            cr_expect_eq(total(arithmetic_at(k), &s, cuts[c]), expected, "%s, %zu shards",
                         arithmetic_at(k)->name, cuts[c]);
    shard_close(&s);
}

Test(arithmetic_bits, lamb_sums_and_codecs_have_the_same_bits_on_every_set)
{
    static const size_t sizes[] = {0, 1, 7, 15, 16, 17, 1023, 1024, 1025, 60001};
    struct shard s;
    shard_open(&s, ARITHMETIC_LAMB, 3, ARITHMETIC_F32);
    (void)outcome(&arithmetic_scalar, &s, N);
    uint16_t *half[2] = {malloc(N * sizeof(uint16_t)), malloc(N * sizeof(uint16_t))};
    cr_assert(half[0] != NULL && half[1] != NULL);
    for (size_t k = 0; arithmetic_at(k) != NULL; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const struct arithmetic *set = arithmetic_at(k);
            const struct arithmetic_range piece = {.begin = 3, .end = 3 + sizes[i]};
            cr_expect_eq(set->lamb_sum(&s.plan, &s.work, &piece),
                         arithmetic_scalar.lamb_sum(&s.plan, &s.work, &piece));
            for (int codec = ARITHMETIC_BF16; codec <= ARITHMETIC_F16; codec++) {
                set->encode((enum arithmetic_codec)codec, 0.3f, s.slots, sizes[i], half[0]);
                arithmetic_scalar.encode((enum arithmetic_codec)codec, 0.3f, s.slots, sizes[i],
                                         half[1]);
                cr_expect_eq(memcmp(half[0], half[1], sizes[i] * sizeof(uint16_t)), 0);
            }
        }
    free(half[0]);
    free(half[1]);
    shard_close(&s);
}
