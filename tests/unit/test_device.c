/* What every device backend promises, on each that this build has and this machine can open. The
 * cpu runs with every instruction set and with small tiles; its scalar set says what is right. */
#include "tests/unit/device_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 3, N = 3 * ARITHMETIC_BLOCK + 777, BYTES = N * sizeof(float) };

enum { POLLS_MAX = 100000 };

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = element_float((seed & 0x80000000u) | 0x3e000000u | ((seed >> 8) & 0xffffffu));
    }
}

static void check_decode(struct device_rig *rig)
{
    float *wide = malloc(BYTES);
    uint16_t *half = malloc(N * sizeof *half);
    double sums[8], expected[8];
    cr_assert(wide != NULL && half != NULL);
    fill(wide, N, 5);
    arithmetic_scalar.encode(ARITHMETIC_BF16, 1.0f, wide, N, half);
    const uint32_t largest =
        arithmetic_measure_blocks(&arithmetic_scalar, ARITHMETIC_BF16, half, N, expected);
    uint16_t *from = device_rig_get(rig, N * sizeof *from);
    float *to = device_rig_get(rig, BYTES);
    device_rig_copy(rig, half, from, N * sizeof *from);
    struct device_decode job = {
        .codec = ARITHMETIC_BF16, .from = from, .to = to, .n = N, .sums = sums};
    cr_assert_eq(rig->device->decode(rig->state, ++rig->tag, &job), GRADWEIR_OK);
    cr_expect_eq(device_rig_finish(rig).largest_bits, largest);
    cr_expect_eq(memcmp(sums, expected, arithmetic_blocks(N) * sizeof *sums), 0, "%s", rig->what);
    device_rig_copy(rig, to, wide, BYTES);
    for (size_t i = 0; i < N; i++)
        cr_assert_eq(element_bits(wide[i]), (uint32_t)half[i] << 16);
    job.to = NULL;
    cr_assert_eq(rig->device->decode(rig->state, ++rig->tag, &job), GRADWEIR_OK);
    cr_expect_eq(device_rig_finish(rig).largest_bits, largest);
    rig->device->free(rig->state, from, N * sizeof *from);
    rig->device->free(rig->state, to, BYTES);
    free(wide);
    free(half);
}

Test(device, decode_widens_and_measures)
{
    device_rig_each(check_decode);
}

/* A shard with one array of everything: slots, parameters, spare parameters, m, v, average. */
enum { THETA = SLOTS, SPARE, M, V, AVERAGE, ARRAYS };

static struct arithmetic_work work_of(float *base, const struct arithmetic_range *ranges)
{
    return (struct arithmetic_work){
        .sources = {.base = base, .stride_bytes = BYTES, .codec = ARITHMETIC_F32},
        .parameters = base + (size_t)THETA * N,
        .parameters_next = base + (size_t)SPARE * N,
        .state = {base + (size_t)M * N, base + (size_t)V * N},
        .state_next = {base + (size_t)M * N, base + (size_t)V * N},
        .ranges = ranges,
        .ranges_n = 2};
}

static struct arithmetic_plan plan_of(enum arithmetic_algorithm algorithm)
{
    struct arithmetic_plan plan = {
        .algorithm = algorithm,
        .epsilon = 1e-8f,
        .scale = 1.0f,
        .entries_n = 6,
        .entries = {{2, 0.5f}, {0, 0.25f}, {1, 0.25f}, {2, 0.1f}, {0, 0.1f}, {1, 0.3f}}};
    for (uint32_t g = 0; g < 2; g++)
        arithmetic_plan_group(
            &plan, g,
            &(struct arithmetic_group_numbers){.learning_rate = 0.1 * (g + 1),
                                               .weight_decay = 0.01,
                                               .beta1 = 0.9,
                                               .beta2 = 0.99,
                                               .bias1 = arithmetic_bias(0.9, 3),
                                               .bias2 = arithmetic_bias(0.99, 3)});
    return plan;
}

static void fill_shard(float *base)
{
    fill(base, (size_t)ARRAYS * N, 11);
    for (size_t i = 0; i < N; i++)
        base[(size_t)V * N + i] *= base[(size_t)V * N + i];
}

static const struct arithmetic_range ranges[2] = {
    {.begin = 0, .end = ARITHMETIC_BLOCK + 5, .group = 0, .tensor = 0},
    {.begin = ARITHMETIC_BLOCK + 5, .end = N, .group = 1, .tensor = 1}};

static void give_step(struct device_rig *rig, const struct device_step *job)
{
    cr_assert_eq(rig->device->step(rig->state, ++rig->tag, job), GRADWEIR_OK, "%s", fail_reason());
    device_rig_finish(rig);
}

/* What was written on the device is on the host too, and nothing else is. */
static void check_echoes(const struct device_rig *rig, const float *host, const float *echoed)
{
    cr_expect_eq(memcmp(echoed, host + (size_t)SPARE * N, BYTES), 0, "%s: parameters", rig->what);
    cr_expect_eq(memcmp(echoed + N, host + (size_t)M * N, BYTES), 0, "%s: state", rig->what);
    cr_expect_eq(memcmp(echoed + (size_t)2 * N + ARITHMETIC_BLOCK,
                        host + (size_t)AVERAGE * N + ARITHMETIC_BLOCK,
                        BYTES - ARITHMETIC_BLOCK * sizeof(float)),
                 0, "%s: average", rig->what);
    for (size_t i = 0; i < ARITHMETIC_BLOCK; i++)
        cr_assert_eq(echoed[(size_t)2 * N + i], 0.0f);
}

static void check_adam(struct device_rig *rig)
{
    float *echoed = calloc(3, BYTES);
    cr_assert(echoed != NULL);
    float *host = malloc((size_t)ARRAYS * BYTES), *back = malloc((size_t)ARRAYS * BYTES);
    cr_assert(host != NULL && back != NULL);
    double sums[8], expected[8];
    fill_shard(host);
    float *base = device_rig_get(rig, (size_t)ARRAYS * BYTES);
    device_rig_copy(rig, host, base, (size_t)ARRAYS * BYTES);
    const struct arithmetic_plan plan = plan_of(ARITHMETIC_ADAM);
    struct arithmetic_work work = work_of(base, ranges);
    const struct device_accumulate gather = {.plan = &plan,
                                             .sources = work.sources,
                                             .average = base + (size_t)AVERAGE * N,
                                             .echo = echoed + (size_t)2 * N,
                                             .begin = ARITHMETIC_BLOCK,
                                             .end = N,
                                             .sums = sums};
    cr_assert_eq(rig->device->accumulate(rig->state, ++rig->tag, &gather), GRADWEIR_OK);
    device_rig_finish(rig);
    const struct device_echo echo = {.parameters = echoed, .state = {echoed + N}};
    give_step(rig, &(struct device_step){
                       .plan = &plan, .work = &work, .echo = echo, .end = 2 * ARITHMETIC_BLOCK});
    work.average = base + (size_t)AVERAGE * N;
    give_step(
        rig,
        &(struct device_step){
            .plan = &plan, .work = &work, .echo = echo, .begin = 2 * ARITHMETIC_BLOCK, .end = N});
    device_rig_copy(rig, base, back, (size_t)ARRAYS * BYTES);
    const struct arithmetic_work truth = work_of(host, ranges);
    float *average = host + (size_t)AVERAGE * N + ARITHMETIC_BLOCK;
    arithmetic_scalar.average(&plan, &truth.sources, ARITHMETIC_BLOCK, N, average);
    (void)arithmetic_measure_blocks(&arithmetic_scalar, ARITHMETIC_F32, average,
                                    N - ARITHMETIC_BLOCK, expected);
    arithmetic_scalar.step(&plan, &truth, 0, N);
    cr_expect_eq(memcmp(host, back, (size_t)ARRAYS * BYTES), 0, "%s: other bits", rig->what);
    cr_expect_eq(memcmp(sums, expected, 3 * sizeof *sums), 0, "%s: other sums", rig->what);
    check_echoes(rig, host, echoed);
    rig->device->free(rig->state, base, (size_t)ARRAYS * BYTES);
    free(echoed);
    free(host);
    free(back);
}

Test(device, a_step_in_stretches_with_or_without_a_finished_average_has_the_bits_of_the_definition)
{
    device_rig_each(check_adam);
}

static void check_lamb(struct device_rig *rig)
{
    float *host = malloc((size_t)ARRAYS * BYTES), *back = malloc((size_t)ARRAYS * BYTES);
    cr_assert(host != NULL && back != NULL);
    static const float ratios[2] = {0.5f, 3.0f};
    double updates[8], thetas[8];
    fill_shard(host);
    float *base = device_rig_get(rig, (size_t)ARRAYS * BYTES),
          *there = device_rig_get(rig, sizeof ratios);
    device_rig_copy(rig, host, base, (size_t)ARRAYS * BYTES);
    device_rig_copy(rig, ratios, there, sizeof ratios);
    struct arithmetic_plan plan = plan_of(ARITHMETIC_LAMB);
    struct arithmetic_work work = work_of(base, ranges), truth = work_of(host, ranges);
    plan.phase = ARITHMETIC_MOMENTS;
    work.ratios = there;
    truth.ratios = ratios;
    give_step(
        rig,
        &(struct device_step){
            .plan = &plan, .work = &work, .end = N, .update_sums = updates, .theta_sums = thetas});
    arithmetic_scalar.step(&plan, &truth, 0, N);
    cr_expect_eq(device_pieces(&truth, ARITHMETIC_BLOCK, 0, N), 5u);
    struct arithmetic_range piece;
    for (size_t at = 0, i = 0; device_piece(&truth, ARITHMETIC_BLOCK, at, N, &piece);
         at = (size_t)piece.end, i++) {
        struct arithmetic_measure theta;
        arithmetic_scalar.measure(ARITHMETIC_F32, truth.parameters + at, (size_t)piece.end - at,
                                  &theta);
        cr_expect_eq(thetas[i], theta.sum_squares, "%s: piece %zu", rig->what, i);
        cr_expect_eq(updates[i], arithmetic_scalar.lamb_sum(&plan, &truth, &piece));
    }
    plan.phase = ARITHMETIC_APPLY;
    give_step(rig, &(struct device_step){.plan = &plan, .work = &work, .end = N});
    arithmetic_scalar.step(&plan, &truth, 0, N);
    device_rig_copy(rig, base, back, (size_t)ARRAYS * BYTES);
    cr_expect_eq(memcmp(host, back, (size_t)ARRAYS * BYTES), 0, "%s: other bits", rig->what);
    rig->device->free(rig->state, there, sizeof ratios);
    rig->device->free(rig->state, base, (size_t)ARRAYS * BYTES);
    free(host);
    free(back);
}

/* The sums of one stretch, in blocks of whatever size. */
static void check_blocks(struct device_rig *rig)
{
    enum { FROM = ARITHMETIC_BLOCK, SMALL = 512, SUMS = N / SMALL + 3 };
    static double updates[SUMS], thetas[SUMS], averages[SUMS];
    float *host = malloc((size_t)ARRAYS * BYTES);
    cr_assert(host != NULL);
    fill_shard(host);
    float *base = device_rig_get(rig, (size_t)ARRAYS * BYTES);
    device_rig_copy(rig, host, base, (size_t)ARRAYS * BYTES);
    struct arithmetic_plan plan = plan_of(ARITHMETIC_LAMB);
    const struct arithmetic_work work = work_of(base, ranges), truth = work_of(host, ranges);
    plan.phase = ARITHMETIC_MOMENTS;
    give_step(rig, &(struct device_step){.plan = &plan,
                                         .work = &work,
                                         .begin = FROM,
                                         .end = N,
                                         .update_sums = updates,
                                         .theta_sums = thetas,
                                         .block = SMALL});
    const struct device_accumulate gather = {.plan = &plan,
                                             .sources = work.sources,
                                             .average = base + (size_t)AVERAGE * N,
                                             .begin = FROM,
                                             .end = N,
                                             .sums = averages,
                                             .block = SMALL};
    cr_assert_eq(rig->device->accumulate(rig->state, ++rig->tag, &gather), GRADWEIR_OK);
    device_rig_finish(rig);
    arithmetic_scalar.step(&plan, &truth, FROM, N);
    float *average = host + (size_t)AVERAGE * N;
    arithmetic_scalar.average(&plan, &truth.sources, FROM, N, average + FROM);
    struct arithmetic_range piece;
    struct arithmetic_measure measured;
    size_t i = 0;
    for (size_t at = FROM; device_piece(&truth, SMALL, at, N, &piece); at = (size_t)piece.end) {
        arithmetic_scalar.measure(ARITHMETIC_F32, truth.parameters + at, (size_t)piece.end - at,
                                  &measured);
        cr_assert_eq(thetas[i], measured.sum_squares, "%s: piece %zu", rig->what, i);
        cr_assert_eq(updates[i++], arithmetic_scalar.lamb_sum(&plan, &truth, &piece));
    }
    for (size_t at = FROM; at < N; at += SMALL) {
        arithmetic_scalar.measure(ARITHMETIC_F32, average + at, N - at < SMALL ? N - at : SMALL,
                                  &measured);
        cr_assert_eq(averages[(at - FROM) / SMALL], measured.sum_squares, "%s", rig->what);
    }
    rig->device->free(rig->state, base, (size_t)ARRAYS * BYTES);
    free(host);
}

Test(device, sums_go_by_the_blocks_that_are_asked_for)
{
    device_rig_each(check_blocks);
}

Test(device, lamb_takes_two_phases_and_tells_its_sums_by_piece)
{
    device_rig_each(check_lamb);
}

/* What follows a stretch: each block once, when all of it has been stepped. */
struct witness {
    const float *spare, *truth;
    int calls[8], wrong[8];
};

static void see(void *context, uint64_t begin, uint64_t end)
{
    struct witness *witness = context;
    for (uint64_t at = begin; at < end; at += ARITHMETIC_BLOCK) {
        const uint64_t stop = at + ARITHMETIC_BLOCK < end ? at + ARITHMETIC_BLOCK : end;
        const size_t bytes = (size_t)(stop - at) * sizeof(float);
        witness->calls[at / ARITHMETIC_BLOCK]++;
        witness->wrong[at / ARITHMETIC_BLOCK] =
            at % ARITHMETIC_BLOCK != 0 || (stop % ARITHMETIC_BLOCK != 0 && stop != N) ||
            memcmp(witness->spare + at, witness->truth + at, bytes) != 0;
    }
}

static void check_behind(struct device_rig *rig)
{
    const size_t pages = ((size_t)ARRAYS * BYTES + 4095) / 4096 * 4096;
    float *host = malloc((size_t)ARRAYS * BYTES), *base = aligned_alloc(4096, pages);
    cr_assert(host != NULL && base != NULL);
    cr_assert_eq(rig->device->pin(rig->state, base, pages), GRADWEIR_OK, "%s", fail_reason());
    fill_shard(host);
    memcpy(base, host, (size_t)ARRAYS * BYTES);
    const struct arithmetic_plan plan = plan_of(ARITHMETIC_ADAM);
    const struct arithmetic_work work = work_of(base, ranges), truth = work_of(host, ranges);
    arithmetic_scalar.step(&plan, &truth, 0, N);
    struct witness stepped = {.spare = base + (size_t)SPARE * N, .truth = host + (size_t)SPARE * N};
    give_step(rig, &(struct device_step){
                       .plan = &plan, .work = &work, .end = N, .behind = {see, &stepped}});
    for (size_t i = 0; i < 8; i++)
        cr_expect(stepped.calls[i] == (i < arithmetic_blocks(N)) && !stepped.wrong[i], "%zu", i);
    rig->device->unpin(rig->state, base, pages);
    free(base);
    free(host);
}

Test(device, what_follows_a_stretch_sees_each_block_once_and_finished)
{
    device_rig_each(check_behind);
}

static void check_queue(struct device_rig *rig)
{
    unsigned char host[2 * DEVICE_JOBS_MAX] = {0};
    unsigned char *memory = device_rig_get(rig, sizeof host);
    for (size_t i = 0; i < DEVICE_JOBS_MAX; i++) {
        host[i] = (unsigned char)(i + 1); /* each job copies what the one before has written */
        const struct device_copy job = {
            .from = i == 0 ? host : memory + i - 1, .to = memory + i, .bytes = 1};
        cr_assert_eq(rig->device->copy(rig->state, 1000 + i, &job), GRADWEIR_OK);
    }
    const struct device_copy more = {.from = host, .to = memory, .bytes = 1};
    cr_expect_eq(rig->device->copy(rig->state, 1, &more), GRADWEIR_ERR_FULL);
    cr_expect_eq(rig->device->in_flight(rig->state), (size_t)DEVICE_JOBS_MAX);
    struct device_done done[DEVICE_JOBS_MAX];
    size_t n = 0;
    for (int i = 0; i < POLLS_MAX && n < DEVICE_JOBS_MAX; i++)
        n += rig->device->poll(rig->state, done + n, DEVICE_JOBS_MAX - n);
    cr_assert_eq(n, (size_t)DEVICE_JOBS_MAX);
    for (size_t i = 0; i < n; i++)
        cr_expect_eq(done[i].tag, 1000 + i);
    cr_expect_eq(rig->device->poll(rig->state, done, DEVICE_JOBS_MAX), 0u);
    rig->tag = 5;
    device_rig_copy(rig, memory, host, sizeof host);
    for (size_t i = 0; i < DEVICE_JOBS_MAX; i++)
        cr_expect_eq(host[i], 1);
    rig->device->free(rig->state, memory, sizeof host);
}

Test(device, jobs_are_done_in_order_and_a_full_queue_says_so)
{
    device_rig_each(check_queue);
}

static void check_refusals(struct device_rig *rig)
{
    const struct arithmetic_work work = {.ranges_n = 0};
    struct arithmetic_plan plan = plan_of(ARITHMETIC_LAMB);
    void *memory = NULL;
    const struct device_step whole = {.plan = &plan, .work = &work, .end = 9};
    cr_expect_eq(rig->device->step(rig->state, 1, &whole), GRADWEIR_ERR_INVALID);
    plan.phase = ARITHMETIC_APPLY;
    double sums[1];
    const struct device_step measured = {
        .plan = &plan, .work = &work, .end = 9, .update_sums = sums, .theta_sums = sums};
    cr_expect_eq(rig->device->step(rig->state, 1, &measured), GRADWEIR_ERR_INVALID);
    plan = plan_of(ARITHMETIC_ADAM);
    const struct device_step crooked = {.plan = &plan, .work = &work, .begin = 3, .end = 9};
    cr_expect_eq(rig->device->step(rig->state, 1, &crooked), GRADWEIR_ERR_INVALID);
    const struct device_step third = {.plan = &plan, .work = &work, .end = 9, .block = 21845};
    cr_expect_eq(rig->device->step(rig->state, 1, &third), GRADWEIR_ERR_INVALID);
    const struct device_step empty = {.plan = &plan, .work = &work};
    cr_expect_eq(rig->device->step(rig->state, 1, &empty), GRADWEIR_ERR_INVALID);
    const struct device_copy nothing = {.from = NULL, .to = NULL, .bytes = 1};
    cr_expect_eq(rig->device->copy(rig->state, 1, &nothing), GRADWEIR_ERR_INVALID);
    cr_expect_eq(rig->device->alloc(rig->state, 0, &memory), GRADWEIR_ERR_INVALID);
    cr_expect_eq(rig->device->in_flight(rig->state), 0u);
}

Test(device, what_makes_no_sense_is_refused_and_not_queued)
{
    device_rig_each(check_refusals);
}

Test(device, backends_are_found_by_name)
{
    struct device_state *state = NULL;
    const struct device_options options = {.simd = "mmx"};
    cr_expect_eq(device_find("cpu"), device_at(0));
    cr_expect_null(device_find("abacus"));
    cr_expect_eq(device_at(0)->open(&options, &state), GRADWEIR_ERR_UNSUPPORTED);
    device_at(0)->close(NULL);
}
