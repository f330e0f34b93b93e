/* The learning kernels, done by the CPU through the same functions of an element: see twin_shard.c.
 */
#include "gpu/kernels_learn.h"

#include "client/trainer/statistics.h"
#include "tests/gpu/twin.h"

int gpu_gae(gpu_stream stream, const struct advantage_input *input, float gamma, float lambda,
            struct element_estimates to)
{
    const size_t n = input->environments;
    (void)stream;
    for (size_t i = input->steps * n; i-- > 0;) {
        const bool last = i / n + 1 == input->steps;
        const struct element_estimate e =
            element_gae(input, i, twin_planted("gae-gamma") ? gamma * 0.999f : gamma, lambda,
                        last ? NULL : &to.advantages[i + n]);
        to.advantages[i] = e.advantage;
        to.targets[i] = e.target;
    }
    return 0;
}

int gpu_vtrace(gpu_stream stream, const struct advantage_input *input,
               const struct advantage_vtrace_settings *settings, const float *log_ratios,
               struct element_estimates to)
{
    const size_t n = input->environments;
    (void)stream;
    for (size_t i = input->steps * n; i-- > 0;) {
        const bool last = i / n + 1 == input->steps && !twin_planted("vtrace-last");
        const struct element_estimate e =
            element_vtrace(input, i, settings, log_ratios[i], last ? NULL : &to.targets[i + n]);
        to.advantages[i] = e.advantage;
        to.targets[i] = e.target;
    }
    return 0;
}

static float value_at(const struct gpu_statistics_work *work, uint64_t i)
{
    return work->minus ? work->values[i] - work->minus[i] : work->values[i];
}

int gpu_statistics(gpu_stream stream, const struct gpu_statistics_work *work)
{
    struct statistics s = {.count = (double)work->n};
    (void)stream;
    for (uint64_t i = twin_planted("statistics-first"); i < work->n; i++)
        s.mean = element_mean_add(s.mean, (double)value_at(work, i), s.count);
    for (uint64_t i = 0; i < work->n; i++)
        s.m2 = element_m2_add(s.m2, (double)value_at(work, i), s.mean);
    *work->to = s;
    return 0;
}

int gpu_loss_centre(gpu_stream stream, const struct loss_settings *settings,
                    const struct statistics *batch, struct loss_centre *to)
{
    (void)stream;
    *to = element_loss_centre(settings, *batch);
    return 0;
}

uint64_t gpu_loss_scratch(const struct loss_settings *settings, uint64_t n)
{
    return (settings->action_dim + 1) * n;
}

int gpu_loss(gpu_stream stream, const struct loss_settings *settings,
             const struct gpu_loss_work *work)
{
    struct loss_settings used = *settings;
    struct loss_sums sums = {0};
    (void)stream;
    if (twin_planted("loss-dual-clip"))
        used.dual_clip = 1.01f;
    for (uint64_t i = 0; i < work->batch.n; i++)
        work->arrays.advantage[i] = element_advantage_used(
            work->batch.advantages[i], work->centre->mean, work->centre->divisor);
    for (size_t j = 0; used.gaussian && j < used.action_dim; j++)
        work->arrays.d_log_std[j] = 0;
    for (uint64_t i = 0; i < work->batch.n; i++) {
        const struct policy_slope slope =
            element_loss_sample(&used, &work->batch, i, &work->arrays, &sums);
        for (size_t j = 0; used.gaussian && j < used.action_dim; j++)
            work->arrays.d_log_std[j] += element_log_std_slope(&used, &work->batch, i, j, &slope);
    }
    *work->sums = sums;
    return 0;
}
