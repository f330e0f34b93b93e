/* The queue in bytes: how many slots a shard can have, once the model is known. */
#include "server/coordinator/order_internal.h"

#include "common/codec.h"

/* Of the shard that has most. */
static uint64_t slot_bytes(const struct order_options *options, const struct model *model)
{
    uint64_t most = 1;
    for (uint32_t i = 0; i < options->shards; i++) {
        const struct model_range range = model_shard(model, options->shards, i);
        const uint64_t bytes = codec_bytes(options->law.gradient_dtype, range.elements) +
                               range.moments * sizeof(struct moments);
        most = bytes > most ? bytes : most;
    }
    return most;
}

gradweir_status order_slots(const struct order_options *options, const struct model *model,
                            uint32_t *slots)
{
    const uint64_t bytes = slot_bytes(options, model), max = options->queue_bytes_max;
    const uint32_t window = options->window_max, wanted = window + options->queue;
    if (max != 0 && max / bytes < (uint64_t)window + 1)
        return fail(GRADWEIR_ERR_FULL,
                    "queue_bytes_max is %llu: a gradient takes %llu bytes of a shard, and the "
                    "window of %u and a queue of 1 need %llu: raise it, lower the window, or "
                    "spread the model over more shards",
                    (unsigned long long)max, (unsigned long long)bytes, window,
                    (unsigned long long)((window + 1) * bytes));
    *slots = max == 0 || wanted <= max / bytes ? wanted : (uint32_t)(max / bytes);
    return GRADWEIR_OK;
}

gradweir_status queue_fit(struct order *order, const struct model *model)
{
    uint32_t slots;
    TRY(order_slots(&order->options, model, &slots));
    const uint32_t queue = slots - order->options.window_max;
    if (queue == order->options.queue)
        return GRADWEIR_OK;
    order_say(order,
              "the queue is lowered from %u to %u: queue_bytes_max is %llu, a gradient takes %llu "
              "bytes of a shard, and the window has %u slots",
              order->options.queue, queue, (unsigned long long)order->options.queue_bytes_max,
              (unsigned long long)slot_bytes(&order->options, model), order->options.window_max);
    order->options.queue = queue;
    order->slots_count = slots;
    sets_all(order);
    return GRADWEIR_OK;
}
