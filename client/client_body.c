/* Bound tensors into a body and back. A body is all parameters in order, then all MOMENTS. */
#include "client/client_feedback.h"
#include "client/client_memory.h"

#include "common/populate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t buffer_bytes(const struct gradweir_client *client)
{
    return client->body_bytes ? (size_t)client->body_bytes : 64;
}

/* Zeros that the kernel gives page by page when they are first touched: a large model must not keep
 * bind busy beyond its deadline. */
static uint8_t *take_buffer(const struct gradweir_client *client)
{
    void *buffer = mmap(NULL, buffer_bytes(client), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return NULL;
    populate_huge(buffer, buffer_bytes(client));
    return buffer;
}

static void free_buffer(const struct gradweir_client *client, uint8_t **buffer)
{
    if (*buffer)
        munmap(*buffer, buffer_bytes(client));
    *buffer = NULL;
}

/* What no machine of this size can hold is refused here, and not by the kernel when it is touched.
 */
static gradweir_status check_room(const struct gradweir_client *client, uint64_t buffers)
{
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const double wanted = (double)client->body_bytes * (double)buffers;
    if (wanted <= memory)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_NO_MEMORY,
                "the model needs %llu buffers of %.1f GiB here, and this machine has %.1f GiB of "
                "memory",
                (unsigned long long)buffers, (double)client->body_bytes / (1 << 30),
                memory / (1 << 30));
}

gradweir_status client_body_room(struct gradweir_client *client)
{
    const struct model *model = client->model;
    const bool pushes = client->options.role == GRADWEIR_WORKER;
    client->body_bytes = model->elements * sizeof(float) + model->moments * sizeof(struct moments);
    return check_room(client, pushes ? client->options.outstanding : 0);
}

gradweir_status client_body_take(struct gradweir_client *client)
{
    const struct model *model = client->model;
    const bool pushes = client->options.role == GRADWEIR_WORKER;
    client->digests = calloc(model->blocks + 1, sizeof *client->digests);
    bool enough = client->digests;
    for (uint32_t i = 0; pushes && i < client->options.outstanding; i++) {
        client->buffers[i] = take_buffer(client);
        client->sums[i].crcs = calloc(model->blocks + 1, sizeof *client->sums[i].crcs);
        enough = enough && client->buffers[i] && client->sums[i].crcs;
    }
    if (!enough)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %u bodies of %llu bytes",
                    client->options.outstanding, (unsigned long long)client->body_bytes);
    for (uint32_t i = 0; pushes && i < client->options.outstanding; i++)
        TRY(transport_memory_map(client->transport, client->buffers[i], client->body_bytes,
                                 &client->memories[i]));
    return GRADWEIR_OK;
}

gradweir_status client_body_spare(const struct gradweir_client *client, uint8_t **spare)
{
    *spare = take_buffer(client);
    return *spare ? GRADWEIR_OK
                  : fail(GRADWEIR_ERR_NO_MEMORY, "no memory for one more body of %llu bytes",
                         (unsigned long long)client->body_bytes);
}

void client_body_spare_free(const struct gradweir_client *client, uint8_t **spare)
{
    free_buffer(client, spare);
}

gradweir_status client_body_receive(struct gradweir_client *client)
{
    const bool pushes = client->options.role == GRADWEIR_WORKER;
    if (client->received)
        return GRADWEIR_OK;
    TRY(check_room(client, pushes ? client->options.outstanding + 1u : 1u));
    uint8_t *buffer = take_buffer(client);
    if (!buffer)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory to pull %llu bytes",
                    (unsigned long long)client->body_bytes);
    const gradweir_status status = transport_memory_map(
        client->transport, buffer, client->body_bytes, &client->received_memory);
    if (status == GRADWEIR_OK)
        client->received = buffer;
    else
        free_buffer(client, &buffer);
    return status;
}

void client_body_free(struct gradweir_client *client)
{
    for (uint32_t i = 0; i < OUTSTANDING_MAX; i++) {
        free_buffer(client, &client->buffers[i]);
        free(client->sums[i].crcs);
        client->sums[i].crcs = NULL;
    }
    free_buffer(client, &client->received);
    free_buffer(client, &client->gathered);
    client_feedback_free(client);
    free(client->digests);
    client->digests = NULL;
}

/* Where tensor i lies in a body, and how many bytes it has. */
static uint8_t *place(const struct gradweir_client *client, uint8_t *body, size_t i, size_t *bytes)
{
    const struct model_tensor *tensor = &client->model->tensors[i];
    if (tensor->kind == MODEL_PARAMETER) {
        *bytes = (size_t)tensor->elements * sizeof(float);
        return body + tensor->offset * sizeof(float);
    }
    *bytes = (size_t)tensor->elements * sizeof(struct moments);
    return body + client->model->elements * sizeof(float) + tensor->offset * sizeof(struct moments);
}

/* Of a group: a parameter that other ranks push alone. */
static bool is_others(const struct gradweir_client *client, size_t i)
{
    return client->parts && client->model->tensors[i].kind == MODEL_PARAMETER &&
           !client_part(client, i);
}

gradweir_status client_body_has_gradients(const struct gradweir_client *client)
{
    for (size_t i = 0; i < client->tensors_count; i++)
        if (!client->tensors[i].gradient && !is_others(client, i) &&
            !client->groups[client->tensors[i].group].frozen)
            return fail(GRADWEIR_ERR_INVALID, "tensor %s has no gradient memory to push from",
                        client->model->tensors[i].name);
    return GRADWEIR_OK;
}

/* Where pieces of tensor i's gradient go. */
struct share {
    const struct part *part; /* NULL: all of it is this rank's */
    const struct model_tensor *tensor;
    uint8_t *to;
    float scale;
};

static void share_piece(void *context, const void *data, uint64_t first, uint64_t count)
{
    const struct share *share = context;
    const bool moments = share->tensor->kind == MODEL_MOMENTS;
    const size_t each = moments ? sizeof(struct moments) : sizeof(float);
    const struct part_piece piece = {.from = data, .first = first, .n = count};
    if (share->part)
        client_part_spread(share->part, share->tensor, &piece, (float *)(void *)share->to);
    else
        memcpy(share->to + first * each, data, (size_t)count * each);
}

gradweir_status client_body_share(struct gradweir_client *client, uint8_t *body)
{
    for (size_t i = 0; i < client->tensors_count; i++) {
        size_t bytes;
        struct share share = {.part = client_part(client, i), .tensor = &client->model->tensors[i]};
        share.to = place(client, body, i, &bytes);
        if (is_others(client, i))
            continue;
        if (client->tensors[i].gradient)
            TRY(client_memory_read(client, i, CLIENT_GRADIENT, share_piece, &share));
        else
            memset(share.to, 0, bytes);
    }
    return GRADWEIR_OK;
}

gradweir_status client_body_has_parameters(const struct gradweir_client *client)
{
    for (size_t i = 0; i < client->tensors_count; i++)
        if (!client->tensors[i].parameters)
            return fail(GRADWEIR_ERR_INVALID, "tensor %s has no parameter memory to offer",
                        client->tensors[i].name);
    return GRADWEIR_OK;
}

gradweir_status client_body_load(struct gradweir_client *client)
{
    for (size_t i = 0; i < client->tensors_count; i++) {
        size_t bytes;
        const uint8_t *from = place(client, client->received, i, &bytes);
        TRY(client_memory_load(client, i, from, bytes));
    }
    return client_memory_flush(client);
}

/* Local accumulation. Parameters: Σ samples × gradient, divided at the push. MOMENTS: merged. */

static void gather_piece(void *context, const void *data, uint64_t first, uint64_t count)
{
    const struct share *share = context;
    const struct moments *moments = data;
    const struct part_piece piece = {.from = data, .first = first, .n = count};
    float *sum = (float *)(void *)share->to;
    if (share->tensor->kind == MODEL_MOMENTS) {
        for (uint64_t k = 0; k < count; k++)
            moments_merge((struct moments *)(void *)share->to + first + k, &moments[k]);
        return;
    }
    if (share->part) {
        client_part_add(share->part, share->tensor, &piece, share->scale, sum);
        return;
    }
    for (uint64_t k = 0; k < count; k++)
        sum[first + k] += share->scale * piece.from[k];
}

static gradweir_status gather(struct gradweir_client *client, size_t i, uint64_t samples)
{
    size_t bytes;
    struct share share = {.part = client_part(client, i),
                          .tensor = &client->model->tensors[i],
                          .scale = (float)samples};
    share.to = place(client, client->gathered, i, &bytes);
    if (is_others(client, i))
        return GRADWEIR_OK;
    return client_memory_read(client, i, CLIENT_GRADIENT, gather_piece, &share);
}

gradweir_status gradweir_accumulate(gradweir_client *client, uint64_t samples)
{
    TRY(client_given(client, "client"));
    client_lock(client);
    gradweir_status status = GRADWEIR_OK;
    if (!client->bound || client->options.role != GRADWEIR_WORKER)
        status = fail(GRADWEIR_ERR_STATE, "accumulate comes after bind, by a worker");
    else if (!client->based)
        status = fail(GRADWEIR_ERR_STATE, "accumulate before pull: a gradient needs the version it "
                                          "was computed from, so pull and wait first");
    else if (samples == 0 || samples > UINT32_MAX)
        status = fail(GRADWEIR_ERR_INVALID, "samples is %llu: 1 to %u are allowed",
                      (unsigned long long)samples, UINT32_MAX);
    else if (!client->gathered && !(client->gathered = take_buffer(client)))
        status = fail(GRADWEIR_ERR_NO_MEMORY, "no memory to accumulate %llu bytes",
                      (unsigned long long)client->body_bytes);
    if (status == GRADWEIR_OK)
        status = client_body_has_gradients(client);
    if (status == GRADWEIR_OK)
        status = client_memory_whole(client);
    for (size_t i = 0; status == GRADWEIR_OK && i < client->tensors_count; i++)
        status = gather(client, i, samples);
    if (status == GRADWEIR_OK) {
        if (!client->gathered_samples || client->version < client->gathered_basis)
            client->gathered_basis = client->version;
        client->gathered_samples += samples;
    }
    client_unlock(client);
    return status;
}
