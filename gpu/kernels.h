/* The kernels, as C calls: each starts work on a stream and returns cudaGetLastError's number, 0
 * for success. Pointers are device memory unless they say otherwise. Every kernel is a thin loop
 * around functions that gcc and clang compile too: common/element_step.h,
 * common/arithmetic_element.h, common/element_checksum.h. */
#ifndef GRADWEIR_GPU_KERNELS_H
#define GRADWEIR_GPU_KERNELS_H

#include "common/arithmetic.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *gpu_stream;

/* Shard side. The plan and the work are read during the call (they are host memory); the arrays and
 * ranges that work points to are device memory. [begin, end) as arithmetic.step has it. */
int gpu_step(gpu_stream stream, const struct arithmetic_plan *plan,
             const struct arithmetic_work *work, uint64_t begin, uint64_t end);
int gpu_average(gpu_stream stream, const struct arithmetic_plan *plan,
                const struct arithmetic_sources *sources, uint64_t begin, uint64_t end,
                float *average);

/* sums[b] and largest[b] of each block of n elements from a block border on, in the order of
 * arithmetic.measure: the same bits. */
int gpu_measure(gpu_stream stream, enum arithmetic_codec codec, const void *data, uint64_t n,
                double *sums, uint32_t *largest);
int gpu_decode(gpu_stream stream, enum arithmetic_codec codec, const void *data, uint64_t n,
               float *to);

/* Worker side, one pass: x = from × scale into the codec, and per block the largest magnitude and
 * the sum of squares of what was encoded (decoded again), for the finite test and the norm. */
int gpu_encode(gpu_stream stream, enum arithmetic_codec codec, const float *from, uint64_t n,
               float scale, void *to, double *sums, uint32_t *largest);

/* The same with the factor that gpu_clip_factor (kernels_learn.h) has left in GPU memory: scaled,
 * clipped, cast, tested and measured in one pass. */
int gpu_encode_clipped(gpu_stream stream, enum arithmetic_codec codec, const float *from,
                       uint64_t n, const float *factor, void *to, double *sums, uint32_t *largest);

/* Error feedback: x = from + rest into the codec, and rest becomes what that leaves out; sums and
 * largest as above. */
int gpu_encode_rest(gpu_stream stream, enum arithmetic_codec codec, const float *from, uint64_t n,
                    float *rest, void *to, double *sums, uint32_t *largest);

/* What was sent comes back: rest += decode(sent). from: what was encoded with rest and will not be
 * admitted: rest = (rest + decode(sent)) - from, but where decode(sent) is not finite. */
int gpu_give_back(gpu_stream stream, enum arithmetic_codec codec, const void *sent, uint64_t n,
                  const float *from, float *rest);

/* crcs[i]: CRC32C of the i-th stretch of `piece` bytes; the last one may be short. At most 2^31 - 1
 * of them. */
int gpu_crc32c(gpu_stream stream, const void *data, uint64_t bytes, uint64_t piece, uint32_t *crcs);

/* Some kernel of this build, to ask the runtime whether it has code for a GPU. */
const void *gpu_any_kernel(void);

#ifdef __cplusplus
}
#endif

#endif
