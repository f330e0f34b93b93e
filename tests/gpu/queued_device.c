/* What a shard's and a client's device (gpu/device_cuda*.c) needs of the runtime that is the CPU,
 * beside what the trainer's engine does: the kernels of both, put on their streams. */
#include "gpu/kernels.h"
#include "tests/gpu/runtime_host_queued.h"

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
QUEUED(gpu_encode_rest,
       (gpu_stream stream, enum arithmetic_codec codec, const float *from, uint64_t n, float *rest,
        void *to, double *sums, uint32_t *largest),
       WITH(enum arithmetic_codec codec; const float *from; uint64_t n; float *rest; void *to;
            double *sums; uint32_t * largest;),
       WITH(codec, from, n, rest, to, sums, largest),
       (NULL, a->codec, a->from, a->n, a->rest, a->to, a->sums, a->largest))
QUEUED(gpu_give_back,
       (gpu_stream stream, enum arithmetic_codec codec, const void *sent, uint64_t n,
        const float *from, float *rest),
       WITH(enum arithmetic_codec codec; const void *sent; uint64_t n; const float *from;
            float *rest;),
       WITH(codec, sent, n, from, rest), (NULL, a->codec, a->sent, a->n, a->from, a->rest))
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
