/* Bound arrays that are far, read and written by way of the ring. */
#include "client/client_memory.h"

#include <string.h>

/* A push's floats, tensor by tensor in their order. */

static const uint8_t *array_of(const struct gradweir_client *client, size_t tensor,
                               enum client_source source)
{
    const gradweir_tensor *bound = &client->tensors[tensor];
    return source == CLIENT_PARAMETERS ? bound->parameters : bound->gradient;
}

static void find_floats(void *context, uint64_t at, struct staging_stretch *stretch)
{
    const struct gradweir_client *client = context;
    struct client_memory *memory = client->memory;
    const uint64_t element = at / sizeof(float);
    const struct model_tensor *tensor = client->model->by_offset[memory->reading];
    while (element >= tensor->offset + tensor->elements)
        tensor = client->model->by_offset[++memory->reading];
    const size_t i = (size_t)(tensor - client->model->tensors);
    const uint8_t *from = array_of(client, i, memory->source);
    stretch->bytes = (tensor->offset + tensor->elements - element) * sizeof(float);
    stretch->far = client_memory_far(client, i, memory->source);
    stretch->from = from ? from + (element - tensor->offset) * sizeof(float) : NULL;
}

static bool any_far(const struct gradweir_client *client, enum client_source source)
{
    for (size_t i = 0; client->memory && i < client->tensors_count; i++)
        if (client->model->tensors[i].kind == MODEL_PARAMETER &&
            client_memory_far(client, i, source))
            return true;
    return false;
}

gradweir_status client_memory_stream(struct client_encoding *encoding, bool *streams)
{
    struct gradweir_client *client = encoding->client;
    struct client_memory *memory = client->memory;
    const bool straight = encoding->codec == ARITHMETIC_F32 && memory && !client->parts &&
                          memory->pinned[encoding->buffer];
    const struct staging_source source = {.find = find_floats, .context = client};
    *streams = any_far(client, encoding->source);
    if (!*streams)
        return GRADWEIR_OK;
    memory->reading = 0;
    memory->source = encoding->source;
    return staging_read_begin(&memory->staging, &source, client->model->elements * sizeof(float),
                              straight ? client->buffers[encoding->buffer] : NULL);
}

gradweir_status client_memory_floats(struct client_encoding *encoding, uint64_t n,
                                     const float **floats)
{
    const void *data;
    TRY(staging_read(&encoding->client->memory->staging, n * sizeof(float), &data));
    *floats = data;
    return GRADWEIR_OK;
}

/* One array. */

uint64_t client_memory_gradient_bytes(const struct gradweir_client *client, size_t tensor)
{
    const struct model_tensor *of = &client->model->tensors[tensor];
    const struct part *part = client_part(client, tensor);
    if (of->kind == MODEL_MOMENTS)
        return of->elements * sizeof(struct moments);
    if (!client->parts)
        return of->elements * sizeof(float);
    if (!part)
        return 0;
    const struct part_runs runs = part_runs(part, of);
    return runs.runs * runs.width * sizeof(float);
}

struct whole {
    const uint8_t *from;
    uint64_t bytes;
};

static void find_whole(void *context, uint64_t at, struct staging_stretch *stretch)
{
    const struct whole *whole = context;
    *stretch =
        (struct staging_stretch){.from = whole->from + at, .bytes = whole->bytes - at, .far = true};
}

gradweir_status client_memory_read(struct gradweir_client *client, size_t tensor,
                                   enum client_source source, client_memory_use use, void *context)
{
    struct whole whole = {.from = array_of(client, tensor, source)};
    const struct model_tensor *of = &client->model->tensors[tensor];
    const bool moments = of->kind == MODEL_MOMENTS;
    const uint64_t each = moments ? sizeof(struct moments) : sizeof(float);
    whole.bytes = source == CLIENT_PARAMETERS ? of->elements * each
                                              : client_memory_gradient_bytes(client, tensor);
    if (!whole.from || whole.bytes == 0)
        return GRADWEIR_OK;
    if (!client_memory_far(client, tensor, source)) {
        use(context, whole.from, 0, whole.bytes / each);
        return GRADWEIR_OK;
    }
    struct staging *staging = &client->memory->staging;
    const struct staging_source stream = {.find = find_whole, .context = &whole};
    TRY(staging_read_begin(staging, &stream, whole.bytes, NULL));
    for (uint64_t at = 0; at < whole.bytes;) {
        const uint64_t some = staging_room(staging);
        const void *data;
        TRY(staging_read(staging, some, &data));
        use(context, data, at / each, some / each);
        at += some;
    }
    return GRADWEIR_OK;
}

gradweir_status client_memory_load(struct gradweir_client *client, size_t tensor, const void *from,
                                   uint64_t bytes)
{
    void *to = client->tensors[tensor].parameters;
    if (to && client_memory_far(client, tensor, CLIENT_PARAMETERS))
        return staging_write(&client->memory->staging, from, to, bytes);
    if (to)
        memcpy(to, from, (size_t)bytes);
    return GRADWEIR_OK;
}

gradweir_status client_memory_flush(struct gradweir_client *client)
{
    return client->memory ? staging_flush(&client->memory->staging) : GRADWEIR_OK;
}

gradweir_status client_memory_give(struct gradweir_client *client, void *to, const void *from,
                                   uint64_t bytes)
{
    bool far = false;
    TRY(client_memory_place(client, to, bytes, &far));
    if (!far) {
        memcpy(to, from, (size_t)bytes);
        return GRADWEIR_OK;
    }
    TRY(staging_write(&client->memory->staging, from, to, bytes));
    return staging_flush(&client->memory->staging);
}

/* Pulls with options. Boxes that are far land in host memory, one behind the other: they share no
 * element, so a body's room is enough for all of them. */

static gradweir_status take_landing(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    if (memory->landing)
        return GRADWEIR_OK;
    TRY(client_body_spare(client, &memory->landing));
    return transport_memory_map(client->transport, memory->landing, client->body_bytes,
                                &memory->landing_memory);
}

gradweir_status client_memory_land(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    struct pull_boxes *pull = &client->pull_boxes;
    uint64_t at = 0;
    memory->boxes = 0;
    memory->landed = false;
    for (uint32_t i = 0; i < pull->count; i++) {
        if (!memory->to[i])
            continue;
        TRY(take_landing(client));
        ASSERT(at + pull->bytes[i] <= client->body_bytes);
        pull->to[i] = memory->landing + at;
        at += pull->bytes[i];
        memory->boxes = pull->count;
    }
    return GRADWEIR_OK;
}

uint32_t client_memory_landing(const struct gradweir_client *client, uint32_t box)
{
    const struct client_memory *memory = client->memory;
    return memory && box > 0 && memory->boxes >= box && memory->to[box - 1] ? memory->landing_memory
                                                                            : 0;
}

void client_memory_landed(struct gradweir_client *client, bool moved)
{
    if (client->memory && moved)
        client->memory->landed = true;
    else if (client->memory)
        client->memory->boxes = 0;
}

gradweir_status client_memory_unload(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    const struct pull_boxes *pull = &client->pull_boxes;
    if (!memory || memory->boxes == 0 || !memory->landed)
        return GRADWEIR_OK;
    for (uint32_t i = 0; i < memory->boxes; i++)
        if (memory->to[i])
            TRY(staging_write(&memory->staging, pull->to[i], memory->to[i], pull->bytes[i]));
    TRY(staging_flush(&memory->staging));
    memory->boxes = 0;
    return GRADWEIR_OK;
}
