/* The jobs of a shard on the GPU: the average of a window and a step, with the sums that are asked
 * for. */
#include "gpu/device_cuda_state.h"
#include "gpu/kernels_sums.h"

#include <stdlib.h>

void cuda_shard_free(struct device_state *state)
{
    (void)cudaFree(state->shard.ranges);
    (void)cudaFree(state->shard.pieces);
    (void)cudaFree(state->shard.ratios);
    state->shard = (struct cuda_shard){.ranges_n = 0};
}

/* Sums that a job has left in the GPU's memory, on their way to the host. */
static int bring_sums(struct device_state *state, size_t place, size_t n)
{
    return (int)cudaMemcpyAsync(state->host[place].sums, state->device[place].sums,
                                n * sizeof(double), cudaMemcpyDeviceToHost, state->stream);
}

/* What has just been written of [begin, end), on its way to the host. Returns an error's number. */
static int echo(struct device_state *state, const float *from, float *to, size_t begin, size_t end)
{
    if (to == NULL)
        return 0;
    return (int)cudaMemcpyAsync(to + begin, from + begin, (end - begin) * sizeof(float),
                                cudaMemcpyDefault, state->stream);
}

gradweir_status cuda_accumulate(struct device_state *state, uint64_t tag, const void *given)
{
    const struct device_accumulate *asked = given;
    const size_t place = state->given % DEVICE_JOBS_MAX, block = device_block(asked->block);
    struct job *job = NULL;
    if (asked->begin >= asked->end || asked->begin % ARITHMETIC_BLOCK != 0 || block == 0)
        return fail(GRADWEIR_ERR_INVALID, "cuda: accumulate from %zu to %zu, sums of %zu",
                    asked->begin, asked->end, asked->block);
    TRY(cuda_job_begin(state, tag, &job));
    job->behind = asked->behind;
    job->at = asked->begin;
    job->end = asked->end;
    const size_t n = asked->end - asked->begin, blocks = (n - 1) / block + 1;
    if (asked->sums != NULL)
        TRY(cuda_results_room(state, place, blocks, 0));
    int error = gpu_average(state->stream, asked->plan, &asked->sources, asked->begin, asked->end,
                            asked->average);
    if (error == 0)
        error = echo(state, asked->average, asked->echo, asked->begin, asked->end);
    if (asked->sums != NULL && error == 0) {
        job->sums = asked->sums;
        job->blocks = blocks;
        error = gpu_block_sums(state->stream, asked->average + asked->begin, n, block,
                               state->device[place].sums);
        error = error == 0 ? bring_sums(state, place, blocks) : error;
    }
    return cuda_job_end(state, job, error);
}

/* A copy in the GPU's memory, instead of the one before. */
static gradweir_status bring(struct device_state *state, const void *from, size_t bytes, void **to)
{
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return fail(GRADWEIR_ERR_NO_MEMORY,
                    "cuda: GPU %d has no memory left for %zu bytes of the "
                    "tensors' ranges",
                    state->ordinal, bytes);
    }
    if (error == cudaSuccess)
        error = cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(state->stream); /* nobody reads the one before any more */
    if (error != cudaSuccess)
        return cuda_lost(state, error, "copying the tensors' ranges");
    (void)cudaFree(*to);
    *to = memory;
    return GRADWEIR_OK;
}

/* Ranges are the shard's own and do not change: they are copied when the array is another one. */
static gradweir_status bring_ranges(struct device_state *state, const struct arithmetic_work *work)
{
    struct cuda_shard *shard = &state->shard;
    if (shard->ranges_of == work->ranges && shard->ranges_n == work->ranges_n)
        return GRADWEIR_OK;
    void *ranges = shard->ranges;
    shard->ranges_of = NULL;
    TRY(bring(state, work->ranges, work->ranges_n * sizeof *work->ranges, &ranges));
    shard->ranges = ranges;
    shard->ranges_of = work->ranges;
    shard->ranges_n = work->ranges_n;
    shard->block = 0;
    return GRADWEIR_OK;
}

/* All of the shard's pieces, in order; so a job's are a run of them. */
static gradweir_status bring_pieces(struct device_state *state, const struct arithmetic_work *work,
                                    size_t block)
{
    struct cuda_shard *shard = &state->shard;
    const size_t end = (size_t)work->ranges[work->ranges_n - 1].end;
    const size_t n = device_pieces(work, block, 0, end);
    if (shard->block == block)
        return GRADWEIR_OK;
    struct arithmetic_range *list = malloc(n * sizeof *list);
    if (list == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cuda: no memory on the host for %zu pieces", n);
    for (size_t i = 0, at = 0; device_piece(work, block, at, end, &list[i]); i++)
        at = (size_t)list[i].end;
    void *pieces = shard->pieces;
    const gradweir_status status = bring(state, list, n * sizeof *list, &pieces);
    free(list);
    TRY(status);
    shard->pieces = pieces;
    shard->block = block;
    return GRADWEIR_OK;
}

/* In the stream's order: what reads the ratios before has been given before. */
static gradweir_status bring_ratios(struct device_state *state, const struct arithmetic_work *work)
{
    struct cuda_shard *shard = &state->shard;
    size_t n = 0;
    for (size_t i = 0; i < work->ranges_n; i++)
        n = work->ranges[i].tensor >= n ? work->ranges[i].tensor + 1 : n;
    if (n > shard->ratios_n) {
        void *ratios = shard->ratios;
        TRY(bring(state, work->ratios, n * sizeof(float), &ratios));
        shard->ratios = ratios;
        shard->ratios_n = n;
        return GRADWEIR_OK;
    }
    const cudaError_t error = cudaMemcpyAsync(shard->ratios, work->ratios, n * sizeof(float),
                                              cudaMemcpyDefault, state->stream);
    return error == cudaSuccess ? GRADWEIR_OK : cuda_lost(state, error, "copying trust ratios");
}

static bool measures(const struct device_step *asked)
{
    return asked->update_sums != NULL && asked->theta_sums != NULL;
}

static gradweir_status check_step(const struct device_step *asked)
{
    const struct arithmetic_plan *plan = asked->plan;
    if (asked->begin >= asked->end || asked->begin % ARITHMETIC_BLOCK != 0 ||
        device_block(asked->block) == 0)
        return fail(GRADWEIR_ERR_INVALID, "cuda: a step from %zu to %zu, sums of %zu", asked->begin,
                    asked->end, asked->block);
    if ((plan->phase == ARITHMETIC_WHOLE) != (plan->algorithm != ARITHMETIC_LAMB) ||
        (measures(asked) && plan->phase != ARITHMETIC_MOMENTS))
        return fail(GRADWEIR_ERR_INVALID, "cuda: the phase does not fit algorithm and sums");
    return GRADWEIR_OK;
}

/* LAMB's sums of the pieces of the stretch that has been stepped. */
static int add_sums(struct device_state *state, const struct device_step *asked,
                    const struct arithmetic_work *work, struct job *job)
{
    const size_t place = state->given % DEVICE_JOBS_MAX, block = device_block(asked->block);
    double *sums = state->device[place].sums;
    const struct gpu_pieces pieces = {.pieces = state->shard.pieces +
                                                device_pieces(asked->work, block, 0, asked->begin),
                                      .n = (uint32_t)job->blocks,
                                      .theta_sums = sums,
                                      .update_sums = sums + job->blocks};
    job->sums = asked->theta_sums;
    job->more_sums = asked->update_sums;
    const int error = gpu_lamb_sums(state->stream, asked->plan, work, &pieces);
    return error == 0 ? bring_sums(state, place, 2 * job->blocks) : error;
}

static int echo_step(struct device_state *state, const struct device_step *asked)
{
    const struct arithmetic_work *work = asked->work;
    const enum arithmetic_phase phase = asked->plan->phase;
    int error = 0;
    if (phase != ARITHMETIC_MOMENTS)
        error =
            echo(state, work->parameters_next, asked->echo.parameters, asked->begin, asked->end);
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX && phase != ARITHMETIC_APPLY && error == 0; k++)
        error = echo(state, work->state_next[k], asked->echo.state[k], asked->begin, asked->end);
    return error;
}

gradweir_status cuda_step(struct device_state *state, uint64_t tag, const void *given)
{
    const struct device_step *asked = given;
    const size_t place = state->given % DEVICE_JOBS_MAX, block = device_block(asked->block);
    struct job *job = NULL;
    TRY(check_step(asked));
    TRY(cuda_job_begin(state, tag, &job));
    TRY(bring_ranges(state, asked->work));
    if (asked->plan->phase == ARITHMETIC_APPLY)
        TRY(bring_ratios(state, asked->work));
    if (measures(asked)) {
        job->blocks = device_pieces(asked->work, block, asked->begin, asked->end);
        TRY(bring_pieces(state, asked->work, block));
        TRY(cuda_results_room(state, place, 2 * job->blocks, 0));
    }
    job->behind = asked->behind;
    job->at = asked->begin;
    job->end = asked->end;
    struct arithmetic_work work = *asked->work;
    work.ranges = state->shard.ranges;
    work.ratios = state->shard.ratios;
    int error = gpu_step(state->stream, asked->plan, &work, asked->begin, asked->end);
    if (error == 0)
        error = echo_step(state, asked);
    if (error == 0 && measures(asked))
        error = add_sums(state, asked, &work, job);
    return cuda_job_end(state, job, error);
}
