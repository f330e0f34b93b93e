/* The shard side's kernels, done by the CPU element by element: with these in the place of kernels
 * the check itself is tested. A planted flaw (--plant) must be found. */
#include "common/element_gradient.h"
#include "tests/gpu/twin.h"
#include "tests/unit/element_set.h"

#include "common/checksum.h"
#include "common/codec.h"

#include <string.h>

int gpu_step(gpu_stream stream, const struct arithmetic_plan *plan,
             const struct arithmetic_work *work, uint64_t begin, uint64_t end)
{
    const bool longer = twin_planted("long-step") && end < work->ranges[work->ranges_n - 1].end;
    (void)stream;
    element_set().step(plan, work, begin, end + longer - twin_planted("short-step"));
    return 0;
}

int gpu_average(gpu_stream stream, const struct arithmetic_plan *plan,
                const struct arithmetic_sources *sources, uint64_t begin, uint64_t end,
                float *average)
{
    (void)stream;
    element_set().average(plan, sources, begin, end, average + begin);
    if (twin_planted("back-lost") && plan->stacks.window > 0)
        sources->back[begin] = 1.0f;
    if (twin_planted("average-last-bit"))
        average[begin] = element_float(element_bits(average[begin]) ^ 1u);
    return 0;
}

int gpu_measure(gpu_stream stream, enum arithmetic_codec codec, const void *data, uint64_t n,
                double *sums, uint32_t *largest)
{
    (void)stream;
    for (uint64_t b = 0; b < arithmetic_blocks(n); b++) {
        const uint64_t at = b * ARITHMETIC_BLOCK;
        struct arithmetic_measure piece;
        arithmetic_scalar.measure(codec, (const unsigned char *)data + codec_bytes(codec, at),
                                  n - at < ARITHMETIC_BLOCK ? n - at : ARITHMETIC_BLOCK, &piece);
        sums[b] = piece.sum_squares;
        largest[b] = piece.largest_bits;
    }
    return 0;
}

int gpu_decode(gpu_stream stream, enum arithmetic_codec codec, const void *data, uint64_t n,
               float *to)
{
    (void)stream;
    element_set().decode(codec, data, n, to);
    if (twin_planted("guard"))
        to[n] = 0.0f;
    return 0;
}

int gpu_encode_rest(gpu_stream stream, enum arithmetic_codec codec, const float *from, uint64_t n,
                    float *rest, void *to, double *sums, uint32_t *largest)
{
    arithmetic_scalar.encode_rest(codec, from, n, rest, to);
    if (twin_planted("nothing-owed"))
        memset(rest, 0, n * sizeof *rest);
    return gpu_measure(stream, codec, to, n, sums, largest);
}

int gpu_give_back(gpu_stream stream, enum arithmetic_codec codec, const void *sent, uint64_t n,
                  const float *from, float *rest)
{
    (void)stream;
    if (from == NULL)
        arithmetic_scalar.decode_add(codec, sent, n, rest);
    for (uint64_t i = 0; from != NULL && i < n - twin_planted("short-undo"); i++)
        rest[i] = element_untaken(rest[i], codec_element(codec, sent, i), from[i]);
    return 0;
}

int gpu_crc32c(gpu_stream stream, const void *data, uint64_t bytes, uint64_t piece, uint32_t *crcs)
{
    const unsigned char *from = data;
    (void)stream;
    for (uint64_t at = 0; at < bytes; at += piece)
        *crcs++ = checksum_crc32c(0, from + at, bytes - at < piece ? bytes - at : piece);
    if (twin_planted("checksum-last") && bytes > 0)
        crcs[-1] ^= 1u << 31;
    return 0;
}

int gpu_encode(gpu_stream stream, enum arithmetic_codec codec, const float *from, uint64_t n,
               float scale, void *to, double *sums, uint32_t *largest)
{
    arithmetic_scalar.encode(codec, twin_planted("unscaled") ? 1.0f : scale, from, n, to);
    const int error = gpu_measure(stream, codec, to, n, sums, largest);
    for (uint64_t b = 0; twin_planted("nan-unseen") && b < arithmetic_blocks(n); b++)
        largest[b] &= 0x3fffffffu;
    return error;
}
