/* A GPU found, opened and closed, and its memory: taken, pinned, asked about.
 *
 * The CUDA runtime is linked in; the driver (libcuda) is looked for when the device is opened, and
 * where there is none, open says so. */
#include "gpu/cuda_absent.h"
#include "gpu/device_cuda_state.h"

#include <stdio.h>
#include <stdlib.h>

gradweir_status cuda_lost(struct device_state *state, cudaError_t error, const char *what)
{
    state->broken = GRADWEIR_ERR_LOST;
    snprintf(state->reason, sizeof state->reason, "cuda: %s: %s", what, cudaGetErrorString(error));
    return fail(GRADWEIR_ERR_LOST, "%s", state->reason);
}

int cuda_enter(const struct device_state *state)
{
    int before = 0;
    if (cudaGetDevice(&before) != cudaSuccess)
        before = state->ordinal;
    if (before != state->ordinal)
        (void)cudaSetDevice(state->ordinal);
    return before;
}

void cuda_leave(int before)
{
    int now = before;
    (void)cudaGetDevice(&now);
    if (now != before)
        (void)cudaSetDevice(before);
}

static gradweir_status no_device(cudaError_t error)
{
    char text[200];
    cuda_absent(error, text, sizeof text);
    return fail(GRADWEIR_ERR_UNSUPPORTED, "%s", text);
}

static gradweir_status find(uint32_t ordinal, struct device_state *state)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        return no_device(error == cudaSuccess ? cudaErrorNoDevice : error);
    if (ordinal >= (uint32_t)(count))
        return fail(GRADWEIR_ERR_INVALID,
                    "cuda: there is no GPU %u; this machine has %d, from 0 on", ordinal, count);
    struct cudaDeviceProp properties;
    state->ordinal = (int)(ordinal);
    const cudaError_t asked = cudaGetDeviceProperties(&properties, state->ordinal);
    if (asked != cudaSuccess)
        return no_device(asked);
    snprintf(state->name, sizeof state->name, "%.40s sm_%d%d", properties.name, properties.major,
             properties.minor);
    struct cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, gpu_any_kernel()) != cudaSuccess)
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "cuda: GPU %u is %s, and this program has no code for it: build with "
                    "-DCMAKE_CUDA_ARCHITECTURES=%d%d",
                    ordinal, state->name, properties.major, properties.minor);
    return GRADWEIR_OK;
}

static void release(struct device_state *state)
{
    if (state->stream != NULL)
        (void)cudaStreamSynchronize(state->stream);
    for (int i = 0; i < DEVICE_JOBS_MAX; i++) {
        if (state->ring[i].done != NULL)
            (void)cudaEventDestroy(state->ring[i].done);
        cuda_results_free(state, (size_t)i);
    }
    cuda_shard_free(state);
    if (state->stream != NULL)
        (void)cudaStreamDestroy(state->stream);
    free(state);
}

static gradweir_status begin(struct device_state *state)
{
    cudaError_t error = cudaSetDevice(state->ordinal);
    if (error == cudaErrorMemoryAllocation)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cuda: GPU %d has no memory left to be opened",
                    state->ordinal);
    if (error == cudaErrorDevicesUnavailable)
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "cuda: GPU %d is in use by another process alone (its compute mode)",
                    state->ordinal);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking);
    for (int i = 0; error == cudaSuccess && i < DEVICE_JOBS_MAX; i++)
        error = cudaEventCreateWithFlags(&state->ring[i].done, cudaEventDisableTiming);
    if (error == cudaErrorMemoryAllocation)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cuda: GPU %d has no memory left for a stream",
                    state->ordinal);
    return error == cudaSuccess ? GRADWEIR_OK : cuda_lost(state, error, "opening the GPU");
}

gradweir_status cuda_open(const struct device_options *options, struct device_state **out)
{
    struct device_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cuda: no memory on the host");
    gradweir_status status = find(options->ordinal, state);
    if (status != GRADWEIR_OK) {
        free(state);
        return status;
    }
    const int before = cuda_enter(state);
    status = begin(state);
    if (status != GRADWEIR_OK)
        release(state);
    else
        *out = state;
    cuda_leave(before);
    return status;
}

void cuda_close(struct device_state *state)
{
    if (state == NULL)
        return;
    const int before = cuda_enter(state);
    release(state);
    cuda_leave(before);
}

void cuda_info(const struct device_state *state, struct device_info *info)
{
    *info = (struct device_info){0};
    info->host_memory = false;
    info->registers_host = false;
    info->alignment = 256;
    snprintf(info->text, sizeof info->text, "cuda %s", state->name);
}

static gradweir_status take(struct device_state *state, size_t bytes, void **memory)
{
    size_t free_bytes = 0, all = 0;
    const cudaError_t error = cudaMalloc(memory, bytes);
    if (error == cudaSuccess) {
        const cudaError_t zeroed = cudaMemset(*memory, 0, bytes);
        return zeroed == cudaSuccess ? GRADWEIR_OK : cuda_lost(state, zeroed, "clearing memory");
    }
    (void)cudaGetLastError();
    if (error != cudaErrorMemoryAllocation)
        return cuda_lost(state, error, "taking memory");
    (void)cudaMemGetInfo(&free_bytes, &all);
    return fail(GRADWEIR_ERR_NO_MEMORY,
                "cuda: GPU %d has %zu MiB free of %zu MiB, and %zu MiB are needed", state->ordinal,
                free_bytes >> 20, all >> 20, (bytes >> 20) + 1);
}

gradweir_status cuda_alloc(struct device_state *state, size_t bytes, void **memory)
{
    if (bytes == 0)
        return fail(GRADWEIR_ERR_INVALID, "cuda: no bytes asked for");
    const int before = cuda_enter(state);
    const gradweir_status status = take(state, bytes, memory);
    cuda_leave(before);
    return status;
}

void cuda_free(struct device_state *state, void *memory, size_t bytes)
{
    (void)bytes;
    const int before = cuda_enter(state);
    (void)cudaFree(memory);
    cuda_leave(before);
}

gradweir_status cuda_locate(struct device_state *state, const void *pointer,
                            enum device_place *place, uint32_t *ordinal)
{
    struct cudaPointerAttributes attributes;
    const cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
    *ordinal = 0;
    *place = DEVICE_PLACE_HOST;
    if (error == cudaErrorInvalidValue) { /* memory that CUDA has never heard of */
        (void)cudaGetLastError();
        return GRADWEIR_OK;
    }
    if (error != cudaSuccess)
        return cuda_lost(state, error, "asking where memory lies");
    if (attributes.type == cudaMemoryTypeManaged)
        *place = DEVICE_PLACE_BOTH;
    if (attributes.type != cudaMemoryTypeDevice)
        return GRADWEIR_OK;
    *place = attributes.device == state->ordinal ? DEVICE_PLACE_OWN : DEVICE_PLACE_FOREIGN;
    *ordinal = (uint32_t)attributes.device;
    return GRADWEIR_OK;
}

/* Pinned where it is; the GPU must see it at the processor's own address. */
static gradweir_status pin(struct device_state *state, void *memory, size_t bytes)
{
    int same = 0;
    (void)cudaDeviceGetAttribute(&same, cudaDevAttrCanUseHostPointerForRegisteredMem,
                                 state->ordinal);
    if (!same)
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "cuda: GPU %d (%s) does not see pinned memory at the processor's addresses",
                    state->ordinal, state->name);
    const cudaError_t error =
        cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaSuccess)
        return GRADWEIR_OK;
    (void)cudaGetLastError();
    const bool full = error == cudaErrorMemoryAllocation;
    return fail(full ? GRADWEIR_ERR_NO_MEMORY : GRADWEIR_ERR_UNSUPPORTED,
                "cuda: %zu MiB of the host's memory cannot be pinned: %s", (bytes >> 20) + 1,
                cudaGetErrorString(error));
}

gradweir_status cuda_pin(struct device_state *state, void *memory, size_t bytes)
{
    if (memory == NULL || bytes == 0)
        return fail(GRADWEIR_ERR_INVALID, "cuda: nothing to pin");
    const int before = cuda_enter(state);
    const gradweir_status status = pin(state, memory, bytes);
    cuda_leave(before);
    return status;
}

void cuda_unpin(struct device_state *state, void *memory, size_t bytes)
{
    (void)bytes;
    if (memory == NULL)
        return;
    const int before = cuda_enter(state);
    if (cudaHostUnregister(memory) != cudaSuccess)
        (void)cudaGetLastError();
    cuda_leave(before);
}
