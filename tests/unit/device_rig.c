#include "tests/unit/device_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { POLLS_MAX = 100000 };

struct device_done device_rig_finish(struct device_rig *rig)
{
    struct device_done done[4];
    for (int i = 0; i < POLLS_MAX; i++) {
        const size_t n = rig->device->poll(rig->state, done, 4);
        cr_assert(n <= 1, "%s: more jobs done than were given", rig->what);
        if (n == 1) {
            cr_assert_eq(done[0].tag, rig->tag);
            cr_assert_eq(done[0].status, GRADWEIR_OK);
            cr_assert_eq(rig->device->in_flight(rig->state), 0u);
            return done[0];
        }
    }
    cr_assert(false, "%s: a job is never done", rig->what);
    return done[0];
}

void device_rig_copy(struct device_rig *rig, const void *from, void *to, size_t bytes)
{
    const struct device_copy job = {.from = from, .to = to, .bytes = bytes};
    cr_assert_eq(rig->device->copy(rig->state, ++rig->tag, &job), GRADWEIR_OK);
    device_rig_finish(rig);
}

void *device_rig_get(struct device_rig *rig, size_t bytes)
{
    void *memory = NULL;
    struct device_info info;
    rig->device->info(rig->state, &info);
    cr_assert_eq(rig->device->alloc(rig->state, bytes, &memory), GRADWEIR_OK, "%s", rig->what);
    cr_assert_eq((uintptr_t)memory % info.alignment, 0u);
    return memory;
}

enum { THREADS = 4 };

void device_rig_each(void (*check)(struct device_rig *))
{
    cr_assert(device_at(0) == &device_cpu && arithmetic_at(0) != NULL);
    for (size_t d = 0; device_at(d) != NULL; d++) {
        const bool cpu = strcmp(device_at(d)->name, "cpu") == 0;
        for (size_t i = 0; cpu ? arithmetic_at(i / THREADS) != NULL : i == 0; i++) {
            const size_t k = i / THREADS;
            const struct device_options options = {.simd = cpu ? arithmetic_at(k)->name : NULL,
                                                   .tile = k * 1000,
                                                   .threads = "\1\2\3\7"[i % THREADS],
                                                   .crowded = i % 2 == 1};
            struct device_rig rig = {.device = device_at(d), .what = device_at(d)->name, .tag = 70};
            const gradweir_status status = rig.device->open(&options, &rig.state);
            if (status == GRADWEIR_ERR_UNSUPPORTED && !cpu) {
                fprintf(stderr, "SKIPPED: device %s: %s\n", rig.what, fail_reason());
                continue;
            }
            cr_assert_eq(status, GRADWEIR_OK, "%s: %s", rig.what, fail_reason());
            check(&rig);
            rig.device->close(rig.state);
        }
    }
}
