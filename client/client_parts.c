/* Groups: which share of a gradient this rank holds, and how it gets into a body. The send buffers
 * have the whole model's shape; only the runs of the share are written, measured and sent. */
#include "client/client_encode.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

gradweir_status gradweir_part(gradweir_client *client, size_t tensor, uint32_t axis, uint64_t first,
                              uint64_t count)
{
    if (client->bound)
        return fail(GRADWEIR_ERR_STATE, "parts are told before bind");
    if (client->options.ranks < 2)
        return fail(GRADWEIR_ERR_STATE, "options.ranks is %u: only ranks of a group have parts",
                    client->options.ranks);
    if (tensor >= MODEL_TENSORS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "tensor %zu: there are at most %u", tensor,
                    MODEL_TENSORS_MAX);
    struct parts_wanted *wanted =
        realloc(client->wanted, (client->wanted_count + 1) * sizeof *wanted);
    if (!wanted)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %zu parts", client->wanted_count + 1);
    client->wanted = wanted;
    wanted[client->wanted_count++] = (struct parts_wanted){
        .tensor = tensor,
        .part = {.tensor = (uint32_t)tensor, .axis = axis, .first = first, .count = count}};
    return GRADWEIR_OK;
}

void client_parts_free(struct gradweir_client *client)
{
    free(client->parts);
    free(client->wanted);
}

/* Of each tensor what was said last, else the whole; then without those of which it is nothing. */
static void choose(struct gradweir_client *client)
{
    const struct model *model = client->model;
    struct part *items = client->parts->items;
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        items[i] = (struct part){.tensor = i, .count = tensor->dimensions ? tensor->shape[0] : 1};
    }
    for (size_t k = 0; k < client->wanted_count; k++)
        items[client->wanted[k].tensor] = client->wanted[k].part;
    for (uint32_t i = 0; i < model->tensors_count; i++)
        if (model->tensors[i].kind == MODEL_PARAMETER && items[i].count > 0)
            items[count++] = items[i];
    client->parts->count = count;
}

static gradweir_status check_wanted(const struct gradweir_client *client)
{
    for (size_t k = 0; k < client->wanted_count; k++) {
        const size_t tensor = client->wanted[k].tensor;
        if (tensor >= client->model->tensors_count)
            return fail(GRADWEIR_ERR_INVALID, "a part of tensor %zu: %u are bound", tensor,
                        client->model->tensors_count);
        if (client->model->tensors[tensor].kind != MODEL_PARAMETER)
            return fail(GRADWEIR_ERR_INVALID, "a part of tensor %s: MOMENTS are rank 0's, whole",
                        client->model->tensors[tensor].name);
    }
    return GRADWEIR_OK;
}

gradweir_status client_parts_bind(struct gradweir_client *client, struct session_options *options)
{
    const struct model *model = client->model;
    if (client->options.ranks < 2)
        return GRADWEIR_OK;
    TRY(check_wanted(client));
    client->parts = parts_new(client->options.rank, client->options.ranks, model->tensors_count);
    if (!client->parts)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %u parts", model->tensors_count);
    choose(client);
    TRY(parts_check(client->parts, model));
    options->parts = client->parts;
    const size_t length = strlen(client->group_text);
    for (uint64_t i = 0; i < NONCE_BYTES / sizeof i; i++) {
        const uint64_t half = checksum_hash64(i + 1, client->group_text, length);
        memcpy(options->nonce + i * sizeof half, &half, sizeof half);
    }
    return random_entropy(&options->instance, sizeof options->instance);
}

void client_send_parts(struct gradweir_client *client)
{
    if (!client->parts)
        return;
    const size_t size = parts_bytes(client->parts);
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return;
    parts_encode(client->parts, bytes);
    struct message page = {.kind = MESSAGE_PAGE, .epoch = 1, .timeline = 1};
    for (uint32_t i = 0; i < content_pages(size); i++) {
        content_page(CONTENT_PARTS, bytes, size, i, &page.page);
        control_send(client->control, CONTROL_SERVER, &page);
    }
    free(bytes);
}

const struct part *client_part(const struct gradweir_client *client, size_t i)
{
    uint32_t low = 0, high = client->parts ? client->parts->count : 0;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (client->parts->items[middle].tensor < i)
            low = middle + 1;
        else
            high = middle;
    }
    const bool found =
        client->parts && low < client->parts->count && client->parts->items[low].tensor == i;
    return found ? &client->parts->items[low] : NULL;
}

/* The next elements of a piece that lie in one run, from its element `at` on. */
static uint64_t run_of(const struct part_runs *runs, const struct part_piece *piece, uint64_t at,
                       uint64_t *place)
{
    const uint64_t packed = piece->first + at, within = packed % runs->width;
    const uint64_t rest = runs->width - within;
    *place = packed / runs->width * runs->period + runs->first + within;
    return rest < piece->n - at ? rest : piece->n - at;
}

void client_part_spread(const struct part *part, const struct model_tensor *tensor,
                        const struct part_piece *piece, float *to)
{
    const struct part_runs runs = part_runs(part, tensor);
    uint64_t place, some;
    for (uint64_t at = 0; at < piece->n; at += some) {
        some = run_of(&runs, piece, at, &place);
        memcpy(to + place, piece->from + at, (size_t)some * sizeof *to);
    }
}

void client_part_add(const struct part *part, const struct model_tensor *tensor,
                     const struct part_piece *piece, float scale, float *to)
{
    const struct part_runs runs = part_runs(part, tensor);
    uint64_t place, some;
    for (uint64_t at = 0; at < piece->n; at += some) {
        some = run_of(&runs, piece, at, &place);
        for (uint64_t k = 0; k < some; k++)
            to[place + k] += scale * piece->from[at + k];
    }
}

void client_part_measure(const struct client_encoding *encoding, double *norm, uint64_t *digest)
{
    const struct gradweir_client *client = encoding->client;
    const struct model *model = client->model;
    const enum arithmetic_codec codec = encoding->codec;
    const uint8_t *body = client->buffers[encoding->buffer];
    double sum = 0;
    uint64_t begin, end;
    *digest = 0;
    for (uint64_t at = 0; parts_run(client->parts, model, at, ARITHMETIC_BLOCK, &begin, &end);
         at = end) {
        struct arithmetic_measure piece;
        if (end - begin > ARITHMETIC_BLOCK)
            end = begin + ARITHMETIC_BLOCK;
        const uint8_t *run = body + codec_bytes(codec, begin);
        client->arithmetic->measure(codec, run, end - begin, &piece);
        sum += piece.sum_squares;
        *digest = checksum_hash64(*digest, run, (size_t)codec_bytes(codec, end - begin));
    }
    *norm = sqrt(sum);
    if (model->moments && client->parts->rank == 0)
        *digest = checksum_hash64(*digest, body + codec_bytes(codec, model->elements),
                                  (size_t)model->moments * sizeof(struct moments));
}
