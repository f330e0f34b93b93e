/* The shard's device of a GPU on the runtime that is this CPU (runtime_host.h): beside what every
 * device promises (tests/unit/test_device*.c, in this program too), that all is given back, and
 * that failures are told. */
#include "tests/gpu/runtime_host.h"
#include "tests/unit/device_rig.h"

#include <criterion/criterion.h>
#include <string.h>

static struct device_rig open_twin(void)
{
    struct device_rig rig = {.device = device_find("cuda"), .what = "twin"};
    cr_assert_eq(rig.device, &device_cuda, "or nothing here is about the device of a GPU");
    cr_assert_eq(rig.device->open(&(struct device_options){.ordinal = 1}, &rig.state), GRADWEIR_OK,
                 "%s", fail_reason());
    return rig;
}

static void expect_all_given_back(void)
{
    const struct runtime_counts counts = runtime_counts();
    cr_expect_eq(counts.allocated, 0u);
    cr_expect_eq(counts.pinned, 0u);
    cr_expect_eq(counts.streams, 0u);
}

/* Some job that leaves numbers. */
static gradweir_status give_decode(struct device_rig *rig, const float *x, double *sums)
{
    return rig->device->decode(rig->state, ++rig->tag,
                               &(struct device_decode){.from = x, .n = 100, .sums = sums});
}

Test(device_twin, what_it_took_is_given_back)
{
    struct device_rig rig = open_twin();
    double sums[1];
    float *x = device_rig_get(&rig, 400);
    cr_assert_eq(give_decode(&rig, x, sums), GRADWEIR_OK);
    device_rig_finish(&rig);
    cr_expect_eq(sums[0], 0.0);
    cr_expect_gt(runtime_counts().allocated, 0u);
    rig.device->free(rig.state, x, 400);
    rig.device->close(rig.state);
    expect_all_given_back();
}

Test(device_twin, full_memory_is_said_with_numbers)
{
    struct device_rig rig = open_twin();
    void *memory = NULL;
    runtime_limit(1 << 20);
    cr_expect_eq(rig.device->alloc(rig.state, 4 << 20, &memory), GRADWEIR_ERR_NO_MEMORY);
    cr_expect(strstr(fail_reason(), "MiB free of 1 MiB"), "%s", fail_reason());
    cr_expect_eq(rig.device->alloc(rig.state, 400, &memory), GRADWEIR_OK, "and nothing is lost");
    rig.device->free(rig.state, memory, 400);
    rig.device->close(rig.state);
    runtime_limit(0);
    expect_all_given_back();
}

Test(device_twin, a_gpu_that_fails_is_lost_and_so_are_all_its_jobs)
{
    struct device_rig rig = open_twin();
    struct device_done done[4];
    double sums[2];
    float *x = device_rig_get(&rig, 400);
    cr_assert_eq(give_decode(&rig, x, &sums[0]), GRADWEIR_OK);
    cr_assert_eq(give_decode(&rig, x, &sums[1]), GRADWEIR_OK);
    runtime_fail_event(1);
    cr_assert_eq(rig.device->poll(rig.state, done, 4), 2u);
    cr_expect_eq(done[0].status, GRADWEIR_ERR_LOST);
    cr_expect_eq(done[1].status, GRADWEIR_ERR_LOST);
    cr_expect(strstr(fail_reason(), "a job"), "%s", fail_reason());
    cr_expect_eq(give_decode(&rig, x, sums), GRADWEIR_ERR_LOST);
    cr_expect_eq(rig.device->in_flight(rig.state), 0u);
    rig.device->free(rig.state, x, 400);
    rig.device->close(rig.state);
    expect_all_given_back();
}
