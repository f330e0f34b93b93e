/* The device that is this machine's memory and one thread: the definition that other devices are
 * compared with. Jobs wait in a ring; each poll carries out one tile of the oldest, so a loop is
 * never held up for longer than a tile. */
#include "common/device.h"

#include "common/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE  ((size_t)2 << 20)
#define CACHE_LINE ((size_t)64)
#define TILE_GRAIN ((size_t)4096)
#define TILE_DEFAULT                                                                               \
    ((size_t)2 * ARITHMETIC_BLOCK) /* elements: about 0.5 ms of Adam with a window of 16 */

enum job_kind { COPY, DECODE, ACCUMULATE, STEP };

struct job {
    enum job_kind kind;
    uint64_t tag;
    size_t at;             /* elements (bytes for copy) done, counted like begin and end */
    size_t pieces;         /* LAMB: sums written */
    uint32_t largest_bits; /* decode */
    union {
        struct device_copy copy;
        struct device_decode decode;
        struct device_accumulate accumulate;
        struct device_step step;
    };
};

struct device_state {
    const struct arithmetic *arithmetic;
    size_t tile;
    uint64_t given, done; /* jobs; the ring holds [done, given) */
    struct job ring[DEVICE_JOBS_MAX];
};

static gradweir_status cpu_open(const struct device_options *options, struct device_state **state)
{
    const struct arithmetic *arithmetic = arithmetic_choose(options->simd);
    if (arithmetic == NULL)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "simd %s: this machine or build does not have it",
                    options->simd);
    struct device_state *new = calloc(1, sizeof *new);
    if (new == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cpu device: %zu bytes", sizeof *new);
    new->arithmetic = arithmetic;
    new->tile =
        options->tile == 0 ? TILE_DEFAULT : arithmetic_blocks(options->tile) * ARITHMETIC_BLOCK;
    *state = new;
    return GRADWEIR_OK;
}

static void cpu_close(struct device_state *state)
{
    free(state);
}

static void cpu_info(const struct device_state *state, struct device_info *info)
{
    *info =
        (struct device_info){.host_memory = true, .registers_host = true, .alignment = CACHE_LINE};
    snprintf(info->text, sizeof info->text, "cpu %s", state->arithmetic->name);
}

/* Large pieces are whole huge pages, so that the kernel can back them with such; it is asked, not
 * forced. */
static size_t rounded(size_t bytes)
{
    const size_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : CACHE_LINE;
    return (bytes + unit - 1) / unit * unit;
}

static gradweir_status cpu_alloc(struct device_state *state, size_t bytes, void **memory)
{
    (void)state;
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return fail(GRADWEIR_ERR_INVALID, "cpu device: %zu bytes asked for", bytes);
    const size_t size = rounded(bytes);
    void *new = aligned_alloc(size >= HUGE_PAGE ? HUGE_PAGE : CACHE_LINE, size);
    if (new == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cpu device: %zu bytes", size);
    if (size >= HUGE_PAGE)
        madvise(new, size, MADV_HUGEPAGE);
    memset(new, 0, size);
    *memory = new;
    return GRADWEIR_OK;
}

static void cpu_free(struct device_state *state, void *memory, size_t bytes)
{
    (void)state;
    (void)bytes;
    free(memory);
}

static gradweir_status give(struct device_state *state, const struct job *job)
{
    if (state->given - state->done == DEVICE_JOBS_MAX)
        return fail(GRADWEIR_ERR_FULL, "cpu device: %d jobs are waiting", DEVICE_JOBS_MAX);
    state->ring[state->given++ % DEVICE_JOBS_MAX] = *job;
    return GRADWEIR_OK;
}

static gradweir_status cpu_copy(struct device_state *state, uint64_t tag,
                                const struct device_copy *copy)
{
    if (copy->from == NULL || copy->to == NULL)
        return fail(GRADWEIR_ERR_INVALID, "copy: no memory given");
    return give(state, &(struct job){.kind = COPY, .tag = tag, .copy = *copy});
}

static gradweir_status cpu_decode(struct device_state *state, uint64_t tag,
                                  const struct device_decode *decode)
{
    if (decode->from == NULL || decode->sums == NULL)
        return fail(GRADWEIR_ERR_INVALID, "decode: no memory given");
    return give(state, &(struct job){.kind = DECODE, .tag = tag, .decode = *decode});
}

static gradweir_status check_plan(const struct arithmetic_plan *plan, size_t begin, size_t end)
{
    if (begin >= end || begin % ARITHMETIC_BLOCK != 0)
        return fail(GRADWEIR_ERR_INVALID,
                    "device: [%zu, %zu) is empty or does not begin at a block", begin, end);
    if (plan->entries_n > ARITHMETIC_ENTRIES_MAX)
        return fail(GRADWEIR_ERR_INVALID, "device: %u entries in a plan", plan->entries_n);
    return GRADWEIR_OK;
}

static gradweir_status cpu_accumulate(struct device_state *state, uint64_t tag,
                                      const struct device_accumulate *accumulate)
{
    TRY(check_plan(accumulate->plan, accumulate->begin, accumulate->end));
    return give(state, &(struct job){.kind = ACCUMULATE,
                                     .tag = tag,
                                     .at = accumulate->begin,
                                     .accumulate = *accumulate});
}

static gradweir_status cpu_step(struct device_state *state, uint64_t tag,
                                const struct device_step *step)
{
    const bool sums = step->update_sums != NULL && step->theta_sums != NULL;
    const bool whole = step->plan->phase == ARITHMETIC_WHOLE;
    TRY(check_plan(step->plan, step->begin, step->end));
    if (whole != (step->plan->algorithm != ARITHMETIC_LAMB))
        return fail(GRADWEIR_ERR_INVALID, "step: the phase does not fit the algorithm");
    if (sums && step->plan->phase != ARITHMETIC_MOMENTS)
        return fail(GRADWEIR_ERR_INVALID, "step: sums belong to LAMB's moments and only there");
    return give(state, &(struct job){.kind = STEP, .tag = tag, .at = step->begin, .step = *step});
}

static size_t tile_end(const struct device_state *state, size_t at, size_t end)
{
    return end - at < state->tile ? end : at + state->tile;
}

/* The more gradients an element is averaged from, the fewer elements fit into the time of a tile.
 * With sums a tile ends at a block border at the latest, so that the block just finished is summed
 * as a whole. */
static size_t averaging_end(const struct device_state *state, size_t at, size_t end,
                            uint32_t entries, bool sums)
{
    const size_t fair = state->tile * 16 / (16 + (size_t)entries);
    const size_t size = (fair + TILE_GRAIN - 1) / TILE_GRAIN * TILE_GRAIN;
    const size_t border = (at / ARITHMETIC_BLOCK + 1) * ARITHMETIC_BLOCK;
    size_t stop = end - at < size ? end : at + size;
    if (sums && stop > border)
        stop = border;
    return stop;
}

/* Where the block begins that has just been finished at `stop`; stop itself when it is not finished
 * yet. */
static size_t finished_from(size_t stop, size_t end)
{
    if (stop == 0 || (stop != end && stop % ARITHMETIC_BLOCK != 0))
        return stop;
    return (stop - 1) / ARITHMETIC_BLOCK * ARITHMETIC_BLOCK;
}

/* Each carries out one tile and returns whether the job is finished. */
static bool do_copy(struct device_state *state, struct job *job)
{
    const struct device_copy *copy = &job->copy;
    const size_t bytes = state->tile * sizeof(float);
    const size_t some = copy->bytes - job->at < bytes ? copy->bytes - job->at : bytes;
    memcpy((unsigned char *)copy->to + job->at, (const unsigned char *)copy->from + job->at, some);
    job->at += some;
    return job->at == copy->bytes;
}

static bool do_decode(struct device_state *state, struct job *job)
{
    const struct device_decode *decode = &job->decode;
    const size_t end = tile_end(state, job->at, decode->n);
    const unsigned char *from =
        (const unsigned char *)decode->from + codec_bytes(decode->codec, job->at);
    const uint32_t largest =
        arithmetic_measure_blocks(state->arithmetic, decode->codec, from, end - job->at,
                                  decode->sums + job->at / ARITHMETIC_BLOCK);
    if (largest > job->largest_bits)
        job->largest_bits = largest;
    if (decode->to != NULL)
        state->arithmetic->decode(decode->codec, from, end - job->at, decode->to + job->at);
    job->at = end;
    return job->at == decode->n;
}

static bool do_accumulate(struct device_state *state, struct job *job)
{
    const struct device_accumulate *accumulate = &job->accumulate;
    const bool sums = accumulate->sums != NULL;
    const size_t stop =
        averaging_end(state, job->at, accumulate->end, accumulate->plan->entries_n, sums);
    state->arithmetic->average(accumulate->plan, &accumulate->sources, job->at, stop,
                               accumulate->average + job->at);
    const size_t from = finished_from(stop, accumulate->end);
    if (sums && from < stop)
        (void)arithmetic_measure_blocks(
            state->arithmetic, ARITHMETIC_F32, accumulate->average + from, stop - from,
            accumulate->sums + (from - accumulate->begin) / ARITHMETIC_BLOCK);
    job->at = stop;
    return job->at == accumulate->end;
}

static void lamb_sums(const struct device_state *state, struct job *job, size_t from, size_t stop)
{
    const struct device_step *step = &job->step;
    struct arithmetic_range piece;
    for (size_t at = from; device_piece(step->work, at, stop, &piece); at = (size_t)piece.end) {
        struct arithmetic_measure theta;
        state->arithmetic->measure(ARITHMETIC_F32, step->work->parameters + piece.begin,
                                   (size_t)(piece.end - piece.begin), &theta);
        step->theta_sums[job->pieces] = theta.sum_squares;
        step->update_sums[job->pieces++] =
            state->arithmetic->lamb_sum(step->plan, step->work, &piece);
    }
}

static bool do_step(struct device_state *state, struct job *job)
{
    const struct device_step *step = &job->step;
    const bool sums = step->update_sums != NULL;
    const uint32_t entries = step->work->average == NULL ? step->plan->entries_n : 1;
    const size_t stop = averaging_end(state, job->at, step->end, entries, sums);
    state->arithmetic->step(step->plan, step->work, job->at, stop);
    if (sums)
        lamb_sums(state, job, finished_from(stop, step->end), stop);
    job->at = stop;
    return job->at == step->end;
}

static bool do_tile(struct device_state *state, struct job *job)
{
    switch (job->kind) {
    case COPY: return do_copy(state, job);
    case DECODE: return do_decode(state, job);
    case ACCUMULATE: return do_accumulate(state, job);
    case STEP: return do_step(state, job);
    }
    ASSERT(!"a job");
}

static size_t cpu_poll(struct device_state *state, struct device_done *done, size_t room)
{
    if (room == 0 || state->done == state->given)
        return 0;
    struct job *job = &state->ring[state->done % DEVICE_JOBS_MAX];
    if (!do_tile(state, job))
        return 0;
    *done = (struct device_done){
        .tag = job->tag, .status = GRADWEIR_OK, .largest_bits = job->largest_bits};
    state->done++;
    return 1;
}

static size_t cpu_in_flight(const struct device_state *state)
{
    return (size_t)(state->given - state->done);
}

const struct device device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .decode = cpu_decode,
    .accumulate = cpu_accumulate,
    .step = cpu_step,
    .poll = cpu_poll,
    .in_flight = cpu_in_flight,
};
