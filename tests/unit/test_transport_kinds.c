/* Memory of a device that the processor cannot touch: bodies leave from it where the transport
 * knows such memory, and where it does not, mapping says so. */
#include "tests/unit/device_far.h"
#include "tests/unit/transport_pair.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 3000000 };

Test(transport_kinds, memory_that_nobody_may_touch_is_refused_where_it_is_not_known, .timeout = 60)
{
    for (size_t i = 0; i < pair_setting_count; i++) {
        struct pair pair;
        uint32_t memory = 7;
        void *far = device_far_new(LENGTH, 0);
        pair_open(&pair, &pair_settings[i], transport_defaults());
        cr_expect_eq(transport_knows(pair.client.transport, TRANSPORT_MEMORY_CUDA),
                     GRADWEIR_ERR_UNSUPPORTED);
        cr_expect(strstr(fail_reason(), "know"), "%s", fail_reason());
        cr_expect_eq(transport_memory_map_cuda(pair.client.transport, far, LENGTH, &memory),
                     GRADWEIR_ERR_UNSUPPORTED);
        cr_expect_eq(memory, 7u);
        pair_close(&pair);
        device_far_delete(far);
    }
}

Test(transport_kinds, bodies_leave_from_memory_that_the_processor_cannot_touch, .timeout = 60)
{
    const struct pair_setting setting = {.backend = "memory", .lanes = "", .described = ""};
    struct pair pair;
    uint32_t memory;
    void *far = device_far_new(LENGTH, 0);
    unsigned char *bytes = malloc(LENGTH);
    cr_assert(bytes);
    pair_fill(bytes, LENGTH, 9);
    device_far_put(far, bytes, LENGTH);
    memset(bytes, 0, LENGTH);
    pair_open(&pair, &setting, transport_defaults());
    transport_memory_know_cuda(pair.hub, device_far_reach);
    cr_expect_eq(transport_knows(pair.client.transport, TRANSPORT_MEMORY_CUDA), GRADWEIR_OK);
    cr_assert_eq(transport_memory_map_cuda(pair.client.transport, far, LENGTH, &memory),
                 GRADWEIR_OK);
    const struct transport_message message = {.body = far, .length = LENGTH, .memory = memory};
    cr_assert_eq(transport_send(pair.client.transport, pair.client.peer, &message), GRADWEIR_OK);
    const uint64_t offer = pair_await(&pair, &pair.server, TRANSPORT_OFFERED).offer;
    cr_assert_eq(transport_take(pair.server.transport, offer, bytes, 0, 0), GRADWEIR_OK);
    cr_assert_eq(pair_await(&pair, &pair.server, TRANSPORT_LANDED).status, GRADWEIR_OK);
    cr_expect(pair_is_filled(bytes, LENGTH, 9));
    transport_memory_unmap(pair.client.transport, memory);
    pair_close(&pair);
    device_far_delete(far);
    free(bytes);
}
