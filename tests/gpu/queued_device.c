/* What a shard's and a client's device (gpu/device_cuda*.c) needs of the runtime that is the CPU,
 * beside what the trainer's engine does: places of memory, and its kernels put on their streams. */
#include "gpu/kernels.h"
#include "tests/gpu/runtime_host_queued.h"

#include <string.h>

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    *value = attribute == cudaDevAttrCanUseHostPointerForRegisteredMem;
    return cudaSuccess;
}

/* All of it is the first GPU's. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    memset(attributes, 0, sizeof *attributes);
    attributes->type =
        runtime_on_gpu(pointer, 1) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)to, (void)from, (void)bytes, (void)kind;
    return cudaErrorNotSupported;
}

const void *gpu_any_kernel(void)
{
    static const int some = 0;
    return &some;
}

QUEUED(gpu_encode,
       (gpu_stream stream, enum arithmetic_codec codec, const float *from, uint64_t n, float scale,
        void *to, double *sums, uint32_t *largest),
       WITH(enum arithmetic_codec codec; const float *from; uint64_t n; float scale; void *to;
            double *sums; uint32_t * largest;),
       WITH(codec, from, n, scale, to, sums, largest),
       (NULL, a->codec, a->from, a->n, a->scale, a->to, a->sums, a->largest))
QUEUED(gpu_measure,
       (gpu_stream stream, enum arithmetic_codec codec, const void *data, uint64_t n, double *sums,
        uint32_t *largest),
       WITH(enum arithmetic_codec codec; const void *data; uint64_t n; double *sums;
            uint32_t * largest;),
       WITH(codec, data, n, sums, largest), (NULL, a->codec, a->data, a->n, a->sums, a->largest))
QUEUED(gpu_crc32c,
       (gpu_stream stream, const void *data, uint64_t bytes, uint64_t piece, uint32_t *crcs),
       WITH(const void *data; uint64_t bytes, piece; uint32_t * crcs;),
       WITH(data, bytes, piece, crcs), (NULL, a->data, a->bytes, a->piece, a->crcs))
