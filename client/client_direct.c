/* A push, piece by piece: copies of arrays, an encoding behind them, and its numbers when it is
 * done. See client_direct.h; client_direct_open.c takes what it needs. */
#include "client/client_direct.h"

#include "client/client_memory.h"
#include "common/checksum.h"
#include "common/codec.h"

static void rewind_floats(struct client_direct *direct)
{
    direct->placed = direct->asked = 0;
    direct->tensor = 0;
}

gradweir_status client_direct_begin(struct client_encoding *encoding)
{
    struct gradweir_client *client = encoding->client;
    struct client_direct *direct = client->memory ? client->memory->direct : NULL;
    const uint32_t buffer = encoding->buffer;
    if (!direct)
        return GRADWEIR_OK;
    encoding->direct = direct->holds[buffer] = encoding->source == CLIENT_GRADIENT;
    if (encoding->source != CLIENT_PARAMETERS)
        TRY(client_direct_owe(client, encoding->direct));
    if (!encoding->direct)
        return GRADWEIR_OK;
    rewind_floats(direct);
    client->memory->staging.largest_bits = 0;
    encoding->client->sums[buffer].pieces = direct->crcs[buffer];
    encoding->client->sums[buffer].block_bytes = codec_bytes(direct->codec, direct->grain);
    return GRADWEIR_OK;
}

static uint64_t piece_end(const struct gradweir_client *client, uint64_t at)
{
    const uint64_t piece = client->memory->direct->piece, end = (at / piece + 1) * piece;
    return end < client->model->elements ? end : client->model->elements;
}

/* The tensor where the next floats come from: its end, and where they lie. NULL: nowhere, they are
 * zeros. */
static const float *next_floats(const struct gradweir_client *client, uint64_t *end)
{
    const struct client_direct *direct = client->memory->direct;
    const struct model_tensor *tensor = client->model->by_offset[direct->tensor];
    const float *gradient = client->tensors[tensor - client->model->tensors].gradient;
    *end = tensor->offset + tensor->elements;
    return gradient ? gradient + (direct->placed - tensor->offset) : NULL;
}

/* Where floats are put together: float32 where it is sent from. */
static float *room_of(const struct client_direct *direct, uint32_t buffer)
{
    return direct->codec == ARITHMETIC_F32 ? (float *)(void *)direct->bodies[buffer] + direct->asked
                                           : direct->window;
}

/* Some more floats of a piece that no array holds whole. */
static gradweir_status place_some(const struct gradweir_client *client, uint32_t buffer)
{
    struct client_direct *direct = client->memory->direct;
    const uint64_t piece = piece_end(client, direct->asked);
    uint64_t end;
    const float *from = next_floats(client, &end);
    const uint64_t stop = end < piece ? end : piece, count = stop - direct->placed;
    TRY(staging_copy(&client->memory->staging, from ? from : direct->zeros,
                     room_of(direct, buffer) + (direct->placed - direct->asked),
                     count * sizeof *from));
    direct->placed = stop;
    direct->tensor += stop == end;
    return GRADWEIR_OK;
}

static gradweir_status undo_piece(const struct gradweir_client *client, uint32_t buffer,
                                  const float *from)
{
    struct client_direct *direct = client->memory->direct;
    const uint64_t at = direct->asked, end = piece_end(client, at);
    const struct device_give_back job = {.codec = direct->codec,
                                         .sent = direct->bodies[buffer] +
                                                 codec_bytes(direct->codec, at),
                                         .n = (size_t)(end - at),
                                         .from = from,
                                         .rest = direct->rest + at};
    TRY(staging_give_back(&client->memory->staging, &job));
    direct->asked = end;
    return GRADWEIR_OK;
}

/* A piece whose floats lie in a row at `from`; NULL: where it is sent from. */
static gradweir_status encode_piece(const struct gradweir_client *client, uint32_t buffer,
                                    const float *from)
{
    struct client_direct *direct = client->memory->direct;
    const uint64_t at = direct->asked, end = piece_end(client, at);
    if (direct->undoing)
        return undo_piece(client, buffer, from);
    const struct device_encode job = {.codec = direct->codec,
                                      .from = from,
                                      .rest = direct->rest ? direct->rest + at : NULL,
                                      .to = direct->bodies[buffer] + codec_bytes(direct->codec, at),
                                      .n = (size_t)(end - at),
                                      .sums = direct->sums + at / ARITHMETIC_BLOCK,
                                      .piece = (size_t)direct->grain,
                                      .crcs = direct->crcs[buffer] + at / direct->grain};
    TRY(staging_encode(&client->memory->staging, &job,
                       &direct->tickets[at / direct->piece % DEVICE_JOBS_MAX]));
    direct->asked = end;
    return GRADWEIR_OK;
}

/* The next job: floats are placed, or a piece is encoded from where they are. */
static gradweir_status ask_one(const struct gradweir_client *client, uint32_t buffer)
{
    struct client_direct *direct = client->memory->direct;
    const uint64_t piece = piece_end(client, direct->asked);
    const bool in_place = direct->codec == ARITHMETIC_F32;
    if (direct->placed == piece)
        return encode_piece(client, buffer, in_place ? NULL : direct->window);
    uint64_t end;
    const float *from = next_floats(client, &end);
    if (!from || direct->placed > direct->asked || end < piece)
        return place_some(client, buffer);
    TRY(encode_piece(client, buffer, from));
    direct->placed = piece;
    direct->tensor += piece == end;
    return GRADWEIR_OK;
}

static gradweir_status ask_ahead(const struct client_encoding *encoding)
{
    const struct gradweir_client *client = encoding->client;
    const struct client_direct *direct = client->memory->direct;
    gradweir_status status = GRADWEIR_OK;
    while (status == GRADWEIR_OK && direct->asked < client->model->elements &&
           direct->asked - encoding->at < DEVICE_JOBS_MAX * direct->piece)
        status = ask_one(client, encoding->buffer);
    return status == GRADWEIR_ERR_FULL ? GRADWEIR_OK : status;
}

/* Until the piece at encoding->at is in the send buffer. */
static gradweir_status await_piece(const struct client_encoding *encoding)
{
    struct client_memory *memory = encoding->client->memory;
    const struct client_direct *direct = memory->direct;
    const uint64_t at = encoding->at;
    TRY(ask_ahead(encoding));
    while (direct->asked <= at) { /* more arrays than the device takes jobs at a time */
        TRY(staging_wait_one(&memory->staging));
        TRY(ask_ahead(encoding));
    }
    return staging_wait(&memory->staging, direct->tickets[at / direct->piece % DEVICE_JOBS_MAX]);
}

uint64_t client_direct_next(struct client_encoding *encoding)
{
    const struct client_direct *direct = encoding->client->memory->direct;
    const uint64_t at = encoding->at, end = piece_end(encoding->client, at);
    encoding->status = await_piece(encoding);
    if (encoding->status != GRADWEIR_OK)
        return 0;
    for (uint64_t block = at / ARITHMETIC_BLOCK; block * ARITHMETIC_BLOCK < end; block++)
        encoding->sum_squares += direct->sums[block];
    return end - at;
}

/* A block of the model is whole grains; the model's last may be short. */
static void join_blocks(const struct gradweir_client *client, uint32_t buffer)
{
    const struct model *model = client->model;
    const struct client_direct *direct = client->memory->direct;
    const uint32_t gap = checksum_crc32c_gap(codec_bytes(direct->codec, direct->grain));
    uint32_t *crcs = client->sums[buffer].crcs;
    for (uint64_t at = 0; at < model->elements; at += direct->grain) {
        const uint64_t rest = model->elements - at;
        uint32_t *crc = &crcs[at / model->block];
        const uint32_t next = direct->crcs[buffer][at / direct->grain];
        if (at % model->block == 0)
            *crc = next;
        else if (rest >= direct->grain)
            *crc = checksum_crc32c_join(*crc, next, gap);
        else
            *crc = checksum_crc32c_join(*crc, next,
                                        checksum_crc32c_gap(codec_bytes(direct->codec, rest)));
    }
}

/* The servers will see the same, and refuse it. */
static void judge(struct client_encoding *encoding)
{
    const struct gradweir_client *client = encoding->client;
    const uint32_t largest = client->memory->staging.largest_bits;
    if (!client->memory->direct->rest)
        return;
    encoding->owed = client->model->elements;
    encoding->refused = !arithmetic_finite(largest) ||
                        (double)arithmetic_largest(largest) > client->session.magnitude_max;
}

gradweir_status client_direct_undo(struct client_encoding *encoding)
{
    const struct gradweir_client *client = encoding->client;
    struct client_direct *direct = client->memory->direct;
    struct staging *staging = &client->memory->staging;
    gradweir_status status = GRADWEIR_OK;
    rewind_floats(direct);
    direct->undoing = true;
    while (status == GRADWEIR_OK && direct->asked < client->model->elements) {
        status = ask_one(client, encoding->buffer);
        if (status == GRADWEIR_ERR_FULL)
            status = staging_wait_one(staging);
    }
    direct->undoing = false;
    return status == GRADWEIR_OK ? staging_flush(staging) : status;
}

gradweir_status client_direct_end(struct client_encoding *encoding)
{
    const struct gradweir_client *client = encoding->client;
    const struct client_direct *direct = client->memory->direct;
    struct staging *staging = &client->memory->staging;
    const uint32_t buffer = encoding->buffer;
    const uint64_t elements = codec_bytes(direct->codec, client->model->elements);
    const uint64_t tail = client->model->moments * sizeof(struct moments);
    join_blocks(client, buffer);
    judge(encoding);
    if (tail == 0)
        return GRADWEIR_OK;
    TRY(staging_write(staging, client->buffers[buffer] + elements,
                      direct->bodies[buffer] + elements, tail));
    return staging_flush(staging);
}

const uint8_t *client_direct_body(const struct gradweir_client *client, uint32_t buffer,
                                  uint32_t *memory)
{
    const struct client_direct *direct = client->memory ? client->memory->direct : NULL;
    if (!direct || !direct->holds[buffer])
        return NULL;
    *memory = direct->memories[buffer];
    return direct->bodies[buffer];
}

struct stretch {
    const uint8_t *from;
    uint64_t length;
};

static void find_stretch(void *context, uint64_t at, struct staging_stretch *found)
{
    const struct stretch *stretch = context;
    *found = (struct staging_stretch){
        .from = stretch->from + at, .bytes = stretch->length - at, .far = true};
}

gradweir_status client_direct_crc(const struct gradweir_client *client, uint32_t buffer,
                                  uint64_t offset, uint64_t length, uint32_t *crc)
{
    struct staging *staging = &client->memory->staging;
    struct stretch stretch = {.from = client->memory->direct->bodies[buffer] + offset,
                              .length = length};
    const struct staging_source source = {.find = find_stretch, .context = &stretch};
    uint32_t sum = 0;
    if (staging_room(staging) > 0)
        return fail(GRADWEIR_ERR_AGAIN, "a checksum: staging is amid another stream");
    TRY(staging_read_begin(staging, &source, length, NULL));
    for (uint64_t some; (some = staging_room(staging)) > 0;) {
        const void *data;
        TRY(staging_read(staging, some, &data));
        sum = checksum_crc32c(sum, data, (size_t)some);
    }
    *crc = sum;
    return GRADWEIR_OK;
}
