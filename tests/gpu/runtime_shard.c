/* A shard's kernels on the runtime that is the CPU: each call is put on its stream, and done by the
 * twins when its turn comes. The linker hands the device's calls to these (--wrap). Memory that a
 * GPU could not reach ends the program. */
#include "common/codec.h"
#include "common/element_step.h"
#include "gpu/kernels_sums.h"

#define QUEUED_LOOK(name) check_##name(&arguments)
#define QUEUED_TAKE       queue
#include "tests/gpu/runtime_host_queued.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must_reach(const void *memory, uint64_t begin, uint64_t end, size_t size)
{
    const unsigned char *at = memory;
    if (memory == NULL || runtime_reaches(at + begin * size, (end - begin) * size))
        return;
    fprintf(stderr, "runtime_shard: a kernel was given memory that no GPU reaches\n");
    abort();
}

/* Arguments that are larger than an operation has room for. */
struct large {
    void (*run)(const void *arguments);
    void *arguments;
};

static void run_large(const void *arguments)
{
    const struct large *large = arguments;
    large->run(large->arguments);
    free(large->arguments);
}

static int queue(gpu_stream stream, void (*run)(const void *), const void *arguments, size_t bytes)
{
    const struct large large = {run, malloc(bytes)};
    if (large.arguments == NULL)
        abort();
    memcpy(large.arguments, arguments, bytes);
    return runtime_queue(stream, run_large, &large, sizeof large);
}

static void check_sources(const struct arithmetic_plan *plan,
                          const struct arithmetic_sources *sources, uint64_t end)
{
    for (uint32_t k = 0; k < plan->entries_n; k++)
        must_reach(element_slot(plan, sources, k), 0, codec_bytes(sources->codec, end), 1);
    if (plan->stacks.window == 0)
        return;
    must_reach(sources->back, 0, end, sizeof(float));
    must_reach(sources->fronts, 0, (plan->stacks.fronts - 1) * sources->front_stride + end,
               sizeof(float));
}

struct gpu_step_arguments;
struct gpu_average_arguments;
struct gpu_decode_arguments;
struct gpu_block_sums_arguments;
struct gpu_lamb_sums_arguments;
static void check_gpu_step(const struct gpu_step_arguments *a);
static void check_gpu_average(const struct gpu_average_arguments *a);
static void check_gpu_decode(const struct gpu_decode_arguments *a);
static void check_gpu_block_sums(const struct gpu_block_sums_arguments *a);
static void check_gpu_lamb_sums(const struct gpu_lamb_sums_arguments *a);

QUEUED(gpu_step,
       (gpu_stream stream, const struct arithmetic_plan *plan, const struct arithmetic_work *work,
        uint64_t begin, uint64_t end),
       WITH(struct arithmetic_plan plan; struct arithmetic_work work; uint64_t begin, end;),
       WITH(*plan, *work, begin, end), (NULL, &a->plan, &a->work, a->begin, a->end))
QUEUED(gpu_average,
       (gpu_stream stream, const struct arithmetic_plan *plan,
        const struct arithmetic_sources *sources, uint64_t begin, uint64_t end, float *average),
       WITH(struct arithmetic_plan plan; struct arithmetic_sources sources; uint64_t begin, end;
            float *average;),
       WITH(*plan, *sources, begin, end, average),
       (NULL, &a->plan, &a->sources, a->begin, a->end, a->average))
QUEUED(gpu_decode,
       (gpu_stream stream, enum arithmetic_codec codec, const void *data, uint64_t n, float *to),
       WITH(enum arithmetic_codec codec; const void *data; uint64_t n; float *to;),
       WITH(codec, data, n, to), (NULL, a->codec, a->data, a->n, a->to))
QUEUED(gpu_block_sums,
       (gpu_stream stream, const float *x, uint64_t n, uint64_t block, double *sums),
       WITH(const float *x; uint64_t n, block; double *sums;), WITH(x, n, block, sums),
       (NULL, a->x, a->n, a->block, a->sums))
QUEUED(gpu_lamb_sums,
       (gpu_stream stream, const struct arithmetic_plan *plan, const struct arithmetic_work *work,
        const struct gpu_pieces *pieces),
       WITH(struct arithmetic_plan plan; struct arithmetic_work work; struct gpu_pieces pieces;),
       WITH(*plan, *work, *pieces), (NULL, &a->plan, &a->work, &a->pieces))

static void check_gpu_step(const struct gpu_step_arguments *a)
{
    const struct arithmetic_work *work = &a->work;
    if (work->average == NULL && a->plan.phase != ARITHMETIC_APPLY)
        check_sources(&a->plan, &work->sources, a->end);
    must_reach(work->average, a->begin, a->end, sizeof(float));
    must_reach(work->parameters, a->begin, a->end, sizeof(float));
    must_reach(work->parameters_next, a->begin, a->end, sizeof(float));
    must_reach(work->ranges, 0, work->ranges_n, sizeof *work->ranges);
    must_reach(work->ratios, 0, 1, sizeof(float));
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX; k++) {
        must_reach(work->state[k], a->begin, a->end, sizeof(float));
        must_reach(work->state_next[k], a->begin, a->end, sizeof(float));
    }
}

static void check_gpu_average(const struct gpu_average_arguments *a)
{
    check_sources(&a->plan, &a->sources, a->end);
    must_reach(a->average, a->begin, a->end, sizeof(float));
}

static void check_gpu_decode(const struct gpu_decode_arguments *a)
{
    must_reach(a->data, 0, codec_bytes(a->codec, a->n), 1);
    must_reach(a->to, 0, a->n, sizeof(float));
}

static void check_gpu_block_sums(const struct gpu_block_sums_arguments *a)
{
    must_reach(a->x, 0, a->n, sizeof(float));
    must_reach(a->sums, 0, (a->n - 1) / a->block + 1, sizeof(double));
}

static void check_gpu_lamb_sums(const struct gpu_lamb_sums_arguments *a)
{
    must_reach(a->pieces.pieces, 0, a->pieces.n, sizeof *a->pieces.pieces);
    must_reach(a->pieces.theta_sums, 0, a->pieces.n, sizeof(double));
    must_reach(a->pieces.update_sums, 0, a->pieces.n, sizeof(double));
}
