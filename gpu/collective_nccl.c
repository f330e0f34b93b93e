/* The collective seam on NCCL: GPU ranks. Arrays lie in host memory or on the rank's GPU; what
 * travels is a copy of them in memory of the link, so that a call which has failed leaves the
 * caller's memory alone though NCCL may still be at work.
 *
 * NCCL does not compare what ranks call, hangs when they differ, and does not say who is missing.
 * So ranks first gather heads that say what they are about to do, as on gloo, and gather them again
 * when they have everything. Sums are made in an order of NCCL's own: the same bits at all ranks,
 * and the same again for the same ranks. */
#include "gpu/collective_nccl_link.h"

#include "common/clock.h"

#include <string.h>

static const uint64_t head_magic = UINT64_C(0x6c63636e72777267);

enum kind { KIND_REDUCE = 1, KIND_REDUCE_SCATTER, KIND_ALL_GATHER, KIND_BROADCAST };

static uint64_t digest_of(const size_t *counts, int ranks)
{
    uint64_t digest = UINT64_C(14695981039346656037);
    for (int r = 0; counts != NULL && r < ranks; r++)
        digest = (digest ^ counts[r]) * UINT64_C(1099511628211);
    return digest;
}

/* Everybody's heads are here when everybody has called. */
static gradweir_status gather_heads(struct collective_link *link, const struct nccl_head *mine,
                                    const char *what)
{
    const size_t size = sizeof *mine, all = (size_t)link->ranks * size;
    struct nccl_head *own = link->heads_gpu + link->ranks;
    link->heads[link->ranks] = *mine;
    TRY(nccl_cuda(
        cudaMemcpyAsync(own, link->heads + link->ranks, size, cudaMemcpyHostToDevice, link->stream),
        what));
    TRY(nccl_settled(
        link,
        link->nccl->AllGather(own, link->heads_gpu, size, ncclUint8, link->comm, link->stream),
        what));
    TRY(nccl_cuda(
        cudaMemcpyAsync(link->heads, link->heads_gpu, all, cudaMemcpyDeviceToHost, link->stream),
        what));
    TRY(nccl_drained(link, what));
    for (int r = 0; r < link->ranks; r++)
        if (link->heads[r].magic == head_magic)
            link->seen[r] = (struct collective_seen){link->heads[r].step, clock_now_ns()};
    return GRADWEIR_OK;
}

static const char *name_of(uint64_t kind)
{
    static const char *const names[] = {"nothing", "reduce", "reduce_scatter", "all_gather",
                                        "broadcast"};
    return kind < sizeof names / sizeof *names ? names[kind] : "something unknown";
}

static gradweir_status compare(const struct collective_link *link, const struct nccl_head *mine)
{
    for (int r = 0; r < link->ranks; r++) {
        const struct nccl_head *theirs = &link->heads[r];
        if (theirs->magic != head_magic || theirs->sequence != mine->sequence)
            return fail(GRADWEIR_ERR_PROTOCOL, "nccl: rank %d is in another call", r);
        if (memcmp(theirs, mine, sizeof *mine) != 0)
            return fail(GRADWEIR_ERR_MISMATCH,
                        "nccl: rank %d calls %s for %llu elements at step %llu, this rank "
                        "%s for %llu at step %llu, or other parts",
                        r, name_of(theirs->kind), (unsigned long long)theirs->n,
                        (unsigned long long)theirs->step, name_of(mine->kind),
                        (unsigned long long)mine->n, (unsigned long long)mine->step);
    }
    return GRADWEIR_OK;
}

static gradweir_status room(float **memory, size_t *floats, size_t wanted)
{
    if (*floats >= wanted)
        return GRADWEIR_OK;
    (void)cudaFree(*memory);
    *memory = NULL;
    *floats = 0;
    TRY(nccl_cuda(cudaMalloc((void **)memory, wanted * sizeof(float)), "memory for what travels"));
    *floats = wanted;
    return GRADWEIR_OK;
}

static gradweir_status copy(const struct collective_link *link, float *to, const float *from,
                            size_t n)
{
    if (n == 0)
        return GRADWEIR_OK;
    return nccl_cuda(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyDefault, link->stream),
                     "a copy");
}

/* What each call does, in memory of the link: `from` is there, `to` is wanted there. */

static ncclResult_t reduce(struct collective_link *link, const struct collective_call *call)
{
    return link->nccl->AllReduce(link->from, link->to, call->n, ncclFloat, ncclSum, link->comm,
                                 link->stream);
}

static ncclResult_t reduce_scatter(struct collective_link *link, const struct collective_call *call)
{
    ncclResult_t result = link->nccl->GroupStart();
    size_t at = 0;
    for (int r = 0; r < link->ranks && result == ncclSuccess; at += call->counts[r++])
        if (call->counts[r] > 0)
            result = link->nccl->Reduce(link->from + at, link->to, call->counts[r], ncclFloat,
                                        ncclSum, r, link->comm, link->stream);
    const ncclResult_t ended = link->nccl->GroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

static ncclResult_t all_gather(struct collective_link *link, const struct collective_call *call)
{
    ncclResult_t result = link->nccl->GroupStart();
    size_t at = 0;
    for (int r = 0; r < link->ranks && result == ncclSuccess; at += call->counts[r++])
        if (call->counts[r] > 0)
            result = link->nccl->Broadcast(link->from, link->to + at, call->counts[r], ncclFloat, r,
                                           link->comm, link->stream);
    const ncclResult_t ended = link->nccl->GroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

static ncclResult_t broadcast(struct collective_link *link, const struct collective_call *call)
{
    return link->nccl->Broadcast(link->from, link->to, call->n, ncclFloat, (int)call->root,
                                 link->comm, link->stream);
}

struct plan {
    const char *what;
    enum kind kind;
    size_t from, to; /* floats */
    ncclResult_t (*go)(struct collective_link *link, const struct collective_call *call);
};

static gradweir_status move(struct collective_link *link, const struct collective_call *call,
                            const struct plan *plan)
{
    TRY(room(&link->from, &link->from_floats, plan->from));
    TRY(room(&link->to, &link->to_floats, plan->to));
    TRY(copy(link, link->from, call->from, plan->from));
    TRY(nccl_settled(link, plan->go(link, call), plan->what));
    return nccl_drained(link, plan->what);
}

static gradweir_status all_of(struct collective_link *link, const struct collective_call *call,
                              const struct plan *plan)
{
    const struct nccl_head mine = {.magic = head_magic,
                                   .sequence = link->calls,
                                   .step = call->step,
                                   .kind = plan->kind,
                                   .root = call->root,
                                   .n = call->n,
                                   .counts = digest_of(call->counts, link->ranks)};
    TRY(gather_heads(link, &mine, plan->what));
    TRY(compare(link, &mine));
    if (plan->from + plan->to > 0)
        TRY(move(link, call, plan));
    TRY(gather_heads(link, &mine, plan->what)); /* all have everything: all are done, or none */
    TRY(copy(link, call->to, link->to, plan->to));
    return nccl_drained(link, plan->what);
}

static gradweir_status run(struct collective_link *link, const struct collective_call *call,
                           const struct plan *plan)
{
    int before;
    if (link->failed || link->comm == NULL)
        return fail(GRADWEIR_ERR_STATE, "nccl: the link is broken");
    TRY(nccl_cuda(cudaGetDevice(&before), plan->what));
    TRY(nccl_cuda(cudaSetDevice(link->gpu), plan->what));
    link->calls++;
    link->deadline_ns = call->deadline_ns;
    const gradweir_status status = all_of(link, call, plan);
    link->failed = status != GRADWEIR_OK && status != GRADWEIR_ERR_MISMATCH;
    (void)cudaSetDevice(before);
    return status;
}

static size_t sum_of(const size_t *counts, int ranks)
{
    size_t sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += counts[r];
    return sum;
}

static gradweir_status nccl_reduce(struct collective_link *link, const struct collective_call *call)
{
    const struct plan plan = {"reduce", KIND_REDUCE, call->n, call->n, reduce};
    return run(link, call, &plan);
}

static gradweir_status nccl_reduce_scatter(struct collective_link *link,
                                           const struct collective_call *call)
{
    const struct plan plan = {"reduce_scatter", KIND_REDUCE_SCATTER,
                              sum_of(call->counts, link->ranks), call->counts[link->rank],
                              reduce_scatter};
    return run(link, call, &plan);
}

static gradweir_status nccl_all_gather(struct collective_link *link,
                                       const struct collective_call *call)
{
    const struct plan plan = {"all_gather", KIND_ALL_GATHER, call->counts[link->rank],
                              sum_of(call->counts, link->ranks), all_gather};
    return run(link, call, &plan);
}

static gradweir_status nccl_broadcast(struct collective_link *link,
                                      const struct collective_call *call)
{
    const struct plan plan = {"broadcast", KIND_BROADCAST, call->n, call->n, broadcast};
    return run(link, call, &plan);
}

const struct collective_functions collective_nccl = {
    .name = "nccl",
    .name_group = nccl_name_group,
    .join = nccl_join,
    .leave = nccl_leave,
    .reduce = nccl_reduce,
    .reduce_scatter = nccl_reduce_scatter,
    .all_gather = nccl_all_gather,
    .broadcast = nccl_broadcast,
    .abort = nccl_abort,
    .shrink = nccl_shrink,
};
