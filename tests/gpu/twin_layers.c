/* Layers and gradients, done by the CPU: see twin_shard.c. */
#include "common/element_network.h"
#include "gpu/kernels_learn.h"
#include "tests/gpu/twin.h"

#include <math.h>
#include <string.h>

int gpu_bias_tanh(gpu_stream stream, uint64_t rows, uint64_t cols, const float *bias, float *y)
{
    (void)stream;
    for (uint64_t i = 0; i < rows * cols; i++)
        y[i] = twin_planted("tanh-of-libm") ? tanhf(y[i] + bias[i % cols])
                                            : element_bias_tanh(y[i], bias[i % cols]);
    return 0;
}

uint64_t gpu_tanh_scratch(uint64_t rows, uint64_t cols)
{
    return rows + cols;
}

int gpu_tanh_backward(gpu_stream stream, const struct gpu_tanh_work *work)
{
    (void)stream;
    for (uint64_t j = 0; j < work->cols; j++)
        work->sums[j] = 0;
    for (uint64_t i = 0; i < work->rows * work->cols; i++) {
        work->d[i] = element_tanh_backward(work->d[i], work->h[i]);
        work->sums[(i + twin_planted("bias-column")) % work->cols] += work->d[i];
    }
    return 0;
}

int gpu_clip_factor(gpu_stream stream, const struct gpu_clip_work *work)
{
    double square = 0;
    (void)stream;
    for (uint64_t b = 0; b < work->blocks; b++)
        square += work->sums[b];
    const double norm = element_norm(square, work->scale);
    *work->factor = twin_planted("unclipped")
                        ? work->scale
                        : element_clipped_scale(work->scale, norm, work->limit);
    if (work->norm)
        *work->norm = norm;
    return 0;
}

int gpu_encode_clipped(gpu_stream stream, enum arithmetic_codec codec, const float *from,
                       uint64_t n, const float *factor, void *to, double *sums, uint32_t *largest)
{
    return gpu_encode(stream, codec, from, n, *factor, to, sums, largest);
}

int gpu_add_scaled(gpu_stream stream, uint64_t n, float scale, const float *x, float *y)
{
    (void)stream;
    while (twin_planted("hang"))
        ;
    for (uint64_t i = 0; i < n; i++)
        y[i] = twin_planted("contracted") ? fmaf(scale, x[i], y[i]) : y[i] + scale * x[i];
    return 0;
}

uint64_t gpu_top_scratch(uint64_t n)
{
    return ELEMENT_TOP_DIGITS * sizeof(uint32_t) + n % 2;
}

int gpu_top(gpu_stream stream, const struct gpu_top_work *work)
{
    struct element_top top = {.threshold = 0, .left = work->k};
    uint32_t *counts = work->scratch;
    uint64_t equals = 0, taken = 0;
    (void)stream;
    for (int round = 0; round < ELEMENT_TOP_ROUNDS; round++) {
        memset(counts, 0, ELEMENT_TOP_DIGITS * sizeof *counts);
        for (uint64_t i = 0; i < work->n; i++) {
            const int digit = element_top_digit(&top, round, element_magnitude(work->from[i]));
            if (digit >= 0)
                counts[digit]++;
        }
        top = element_top_descend(top, round, counts);
    }
    for (uint64_t i = 0; i < work->n && taken < work->k; i++) {
        const uint32_t magnitude = element_magnitude(work->from[i]);
        const bool equal = magnitude == top.threshold;
        if (element_top_takes(&top, magnitude, equals)) {
            work->indices[taken] = (uint32_t)i;
            work->values[taken++] = work->from[i];
        }
        equals += equal && !twin_planted("top-equals");
    }
    return 0;
}
