/* A set of loops whose every call goes to the device and back: with it in the place of element_set
 * the reference vectors of optimizers, averages, norms and halves run through the kernels. */
#include "common/codec.h"
#include "tests/gpu/check.h"
#include "tests/unit/element_set.h"

#include <stdio.h>
#include <stdlib.h>

struct arithmetic gpu_set(void);

/* A copy on the device, until the call is over. */
static void *bring(const void *host, size_t bytes)
{
    void *there_now = memory_get(bytes ? bytes : 1);
    memory_put(there_now, host, bytes);
    return there_now;
}

static void *take_back(void *device, void *host, size_t bytes)
{
    memory_fetch(host, device, bytes);
    memory_free(device);
    return NULL;
}

static void ran(int error, const char *what)
{
    if (error == 0 && memory_wait())
        return;
    printf("gpu_set: %s: error %d, %s\n", what, error, error == 0 ? fail_reason() : "at start");
    exit(1);
}

static void measure(enum arithmetic_codec codec, const void *data, size_t n,
                    struct arithmetic_measure *out)
{
    void *from = bring(data, codec_bytes(codec, n));
    double *sums = memory_get(arithmetic_blocks(n) * sizeof *sums + sizeof *sums);
    uint32_t *largest = memory_get(arithmetic_blocks(n) * sizeof *largest + sizeof *largest);
    ran(gpu_measure(memory_stream(), codec, from, n, sums, largest), "measure");
    *out = (struct arithmetic_measure){0};
    memory_fetch(&out->sum_squares, sums, n ? sizeof *sums : 0);
    memory_fetch(&out->largest_bits, largest, n ? sizeof *largest : 0);
    memory_free(from);
    memory_free(sums);
    memory_free(largest);
}

static void encode(enum arithmetic_codec codec, float scale, const float *from, size_t n, void *to)
{
    const size_t blocks = arithmetic_blocks(n) + 1;
    float *x = bring(from, n * sizeof *from);
    void *codes = memory_get(codec_bytes(codec, n) + 1);
    double *sums = memory_get(blocks * sizeof *sums);
    uint32_t *largest = memory_get(blocks * sizeof *largest);
    ran(gpu_encode(memory_stream(), codec, x, n, scale, codes, sums, largest), "encode");
    take_back(codes, to, codec_bytes(codec, n));
    memory_free(x);
    memory_free(sums);
    memory_free(largest);
}

static void decode(enum arithmetic_codec codec, const void *from, size_t n, float *to)
{
    void *codes = bring(from, codec_bytes(codec, n));
    float *x = memory_get(n * sizeof *x + 1);
    ran(gpu_decode(memory_stream(), codec, codes, n, x), "decode");
    take_back(x, to, n * sizeof *x);
    memory_free(codes);
}

/* The slots a plan reads, up to element `end` of the last one. */
static struct arithmetic_sources bring_sources(const struct arithmetic_plan *plan,
                                               const struct arithmetic_sources *sources, size_t end)
{
    struct arithmetic_sources on_gpu = *sources;
    size_t last = 0;
    for (uint32_t k = 0; k < plan->entries_n; k++)
        last = plan->entries[k].slot > last ? plan->entries[k].slot : last;
    on_gpu.base =
        bring(sources->base, last * sources->stride_bytes + codec_bytes(sources->codec, end));
    return on_gpu;
}

static void average(const struct arithmetic_plan *plan, const struct arithmetic_sources *sources,
                    size_t begin, size_t end, float *out)
{
    const struct arithmetic_sources on_gpu = bring_sources(plan, sources, end);
    float *all = memory_get(end * sizeof *all + 1);
    ran(gpu_average(memory_stream(), plan, &on_gpu, begin, end, all), "average");
    memory_fetch(out, all + begin, (end - begin) * sizeof *out);
    memory_free(all);
    memory_free((void *)(uintptr_t)on_gpu.base);
}

/* The shard's arrays up to `end`; what the stretch does not write comes back as it was. */
static struct arithmetic_work bring_work(const struct arithmetic_plan *plan,
                                         const struct arithmetic_work *work, size_t end)
{
    struct arithmetic_work on_gpu = *work;
    const size_t bytes = end * sizeof(float);
    size_t tensors = 0;
    for (size_t i = 0; i < work->ranges_n; i++)
        tensors = work->ranges[i].tensor >= tensors ? work->ranges[i].tensor + 1 : tensors;
    if (work->average == NULL && plan->phase != ARITHMETIC_APPLY)
        on_gpu.sources = bring_sources(plan, &work->sources, end);
    else
        on_gpu.sources.base = NULL;
    on_gpu.average = work->average ? bring(work->average, bytes) : NULL;
    on_gpu.parameters = bring(work->parameters, bytes);
    on_gpu.parameters_next = bring(work->parameters_next, bytes);
    on_gpu.ranges = bring(work->ranges, work->ranges_n * sizeof *work->ranges);
    on_gpu.ratios = work->ratios ? bring(work->ratios, tensors * sizeof *work->ratios) : NULL;
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX && work->state[k] != NULL; k++) {
        on_gpu.state[k] = bring(work->state[k], bytes);
        on_gpu.state_next[k] = bring(work->state_next[k], bytes);
    }
    return on_gpu;
}

static void release(const void *device)
{
    if (device != NULL)
        memory_free((void *)(uintptr_t)device);
}

static void step(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                 size_t begin, size_t end)
{
    const struct arithmetic_work on_gpu = bring_work(plan, work, end);
    const size_t bytes = end * sizeof(float);
    ran(gpu_step(memory_stream(), plan, &on_gpu, begin, end), "step");
    take_back(on_gpu.parameters_next, work->parameters_next, bytes);
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX && work->state[k] != NULL; k++) {
        release(on_gpu.state[k]);
        take_back(on_gpu.state_next[k], work->state_next[k], bytes);
    }
    release(on_gpu.sources.base);
    release(on_gpu.average);
    release(on_gpu.parameters);
    release(on_gpu.ranges);
    release(on_gpu.ratios);
}

struct arithmetic gpu_set(void)
{
    static bool opened;
    struct arithmetic set = element_set();
    char text[128];
    if (!opened && memory_open(text, sizeof text) != GRADWEIR_OK) {
        printf("SKIPPED: %s\n", fail_reason());
        exit(77);
    }
    opened = true;
    set.name = "gpu";
    set.measure = measure;
    set.encode = encode;
    set.decode = decode;
    set.average = average;
    set.step = step;
    return set;
}
