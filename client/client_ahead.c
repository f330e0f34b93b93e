/* See client_ahead.h. */
#include "client/client_ahead.h"

#include "common/checksum.h"
#include "common/copy.h"

#include <string.h>

/* Below, the copy at the end costs less than a wake-up; and a wait that is this short polls. */
enum { AHEAD_BYTES_MIN = 512 << 10, AHEAD_MS_MIN = 1000 };

/* Models from here on are copied past the caches. */
enum { PAST_BYTES_MIN = 4 << 20, TURN = 4096 };

/* A stretch of a body, and where it lies in bound memory. */
struct stretch {
    uint8_t *bound; /* NULL: nowhere */
    uint64_t bytes;
};

static struct stretch in_tensor(const struct gradweir_client *client,
                                const struct model_tensor *tensor, uint64_t each, uint64_t at)
{
    uint8_t *bound = client->tensors[tensor - client->model->tensors].parameters;
    const uint64_t within = at - tensor->offset * each;
    return (struct stretch){.bound = bound ? bound + within : NULL,
                            .bytes = tensor->elements * each - within};
}

/* From byte `at` of a body on: parameters, and behind them the moments. */
static struct stretch stretch_at(const struct gradweir_client *client, uint64_t at)
{
    const struct model *model = client->model;
    const uint64_t parameters = model->elements * sizeof(float);
    if (at < parameters)
        return in_tensor(client, model_tensor_at(model, at / sizeof(float)), sizeof(float), at);
    const uint64_t element = (at - parameters) / sizeof(struct moments);
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        if (tensor->kind == MODEL_MOMENTS && element >= tensor->offset &&
            element - tensor->offset < tensor->elements)
            return in_tensor(client, tensor, sizeof(struct moments), at - parameters);
    }
    return (struct stretch){.bytes = UINT64_MAX};
}

static void written(struct ahead *ahead, uint64_t begin, uint64_t bytes)
{
    ahead->begin = begin < ahead->begin ? begin : ahead->begin;
    ahead->end = begin + bytes > ahead->end ? begin + bytes : ahead->end;
}

static void copy(void *to, const void *from, uint64_t bytes, bool past)
{
    if (past)
        copy_past_some(to, from, bytes);
    else
        copy_near(to, from, bytes);
}

/* `bytes` of a body, from its byte `at` on, into bound memory. */
static void copy_on(const struct gradweir_client *client, const uint8_t *from, uint64_t at,
                    uint64_t bytes)
{
    const bool past = client->body_bytes >= PAST_BYTES_MIN;
    while (bytes > 0) {
        const struct stretch to = stretch_at(client, at);
        const uint64_t some = bytes < to.bytes ? bytes : to.bytes;
        if (to.bound)
            copy(to.bound, from, some, past);
        from += some;
        at += some;
        bytes -= some;
    }
}

uint32_t client_ahead_take(struct gradweir_client *client, void *place, const void *body,
                           uint64_t bytes, bool on)
{
    uint8_t turn[TURN] __attribute__((aligned(64)));
    const bool past = client->body_bytes >= PAST_BYTES_MIN, bound = on && client->ahead.on;
    const uint64_t begin = bound ? (uint64_t)((uint8_t *)place - client->received) : 0;
    uint32_t crc = 0;
    for (uint64_t at = 0; at < bytes;) {
        const uint64_t some = bytes - at < TURN ? bytes - at : TURN;
        copy_near(turn, (const uint8_t *)body + at, some);
        crc = checksum_crc32c(crc, turn, some);
        copy((uint8_t *)place + at, turn, some, past);
        if (bound)
            copy_on(client, turn, begin + at, some);
        at += some;
    }
    copy_past_end();
    if (bound)
        written(&client->ahead, begin, bytes);
    return crc;
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
    copy_on(client, place, begin, bytes);
    copy_past_end();
    written(ahead, begin, bytes);
}

bool client_ahead_end(struct gradweir_client *client, bool done)
{
    const struct ahead ahead = client->ahead;
    client->ahead = (struct ahead){.fresh = ahead.fresh};
    if (ahead.on && !done && ahead.begin < ahead.end)
        copy_on(client, ahead.before + ahead.begin, ahead.begin, ahead.end - ahead.begin);
    copy_past_end();
    return ahead.on && done;
}
