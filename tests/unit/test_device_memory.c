/* What every device backend promises about memory: taken, asked about, pinned, copied. */
#include "tests/unit/device_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = (3 * ARITHMETIC_BLOCK + 777) * sizeof(float) };

static void check_memory(struct device_rig *rig)
{
    unsigned char *host = malloc(BYTES);
    cr_assert(host != NULL);
    unsigned char *device = device_rig_get(rig, BYTES);
    device_rig_copy(rig, device, host, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        cr_assert_eq(host[i], 0);
    for (size_t i = 0; i < BYTES; i++)
        host[i] = (unsigned char)(i * 31 + i / 255);
    device_rig_copy(rig, host, device, BYTES);
    device_rig_copy(rig, device + 1001, host, 5);
    for (size_t i = 0; i < 5; i++)
        cr_expect_eq(host[i], (unsigned char)((1001 + i) * 31 + (1001 + i) / 255));
    rig->device->free(rig->state, device, BYTES);
    rig->device->free(rig->state, NULL, 0);
    free(host);
}

Test(device, memory_is_zeroed_aligned_and_holds_what_is_copied)
{
    device_rig_each(check_memory);
}

static void check_places(struct device_rig *rig)
{
    enum device_place place = DEVICE_PLACE_FOREIGN;
    uint32_t ordinal = 77;
    unsigned char *own = device_rig_get(rig, BYTES), *host = aligned_alloc(4096, 1 << 20);
    cr_assert(host != NULL);
    struct device_info info;
    rig->device->info(rig->state, &info);
    cr_assert_eq(rig->device->locate(rig->state, own + BYTES - 1, &place, &ordinal), GRADWEIR_OK);
    cr_expect_eq(place, info.host_memory ? DEVICE_PLACE_BOTH : DEVICE_PLACE_OWN);
    cr_expect_eq(ordinal, 0u);
    cr_assert_eq(rig->device->locate(rig->state, host, &place, &ordinal), GRADWEIR_OK);
    cr_expect_eq(place, info.host_memory ? DEVICE_PLACE_BOTH : DEVICE_PLACE_HOST);
    cr_assert_eq(rig->device->pin(rig->state, host, 1 << 20), GRADWEIR_OK, "%s", fail_reason());
    memset(host, 7, BYTES);
    device_rig_copy(rig, host, own, BYTES);
    memset(host, 0, BYTES);
    device_rig_copy(rig, own, host, BYTES);
    cr_expect_eq(host[BYTES - 1], 7);
    rig->device->unpin(rig->state, host, 1 << 20);
    rig->device->unpin(rig->state, NULL, 0);
    cr_expect_eq(rig->device->pin(rig->state, NULL, 4096), GRADWEIR_ERR_INVALID);
    rig->device->free(rig->state, own, BYTES);
    free(host);
}

Test(device, says_where_memory_lies_and_copies_from_pinned_memory)
{
    device_rig_each(check_places);
}
