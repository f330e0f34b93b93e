/* The inside of the nccl backend: the library's functions, which are looked up when a group is
 * first joined, so that programs start where there is no libnccl; and a link, with how it waits. */
#ifndef GRADWEIR_GPU_COLLECTIVE_NCCL_LINK_H
#define GRADWEIR_GPU_COLLECTIVE_NCCL_LINK_H

#include "common/collective.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

/* X(name): what we call of libnccl. shrink is NULL before NCCL 2.27. */
#define NCCL_MAP(X)                                                                                \
    X(GetUniqueId)                                                                                 \
    X(CommInitRankConfig)                                                                          \
    X(CommGetAsyncError)                                                                           \
    X(CommFinalize)                                                                                \
    X(CommDestroy)                                                                                 \
    X(CommAbort)                                                                                   \
    X(GetErrorString)                                                                              \
    X(GetLastError)                                                                                \
    X(AllReduce)                                                                                   \
    X(AllGather)                                                                                   \
    X(Reduce)                                                                                      \
    X(Broadcast)                                                                                   \
    X(GroupStart)                                                                                  \
    X(GroupEnd)

struct nccl_library {
#define NCCL_MEMBER(name) __typeof__(nccl##name) *name;
    NCCL_MAP(NCCL_MEMBER)
#undef NCCL_MEMBER
    __typeof__(ncclCommShrink) *CommShrink;
};

/* What a rank says before it moves anything, and again when it has everything. */
struct nccl_head {
    uint64_t magic, sequence, step, kind, root, n, counts;
};

struct collective_link {
    const struct nccl_library *nccl;
    ncclComm_t comm; /* NULL: aborted */
    int rank, ranks, gpu;
    cudaStream_t stream;
    struct collective_seen *seen;
    uint64_t calls, deadline_ns;
    bool failed; /* a call has: only shrink and leave are left */
    struct nccl_head *heads,
        *heads_gpu;   /* ranks and one: all, then one's own; host memory is pinned */
    float *from, *to; /* on the GPU: what travels. Kept by a link that has failed, for its work may
                         still be under way */
    size_t from_floats, to_floats;
};

/* Waits until the communicator has done what it was told, by the deadline. */
gradweir_status nccl_settled(struct collective_link *link, ncclResult_t said, const char *what);
/* And the stream too. */
gradweir_status nccl_drained(struct collective_link *link, const char *what);
gradweir_status nccl_cuda(cudaError_t error, const char *what);

gradweir_status nccl_name_group(struct collective_name *name);
gradweir_status nccl_join(const struct collective_members *members, struct collective_link **link);
void nccl_leave(struct collective_link *link);
void nccl_abort(struct collective_link *link);
gradweir_status nccl_shrink(struct collective_link *old, const bool *kept,
                            const struct collective_members *members,
                            struct collective_link **link);

#endif
