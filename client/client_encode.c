/* A push's floats on their way into its send buffer, block by block: gathered from bound memory (or
 * from what was accumulated), measured and hashed while they are in the cache. Whoever pushes sends
 * what is made so far before it makes more.
 *
 * Here, and only here, a block of floats becomes the bytes that travel. */
#include "client/client_encode.h"

#include "common/checksum.h"
#include "common/clock.h"

#include <math.h>
#include <string.h>

void client_encode_begin(struct client_encoding *encoding, struct gradweir_client *client,
                         enum client_source source, uint32_t buffer)
{
    *encoding = (struct client_encoding){.client = client, .source = source, .buffer = buffer};
}

/* Of the tensor's elements: what the caller has bound, or NULL (a frozen group's gradient). */
static const float *memory_of(const struct client_encoding *encoding,
                              const struct model_tensor *tensor)
{
    const gradweir_tensor *bound =
        &encoding->client->tensors[tensor - encoding->client->model->tensors];
    return encoding->source == CLIENT_PARAMETERS ? bound->parameters : bound->gradient;
}

/* Floats [first, first + n) of the model from bound memory. Blocks come in order, so the tensor
 * where the last one ended is where this one begins. */
static void gather_bound(struct client_encoding *encoding, uint64_t first, uint64_t n, float *to)
{
    const struct model *model = encoding->client->model;
    for (uint64_t at = first; at < first + n;) {
        const struct model_tensor *tensor = model->by_offset[encoding->tensor];
        const uint64_t end = tensor->offset + tensor->elements;
        const uint64_t stop = end < first + n ? end : first + n;
        const float *from = memory_of(encoding, tensor);
        const size_t bytes = (size_t)(stop - at) * sizeof *to;
        if (from)
            memcpy(to + (at - first), from + (at - tensor->offset), bytes);
        else
            memset(to + (at - first), 0, bytes);
        encoding->tensor += stop == end;
        at = stop;
    }
}

/* The mean of what was accumulated, which begins anew. */
static void gather_accumulated(struct client_encoding *encoding, uint64_t first, uint64_t n,
                               float *to)
{
    struct gradweir_client *client = encoding->client;
    float *sum = (float *)(void *)client->gathered + first;
    const float total = (float)client->gathered_samples;
    for (uint64_t i = 0; i < n; i++)
        to[i] = sum[i] / total;
    memset(sum, 0, (size_t)n * sizeof *sum);
}

static void encode_block(struct client_encoding *encoding, uint64_t first, uint64_t n)
{
    struct gradweir_client *client = encoding->client;
    const struct model *model = client->model;
    float *to = (float *)(void *)client->buffers[encoding->buffer] + first;
    struct arithmetic_measure measured;
    if (encoding->source == CLIENT_ACCUMULATED)
        gather_accumulated(encoding, first, n, to);
    else
        gather_bound(encoding, first, n, to);
    client->arithmetic->measure(ARITHMETIC_F32, to, (size_t)n, &measured);
    encoding->sum_squares += measured.sum_squares;
    checksum_blocks(to, n, sizeof *to, model->block, client->digests + first / model->block);
}

static void encode_moments(struct client_encoding *encoding)
{
    struct gradweir_client *client = encoding->client;
    const struct model *model = client->model;
    const size_t floats = (size_t)model->elements * sizeof(float);
    const size_t bytes = (size_t)model->moments * sizeof(struct moments);
    uint8_t *to = client->buffers[encoding->buffer] + floats;
    if (encoding->source == CLIENT_ACCUMULATED) {
        memcpy(to, client->gathered + floats, bytes);
        memset(client->gathered + floats, 0, bytes);
        return;
    }
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        const size_t length = (size_t)tensor->elements * sizeof(struct moments);
        if (tensor->kind != MODEL_MOMENTS)
            continue;
        uint8_t *place = to + tensor->offset * sizeof(struct moments);
        const void *from = memory_of(encoding, tensor);
        if (from)
            memcpy(place, from, length);
        else
            memset(place, 0, length);
    }
}

/* Norm and digest of the whole. */
static void finish(struct client_encoding *encoding)
{
    struct gradweir_client *client = encoding->client;
    const struct model *model = client->model;
    const size_t blocks = (size_t)((model->elements + model->block - 1) / model->block);
    encode_moments(encoding);
    encoding->norm = sqrt(encoding->sum_squares);
    encoding->digest = checksum_combine(client->digests, blocks);
    if (model->moments)
        encoding->digest = checksum_hash64(
            encoding->digest, client->buffers[encoding->buffer] + model->elements * sizeof(float),
            (size_t)model->moments * sizeof(struct moments));
    encoding->filled = client->body_bytes;
}

bool client_encode_more(struct client_encoding *encoding, uint64_t bytes)
{
    const uint64_t elements = encoding->client->model->elements;
    const uint64_t until = encoding->filled + bytes;
    while (encoding->at < elements && encoding->filled < until) {
        const uint64_t rest = elements - encoding->at;
        const uint64_t n = rest < ARITHMETIC_BLOCK ? rest : ARITHMETIC_BLOCK;
        encode_block(encoding, encoding->at, n);
        encoding->at += n;
        encoding->filled += n * sizeof(float);
    }
    if (encoding->at < elements)
        return true;
    finish(encoding);
    return false;
}

/* Of a rank's share only its runs are written, measured and sent. */
static void encode_share(struct client_encoding *encoding, struct session_push_request *what)
{
    struct gradweir_client *client = encoding->client;
    if (encoding->source == CLIENT_GRADIENT)
        client_body_share(client, encoding->buffer);
    else
        client_encode_more(encoding, UINT64_MAX - encoding->filled);
    client_part_measure(client, encoding->buffer, &what->norm, &what->digest);
}

static void tell(struct gradweir_client *client, enum session_event_kind kind,
                 const struct session_push_request *what)
{
    client_event(client, &(struct session_event){
                             .kind = kind, .now_ns = (int64_t)clock_now_ns(), .push = *what});
    client_turn(client);
}

void client_encode_push(struct gradweir_client *client, enum client_source source,
                        struct session_push_request *what)
{
    const uint64_t chunk = client->session.chunk_bytes;
    struct client_encoding encoding;
    enum session_event_kind kind = SESSION_PUSH;
    client_encode_begin(&encoding, client, source, what->buffer);
    if (client->parts) {
        encode_share(&encoding, what);
        client_event(client, &(struct session_event){.kind = SESSION_PUSH,
                                                     .now_ns = (int64_t)clock_now_ns(),
                                                     .push = *what});
        return;
    }
    while (client_encode_more(&encoding, chunk)) {
        what->filling = true;
        what->filled = encoding.filled;
        tell(client, kind, what);
        kind = SESSION_FILLED;
    }
    what->filling = false;
    what->filled = encoding.filled;
    what->norm = encoding.norm;
    what->digest = encoding.digest;
    client_event(client, &(struct session_event){
                             .kind = kind, .now_ns = (int64_t)clock_now_ns(), .push = *what});
}
