/* The engine's kernels, done by the CPU: see twin_shard.c. */
#include "gpu/kernels_engine.h"

#include "tests/gpu/twin.h"

int gpu_gather(gpu_stream stream, const struct gpu_gather_work *work)
{
    const uint64_t seen = work->observation_dim, width = work->action_width;
    (void)stream;
    for (uint64_t i = 0; i < work->n; i++) {
        const uint64_t from = work->order[twin_planted("gather-first") ? 0 : i];
        for (uint64_t j = 0; j < seen; j++)
            work->to_observations[i * seen + j] = work->observations[from * seen + j];
        for (uint64_t j = 0; j < width; j++)
            work->to_actions[i * width + j] = work->actions[from * width + j];
        for (int c = 0; c < GPU_COLUMNS; c++)
            if (work->columns[c] != NULL)
                work->to_columns[c][i] = work->columns[c][from];
    }
    return 0;
}

int gpu_look_back(gpu_stream stream, const struct gpu_look_back_work *work)
{
    const size_t dim = work->policy.action_dim, width = work->policy.gaussian ? dim : 1;
    (void)stream;
    for (uint64_t i = 0; i < work->n; i++) {
        float entropy = 0;
        work->log_now[i] = element_policy_log(&work->policy, work->head + i * dim,
                                              work->actions + i * width, &entropy);
        work->log_ratios[i] = work->log_now[i] - work->log_then[twin_planted("look-first") ? 0 : i];
    }
    return 0;
}

int gpu_link_values(gpu_stream stream, const struct gpu_link_work *work)
{
    (void)stream;
    for (uint64_t i = 0; i < work->steps * work->environments; i++)
        if (!work->terminated[i] && !work->truncated[i])
            work->next_values[i] = work->values[i + work->environments];
        else if (work->terminated[i] && !twin_planted("link-end"))
            work->next_values[i] = 0;
    return 0;
}

int gpu_add_bias(gpu_stream stream, uint64_t rows, uint64_t cols, const float *bias, float *y)
{
    (void)stream;
    for (uint64_t i = 0; i < rows * cols; i++)
        y[i] += bias[(i + twin_planted("bias-shifted")) % cols];
    return 0;
}

uint64_t gpu_columns_scratch(uint64_t rows, uint64_t cols)
{
    return rows + cols;
}

int gpu_column_sums(gpu_stream stream, const struct gpu_columns_work *work)
{
    (void)stream;
    for (uint64_t j = 0; j < work->cols; j++)
        work->sums[j] = 0;
    for (uint64_t i = 0; i < work->rows * work->cols; i++)
        work->sums[(i + twin_planted("columns-shifted")) % work->cols] += work->d[i];
    return 0;
}

const void *gpu_engine_kernel(void)
{
    return "the twins are the kernels";
}
