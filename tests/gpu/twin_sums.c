/* The sums of squares of a shard's step, done by the CPU's own loops. */
#include "gpu/kernels_sums.h"
#include "tests/gpu/twin.h"

int gpu_block_sums(gpu_stream stream, const float *x, uint64_t n, uint64_t block, double *sums)
{
    (void)stream;
    for (uint64_t b = 0; b * block < n; b++) {
        struct arithmetic_measure measured;
        const uint64_t rest = n - b * block;
        arithmetic_scalar.measure(ARITHMETIC_F32, x + b * block, rest < block ? rest : block,
                                  &measured);
        sums[b] = measured.sum_squares;
    }
    if (twin_planted("blocks-one-by-one"))
        sums[0] += x[n - 1];
    return 0;
}

int gpu_lamb_sums(gpu_stream stream, const struct arithmetic_plan *plan,
                  const struct arithmetic_work *work, const struct gpu_pieces *pieces)
{
    (void)stream;
    for (uint32_t i = 0; i < pieces->n; i++) {
        struct arithmetic_measure theta;
        const struct arithmetic_range *piece = &pieces->pieces[i];
        arithmetic_scalar.measure(ARITHMETIC_F32, work->parameters + piece->begin,
                                  (size_t)(piece->end - piece->begin), &theta);
        pieces->theta_sums[i] = theta.sum_squares;
        pieces->update_sums[i] = arithmetic_scalar.lamb_sum(
            plan, work, &pieces->pieces[twin_planted("sums-shifted") ? 0 : i]);
    }
    return 0;
}
