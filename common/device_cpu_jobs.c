/* One tile of a job: copy, decode, encode, average or step, and what is measured behind it by
 * blocks. Tiles do not know whether the queue's owner or one of its helpers carries them out. */
#include "common/device_cpu_jobs.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/element_gradient.h"

#include <string.h>

#define TILE_GRAIN ((size_t)4096)
#define PIECE_GRAIN                                                                                \
    ((size_t)16384) /* elements of a window of one, read and stepped: about 30 us                  \
                     */

static size_t tile_end(const struct cpu_means *means, size_t at, size_t end)
{
    return end - at < means->tile ? end : at + means->tile;
}

/* The more gradients an element is averaged from, the fewer elements fit into a time. */
static size_t fair(size_t elements, uint32_t entries)
{
    const size_t fewer = elements * 16 / (16 + (size_t)entries);
    return (fewer + TILE_GRAIN - 1) / TILE_GRAIN * TILE_GRAIN;
}

/* When something is measured by blocks, a tile ends at a block border at the latest, so that the
 * block just finished is measured as a whole. */
static size_t averaging_end(const struct cpu_means *means, size_t at, size_t end, uint32_t entries,
                            bool blocks)
{
    const size_t size = fair(means->tile, entries);
    const size_t border = (at / ARITHMETIC_BLOCK + 1) * ARITHMETIC_BLOCK;
    size_t stop = end - at < size ? end : at + size;
    if (blocks && stop > border)
        stop = border;
    return stop;
}

/* Where the block begins that has just been finished at `stop`; stop itself when it is not finished
 * yet. end: of the job. */
static size_t finished_from(size_t stop, size_t end)
{
    if (stop == 0 || (stop != end && stop % ARITHMETIC_BLOCK != 0))
        return stop;
    return (stop - 1) / ARITHMETIC_BLOCK * ARITHMETIC_BLOCK;
}

static void call_behind(const struct device_behind *behind, size_t from, size_t stop)
{
    if (behind->call != NULL && from < stop)
        behind->call(behind->context, from, stop);
}

static size_t do_copy(const struct cpu_means *means, const struct device_copy *copy, size_t at,
                      size_t end)
{
    const size_t bytes = means->tile * sizeof(float);
    const size_t some = end - at < bytes ? end - at : bytes;
    memcpy((unsigned char *)copy->to + at, (const unsigned char *)copy->from + at, some);
    return at + some;
}

static void raise_largest(struct cpu_means *means, unsigned largest)
{
    unsigned before = atomic_load(&means->largest_bits);
    while (largest > before &&
           !atomic_compare_exchange_weak(&means->largest_bits, &before, largest))
        ;
}

static size_t do_decode(struct cpu_means *means, const struct device_decode *decode, size_t at,
                        size_t end)
{
    const size_t stop = tile_end(means, at, end);
    const unsigned char *from =
        (const unsigned char *)decode->from + codec_bytes(decode->codec, at);
    const unsigned largest = arithmetic_measure_blocks(
        means->arithmetic, decode->codec, from, stop - at, decode->sums + at / ARITHMETIC_BLOCK);
    raise_largest(means, largest);
    if (decode->to != NULL)
        means->arithmetic->decode(decode->codec, from, stop - at, decode->to + at);
    return stop;
}

/* Where a tile of an encoding ends: at borders of blocks and of checksums alike. */
static size_t encode_grain(const struct device_encode *encode)
{
    size_t grain = encode->piece;
    while (grain % ARITHMETIC_BLOCK != 0)
        grain += encode->piece;
    return grain;
}

static size_t do_encode(struct cpu_means *means, const struct device_encode *encode, size_t at,
                        size_t end)
{
    const size_t grain = encode_grain(encode), stop = end - at < grain ? end : at + grain;
    const enum arithmetic_codec codec = encode->codec;
    unsigned char *to = (unsigned char *)encode->to + codec_bytes(codec, at);
    if (encode->from != NULL && encode->rest != NULL)
        means->arithmetic->encode_rest(codec, encode->from + at, stop - at, encode->rest + at, to);
    else if (encode->from != NULL)
        means->arithmetic->encode(codec, 1.0f, encode->from + at, stop - at, to);
    raise_largest(means, arithmetic_measure_blocks(means->arithmetic, codec, to, stop - at,
                                                   encode->sums + at / ARITHMETIC_BLOCK));
    for (size_t i = at; i < stop; i += encode->piece) {
        const size_t some = stop - i < encode->piece ? stop - i : encode->piece;
        encode->crcs[i / encode->piece] = checksum_crc32c(
            0, (unsigned char *)encode->to + codec_bytes(codec, i), codec_bytes(codec, some));
    }
    return stop;
}

static void block_sums(const struct cpu_means *means, const struct device_accumulate *accumulate,
                       size_t from, size_t stop)
{
    const size_t block = device_block(accumulate->block);
    for (size_t at = from; at < stop; at += block) {
        struct arithmetic_measure measured;
        means->arithmetic->measure(ARITHMETIC_F32, accumulate->average + at,
                                   stop - at < block ? stop - at : block, &measured);
        accumulate->sums[(at - accumulate->begin) / block] = measured.sum_squares;
    }
}

static size_t do_give_back(const struct cpu_means *means, const struct device_give_back *job,
                           size_t at, size_t end)
{
    const size_t stop = tile_end(means, at, end);
    const unsigned char *sent = (const unsigned char *)job->sent + codec_bytes(job->codec, at);
    if (job->from == NULL)
        means->arithmetic->decode_add(job->codec, sent, stop - at, job->rest + at);
    for (size_t i = at; job->from != NULL && i < stop; i++)
        job->rest[i] =
            element_untaken(job->rest[i], codec_element(job->codec, job->sent, i), job->from[i]);
    return stop;
}

static size_t do_accumulate(const struct cpu_means *means, const struct cpu_job *job, size_t at,
                            size_t end)
{
    const struct device_accumulate *accumulate = &job->accumulate;
    const bool blocks = accumulate->sums != NULL || accumulate->behind.call != NULL;
    const size_t stop = averaging_end(means, at, end, accumulate->plan->entries_n, blocks);
    means->arithmetic->average(accumulate->plan, &accumulate->sources, at, stop,
                               accumulate->average + at);
    if (accumulate->echo != NULL)
        memcpy(accumulate->echo + at, accumulate->average + at, (stop - at) * sizeof(float));
    const size_t from = finished_from(stop, job->end);
    if (accumulate->sums != NULL)
        block_sums(means, accumulate, from, stop);
    call_behind(&accumulate->behind, from, stop);
    return stop;
}

static void lamb_sums(const struct cpu_means *means, struct cpu_job *job, size_t from, size_t stop)
{
    const struct device_step *step = &job->step;
    const size_t block = device_block(step->block);
    struct arithmetic_range piece;
    for (size_t at = from; device_piece(step->work, block, at, stop, &piece);
         at = (size_t)piece.end) {
        struct arithmetic_measure theta;
        means->arithmetic->measure(ARITHMETIC_F32, step->work->parameters + piece.begin,
                                   (size_t)(piece.end - piece.begin), &theta);
        step->theta_sums[job->pieces] = theta.sum_squares;
        step->update_sums[job->pieces++] =
            means->arithmetic->lamb_sum(step->plan, step->work, &piece);
    }
}

static void echo(const struct device_step *step, size_t at, size_t stop)
{
    const struct arithmetic_work *work = step->work;
    const size_t bytes = (stop - at) * sizeof(float);
    if (step->echo.parameters != NULL && step->plan->phase != ARITHMETIC_MOMENTS)
        memcpy(step->echo.parameters + at, work->parameters_next + at, bytes);
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX && step->plan->phase != ARITHMETIC_APPLY; k++)
        if (step->echo.state[k] != NULL)
            memcpy(step->echo.state[k] + at, work->state_next[k] + at, bytes);
}

static uint32_t entries_of(const struct device_step *step)
{
    return step->work->average == NULL ? step->plan->entries_n : 1;
}

static size_t do_step(const struct cpu_means *means, struct cpu_job *job, size_t at, size_t end)
{
    const struct device_step *step = &job->step;
    const bool blocks = step->update_sums != NULL || step->behind.call != NULL;
    const size_t stop = averaging_end(means, at, end, entries_of(step), blocks);
    means->arithmetic->step(step->plan, step->work, at, stop);
    echo(step, at, stop);
    const size_t from = finished_from(stop, job->end);
    if (step->update_sums != NULL)
        lamb_sums(means, job, from, stop);
    call_behind(&step->behind, from, stop);
    return stop;
}

size_t cpu_job_tile(struct cpu_means *means, struct cpu_job *job, size_t at, size_t end)
{
    switch (job->kind) {
    case CPU_COPY: return do_copy(means, &job->copy, at, end);
    case CPU_DECODE: return do_decode(means, &job->decode, at, end);
    case CPU_ENCODE: return do_encode(means, &job->encode, at, end);
    case CPU_GIVE_BACK: return do_give_back(means, &job->give_back, at, end);
    case CPU_ACCUMULATE: return do_accumulate(means, job, at, end);
    case CPU_STEP: return do_step(means, job, at, end);
    }
    ASSERT(!"a job");
}

size_t cpu_job_grain(const struct cpu_job *job)
{
    const struct device_accumulate *accumulate = &job->accumulate;
    const struct device_step *step = &job->step;
    switch (job->kind) {
    case CPU_COPY: return PIECE_GRAIN * sizeof(float);
    case CPU_DECODE: return ARITHMETIC_BLOCK;
    case CPU_ENCODE: return encode_grain(&job->encode);
    case CPU_GIVE_BACK: return ARITHMETIC_BLOCK;
    case CPU_ACCUMULATE:
        return accumulate->sums != NULL || accumulate->behind.call != NULL
                   ? ARITHMETIC_BLOCK
                   : fair(PIECE_GRAIN, accumulate->plan->entries_n);
    case CPU_STEP:
        if (step->update_sums != NULL) /* they are counted from the job's begin on */
            return job->end - job->begin;
        return step->behind.call != NULL ? ARITHMETIC_BLOCK : fair(PIECE_GRAIN, entries_of(step));
    }
    ASSERT(!"a job");
}
