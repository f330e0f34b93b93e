/* A push's floats on their way into its send buffer, block by block: gathered from bound memory (or
 * from what was accumulated), measured and hashed while they are in the cache. Whoever pushes sends
 * what is made so far before it makes more.
 *
 * Here, and only here, a block of floats becomes the bytes that travel. */
#include "client/client_direct.h"
#include "client/client_feedback.h"
#include "client/client_memory.h"

#include "common/checksum.h"
#include "common/clock.h"
#include "common/codec.h"
#include "common/landed.h"

#include <math.h>
#include <string.h>

gradweir_status client_encode_begin(struct client_encoding *encoding,
                                    struct gradweir_client *client, enum client_source source,
                                    uint32_t buffer)
{
    const uint32_t purpose = source == CLIENT_PARAMETERS ? PURPOSE_FIRST : PURPOSE_GRADIENT;
    *encoding = (struct client_encoding){.client = client,
                                         .source = source,
                                         .codec = session_codec(&client->session, purpose),
                                         .buffer = buffer};
    struct sums_of_body *sums = &client->sums[buffer];
    sums->block_bytes = client->parts ? 0 : codec_bytes(encoding->codec, client->model->block);
    sums->bytes = codec_bytes(encoding->codec, client->model->elements);
    sums->pieces = sums->crcs;
    TRY(client_direct_begin(encoding));
    if (sums->block_bytes != client->joint.bytes)
        checksum_joint_make(sums->block_bytes, &client->joint);
    return client->parts || encoding->direct ? GRADWEIR_OK
                                             : client_memory_stream(encoding, &encoding->streams);
}

gradweir_status client_encode_rewind(struct client_encoding *encoding)
{
    encoding->tensor = 0;
    return encoding->client->parts ? GRADWEIR_OK
                                   : client_memory_stream(encoding, &encoding->streams);
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

/* The mean of what was accumulated. */
static void gather_accumulated(const struct client_encoding *encoding, uint64_t first, uint64_t n,
                               float *to)
{
    const struct gradweir_client *client = encoding->client;
    const float *sum = (const float *)(const void *)client->gathered + first;
    const float total = (float)client->gathered_samples;
    for (uint64_t i = 0; i < n; i++)
        to[i] = sum[i] / total;
}

/* The next n floats of the stream; NULL when it has failed. */
static const float *next_far(struct client_encoding *encoding, uint64_t n)
{
    const float *floats = NULL;
    if (encoding->status == GRADWEIR_OK)
        encoding->status = client_memory_floats(encoding, n, &floats);
    return floats;
}

static void gather_far(struct client_encoding *encoding, uint64_t n, float *to)
{
    const float *floats = next_far(encoding, n);
    if (floats && floats != to) /* they may have come straight there */
        memcpy(to, floats, (size_t)n * sizeof *to);
}

static void gather(struct client_encoding *encoding, uint64_t first, uint64_t n, float *to)
{
    if (encoding->streams)
        gather_far(encoding, n, to);
    else if (encoding->source == CLIENT_ACCUMULATED)
        gather_accumulated(encoding, first, n, to);
    else
        gather_bound(encoding, first, n, to);
}

const float *client_encode_source(struct client_encoding *encoding, uint64_t first, uint64_t n)
{
    const struct gradweir_client *client = encoding->client;
    if (encoding->streams)
        return next_far(encoding, n);
    const struct model_tensor *tensor = client->model->by_offset[encoding->tensor];
    const uint64_t end = tensor->offset + tensor->elements;
    const float *from = memory_of(encoding, tensor);
    if (encoding->source != CLIENT_ACCUMULATED && from && first + n <= end) {
        encoding->tensor += first + n == end;
        return from + (first - tensor->offset);
    }
    gather(encoding, first, n, client->block);
    return client->block;
}

/* How many of the n floats from `first` on lie in one piece of bound memory, and where; in whole
 * lanes of a measure, so that the next ones may come from elsewhere. 0: gather them. */
static uint64_t run_of(const struct client_encoding *encoding, uint64_t first, uint64_t n,
                       const float **from)
{
    if (encoding->streams || encoding->source == CLIENT_ACCUMULATED)
        return 0;
    const struct model_tensor *tensor = encoding->client->model->by_offset[encoding->tensor];
    const float *memory = memory_of(encoding, tensor);
    const uint64_t end = tensor->offset + tensor->elements, rest = end - first;
    if (!memory)
        return 0;
    *from = memory + (first - tensor->offset);
    return n <= rest ? n : rest - rest % ARITHMETIC_LANES;
}

/* Pieces that are gathered stay in the first cache until they have been looked at. */
enum { PIECE = 4096 };

/* Floats [first, first + n) into the send buffer, which lies at landing->to; how many. */
static uint64_t copy_some(struct client_encoding *encoding, struct landing *landing, uint64_t first,
                          uint64_t n)
{
    const float *from;
    const uint64_t run = run_of(encoding, first, n, &from);
    if (run > 0) {
        const struct model_tensor *tensor = encoding->client->model->by_offset[encoding->tensor];
        encoding->tensor += first + run == tensor->offset + tensor->elements;
        landing->from = from;
        return run;
    }
    const uint64_t some = n < PIECE ? n : PIECE;
    gather(encoding, first, some, landing->to);
    landing->from = landing->to;
    landing->to = NULL;
    return some;
}

/* What is resent of so large a body, if ever, has left the caches. */
#define PAST_ELEMENTS ((uint64_t)2 << 20)

/* Elements [first, first + n) of one of the model's blocks. */
static uint32_t copy_floats(struct client_encoding *encoding, uint64_t first, uint64_t n,
                            struct arithmetic_running *running)
{
    const struct gradweir_client *client = encoding->client;
    const uint8_t *lent = client->lent[encoding->buffer];
    float *to = (float *)(void *)client->buffers[encoding->buffer] + first;
    uint32_t crc = 0;
    if (lent)
        return landed_sum(
            &(struct landing){.arithmetic = client->arithmetic, .from = lent + first * sizeof *to},
            (size_t)n, 0, running);
    float *also = client_room_next(encoding->client, first * sizeof *to, (size_t)n * sizeof *to);
    for (uint64_t at = 0, some; at < n; at += some) {
        struct landing landing = {.arithmetic = client->arithmetic,
                                  .to = to + at,
                                  .also = also ? also + at : NULL,
                                  .past = also && client->model->elements >= PAST_ELEMENTS};
        some = copy_some(encoding, &landing, first + at, n - at);
        crc = landed_sum(&landing, (size_t)some, crc, running);
    }
    return crc;
}

/* The same where floats become something else. */
static uint32_t encode_floats(struct client_encoding *encoding, uint64_t first, uint64_t n,
                              struct arithmetic_running *running)
{
    encoding->crc = 0;
    for (uint64_t at = first; at < first + n; at += PIECE) {
        const uint64_t rest = first + n - at, some = rest < PIECE ? rest : PIECE;
        const float *from = client_encode_source(encoding, at, some);
        if (!from) /* it was far, and is lost */
            break;
        client_feedback_encode(encoding, from, at, some, running);
    }
    return encoding->crc;
}

const uint8_t *client_encode_lies(const struct client_encoding *encoding)
{
    const struct model *model = encoding->client->model;
    const float *base = memory_of(encoding, model->by_offset[0]);
    if (encoding->streams || encoding->source != CLIENT_PARAMETERS || encoding->client->parts ||
        model->moments)
        return NULL;
    for (uint32_t i = 1; i < model->parameter_tensors; i++)
        if (memory_of(encoding, model->by_offset[i]) != base + model->by_offset[i]->offset)
            return NULL;
    return (const uint8_t *)base;
}

static void encode_block(struct client_encoding *encoding, uint64_t first, uint64_t n)
{
    const uint64_t block = encoding->client->model->block;
    uint32_t *crcs = encoding->client->sums[encoding->buffer].crcs + first / block;
    struct arithmetic_running running = {.largest_bits = 0};
    struct arithmetic_measure measured;
    for (uint64_t at = 0; at < n; at += block) {
        const uint64_t some = n - at < block ? n - at : block;
        *crcs++ = encoding->codec == ARITHMETIC_F32
                      ? copy_floats(encoding, first + at, some, &running)
                      : encode_floats(encoding, first + at, some, &running);
    }
    arithmetic_running_end(&running, &measured);
    encoding->sum_squares += measured.sum_squares;
}

static void put_moments(void *context, const void *data, uint64_t first, uint64_t count)
{
    memcpy((struct moments *)context + first, data, (size_t)count * sizeof(struct moments));
}

static void encode_moments(struct client_encoding *encoding)
{
    struct gradweir_client *client = encoding->client;
    const struct model *model = client->model;
    const size_t floats = (size_t)model->elements * sizeof(float);
    const size_t bytes = (size_t)model->moments * sizeof(struct moments);
    uint8_t *to = client->buffers[encoding->buffer] + codec_bytes(encoding->codec, model->elements);
    if (encoding->source == CLIENT_ACCUMULATED) {
        memcpy(to, client->gathered + floats, bytes);
        return;
    }
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        const size_t length = (size_t)tensor->elements * sizeof(struct moments);
        if (tensor->kind != MODEL_MOMENTS)
            continue;
        uint8_t *place = to + tensor->offset * sizeof(struct moments);
        if (!memory_of(encoding, tensor))
            memset(place, 0, length);
        else if (encoding->status == GRADWEIR_OK)
            encoding->status = client_memory_read(client, i, encoding->source, put_moments, place);
    }
}

/* What error feedback owes is settled before accumulated gradients go. */
static void settle(struct client_encoding *encoding)
{
    struct gradweir_client *client = encoding->client;
    if (encoding->refused)
        client_feedback_undo(encoding);
    client->returns[encoding->buffer] = encoding->owed > 0 && !encoding->refused;
    if (encoding->source == CLIENT_ACCUMULATED)
        memset(client->gathered, 0, (size_t)client->body_bytes);
}

/* Norm and digest of the whole. */
static void finish(struct client_encoding *encoding)
{
    struct gradweir_client *client = encoding->client;
    const struct model *model = client->model;
    const uint64_t elements = codec_bytes(encoding->codec, model->elements);
    const size_t tail = (size_t)model->moments * sizeof(struct moments);
    struct sums_of_body *sums = &client->sums[encoding->buffer];
    encode_moments(encoding);
    if (encoding->direct && encoding->status == GRADWEIR_OK)
        encoding->status = client_direct_end(encoding);
    if (encoding->status != GRADWEIR_OK)
        return;
    encoding->norm = sqrt(encoding->sum_squares);
    sums->crcs[model->blocks] =
        checksum_crc32c(0, client->buffers[encoding->buffer] + elements, tail);
    encoding->digest =
        checksum_hash64(0, sums->crcs, (size_t)(model->blocks + 1) * sizeof *sums->crcs);
    encoding->filled = elements + tail;
    settle(encoding);
}

/* How many elements that are. */
static uint64_t encode_next(struct client_encoding *encoding)
{
    const uint64_t rest = encoding->client->model->elements - encoding->at;
    const uint64_t n = rest < ARITHMETIC_BLOCK ? rest : ARITHMETIC_BLOCK;
    if (encoding->direct)
        return client_direct_next(encoding);
    encode_block(encoding, encoding->at, n);
    return n;
}

bool client_encode_more(struct client_encoding *encoding, uint64_t bytes)
{
    const uint64_t elements = encoding->client->model->elements;
    const uint64_t until = encoding->filled + bytes;
    while (encoding->at < elements && encoding->filled < until) {
        const uint64_t n = encode_next(encoding);
        if (encoding->status != GRADWEIR_OK)
            return false;
        encoding->at += n;
        encoding->filled += codec_bytes(encoding->codec, n);
    }
    if (encoding->at < elements)
        return true;
    finish(encoding);
    return false;
}

static void encode_runs(struct client_encoding *encoding)
{
    const struct gradweir_client *client = encoding->client;
    const float *from = (const float *)(const void *)client->staged;
    uint64_t begin, end;
    for (uint64_t at = 0;
         parts_run(client->parts, client->model, at, ARITHMETIC_BLOCK, &begin, &end); at = end) {
        struct arithmetic_running unused = {.largest_bits = 0};
        end = end - begin < ARITHMETIC_BLOCK ? end : begin + ARITHMETIC_BLOCK;
        client_feedback_encode(encoding, from + begin, begin, end - begin, &unused);
    }
}

gradweir_status client_encode_share(struct client_encoding *encoding,
                                    struct session_push_request *what)
{
    struct gradweir_client *client = encoding->client;
    const bool coded = encoding->codec != ARITHMETIC_F32;
    uint8_t *body = coded ? client->staged : client->buffers[encoding->buffer];
    if (encoding->source == CLIENT_GRADIENT)
        TRY(client_body_share(client, body));
    else
        gather(encoding, 0, client->model->elements, (float *)(void *)body);
    if (coded)
        encode_runs(encoding);
    encode_moments(encoding);
    TRY(encoding->status);
    settle(encoding);
    client_part_measure(encoding, &what->norm, &what->digest);
    return encoding->status;
}
