/* A shard's floats in a device's own memory, which nobody but its jobs can touch (device_far.h):
 * what a job reads has been brought before, once. */
#include "server/host_shard_mirror.h"
#include "tests/unit/device_far.h"
#include "tests/unit/shard_rig.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

static struct rig rig;
static struct host_options options;
static struct host_shard host = {.options = &options};
static struct shard_loop loop;
static struct shard_floats floats;
static struct log quiet;

static void start(bool warm, enum host_device_memory where)
{
    device_far_reset();
    rig_init(&rig, RIG_ELEMENTS);
    rig_start(&rig, 0, 1);
    log_init(&quiet, LOG_ERROR, STDERR_FILENO);
    host.log = &quiet;
    options.shard.warm = warm;
    options.device_memory = where;
    loop = (struct shard_loop){.host = &host, .device = &device_far, .device_sums = true};
    loop.shard = rig.local->shard;
    cr_assert_eq(device_far.open(&(struct device_options){.ordinal = 0}, &loop.device_state),
                 GRADWEIR_OK);
    shard_floats(loop.shard, &floats);
}

static void end(void)
{
    shard_mirror_close(&loop);
    device_far.close(loop.device_state);
    rig_end(&rig);
}

static void finish(void)
{
    struct device_done done[4];
    while (device_far.in_flight(loop.device_state)) {
        const size_t n = device_far.poll(loop.device_state, done, 4);
        for (size_t i = 0; i < n; i++) {
            cr_assert_eq(done[i].tag, (uint64_t)MIRROR_TAG);
            cr_assert_eq(done[i].status, GRADWEIR_OK);
            loop.mirror.copies--;
        }
    }
    cr_assert_eq(loop.mirror.copies, 0u);
}

static void expect_there(uint64_t offset, uint64_t bytes)
{
    unsigned char got[4096];
    cr_assert_leq(bytes, sizeof got);
    device_far_get(shard_mirror_at(&loop, shard_address(loop.shard, offset)), got, bytes);
    cr_assert_eq(memcmp(got, shard_address(loop.shard, offset), bytes), 0, "at %llu",
                 (unsigned long long)offset);
}

static void land(uint64_t offset, uint64_t length, int value)
{
    memset(shard_address(loop.shard, offset), value, length);
    shard_mirror_landed(&loop, offset, length);
}

/* A step of the whole range, as the shell gives it. */
static struct device_echo give_step(uint64_t from, uint64_t to)
{
    struct device_echo echo;
    loop.work = (struct arithmetic_work){
        .sources = {.base = shard_address(loop.shard, floats.slots)},
        .parameters = shard_address(loop.shard, floats.parameters + from),
        .parameters_next = shard_address(loop.shard, floats.parameters + to)};
    cr_assert_eq(shard_mirror_job(&loop, &(struct shard_loop_job){.kind = SHARD_STEP}, &echo),
                 GRADWEIR_OK, "%s", fail_reason());
    return echo;
}

Test(host_mirror, what_lands_is_there_before_the_job_that_reads_it)
{
    start(true, HOST_DEVICE_RESIDENT);
    const uint64_t slot = floats.slots + 2 * floats.slot_stride;
    cr_assert_eq(shard_mirror_open(&loop, false), GRADWEIR_OK, "%s", fail_reason());
    land(slot, 1024, 1);
    cr_assert_eq(shard_mirror_bring(&loop, false), GRADWEIR_OK);
    land(slot + 2048, 1000, 2);
    land(slot + 1024, 1024, 3);
    cr_assert_eq(shard_mirror_bring(&loop, false), GRADWEIR_OK);
    cr_expect_eq(device_far_seen.given, 1u, "the next one waits until the first is there");
    give_step(0, 4096);
    finish();
    expect_there(slot, 3048);
    cr_expect_eq(device_far_seen.bytes, 1024u + 2024u + floats.parameter_bytes, "once");
    end();
}

Test(host_mirror, what_is_no_gradient_is_left_where_it_is)
{
    start(true, HOST_DEVICE_RESIDENT);
    cr_assert_eq(shard_mirror_open(&loop, false), GRADWEIR_OK);
    land(floats.parameters, 1024, 1);
    shard_mirror_landed(&loop, floats.slots - 64, 64);
    cr_assert_eq(shard_mirror_bring(&loop, true), GRADWEIR_OK);
    cr_expect_eq(device_far_seen.given, 0u);
    end();
}

Test(host_mirror, parameters_are_brought_once_and_not_when_they_were_made_there)
{
    start(false, HOST_DEVICE_RESIDENT);
    const uint64_t stride = floats.parameter_bytes + 64;
    cr_assert_eq(shard_mirror_open(&loop, false), GRADWEIR_OK);
    memset(shard_address(loop.shard, floats.parameters), 7, floats.parameter_bytes);
    for (int tile = 0; tile < 3; tile++)
        give_step(0, stride);
    finish();
    expect_there(floats.parameters, floats.parameter_bytes);
    cr_expect_eq(device_far_seen.given, 1u);
    for (uint64_t step = 1; step < 6; step++)
        give_step(step % 2 * stride, (step + 1) % 2 * stride);
    cr_expect_eq(device_far_seen.given, 1u, "a step goes from what the step before has made");
    end();
}

Test(host_mirror, what_a_killed_process_left_is_brought_as_a_whole)
{
    start(true, HOST_DEVICE_RESIDENT);
    memset(shard_address(loop.shard, floats.slots), 9, floats.partials - floats.slots);
    cr_assert_eq(shard_mirror_open(&loop, true), GRADWEIR_OK);
    finish();
    for (uint64_t at = floats.slots; at + 64 <= floats.partials; at += 64)
        expect_there(at, 64);
    end();
}

Test(host_mirror, addresses_and_echoes_follow_from_whether_the_arena_outlives_the_process)
{
    for (int warm = 0; warm < 2; warm++) {
        float state[4];
        struct device_echo echo;
        start(warm, HOST_DEVICE_RESIDENT);
        cr_assert_eq(shard_mirror_open(&loop, false), GRADWEIR_OK);
        float *next = shard_address(loop.shard, floats.parameters + 4096);
        float *back = shard_address(loop.shard, floats.partials);
        loop.work = (struct arithmetic_work){
            .sources = {.base = shard_address(loop.shard, floats.slots), .back = back},
            .parameters = shard_address(loop.shard, floats.parameters),
            .parameters_next = next,
            .state = {state},
            .state_next = {state}};
        cr_assert_eq(shard_mirror_job(&loop, &(struct shard_loop_job){.kind = SHARD_STEP}, &echo),
                     GRADWEIR_OK);
        cr_expect_eq(echo.parameters, next);
        cr_expect_eq(echo.state[0], warm ? state : NULL);
        cr_expect_eq(loop.work.parameters_next, shard_mirror_at(&loop, next));
        cr_expect_eq(loop.work.sources.back, warm ? back : shard_mirror_at(&loop, back));
        cr_expect_null(loop.work.average);
        finish();
        end();
    }
}

Test(host_mirror, where_nothing_is_mirrored_jobs_work_in_the_arena)
{
    start(true, HOST_DEVICE_MAPPED);
    cr_assert_eq(shard_mirror_open(&loop, true), GRADWEIR_OK);
    land(floats.slots, 1024, 1);
    const struct device_echo echo = give_step(0, 4096);
    cr_expect_null(echo.parameters);
    cr_expect_eq(loop.work.sources.base, shard_address(loop.shard, floats.slots));
    cr_expect_eq(device_far_seen.given, 0u);
    end();
}

Test(host_mirror, memory_that_does_not_suffice_is_said_or_done_without)
{
    start(true, HOST_DEVICE_RESIDENT);
    device_far_faults.memory_max = 1000;
    cr_expect_eq(shard_mirror_open(&loop, false), GRADWEIR_ERR_NO_MEMORY);
    cr_expect_null(loop.mirror.memory);
    options.device_memory = HOST_DEVICE_AUTO;
    cr_expect_eq(shard_mirror_open(&loop, false), GRADWEIR_OK);
    cr_expect_null(loop.mirror.memory);
    end();
}

Test(host_mirror, a_lost_device_and_a_full_queue_are_told)
{
    start(true, HOST_DEVICE_RESIDENT);
    struct device_done done;
    cr_assert_eq(shard_mirror_open(&loop, false), GRADWEIR_OK);
    for (int i = 0; i < DEVICE_JOBS_MAX; i++) {
        land(floats.slots, 64, i);
        cr_assert_eq(shard_mirror_bring(&loop, true), GRADWEIR_OK);
    }
    land(floats.slots, 64, 5);
    cr_expect_eq(shard_mirror_bring(&loop, true), GRADWEIR_ERR_FULL);
    finish();
    cr_expect_eq(shard_mirror_bring(&loop, true), GRADWEIR_OK, "it is not forgotten");
    finish();
    expect_there(floats.slots, 64);
    device_far_faults.copies_good = 1;
    land(floats.slots, 64, 6);
    cr_assert_eq(shard_mirror_bring(&loop, true), GRADWEIR_OK);
    cr_assert_eq(device_far.poll(loop.device_state, &done, 1), 1u);
    cr_expect_eq(done.status, GRADWEIR_ERR_LOST);
    land(floats.slots, 64, 7);
    cr_expect_eq(shard_mirror_bring(&loop, true), GRADWEIR_ERR_LOST);
    end();
}
