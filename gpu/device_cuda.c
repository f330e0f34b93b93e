/* The device that is one GPU: jobs go to a stream in the order given, an event behind each tells
 * when it is done. The same bits as device_cpu, by the same functions of an element. */
#include "gpu/device_cuda_state.h"

#include <stdlib.h>
#include <string.h>

/* Jobs. */

gradweir_status cuda_job_begin(struct device_state *state, uint64_t tag, struct job **out)
{
    if (state->broken != GRADWEIR_OK)
        return fail(state->broken, "%s", state->reason);
    if (state->given - state->done == DEVICE_JOBS_MAX)
        return fail(GRADWEIR_ERR_FULL, "cuda: %d jobs are in flight", DEVICE_JOBS_MAX);
    struct job *job = &state->ring[state->given % DEVICE_JOBS_MAX];
    const cudaEvent_t event = job->done;
    *job = (struct job){0};
    job->tag = tag;
    job->done = event;
    *out = job;
    return GRADWEIR_OK;
}

gradweir_status cuda_job_end(struct device_state *state, struct job *job, int error)
{
    cudaError_t failed = (cudaError_t)error;
    if (failed == cudaSuccess)
        failed = cudaEventRecord(job->done, state->stream);
    if (failed != cudaSuccess)
        return cuda_lost(state, failed, "starting a job");
    state->given++;
    return GRADWEIR_OK;
}

/* Room for `blocks` sums and magnitudes and `pieces` checksums. */
static cudaError_t take_results(struct results *host, struct results *device, size_t blocks,
                                size_t pieces)
{
    cudaError_t error = cudaHostAlloc((void **)&host->sums, blocks * sizeof *host->sums, 0);
    if (error == cudaSuccess)
        error = cudaHostAlloc((void **)&host->largest, blocks * sizeof *host->largest, 0);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&device->sums, blocks * sizeof *device->sums);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&device->largest, blocks * sizeof *device->largest);
    if (error == cudaSuccess && pieces > 0)
        error = cudaHostAlloc((void **)&host->crcs, pieces * sizeof *host->crcs, 0);
    if (error == cudaSuccess && pieces > 0)
        error = cudaMalloc((void **)&device->crcs, pieces * sizeof *device->crcs);
    return error;
}

void cuda_results_free(struct device_state *state, size_t place)
{
    struct results *host = &state->host[place], *device = &state->device[place];
    (void)cudaFreeHost(host->sums);
    (void)cudaFreeHost(host->largest);
    (void)cudaFreeHost(host->crcs);
    (void)cudaFree(device->sums);
    (void)cudaFree(device->largest);
    (void)cudaFree(device->crcs);
    *host = *device = (struct results){0};
}

gradweir_status cuda_results_room(struct device_state *state, size_t place, size_t blocks,
                                  size_t pieces)
{
    struct results *host = &state->host[place], *device = &state->device[place];
    if (host->blocks >= blocks && host->pieces >= pieces)
        return GRADWEIR_OK;
    blocks = blocks > host->blocks ? blocks : host->blocks;
    pieces = pieces > host->pieces ? pieces : host->pieces;
    cuda_results_free(state, place);
    const cudaError_t error = take_results(host, device, blocks, pieces);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return fail(GRADWEIR_ERR_NO_MEMORY, "cuda: no memory for %zu sums: %s", blocks,
                    cudaGetErrorString(error));
    }
    host->blocks = device->blocks = blocks;
    host->pieces = device->pieces = pieces;
    return GRADWEIR_OK;
}

/* Measures n elements behind whatever the stream has to do, and brings the numbers to the host. */
static int measure(struct device_state *state, size_t place, enum arithmetic_codec codec,
                   const void *data, size_t n)
{
    const size_t blocks = arithmetic_blocks(n);
    struct results *host = &state->host[place], *device = &state->device[place];
    int error = gpu_measure(state->stream, codec, data, n, device->sums, device->largest);
    if (error == 0)
        error = cudaMemcpyAsync(host->sums, device->sums, blocks * sizeof *host->sums,
                                cudaMemcpyDeviceToHost, state->stream);
    if (error == 0)
        error = cudaMemcpyAsync(host->largest, device->largest, blocks * sizeof *host->largest,
                                cudaMemcpyDeviceToHost, state->stream);
    return error;
}

static gradweir_status copy(struct device_state *state, uint64_t tag, const void *given)
{
    const struct device_copy *asked = given;
    struct job *job = NULL;
    if (asked->from == NULL || asked->to == NULL)
        return fail(GRADWEIR_ERR_INVALID, "copy: no memory given");
    TRY(cuda_job_begin(state, tag, &job));
    return cuda_job_end(
        state, job,
        cudaMemcpyAsync(asked->to, asked->from, asked->bytes, cudaMemcpyDefault, state->stream));
}

static gradweir_status decode(struct device_state *state, uint64_t tag, const void *given)
{
    const struct device_decode *asked = given;
    struct job *job = NULL;
    TRY(cuda_job_begin(state, tag, &job));
    if (asked->n == 0 || asked->from == NULL || asked->sums == NULL)
        return fail(GRADWEIR_ERR_INVALID, "cuda: decode of nothing");
    const size_t place = state->given % DEVICE_JOBS_MAX;
    TRY(cuda_results_room(state, place, arithmetic_blocks(asked->n), 0));
    job->sums = asked->sums;
    job->blocks = arithmetic_blocks(asked->n);
    job->measures = true;
    int error = 0;
    if (asked->to != NULL)
        error = gpu_decode(state->stream, asked->codec, asked->from, asked->n, asked->to);
    if (error == 0)
        error = measure(state, place, asked->codec, asked->from, asked->n);
    return cuda_job_end(state, job, error);
}

/* Everybody's jobs begin with the right GPU. */

typedef gradweir_status job_call(struct device_state *state, uint64_t tag, const void *asked);

static gradweir_status start(job_call *call, struct device_state *state, uint64_t tag,
                             const void *asked)
{
    const int before = cuda_enter(state);
    const gradweir_status status = call(state, tag, asked);
    cuda_leave(before);
    return status;
}

static gradweir_status start_copy(struct device_state *state, uint64_t tag,
                                  const struct device_copy *asked)
{
    return start(copy, state, tag, asked);
}

static gradweir_status start_decode(struct device_state *state, uint64_t tag,
                                    const struct device_decode *asked)
{
    return start(decode, state, tag, asked);
}

static gradweir_status start_give_back(struct device_state *state, uint64_t tag,
                                       const struct device_give_back *asked)
{
    return start(cuda_give_back, state, tag, asked);
}

static gradweir_status start_encode(struct device_state *state, uint64_t tag,
                                    const struct device_encode *asked)
{
    return start(cuda_encode, state, tag, asked);
}

static gradweir_status start_accumulate(struct device_state *state, uint64_t tag,
                                        const struct device_accumulate *asked)
{
    return start(cuda_accumulate, state, tag, asked);
}

static gradweir_status start_step(struct device_state *state, uint64_t tag,
                                  const struct device_step *asked)
{
    return start(cuda_step, state, tag, asked);
}

/* What follows the arithmetic runs here, a few blocks at a time, once the GPU has done the job. */
enum { BEHIND_BLOCKS = 4 };

static bool followed(struct job *job)
{
    if (job->behind.call == NULL || job->at >= job->end)
        return true;
    const size_t most = (job->at / ARITHMETIC_BLOCK + BEHIND_BLOCKS) * ARITHMETIC_BLOCK;
    const size_t stop = job->end < most ? job->end : most;
    job->behind.call(job->behind.context, job->at, stop);
    job->at = stop;
    return stop == job->end;
}

static void tell(struct device_state *state, struct device_done *told)
{
    const size_t place = state->done % DEVICE_JOBS_MAX;
    const struct job *job = &state->ring[place];
    *told = (struct device_done){.tag = job->tag, .status = state->broken};
    for (size_t b = 0; b < job->blocks && state->broken == GRADWEIR_OK; b++) {
        if (job->sums != NULL)
            job->sums[b] = state->host[place].sums[b];
        if (job->more_sums != NULL)
            job->more_sums[b] = state->host[place].sums[job->blocks + b];
        if (job->measures && state->host[place].largest[b] > told->largest_bits)
            told->largest_bits = state->host[place].largest[b];
    }
    if (job->pieces > 0 && state->broken == GRADWEIR_OK)
        memcpy(job->crcs, state->host[place].crcs, job->pieces * sizeof *job->crcs);
    state->done++;
}

/* A job that failed, and all behind it: the GPU has lost what it held. */
static size_t poll_state(struct device_state *state, struct device_done *done, size_t room)
{
    size_t count = 0;
    while (count < room && state->done < state->given) {
        struct job *job = &state->ring[state->done % DEVICE_JOBS_MAX];
        const cudaError_t error =
            state->broken == GRADWEIR_OK ? cudaEventQuery(job->done) : cudaErrorUnknown;
        if (error == cudaErrorNotReady)
            break;
        if (error != cudaSuccess && state->broken == GRADWEIR_OK)
            (void)cuda_lost(state, error, "a job");
        if (state->broken == GRADWEIR_OK && !followed(job))
            break;
        tell(state, &done[count++]);
    }
    return count;
}

static size_t count_flight(const struct device_state *state)
{
    return (size_t)(state->given - state->done);
}

const struct device device_cuda = {.name = "cuda",
                                   .open = cuda_open,
                                   .close = cuda_close,
                                   .info = cuda_info,
                                   .alloc = cuda_alloc,
                                   .free = cuda_free,
                                   .locate = cuda_locate,
                                   .pin = cuda_pin,
                                   .unpin = cuda_unpin,
                                   .copy = start_copy,
                                   .decode = start_decode,
                                   .encode = start_encode,
                                   .give_back = start_give_back,
                                   .accumulate = start_accumulate,
                                   .step = start_step,
                                   .poll = poll_state,
                                   .in_flight = count_flight};
