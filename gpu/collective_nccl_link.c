/* Making, cutting and ending a link of the nccl backend. Nothing in it blocks: communicators are
 * made with blocking = 0, and asked until they are ready or the deadline is here. */
#include "gpu/collective_nccl_link.h"

#include "common/clock.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static_assert(sizeof(ncclUniqueId) == COLLECTIVE_NAME_SIZE, "a group's name is NCCL's unique id");

/* ---- The library. ---- */

static struct nccl_library library;
static char missing[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* dlsym gives objects; that functions fit is POSIX's promise. */
static bool find(void *loaded, const char *name, void *place)
{
    void *const found = dlsym(loaded, name);
    memcpy(place, &found, sizeof found);
    return found != NULL;
}

static void load(void)
{
    void *const loaded = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (loaded == NULL) {
        snprintf(missing, sizeof missing, "%s", dlerror());
        return;
    }
#define NCCL_FIND(name)                                                                            \
    if (!find(loaded, "nccl" #name, &library.name))                                                \
        snprintf(missing, sizeof missing, "libnccl.so.2 has no nccl%s: it is too old", #name);
    NCCL_MAP(NCCL_FIND)
#undef NCCL_FIND
    (void)find(loaded, "ncclCommShrink", &library.CommShrink);
}

static gradweir_status find_library(const struct nccl_library **found)
{
    pthread_once(&once, load);
    if (missing[0] != '\0')
        return fail(GRADWEIR_ERR_UNSUPPORTED, "nccl: %s", missing);
    *found = &library;
    return GRADWEIR_OK;
}

/* ---- Waiting. ---- */

static void nap(unsigned turn)
{
    const struct timespec some = {.tv_nsec = 20000};
    if (turn > 2000)
        nanosleep(&some, NULL);
}

gradweir_status nccl_cuda(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return GRADWEIR_OK;
    (void)cudaGetLastError();
    return fail(error == cudaErrorMemoryAllocation ? GRADWEIR_ERR_NO_MEMORY : GRADWEIR_ERR_IO,
                "nccl: %s: %s", what, cudaGetErrorString(error));
}

static gradweir_status late(const struct collective_link *link, const char *what)
{
    return fail(GRADWEIR_ERR_TIMEOUT, "nccl: %s: some of %d ranks did not come", what, link->ranks);
}

static gradweir_status lost(const struct collective_link *link, ncclResult_t result,
                            const char *what)
{
    const char *more = link->comm ? link->nccl->GetLastError(link->comm) : "";
    return fail(result == ncclInvalidUsage || result == ncclInvalidArgument ? GRADWEIR_ERR_MISMATCH
                                                                            : GRADWEIR_ERR_LOST,
                "nccl: %s: %s %s", what, link->nccl->GetErrorString(result), more ? more : "");
}

gradweir_status nccl_settled(struct collective_link *link, ncclResult_t said, const char *what)
{
    for (unsigned turn = 0; said == ncclInProgress; turn++) {
        const ncclResult_t asked = link->nccl->CommGetAsyncError(link->comm, &said);
        if (asked != ncclSuccess)
            return lost(link, asked, what);
        if (said == ncclInProgress && clock_now_ns() >= link->deadline_ns)
            return late(link, what);
        nap(turn);
    }
    return said == ncclSuccess ? GRADWEIR_OK : lost(link, said, what);
}

gradweir_status nccl_drained(struct collective_link *link, const char *what)
{
    for (unsigned turn = 0;; turn++) {
        const cudaError_t error = cudaStreamQuery(link->stream);
        if (error == cudaSuccess)
            return GRADWEIR_OK;
        if (error != cudaErrorNotReady)
            return nccl_cuda(error, what);
        (void)cudaGetLastError();
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = link->nccl->CommGetAsyncError(link->comm, &state);
        if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
            return lost(link, asked != ncclSuccess ? asked : state, what);
        if (clock_now_ns() >= link->deadline_ns)
            return late(link, what);
        nap(turn);
    }
}

/* ---- Links. ---- */

gradweir_status nccl_name_group(struct collective_name *name)
{
    const struct nccl_library *nccl;
    ncclUniqueId id;
    TRY(find_library(&nccl));
    const ncclResult_t result = nccl->GetUniqueId(&id);
    if (result != ncclSuccess)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "nccl: no name for a group: %s",
                    nccl->GetErrorString(result));
    memcpy(name->bytes, &id, sizeof id);
    return GRADWEIR_OK;
}

/* A link without a communicator, on the GPU that is current in this thread. */
static gradweir_status prepare(const struct collective_members *members,
                               struct collective_link *link)
{
    const size_t heads = (size_t)members->ranks + 1;
    TRY(find_library(&link->nccl));
    link->rank = (int)members->rank;
    link->ranks = (int)members->ranks;
    link->seen = members->seen;
    link->deadline_ns = members->deadline_ns;
    const cudaError_t error = cudaGetDevice(&link->gpu);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return fail(GRADWEIR_ERR_UNSUPPORTED, "nccl: no GPU here: %s", cudaGetErrorString(error));
    }
    TRY(nccl_cuda(cudaStreamCreateWithFlags(&link->stream, cudaStreamNonBlocking), "a stream"));
    TRY(nccl_cuda(cudaHostAlloc((void **)&link->heads, heads * sizeof *link->heads, 0),
                  "memory for heads"));
    return nccl_cuda(cudaMalloc((void **)&link->heads_gpu, heads * sizeof *link->heads),
                     "memory for heads");
}

static gradweir_status connect(const struct collective_members *members,
                               struct collective_link *link)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    memcpy(&id, members->name.bytes, sizeof id);
    return nccl_settled(
        link, link->nccl->CommInitRankConfig(&link->comm, link->ranks, id, link->rank, &config),
        "joining");
}

/* Who has no GPU says so before anybody waits for it in NCCL. */
static gradweir_status agree(const struct collective_members *members, gradweir_status prepared)
{
    int32_t mine = prepared, all[COLLECTIVE_RANKS_MAX];
    char reason[512];
    snprintf(reason, sizeof reason, "%s", fail_reason());
    const gradweir_status status =
        members->swap(members->swap_context, &mine, sizeof mine, all, members->deadline_ns);
    if (prepared != GRADWEIR_OK)
        return fail(prepared, "%s", reason);
    TRY(status);
    for (uint32_t r = 0; r < members->ranks; r++)
        if (all[r] != GRADWEIR_OK)
            return fail((gradweir_status)all[r], "nccl: rank %u cannot join", r);
    return GRADWEIR_OK;
}

gradweir_status nccl_join(const struct collective_members *members, struct collective_link **made)
{
    struct collective_link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "nccl: no memory");
    gradweir_status status = agree(members, prepare(members, link));
    if (status == GRADWEIR_OK)
        status = connect(members, link);
    if (status != GRADWEIR_OK) {
        link->failed = true;
        nccl_leave(link);
        return status;
    }
    *made = link;
    return GRADWEIR_OK;
}

/* In order when all was well, for others may still read what they need. */
static void end_comm(struct collective_link *link)
{
    if (link->comm == NULL)
        return;
    link->deadline_ns = deadline_after(clock_now_ns(), CLOCK_SECOND);
    if (!link->failed &&
        nccl_settled(link, link->nccl->CommFinalize(link->comm), "leaving") == GRADWEIR_OK)
        (void)link->nccl->CommDestroy(link->comm);
    else
        (void)link->nccl->CommAbort(link->comm);
    link->comm = NULL;
}

void nccl_leave(struct collective_link *link)
{
    if (link == NULL)
        return;
    end_comm(link);
    if (link->stream)
        (void)cudaStreamDestroy(link->stream);
    (void)cudaFreeHost(link->heads);
    (void)cudaFree(link->heads_gpu);
    (void)cudaFree(link->from);
    (void)cudaFree(link->to);
    free(link);
}

/* The communicator stays: shrink ends its work, or leave does. NCCL has no word for the others by
 * which they would return before their deadline. */
void nccl_abort(struct collective_link *link)
{
    link->failed = true;
}

static gradweir_status shrink_comm(struct collective_link *old, const bool *kept,
                                   struct collective_link *link)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int excluded[COLLECTIVE_RANKS_MAX], n = 0;
    config.blocking = 0;
    for (int r = 0; r < old->ranks; r++)
        if (!kept[r])
            excluded[n++] = r;
    const ncclResult_t said =
        old->nccl->CommShrink(old->comm, excluded, n, &link->comm, &config, NCCL_SHRINK_ABORT);
    old->deadline_ns = link->deadline_ns;
    if (said == ncclInProgress && link->comm == NULL)
        TRY(nccl_settled(old, said, "shrinking"));
    return nccl_settled(link, said, "shrinking");
}

/* Those who are left take a new name, that of their first. */
static gradweir_status form_anew(const struct collective_members *members,
                                 struct collective_link *link)
{
    struct collective_members renamed = *members;
    struct collective_name mine = {{0}}, all[COLLECTIVE_RANKS_MAX];
    if (members->rank == 0)
        TRY(nccl_name_group(&mine));
    TRY(members->swap(members->swap_context, &mine, sizeof mine, all, members->deadline_ns));
    renamed.name = all[0];
    return connect(&renamed, link);
}

gradweir_status nccl_shrink(struct collective_link *old, const bool *kept,
                            const struct collective_members *members, struct collective_link **made)
{
    struct collective_link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "nccl: no memory");
    gradweir_status status = agree(members, prepare(members, link));
    if (status == GRADWEIR_OK && old->nccl->CommShrink != NULL && old->comm != NULL)
        status = shrink_comm(old, kept, link);
    else if (status == GRADWEIR_OK)
        status = form_anew(members, link);
    if (status != GRADWEIR_OK) {
        link->failed = true;
        nccl_leave(link);
        return status;
    }
    *made = link;
    return GRADWEIR_OK;
}
