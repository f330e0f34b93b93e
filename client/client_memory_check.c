/* Where the caller's arrays lie, asked before anything is read or written: of the device where
 * there is one, and of the kernel, which tells memory that cannot be read from memory that can
 * without a signal. */
#include "client/client_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FAR_GRADIENT = 1, FAR_PARAMETERS = 2, AT_ONCE = 512 };

bool client_memory_far(const struct gradweir_client *client, size_t tensor,
                       enum client_source source)
{
    const int mask = source == CLIENT_PARAMETERS ? FAR_PARAMETERS : FAR_GRADIENT;
    return client->memory && source != CLIENT_ACCUMULATED &&
           (client->memory->far[tensor] & mask) != 0;
}

/* An array of the caller's. */
struct array {
    const char *tensor, *what;
    const uint8_t *at;
    uint64_t bytes;
};

static gradweir_status unreadable(const struct array *array)
{
    return fail(GRADWEIR_ERR_INVALID,
                "tensor %s: its %s are at %p, %llu bytes, which is no memory that this process can "
                "read%s",
                array->tensor, array->what, (const void *)array->at,
                (unsigned long long)array->bytes, ": if it is a GPU's, say so in options.memory");
}

static bool can_read(const int pipe_fds[2], const struct iovec *pieces, int count)
{
    uint8_t sink[AT_ONCE];
    const ssize_t written = writev(pipe_fds[1], pieces, count);
    if (written > 0 && read(pipe_fds[0], sink, (size_t)written) != written)
        return false;
    return written == count;
}

/* First and last byte of each: all at once, and one by one only when something is wrong. */
static gradweir_status check_readable(const int pipe_fds[2], const struct array *arrays,
                                      size_t count)
{
    struct iovec pieces[AT_ONCE];
    union {
        const uint8_t *is_const;
        void *is_not;
    } at;
    for (size_t i = 0; i < count; i++) {
        at.is_const = arrays[i].at;
        pieces[2 * i] = (struct iovec){at.is_not, 1};
        at.is_const = arrays[i].at + arrays[i].bytes - 1;
        pieces[2 * i + 1] = (struct iovec){at.is_not, 1};
    }
    if (count == 0 || can_read(pipe_fds, pieces, (int)(2 * count)))
        return GRADWEIR_OK;
    for (size_t i = 0; i < count; i++)
        if (!can_read(pipe_fds, &pieces[2 * i], 2))
            return unreadable(&arrays[i]);
    return GRADWEIR_OK;
}

/* Arrays that are looked at together. */
struct heap {
    const int *pipe_fds;
    size_t count;
    struct array arrays[AT_ONCE / 2];
};

static gradweir_status flush(struct heap *heap)
{
    const size_t count = heap->count;
    heap->count = 0;
    return check_readable(heap->pipe_fds, heap->arrays, count);
}

static gradweir_status heap_open(struct gradweir_client *client, struct heap *heap)
{
    heap->count = 0;
    heap->pipe_fds = client->look_fds;
    client->looks = client->looks || pipe2(client->look_fds, O_CLOEXEC) == 0;
    return client->looks
               ? GRADWEIR_OK
               : fail(GRADWEIR_ERR_IO, "no pipe to look at memory with: %s", strerror(errno));
}

void client_memory_look_no_more(struct gradweir_client *client)
{
    if (client->looks) {
        close(client->look_fds[0]);
        close(client->look_fds[1]);
    }
    client->looks = false;
}

static gradweir_status ask_device(struct client_memory *memory, const struct array *array,
                                  bool last, enum device_place *place)
{
    uint32_t ordinal;
    TRY(memory->device->locate(memory->state, array->at + (last ? array->bytes - 1 : 0), place,
                               &ordinal));
    if (*place == DEVICE_PLACE_FOREIGN)
        return fail(GRADWEIR_ERR_INVALID,
                    "tensor %s: its %s lie in the memory of GPU %u, and this client's is %s "
                    "(options.gpu)",
                    array->tensor, array->what, ordinal, memory->name);
    return GRADWEIR_OK;
}

/* *far: only the device's jobs may touch it. */
static gradweir_status check_place(const struct gradweir_client *client, const struct array *array,
                                   bool *far)
{
    enum device_place first, last;
    *far = false;
    if (!client->memory)
        return GRADWEIR_OK;
    TRY(ask_device(client->memory, array, false, &first));
    TRY(ask_device(client->memory, array, true, &last));
    if (client->options.memory == GRADWEIR_MEMORY_CUDA && first == DEVICE_PLACE_HOST)
        return fail(GRADWEIR_ERR_INVALID,
                    "tensor %s: its %s lie in host memory, and options.memory is cuda (auto takes "
                    "both)",
                    array->tensor, array->what);
    if (first != last)
        return fail(GRADWEIR_ERR_INVALID,
                    "tensor %s: its %s begin in one memory and end in another: %llu bytes are more "
                    "than there are",
                    array->tensor, array->what, (unsigned long long)array->bytes);
    *far = first == DEVICE_PLACE_OWN;
    return GRADWEIR_OK;
}

static gradweir_status check(const struct gradweir_client *client, struct heap *heap,
                             const struct array *array, bool *far)
{
    *far = false;
    if (!array->at || array->bytes == 0)
        return GRADWEIR_OK;
    TRY(check_place(client, array, far));
    if (*far)
        return GRADWEIR_OK;
    heap->arrays[heap->count++] = *array;
    return heap->count == AT_ONCE / 2 ? flush(heap) : GRADWEIR_OK;
}

static gradweir_status check_tensor(struct gradweir_client *client, struct heap *heap, size_t i)
{
    const struct model_tensor *tensor = &client->model->tensors[i];
    const gradweir_tensor *bound = &client->tensors[i];
    bool gradient, parameters;
    struct array array = {.tensor = tensor->name, .what = "parameters", .at = bound->parameters};
    array.bytes =
        tensor->elements * (tensor->kind == MODEL_MOMENTS ? sizeof(struct moments) : sizeof(float));
    TRY(check(client, heap, &array, &parameters));
    array.what = "gradients";
    array.at = bound->gradient;
    array.bytes = client_memory_gradient_bytes(client, i);
    TRY(check(client, heap, &array, &gradient));
    if (client->memory)
        client->memory->far[i] =
            (uint8_t)((gradient ? FAR_GRADIENT : 0) | (parameters ? FAR_PARAMETERS : 0));
    return GRADWEIR_OK;
}

static gradweir_status check_tensors(struct gradweir_client *client)
{
    struct heap heap;
    TRY(heap_open(client, &heap));
    gradweir_status status = GRADWEIR_OK;
    for (size_t i = 0; status == GRADWEIR_OK && i < client->tensors_count; i++)
        status = check_tensor(client, &heap, i);
    if (status == GRADWEIR_OK)
        status = flush(&heap);
    return status;
}

gradweir_status client_memory_bind(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    const uint64_t ring = client->options.staging_bytes;
    if (!memory)
        return check_tensors(client);
    memory->far = calloc(client->tensors_count + 1, sizeof *memory->far);
    if (!memory->far)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a client's tables");
    TRY(check_tensors(client));
    return staging_init(&memory->staging, memory->device, memory->state,
                        ring ? ring : STAGING_BYTES);
}

static gradweir_status check_boxes(struct gradweir_client *client, struct heap *heap)
{
    struct client_memory *memory = client->memory;
    struct pull_boxes *pull = &client->pull_boxes;
    for (uint32_t i = 0; i < pull->count; i++) {
        const uint32_t tensor = pull->boxes[i].tensor;
        const struct array array = {.tensor = tensor < client->model->tensors_count
                                                  ? client->model->tensors[tensor].name
                                                  : "(all)",
                                    .what = "pulled parameters",
                                    .at = pull->to[i],
                                    .bytes = pull->bytes[i]};
        bool far;
        TRY(check(client, heap, &array, &far));
        if (memory)
            memory->to[i] = far ? pull->to[i] : NULL;
    }
    return flush(heap);
}

gradweir_status client_memory_boxes(struct gradweir_client *client)
{
    struct heap heap;
    TRY(heap_open(client, &heap));
    TRY(check_boxes(client, &heap));
    return client->memory ? client_memory_land(client) : GRADWEIR_OK;
}

gradweir_status client_memory_place(struct gradweir_client *client, const void *to, uint64_t bytes,
                                    bool *far)
{
    const struct array array = {
        .tensor = "(all)", .what = "copied parameters", .at = to, .bytes = bytes};
    return check_place(client, &array, far);
}
