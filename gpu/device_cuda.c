/* The device that is one GPU: jobs go to a stream in the order given, an event behind each tells
 * when it is done. The same bits as device_cpu, by the same functions of an element.
 *
 * The CUDA runtime is linked in; the driver (libcuda) is looked for when the device is opened, and
 * where there is none, open says so. */
#include "common/device.h"
#include "gpu/kernels.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a job leaves on the host when it is done: pinned, so that the copy needs nobody to wait. */
struct results {
    double *sums;
    uint32_t *largest;
    size_t blocks; /* room, of each */
};

struct job {
    uint64_t tag;
    cudaEvent_t done;
    double *sums; /* where the caller wants them; NULL: nowhere */
    size_t blocks;
    bool measures; /* largest_bits is asked for */
};

struct device_state {
    int ordinal;
    cudaStream_t stream;
    char name[64];
    uint64_t given, done; /* jobs; the ring holds [done, given) */
    struct job ring[DEVICE_JOBS_MAX];
    struct results host[DEVICE_JOBS_MAX];   /* by ring place */
    struct results device[DEVICE_JOBS_MAX]; /* likewise, in the GPU's memory */
    struct arithmetic_range *ranges;        /* the newest work's, in the GPU's memory */
    size_t ranges_n;
    const struct arithmetic_range *ranges_of; /* the host array that they are a copy of */
    float *ratios;
    size_t ratios_n;
    gradweir_status broken; /* a failure that ended it; text in reason */
    char reason[128];
};

static gradweir_status lost(struct device_state *state, cudaError_t error, const char *what)
{
    state->broken = GRADWEIR_ERR_LOST;
    snprintf(state->reason, sizeof state->reason, "cuda: %s: %s", what, cudaGetErrorString(error));
    return fail(GRADWEIR_ERR_LOST, "%s", state->reason);
}

/* Why there is no GPU to open, in words that say what to do. */
static gradweir_status no_device(cudaError_t error)
{
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "cuda: this machine has no NVIDIA driver (libcuda); "
                                              "use the cpu, or install the driver");
    if (error == cudaErrorInsufficientDriver)
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "cuda: the driver knows CUDA %d.%d, this program was built for %d.%d: a newer "
                    "driver is needed",
                    driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return fail(GRADWEIR_ERR_UNSUPPORTED, "cuda: %s", cudaGetErrorString(error));
}

static gradweir_status find(uint32_t ordinal, struct device_state *state)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        return no_device(error == cudaSuccess ? cudaErrorNoDevice : error);
    if (ordinal >= (uint32_t)(count))
        return fail(GRADWEIR_ERR_INVALID,
                    "cuda: there is no GPU %u; this machine has %d, from 0 on", ordinal, count);
    struct cudaDeviceProp properties;
    state->ordinal = (int)(ordinal);
    const cudaError_t asked = cudaGetDeviceProperties(&properties, state->ordinal);
    if (asked != cudaSuccess)
        return no_device(asked);
    snprintf(state->name, sizeof state->name, "%.40s sm_%d%d", properties.name, properties.major,
             properties.minor);
    struct cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, gpu_any_kernel()) != cudaSuccess)
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "cuda: GPU %u is %s, and this program has no code for it: build with "
                    "-DCMAKE_CUDA_ARCHITECTURES=%d%d",
                    ordinal, state->name, properties.major, properties.minor);
    return GRADWEIR_OK;
}

static void close_state(struct device_state *state)
{
    if (state == NULL)
        return;
    if (state->stream != NULL)
        (void)cudaStreamSynchronize(state->stream);
    for (int i = 0; i < DEVICE_JOBS_MAX; i++) {
        if (state->ring[i].done != NULL)
            (void)cudaEventDestroy(state->ring[i].done);
        (void)cudaFreeHost(state->host[i].sums);
        (void)cudaFreeHost(state->host[i].largest);
        (void)cudaFree(state->device[i].sums);
        (void)cudaFree(state->device[i].largest);
    }
    (void)cudaFree(state->ranges);
    (void)cudaFree(state->ratios);
    if (state->stream != NULL)
        (void)cudaStreamDestroy(state->stream);
    free(state);
}

static gradweir_status open_state(const struct device_options *options, struct device_state **out)
{
    struct device_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cuda: no memory on the host");
    gradweir_status status = find(options->ordinal, state);
    cudaError_t error = cudaSuccess;
    if (status == GRADWEIR_OK)
        error = cudaSetDevice(state->ordinal);
    if (status == GRADWEIR_OK && error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking);
    for (int i = 0; status == GRADWEIR_OK && error == cudaSuccess && i < DEVICE_JOBS_MAX; i++)
        error = cudaEventCreateWithFlags(&state->ring[i].done, cudaEventDisableTiming);
    if (status == GRADWEIR_OK && error != cudaSuccess)
        status = lost(state, error, "opening the GPU");
    if (status != GRADWEIR_OK) {
        close_state(state);
        return status;
    }
    *out = state;
    return GRADWEIR_OK;
}

static void tell(const struct device_state *state, struct device_info *info)
{
    *info = (struct device_info){0};
    info->host_memory = false;
    info->registers_host = false;
    info->alignment = 256;
    snprintf(info->text, sizeof info->text, "cuda %s", state->name);
}

static gradweir_status take(struct device_state *state, size_t bytes, void **memory)
{
    size_t free_bytes = 0, all = 0;
    const cudaError_t error = cudaMalloc(memory, bytes);
    if (error == cudaSuccess) {
        const cudaError_t zeroed = cudaMemset(*memory, 0, bytes);
        return zeroed == cudaSuccess ? GRADWEIR_OK : lost(state, zeroed, "clearing memory");
    }
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&free_bytes, &all);
    return fail(GRADWEIR_ERR_NO_MEMORY,
                "cuda: GPU %d has %zu MiB free of %zu MiB, and %zu MiB are needed", state->ordinal,
                free_bytes >> 20, all >> 20, (bytes >> 20) + 1);
}

static void give_back(struct device_state *state, void *memory, size_t bytes)
{
    (void)state;
    (void)bytes;
    (void)cudaFree(memory);
}

/* Jobs. */

static gradweir_status begin(struct device_state *state, uint64_t tag, struct job **out)
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

static gradweir_status end(struct device_state *state, struct job *job, int error)
{
    cudaError_t failed = (cudaError_t)error;
    if (failed == cudaSuccess)
        failed = cudaEventRecord(job->done, state->stream);
    if (failed != cudaSuccess)
        return lost(state, failed, "starting a job");
    state->given++;
    return GRADWEIR_OK;
}

/* Room for `blocks` sums and magnitudes at this place of the ring, on both sides. Grows only. */
static gradweir_status results_room(struct device_state *state, size_t place, size_t blocks)
{
    struct results *host = &state->host[place], *device = &state->device[place];
    if (host->blocks >= blocks)
        return GRADWEIR_OK;
    (void)cudaFreeHost(host->sums);
    (void)cudaFreeHost(host->largest);
    (void)cudaFree(device->sums);
    (void)cudaFree(device->largest);
    *host = *device = (struct results){0};
    cudaError_t error = cudaHostAlloc((void **)&host->sums, blocks * sizeof *host->sums, 0);
    if (error == cudaSuccess)
        error = cudaHostAlloc((void **)&host->largest, blocks * sizeof *host->largest, 0);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&device->sums, blocks * sizeof *device->sums);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&device->largest, blocks * sizeof *device->largest);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return fail(GRADWEIR_ERR_NO_MEMORY, "cuda: no memory for %zu sums: %s", blocks,
                    cudaGetErrorString(error));
    }
    host->blocks = device->blocks = blocks;
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

static gradweir_status start_copy(struct device_state *state, uint64_t tag,
                                  const struct device_copy *asked)
{
    struct job *job = NULL;
    TRY(begin(state, tag, &job));
    return end(
        state, job,
        cudaMemcpyAsync(asked->to, asked->from, asked->bytes, cudaMemcpyDefault, state->stream));
}

static gradweir_status start_decode(struct device_state *state, uint64_t tag,
                                    const struct device_decode *asked)
{
    struct job *job = NULL;
    TRY(begin(state, tag, &job));
    if (asked->n == 0)
        return fail(GRADWEIR_ERR_INVALID, "cuda: decode of nothing");
    const size_t place = state->given % DEVICE_JOBS_MAX;
    TRY(results_room(state, place, arithmetic_blocks(asked->n)));
    job->sums = asked->sums;
    job->blocks = arithmetic_blocks(asked->n);
    job->measures = true;
    int error = 0;
    if (asked->to != NULL)
        error = gpu_decode(state->stream, asked->codec, asked->from, asked->n, asked->to);
    if (error == 0)
        error = measure(state, place, asked->codec, asked->from, asked->n);
    return end(state, job, error);
}

static gradweir_status start_accumulate(struct device_state *state, uint64_t tag,
                                        const struct device_accumulate *asked)
{
    struct job *job = NULL;
    TRY(begin(state, tag, &job));
    if (asked->begin >= asked->end || asked->begin % ARITHMETIC_BLOCK != 0)
        return fail(GRADWEIR_ERR_INVALID, "cuda: accumulate from %zu to %zu", asked->begin,
                    asked->end);
    const size_t n = asked->end - asked->begin, place = state->given % DEVICE_JOBS_MAX;
    int error = gpu_average(state->stream, asked->plan, &asked->sources, asked->begin, asked->end,
                            asked->average);
    if (asked->sums != NULL && error == 0) {
        TRY(results_room(state, place, arithmetic_blocks(n)));
        job->sums = asked->sums;
        job->blocks = arithmetic_blocks(n);
        error = measure(state, place, ARITHMETIC_F32, asked->average + asked->begin, n);
    }
    return end(state, job, error);
}

/* Ranges are the shard's own and do not change: they are copied when the array is another one. */
static gradweir_status bring_ranges(struct device_state *state, const struct arithmetic_work *work)
{
    if (state->ranges_of == work->ranges && state->ranges_n == work->ranges_n)
        return GRADWEIR_OK;
    (void)cudaStreamSynchronize(state->stream);
    (void)cudaFree(state->ranges);
    state->ranges = NULL;
    const size_t bytes = work->ranges_n * sizeof *work->ranges;
    cudaError_t error = cudaMalloc((void **)&state->ranges, bytes);
    if (error == cudaSuccess)
        error = cudaMemcpy(state->ranges, work->ranges, bytes, cudaMemcpyHostToDevice);
    if (error != cudaSuccess)
        return lost(state, error, "copying the tensors' ranges");
    state->ranges_of = work->ranges;
    state->ranges_n = work->ranges_n;
    return GRADWEIR_OK;
}

static gradweir_status bring_ratios(struct device_state *state, const struct arithmetic_work *work)
{
    size_t n = 0;
    for (size_t i = 0; work->ratios != NULL && i < work->ranges_n; i++)
        n = work->ranges[i].tensor >= n ? work->ranges[i].tensor + 1 : n;
    if (n == 0)
        return GRADWEIR_OK;
    cudaError_t error = cudaStreamSynchronize(state->stream);
    if (error == cudaSuccess && n > state->ratios_n) {
        (void)cudaFree(state->ratios);
        error = cudaMalloc((void **)&state->ratios, n * sizeof *state->ratios);
        state->ratios_n = n;
    }
    if (error == cudaSuccess)
        error = cudaMemcpy(state->ratios, work->ratios, n * sizeof(float), cudaMemcpyHostToDevice);
    return error == cudaSuccess ? GRADWEIR_OK : lost(state, error, "copying trust ratios");
}

static gradweir_status start_step(struct device_state *state, uint64_t tag,
                                  const struct device_step *asked)
{
    struct job *job = NULL;
    if (asked->update_sums != NULL || asked->theta_sums != NULL)
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "cuda: LAMB's sums are not made on the GPU; use the cpu for optimizer lamb");
    if (asked->plan->stacks.window != 0)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "cuda: the window by stacks is not on the GPU; "
                                              "window_algorithm = direct is");
    if (asked->begin >= asked->end)
        return fail(GRADWEIR_ERR_INVALID, "cuda: a step from %zu to %zu", asked->begin, asked->end);
    TRY(bring_ranges(state, asked->work));
    TRY(bring_ratios(state, asked->work));
    TRY(begin(state, tag, &job));
    struct arithmetic_work work = *asked->work;
    work.ranges = state->ranges;
    work.ratios = asked->work->ratios == NULL ? NULL : state->ratios;
    return end(state, job, gpu_step(state->stream, asked->plan, &work, asked->begin, asked->end));
}

/* A job that failed, and all behind it: the GPU has lost what it held. */
static size_t poll_state(struct device_state *state, struct device_done *done, size_t room)
{
    size_t count = 0;
    while (count < room && state->done < state->given) {
        const size_t place = state->done % DEVICE_JOBS_MAX;
        struct job *job = &state->ring[place];
        const cudaError_t error =
            state->broken == GRADWEIR_OK ? cudaEventQuery(job->done) : cudaErrorUnknown;
        if (error == cudaErrorNotReady)
            break;
        if (error != cudaSuccess && state->broken == GRADWEIR_OK)
            (void)lost(state, error, "a job");
        struct device_done *told = &done[count++];
        *told = (struct device_done){0};
        told->tag = job->tag;
        told->status = state->broken;
        for (size_t b = 0; b < job->blocks && state->broken == GRADWEIR_OK; b++) {
            if (job->sums != NULL)
                job->sums[b] = state->host[place].sums[b];
            if (job->measures && state->host[place].largest[b] > told->largest_bits)
                told->largest_bits = state->host[place].largest[b];
        }
        state->done++;
    }
    return count;
}

static size_t count_flight(const struct device_state *state)
{
    return (size_t)(state->given - state->done);
}

const struct device device_cuda = {.name = "cuda",
                                   .open = open_state,
                                   .close = close_state,
                                   .info = tell,
                                   .alloc = take,
                                   .free = give_back,
                                   .copy = start_copy,
                                   .decode = start_decode,
                                   .accumulate = start_accumulate,
                                   .step = start_step,
                                   .poll = poll_state,
                                   .in_flight = count_flight};
