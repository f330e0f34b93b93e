/* What the files of the GPU's backend share: device_cuda.c (jobs), device_cuda_encode.c and
 * device_cuda_shard.c (some of them), device_cuda_open.c (a GPU found, opened, and its memory). */
#ifndef GRADWEIR_GPU_DEVICE_CUDA_STATE_H
#define GRADWEIR_GPU_DEVICE_CUDA_STATE_H

#include "common/device.h"
#include "gpu/kernels.h"

#include <cuda_runtime_api.h>

/* What a job leaves on the host when it is done: pinned, so that the copy needs nobody to wait. */
struct results {
    double *sums;
    uint32_t *largest;
    size_t blocks; /* room, of each */
    uint32_t *crcs;
    size_t pieces; /* room for them */
};

struct job {
    uint64_t tag;
    cudaEvent_t done;
    double *sums; /* where the caller wants them; NULL: nowhere */
    size_t blocks;
    double *more_sums; /* LAMB's: as many again, that lie behind the others */
    bool measures;     /* largest_bits is asked for */
    uint32_t *crcs;    /* as sums */
    size_t pieces;
    struct device_behind behind;
    size_t at, end; /* what behind has not been told of yet */
};

/* What a shard's steps need in the GPU's memory beside its arrays: device_cuda_shard.c. */
struct cuda_shard {
    const struct arithmetic_range *ranges_of; /* the host's array that these are a copy of */
    struct arithmetic_range *ranges, *pieces; /* pieces: ranges cut at borders of `block` */
    size_t ranges_n, block;
    float *ratios;
    size_t ratios_n; /* room */
};

struct device_state {
    int ordinal;
    cudaStream_t stream;
    char name[64];
    uint64_t given, done; /* jobs; the ring holds [done, given) */
    struct job ring[DEVICE_JOBS_MAX];
    struct results host[DEVICE_JOBS_MAX];   /* by ring place */
    struct results device[DEVICE_JOBS_MAX]; /* likewise, in the GPU's memory */
    struct cuda_shard shard;
    gradweir_status broken; /* a failure that ended it; text in reason */
    char reason[128];
};

/* It has failed for good: ERR_LOST, now and from every job. */
gradweir_status cuda_lost(struct device_state *state, cudaError_t error, const char *what);

/* The thread's current GPU is the caller's business: every call makes ours the current one and puts
 * back what it was. */
int cuda_enter(const struct device_state *state);
void cuda_leave(int before);

/* device_cuda.c. A job's place in the ring, and its event behind what the stream has been given;
 * room for the numbers that it leaves, at that place, on both sides (grows only). */
gradweir_status cuda_job_begin(struct device_state *state, uint64_t tag, struct job **job);
gradweir_status cuda_job_end(struct device_state *state, struct job *job, int error);
gradweir_status cuda_results_room(struct device_state *state, size_t place, size_t blocks,
                                  size_t pieces);

void cuda_results_free(struct device_state *state, size_t place);

/* Jobs as the seam has them, each given its struct device_...: device_cuda_encode.c,
 * device_cuda_shard.c (all that they keep on the GPU is given back by cuda_shard_free). */
gradweir_status cuda_encode(struct device_state *state, uint64_t tag, const void *given);
gradweir_status cuda_give_back(struct device_state *state, uint64_t tag, const void *given);
gradweir_status cuda_accumulate(struct device_state *state, uint64_t tag, const void *given);
gradweir_status cuda_step(struct device_state *state, uint64_t tag, const void *given);
void cuda_shard_free(struct device_state *state);

/* device_cuda_open.c: as the seam has them. */
gradweir_status cuda_open(const struct device_options *options, struct device_state **state);
void cuda_close(struct device_state *state);
void cuda_info(const struct device_state *state, struct device_info *info);
gradweir_status cuda_alloc(struct device_state *state, size_t bytes, void **memory);
void cuda_free(struct device_state *state, void *memory, size_t bytes);
gradweir_status cuda_locate(struct device_state *state, const void *pointer,
                            enum device_place *place, uint32_t *ordinal);
gradweir_status cuda_pin(struct device_state *state, void *memory, size_t bytes);
void cuda_unpin(struct device_state *state, void *memory, size_t bytes);

#endif
