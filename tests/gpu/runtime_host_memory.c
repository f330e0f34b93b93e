/* See runtime_host.h: memory, copies and what a GPU says of itself. The GPU's memory is a stretch
 * of addresses that is closed while nothing runs there. */
#include "tests/gpu/runtime_host_memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PINNED_MAX = 1024, POISON_MAX = 1 << 16 };
#define GPU_BYTES ((size_t)1 << 28)

static unsigned char *arena, *arena_near; /* the same pages; the second stays open */
static size_t taken, limit;
static unsigned blocks, pinned_n;
static bool is_open;
static int current; /* GPU; both have the same memory */
static struct {
    unsigned char *memory;
    size_t bytes;
    bool registered; /* by its owner, whose it stays */
} pinned[PINNED_MAX];

/* Closing takes longer than most of what runs between: it is done every few times only. */
bool runtime_memory_open(bool open)
{
    static unsigned closings;
    static bool can_touch;
    const bool was = is_open;
    const bool closes = !open && ++closings % 8 == 0;
    if (arena != NULL && (open ? !can_touch : closes && can_touch)) {
        if (mprotect(arena, GPU_BYTES, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
            abort();
        can_touch = open;
    }
    is_open = open;
    return was;
}

void runtime_memory_count(struct runtime_counts *counts)
{
    counts->allocated = blocks;
    counts->pinned = pinned_n;
}

void runtime_limit(size_t bytes)
{
    limit = bytes;
}

bool runtime_on_gpu(const void *memory, size_t bytes)
{
    const unsigned char *p = memory;
    return arena != NULL && p >= arena && bytes <= GPU_BYTES &&
           (size_t)(p - arena) <= GPU_BYTES - bytes;
}

static void make_arena(void)
{
    const int fd = memfd_create("gpu", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)GPU_BYTES) != 0)
        abort();
    arena = mmap(NULL, GPU_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    arena_near = mmap(NULL, GPU_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (arena == MAP_FAILED || arena_near == MAP_FAILED)
        abort();
    close(fd);
}

const void *runtime_reach(const void *memory, size_t bytes)
{
    return runtime_on_gpu(memory, bytes) ? arena_near + ((const unsigned char *)memory - arena)
                                         : NULL;
}

/* What has been given back is given out again only when all has. */
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    const size_t rounded = (bytes + 255) / 256 * 256 + 256;
    if (arena == NULL)
        make_arena();
    if (taken + rounded > (limit != 0 ? limit : GPU_BYTES))
        return cudaErrorMemoryAllocation;
    *memory = arena + taken;
    taken += rounded;
    blocks++;
    const bool was = runtime_memory_open(true);
    memset(*memory, 0xff, rounded < POISON_MAX ? rounded : POISON_MAX);
    runtime_memory_open(was);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    if (memory == NULL)
        return cudaSuccess;
    if (!runtime_on_gpu(memory, 0) || blocks == 0)
        abort();
    if (--blocks == 0)
        taken = 0;
    return cudaSuccess;
}

static void note_pinned(void *memory, size_t bytes, bool registered)
{
    pinned[pinned_n].memory = memory;
    pinned[pinned_n].bytes = bytes;
    pinned[pinned_n++].registered = registered;
}

static cudaError_t forget_pinned(const void *memory, bool registered)
{
    for (unsigned i = 0; i < pinned_n; i++)
        if (pinned[i].memory == memory && pinned[i].registered == registered) {
            pinned[i] = pinned[--pinned_n];
            return cudaSuccess;
        }
    return cudaErrorInvalidValue;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    if (pinned_n == PINNED_MAX)
        return cudaErrorMemoryAllocation;
    *memory = malloc(bytes);
    memset(*memory, 0xff, bytes);
    note_pinned(*memory, bytes, false);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMallocHost(memory, bytes);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    if (pinned_n == PINNED_MAX)
        return cudaErrorMemoryAllocation;
    note_pinned(memory, bytes, true);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    return forget_pinned(memory, true);
}

cudaError_t cudaFreeHost(void *memory)
{
    if (memory == NULL)
        return cudaSuccess;
    const cudaError_t error = forget_pinned(memory, false);
    if (error == cudaSuccess)
        free(memory);
    return error;
}

static bool is_pinned(const void *memory, size_t bytes)
{
    const unsigned char *p = memory;
    for (unsigned i = 0; i < pinned_n; i++)
        if (p >= pinned[i].memory && p + bytes <= pinned[i].memory + pinned[i].bytes)
            return true;
    return false;
}

bool runtime_reaches(const void *memory, size_t bytes)
{
    return runtime_on_gpu(memory, bytes) || is_pinned(memory, bytes);
}

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
    int value;
};

static void run_copy(const void *arguments)
{
    const struct copy *copy = arguments;
    if (copy->from == NULL)
        memset(copy->to, copy->value, copy->bytes);
    else
        memcpy(copy->to, copy->from, copy->bytes);
}

static void copy_now(const struct copy *copy)
{
    const bool was = runtime_memory_open(true);
    run_copy(copy);
    runtime_memory_open(was);
}

/* Memory of the host that is not pinned is waited for, and has no place in a graph. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const struct copy copy = {to, from, bytes, 0};
    const bool free_to = runtime_on_gpu(to, bytes) || is_pinned(to, bytes);
    const bool free_from = runtime_on_gpu(from, bytes) || is_pinned(from, bytes);
    const bool known =
        kind == cudaMemcpyDefault || (kind == cudaMemcpyDeviceToHost && !runtime_on_gpu(to, bytes));
    if (!known || to == NULL || from == NULL)
        return cudaErrorInvalidValue;
    if (free_to && free_from)
        return (cudaError_t)runtime_queue(stream, run_copy, &copy, sizeof copy);
    if (runtime_captures(stream))
        return cudaErrorStreamCaptureUnsupported;
    runtime_finish(stream);
    copy_now(&copy);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const struct copy copy = {to, from, bytes, 0};
    if (kind != cudaMemcpyHostToDevice || !runtime_on_gpu(to, bytes))
        return cudaErrorInvalidValue;
    copy_now(&copy);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    const struct copy copy = {to, NULL, bytes, value};
    if (!runtime_on_gpu(to, bytes))
        return cudaErrorInvalidValue;
    copy_now(&copy);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    const struct copy copy = {to, NULL, bytes, value};
    return runtime_on_gpu(to, bytes)
               ? (cudaError_t)runtime_queue(stream, run_copy, &copy, sizeof copy)
               : cudaErrorInvalidValue;
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *all)
{
    *all = limit != 0 ? limit : GPU_BYTES;
    *unused = *all - taken;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 2;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "this CPU");
    properties->major = 9;
    return device < 2 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    *value = attribute == cudaDevAttrCanUseHostPointerForRegisteredMem;
    return device < 2 ? cudaSuccess : cudaErrorInvalidDevice;
}

/* Memory that it has never heard of is not its. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    memset(attributes, 0, sizeof *attributes);
    attributes->type = runtime_on_gpu(pointer, 0) ? cudaMemoryTypeDevice
                       : is_pinned(pointer, 0)    ? cudaMemoryTypeHost
                                                  : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    current = device;
    return device < 2 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    memset(attributes, 0, sizeof *attributes);
    return function != NULL ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the host's runtime";
}
