/* Sums of squares by pieces against the CPU's: of an average's blocks, and LAMB's of each tensor
 * within a block, in any cut. */
#include "common/device.h"
#include "gpu/kernels_sums.h"
#include "tests/gpu/check.h"

#include <stdlib.h>
#include <string.h>

enum { N = ARITHMETIC_BLOCK + 4321, TENSORS = 5, PIECES_MAX = N / 256 + TENSORS + 1 };

static void run_blocks(struct random *random)
{
    const size_t block = (size_t)256 << random_below(random, 9);
    const size_t n = 1 + random_below(random, N), blocks = (n + block - 1) / block;
    struct array x = array_new(n * sizeof(float), random_below(random, 4) * sizeof(float));
    struct array sums = array_new(blocks * sizeof(double), 0);
    double *expected = (double *)(void *)sums.host;
    fill_floats(random, here(&x), n);
    array_send(&x);
    for (size_t b = 0; b < blocks; b++) {
        struct arithmetic_measure measured;
        const size_t rest = n - b * block;
        arithmetic_choose(NULL)->measure(ARITHMETIC_F32, here(&x) + b * block,
                                         rest < block ? rest : block, &measured);
        expected[b] = measured.sum_squares;
    }
    expect_ran(gpu_block_sums(memory_stream(), there(&x), n, block, (double *)(void *)sums.device),
               "sums of blocks", block);
    expect_same(&sums, "sums of blocks", block);
    array_end(&x);
    array_end(&sums);
}

/* A shard between LAMB's phases, on both sides. */
struct lamb {
    struct arithmetic_plan plan;
    struct arithmetic_range ranges[TENSORS], pieces[PIECES_MAX];
    size_t pieces_n;
    struct array theta, m, v, place, theta_sums, update_sums;
};

static struct arithmetic_work work_of(const struct lamb *lamb, bool device)
{
    float *(*side)(const struct array *) = device ? there : here;
    return (struct arithmetic_work){.parameters = side(&lamb->theta),
                                    .state = {side(&lamb->m), side(&lamb->v)},
                                    .state_next = {side(&lamb->m), side(&lamb->v)},
                                    .ranges = lamb->ranges,
                                    .ranges_n = TENSORS};
}

/* Ranges at random borders, and their pieces from a block on that some tile begins with. */
static void cut(struct lamb *lamb, struct random *random)
{
    const size_t block = (size_t)256 << random_below(random, 9);
    uint64_t at = 0;
    for (uint32_t t = 0; t < TENSORS; t++) {
        const uint64_t left = N - at - (TENSORS - 1 - t);
        const uint64_t n = t + 1 == TENSORS ? left : 1 + random_below(random, left / 2);
        lamb->ranges[t] =
            (struct arithmetic_range){.begin = at, .end = at + n, .group = t % 3, .tensor = t};
        at += n;
    }
    const struct arithmetic_work work = work_of(lamb, false);
    const size_t begin = random_below(random, N / block + 1) * block;
    lamb->pieces_n = 0;
    for (size_t i = begin; device_piece(&work, block, i, N, &lamb->pieces[lamb->pieces_n]);)
        i = (size_t)lamb->pieces[lamb->pieces_n++].end;
}

static void lamb_open(struct lamb *lamb, struct random *random)
{
    memset(lamb, 0, sizeof *lamb);
    lamb->plan = (struct arithmetic_plan){
        .algorithm = ARITHMETIC_LAMB, .phase = ARITHMETIC_MOMENTS, .epsilon = 1e-6f, .scale = 1};
    for (uint32_t g = 0; g < 3; g++)
        arithmetic_plan_group(&lamb->plan, g,
                              &(struct arithmetic_group_numbers){.learning_rate = 0.01,
                                                                 .weight_decay = 0.1 * g,
                                                                 .beta1 = 0.9,
                                                                 .beta2 = 0.99,
                                                                 .bias1 = arithmetic_bias(0.9, 3),
                                                                 .bias2 = arithmetic_bias(0.99, 3),
                                                                 .frozen = g == 2});
    lamb->theta = floats_drawn(random, N, false);
    lamb->m = floats_drawn(random, N, false);
    lamb->v = floats_drawn(random, N, true);
    cut(lamb, random);
    lamb->place = array_of(lamb->pieces, sizeof lamb->pieces, 0);
    lamb->theta_sums = array_new(PIECES_MAX * sizeof(double), 0);
    lamb->update_sums = array_new(PIECES_MAX * sizeof(double), 0);
}

static void run_lamb(struct random *random)
{
    static struct lamb lamb;
    lamb_open(&lamb, random);
    const struct arithmetic *cpu = arithmetic_choose(NULL);
    const struct arithmetic_work on_cpu = work_of(&lamb, false), on_gpu = work_of(&lamb, true);
    for (size_t i = 0; i < lamb.pieces_n; i++) {
        struct arithmetic_measure theta;
        const struct arithmetic_range *piece = &lamb.pieces[i];
        cpu->measure(ARITHMETIC_F32, here(&lamb.theta) + piece->begin,
                     (size_t)(piece->end - piece->begin), &theta);
        ((double *)(void *)lamb.theta_sums.host)[i] = theta.sum_squares;
        ((double *)(void *)lamb.update_sums.host)[i] = cpu->lamb_sum(&lamb.plan, &on_cpu, piece);
    }
    const struct gpu_pieces pieces = {
        .pieces = (const struct arithmetic_range *)(void *)lamb.place.device,
        .n = (uint32_t)lamb.pieces_n,
        .theta_sums = (double *)(void *)lamb.theta_sums.device,
        .update_sums = (double *)(void *)lamb.update_sums.device};
    expect_ran(gpu_lamb_sums(memory_stream(), &lamb.plan, &on_gpu, &pieces), "LAMB's sums",
               lamb.pieces_n);
    expect_same(&lamb.theta_sums, "sums of parameters", lamb.pieces_n);
    expect_same(&lamb.update_sums, "sums of updates", lamb.pieces_n);
    array_end(&lamb.theta);
    array_end(&lamb.m);
    array_end(&lamb.v);
    array_end(&lamb.place);
    array_end(&lamb.theta_sums);
    array_end(&lamb.update_sums);
}

/* Times: the sums of a shard in whole blocks. */
static struct arithmetic_plan timed_plan;
static struct arithmetic_work timed_work;
static struct gpu_pieces timed_pieces;

static void call_lamb(void *context)
{
    (void)context;
    (void)gpu_lamb_sums(memory_stream(), &timed_plan, &timed_work, &timed_pieces);
}

static double time_lamb(double *bytes)
{
    const size_t n = memory_timed(), pieces = n / ARITHMETIC_BLOCK;
    struct arithmetic_range *ranges = calloc(pieces, sizeof *ranges);
    struct array sums = array_new(2 * pieces * sizeof(double), 0);
    float *memory = timed_floats(3 * n);
    if (ranges == NULL)
        abort();
    for (size_t i = 0; i < pieces; i++)
        ranges[i] = (struct arithmetic_range){.begin = i * ARITHMETIC_BLOCK,
                                              .end = (i + 1) * ARITHMETIC_BLOCK};
    struct array place = array_of(ranges, pieces * sizeof *ranges, 0);
    free(ranges);
    timed_plan = (struct arithmetic_plan){.algorithm = ARITHMETIC_LAMB, .epsilon = 1e-6f};
    timed_plan.groups[0] = (struct arithmetic_group){.bias1 = 0.5f, .bias2_root = 0.5f};
    timed_work = (struct arithmetic_work){.parameters = memory,
                                          .state = {memory + n, memory + 2 * n},
                                          .state_next = {memory + n, memory + 2 * n}};
    timed_pieces =
        (struct gpu_pieces){.pieces = (const struct arithmetic_range *)(void *)place.device,
                            .n = (uint32_t)pieces,
                            .theta_sums = (double *)(void *)sums.device,
                            .update_sums = (double *)(void *)sums.device + pieces};
    const double seconds = memory_seconds(call_lamb, NULL, 5);
    *bytes = 3.0 * (double)n * sizeof(float);
    memory_free(memory);
    array_end(&place);
    array_end(&sums);
    return seconds;
}

struct timed_blocks {
    float *x;
    double *sums;
};

static void call_blocks(void *context)
{
    const struct timed_blocks *t = context;
    (void)gpu_block_sums(memory_stream(), t->x, memory_timed(), ARITHMETIC_BLOCK, t->sums);
}

static double time_blocks(double *bytes)
{
    struct timed_blocks t = {timed_floats(memory_timed()),
                             memory_get(arithmetic_blocks(memory_timed()) * sizeof(double))};
    const double seconds = memory_seconds(call_blocks, &t, 5);
    *bytes = (double)memory_timed() * sizeof(float);
    memory_free(t.x);
    memory_free(t.sums);
    return seconds;
}

const struct check checks_sums[] = {
    {"sums of an average's blocks", "bits", run_blocks, time_blocks, 0},
    {"LAMB's sums by tensor and block", "bits", run_lamb, time_lamb, 0},
    {NULL, NULL, NULL, NULL, 0},
};
