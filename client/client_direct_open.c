/* Whether pushes can be made in the GPU's memory, and what that takes: send buffers there, which
 * the network's library must take for what they are. */
#include "client/client_direct.h"

#include "client/client_memory.h"
#include "common/codec.h"

#include <stdlib.h>

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Checksums are of so many elements that blocks of the model and chunks of a push are whole ones.
 */
static gradweir_status find_grain(const struct gradweir_client *client, uint64_t *grain)
{
    const enum arithmetic_codec codec = client->session.codec;
    const uint64_t chunk = codec_chunk(codec, client->session.chunk_bytes);
    *grain = common_divisor(client->model->block, codec_elements(codec, chunk));
    if (*grain % CODEC_BLOCK == 0)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_UNSUPPORTED,
                "the servers' chunk of %llu bytes cuts blocks of %d elements",
                (unsigned long long)client->session.chunk_bytes, CODEC_BLOCK);
}

/* What of this client's arrays and options does not go with it. */
static gradweir_status check(const struct gradweir_client *client)
{
    if (client->options.role != GRADWEIR_WORKER)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "only pushes go directly, and a reader has none");
    if (client->parts)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "a rank's share is put together by the processor");
    for (size_t i = 0; i < client->tensors_count; i++)
        if (client->model->tensors[i].kind == MODEL_PARAMETER && client->tensors[i].gradient &&
            !client_memory_far(client, i, CLIENT_GRADIENT))
            return fail(GRADWEIR_ERR_UNSUPPORTED,
                        "tensor %s: its gradients lie where the processor reads them",
                        client->model->tensors[i].name);
    return GRADWEIR_OK;
}

static gradweir_status take(struct client_direct *direct, size_t bytes, void **memory)
{
    return direct->device->alloc(direct->state, bytes, memory);
}

static gradweir_status take_bodies(struct gradweir_client *client, struct client_direct *direct)
{
    const uint64_t elements = client->model->elements;
    for (uint32_t i = 0; i < client->options.outstanding; i++) {
        void *body;
        direct->crcs[i] = calloc((size_t)(elements / direct->grain + 1), sizeof *direct->crcs[i]);
        if (!direct->crcs[i])
            return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a push's checksums");
        TRY(take(direct, direct->bytes, &body));
        direct->bodies[i] = body;
        TRY(transport_memory_map_cuda(client->transport, body, direct->bytes,
                                      &direct->memories[i]));
    }
    return GRADWEIR_OK;
}

static bool has_zeros(const struct gradweir_client *client)
{
    for (size_t i = 0; i < client->tensors_count; i++)
        if (client->model->tensors[i].kind == MODEL_PARAMETER && !client->tensors[i].gradient)
            return true;
    return false;
}

static uint64_t piece_size(const struct model *model)
{
    const uint64_t blocks = model->elements / DIRECT_PIECES / ARITHMETIC_BLOCK;
    const uint64_t piece = (blocks ? blocks : 1) * ARITHMETIC_BLOCK;
    return piece < DIRECT_PIECE_MAX ? piece : DIRECT_PIECE_MAX;
}

static size_t rest_bytes(const struct gradweir_client *client)
{
    return (size_t)client->model->elements * sizeof(float);
}

static gradweir_status take_all(struct gradweir_client *client, struct client_direct *direct)
{
    const size_t piece = (size_t)direct->piece * sizeof(float);
    void *memory;
    direct->bytes = (size_t)(codec_bytes(direct->codec, client->model->elements) +
                             client->model->moments * sizeof(struct moments));
    direct->sums = calloc(arithmetic_blocks((size_t)client->model->elements), sizeof *direct->sums);
    if (!direct->sums)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a push's sums");
    if (direct->codec != ARITHMETIC_F32) {
        TRY(take(direct, piece, &memory));
        direct->window = memory;
    }
    if (has_zeros(client) || client->rest) {
        TRY(take(direct, piece, &memory));
        direct->zeros = memory;
    }
    if (client->rest) {
        TRY(take(direct, rest_bytes(client), &memory));
        direct->rest = memory;
    }
    return take_bodies(client, direct);
}

static void give_back(const struct gradweir_client *client, struct client_direct *direct)
{
    const size_t piece = (size_t)direct->piece * sizeof(float);
    for (uint32_t i = 0; i < OUTSTANDING_MAX; i++) {
        direct->device->free(direct->state, direct->bodies[i], direct->bytes);
        free(direct->crcs[i]);
    }
    direct->device->free(direct->state, direct->window, piece);
    direct->device->free(direct->state, direct->zeros, piece);
    direct->device->free(direct->state, direct->rest, rest_bytes(client));
    free(direct->sums);
    free(direct);
}

gradweir_status client_direct_open(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    uint64_t grain;
    TRY(transport_knows(client->transport, TRANSPORT_MEMORY_CUDA));
    TRY(check(client));
    TRY(find_grain(client, &grain));
    struct client_direct *direct = calloc(1, sizeof *direct);
    if (!direct)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a client's tables");
    direct->device = memory->device;
    direct->state = memory->state;
    direct->codec = client->session.codec;
    direct->grain = grain;
    direct->piece = piece_size(client->model);
    const gradweir_status status = take_all(client, direct);
    if (status == GRADWEIR_OK) {
        memory->direct = direct;
        return GRADWEIR_OK;
    }
    for (uint32_t i = 0; i < OUTSTANDING_MAX; i++)
        if (direct->memories[i])
            transport_memory_unmap(client->transport, direct->memories[i]);
    give_back(client, direct);
    return status;
}

void client_direct_close(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    if (memory && memory->direct)
        give_back(client, memory->direct);
    if (memory)
        memory->direct = NULL;
}
