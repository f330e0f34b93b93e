/* See client_ahead.h. */
#include "client/client_ahead.h"

#include "common/copy.h"

/* Below, the copy at the end costs less than a wake-up; and a wait that is this short polls. */
enum { AHEAD_BYTES_MIN = 2 << 20, AHEAD_MS_MIN = 1000 };

/* Bytes [begin, end) of a body, to where tensor i lies in bound memory. */
static void copy_of_tensor(const struct gradweir_client *client, size_t i, const uint8_t *body,
                           uint64_t begin, uint64_t end)
{
    const struct model_tensor *tensor = &client->model->tensors[i];
    const bool moments = tensor->kind == MODEL_MOMENTS;
    const uint64_t each = moments ? sizeof(struct moments) : sizeof(float);
    const uint64_t first =
        (moments ? client->model->elements * sizeof(float) : 0) + tensor->offset * each;
    const uint64_t last = first + tensor->elements * each;
    const uint64_t from = begin > first ? begin : first, to = end < last ? end : last;
    uint8_t *bound = client->tensors[i].parameters;
    if (bound && from < to)
        copy_past(bound + (from - first), body + from, (size_t)(to - from));
}

static void copy_on(const struct gradweir_client *client, const uint8_t *body, uint64_t begin,
                    uint64_t end)
{
    for (size_t i = 0; i < client->tensors_count; i++)
        copy_of_tensor(client, i, body, begin, end);
}

void client_ahead_allow(struct gradweir_client *client, const struct result *result,
                        uint32_t timeout_ms)
{
    const struct session_pull_request *pull = &client->session.pull;
    client->ahead.allowed = result->pull && !result->apart && !result->done &&
                            client->session.pulling && !client->pull_boxes.apart && !pull->newer &&
                            !pull->exact && client->pulled_before && client->loaded &&
                            timeout_ms >= AHEAD_MS_MIN && client->body_bytes >= AHEAD_BYTES_MIN &&
                            client->memory == NULL;
}

void client_ahead_begin(struct gradweir_client *client)
{
    const bool may = client->ahead.allowed && client->ahead.fresh;
    client->ahead.allowed = client->ahead.fresh = false;
    if (!may)
        return;
    for (uint32_t i = 0; i < client->options.outstanding; i++) {
        if (client->busy[i] || !client->buffers[i])
            continue;
        uint8_t *const before = client->received;
        const uint32_t memory = client->received_memory;
        client->received = client->buffers[i];
        client->received_memory = client->memories[i];
        client->buffers[i] = before;
        client->memories[i] = memory;
        client->ahead.on = true;
        client->ahead.before = before;
        client->ahead.begin = client->body_bytes;
        client->ahead.end = 0;
        return;
    }
}

void client_ahead_landed(struct gradweir_client *client, const void *place, uint64_t bytes)
{
    struct ahead *ahead = &client->ahead;
    if (!ahead->on)
        return;
    const uint64_t begin = (uint64_t)((const uint8_t *)place - client->received);
    copy_on(client, client->received, begin, begin + bytes);
    ahead->begin = begin < ahead->begin ? begin : ahead->begin;
    ahead->end = begin + bytes > ahead->end ? begin + bytes : ahead->end;
}

bool client_ahead_end(struct gradweir_client *client, bool done)
{
    const struct ahead ahead = client->ahead;
    client->ahead = (struct ahead){.fresh = ahead.fresh};
    if (ahead.on && !done && ahead.begin < ahead.end)
        copy_on(client, ahead.before, ahead.begin, ahead.end);
    return ahead.on && done;
}
