/* The job that makes wire bytes of floats on the GPU: encoded, measured and summed in its memory,
 * and the numbers alone come to the host; and the job that takes it back. */
#include "common/codec.h"
#include "gpu/device_cuda_state.h"

static int encode(struct device_state *state, const struct device_encode *asked,
                  const struct results *to)
{
    if (asked->from == NULL)
        return gpu_measure(state->stream, asked->codec, asked->to, asked->n, to->sums, to->largest);
    if (asked->rest != NULL)
        return gpu_encode_rest(state->stream, asked->codec, asked->from, asked->n, asked->rest,
                               asked->to, to->sums, to->largest);
    return gpu_encode(state->stream, asked->codec, asked->from, asked->n, 1.0f, asked->to, to->sums,
                      to->largest);
}

/* What the GPU has to do, in order. Returns the first error's number. */
static int enqueue(struct device_state *state, const struct device_encode *asked, size_t place)
{
    const struct results *to = &state->device[place];
    int error = encode(state, asked, to);
    if (error == 0)
        error = gpu_crc32c(state->stream, asked->to, codec_bytes(asked->codec, asked->n),
                           codec_bytes(asked->codec, asked->piece), to->crcs);
    return error;
}

static int bring(struct device_state *state, size_t place, size_t blocks, size_t pieces)
{
    struct results *host = &state->host[place], *device = &state->device[place];
    int error = cudaMemcpyAsync(host->sums, device->sums, blocks * sizeof *host->sums,
                                cudaMemcpyDeviceToHost, state->stream);
    if (error == 0)
        error = cudaMemcpyAsync(host->largest, device->largest, blocks * sizeof *host->largest,
                                cudaMemcpyDeviceToHost, state->stream);
    if (error == 0)
        error = cudaMemcpyAsync(host->crcs, device->crcs, pieces * sizeof *host->crcs,
                                cudaMemcpyDeviceToHost, state->stream);
    return error;
}

gradweir_status cuda_encode(struct device_state *state, uint64_t tag, const void *given)
{
    const struct device_encode *asked = given;
    struct job *job = NULL;
    TRY(device_check_encode(asked));
    TRY(cuda_job_begin(state, tag, &job));
    const size_t place = state->given % DEVICE_JOBS_MAX;
    const size_t blocks = arithmetic_blocks(asked->n), pieces = (asked->n - 1) / asked->piece + 1;
    TRY(cuda_results_room(state, place, blocks, pieces));
    job->sums = asked->sums;
    job->blocks = blocks;
    job->measures = true;
    job->crcs = asked->crcs;
    job->pieces = pieces;
    int error = enqueue(state, asked, place);
    if (error == 0)
        error = bring(state, place, blocks, pieces);
    return cuda_job_end(state, job, error);
}

gradweir_status cuda_give_back(struct device_state *state, uint64_t tag, const void *given)
{
    const struct device_give_back *asked = given;
    struct job *job = NULL;
    TRY(device_check_give_back(asked));
    TRY(cuda_job_begin(state, tag, &job));
    return cuda_job_end(state, job,
                        gpu_give_back(state->stream, asked->codec, asked->sent, asked->n,
                                      asked->from, asked->rest));
}
