/* The queue in bytes: how many slots a shard can have, once the model is known. */
#include "server/coordinator/order_internal.h"

/* Of the shard that has most. */
static uint64_t slot_bytes(const struct order *order, const struct model *model)
{
    uint64_t most = 1;
    for (uint32_t i = 0; i < order->options.shards; i++) {
        const struct model_range range = model_shard(model, order->options.shards, i);
        const uint64_t bytes =
            range.elements * sizeof(float) + range.moments * sizeof(struct moments);
        most = bytes > most ? bytes : most;
    }
    return most;
}

gradweir_status queue_fit(struct order *order, const struct model *model)
{
    const uint64_t bytes = slot_bytes(order, model), max = order->options.queue_bytes_max;
    const uint32_t window = order->options.window_max;
    if (max == 0 || order->slots_count <= max / bytes)
        return GRADWEIR_OK;
    if (max / bytes < (uint64_t)window + 1)
        return fail(GRADWEIR_ERR_FULL,
                    "queue_bytes_max is %llu: a gradient takes %llu bytes of a shard, and the "
                    "window of %u and a queue of 1 need %llu: raise it, lower the window, or "
                    "spread the model over more shards",
                    (unsigned long long)max, (unsigned long long)bytes, window,
                    (unsigned long long)((window + 1) * bytes));
    const uint32_t slots = (uint32_t)(max / bytes);
    order_say(order,
              "the queue is lowered from %u to %u: queue_bytes_max is %llu, a gradient takes %llu "
              "bytes of a shard, and the window has %u slots",
              order->options.queue, slots - window, (unsigned long long)max,
              (unsigned long long)bytes, window);
    order->options.queue = slots - window;
    order->slots_count = slots;
    return GRADWEIR_OK;
}
