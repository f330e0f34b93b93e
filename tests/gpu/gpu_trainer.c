#include "tests/gpu/gpu_trainer.h"

#include "client/trainer/statistics.h"
#include "gpu/kernels_learn.h"
#include "tests/gpu/check.h"

#include <stdio.h>
#include <stdlib.h>

/* What a call has on the device, freed at its end. */
enum { PLACES = 32 };

static void *places[PLACES];
static size_t used;

static void *place(size_t bytes)
{
    static bool opened;
    char text[128];
    if (!opened && memory_open(text, sizeof text) != GRADWEIR_OK) {
        printf("SKIPPED: %s\n", fail_reason());
        exit(77);
    }
    opened = true;
    if (used == PLACES)
        abort();
    return places[used++] = memory_get(bytes ? bytes : 1);
}

static const void *bring(const void *host, size_t bytes)
{
    void *device = place(bytes);
    memory_put(device, host, bytes);
    return device;
}

static void done(int error)
{
    if (error == 0 && memory_wait())
        return;
    printf("gpu_trainer: error %d, %s\n", error, error == 0 ? fail_reason() : "at start");
    exit(1);
}

static void free_places(void)
{
    while (used > 0)
        memory_free(places[--used]);
}

static struct advantage_input bring_input(const struct advantage_input *input)
{
    const size_t n = input->steps * input->environments;
    struct advantage_input on_gpu = *input;
    on_gpu.rewards = bring(input->rewards, n * sizeof(float));
    on_gpu.values = bring(input->values, n * sizeof(float));
    on_gpu.next_values = bring(input->next_values, n * sizeof(float));
    on_gpu.terminated = bring(input->terminated, n);
    on_gpu.truncated = bring(input->truncated, n);
    return on_gpu;
}

static struct element_estimates estimates(size_t n)
{
    return (struct element_estimates){place(n * sizeof(float)), place(n * sizeof(float))};
}

static void fetch_estimates(struct element_estimates from, size_t n, float *advantages,
                            float *targets)
{
    memory_fetch(advantages, from.advantages, n * sizeof(float));
    memory_fetch(targets, from.targets, n * sizeof(float));
    free_places();
}

void gpu_trainer_gae(const struct advantage_input *input, float gamma, float lambda,
                     float *advantages, float *targets)
{
    const size_t n = input->steps * input->environments;
    const struct advantage_input on_gpu = bring_input(input);
    const struct element_estimates to = estimates(n);
    done(gpu_gae(memory_stream(), &on_gpu, gamma, lambda, to));
    fetch_estimates(to, n, advantages, targets);
}

void gpu_trainer_vtrace(const struct advantage_input *input,
                        const struct advantage_vtrace_settings *settings, const float *log_ratios,
                        float *advantages, float *targets)
{
    const size_t n = input->steps * input->environments;
    const struct advantage_input on_gpu = bring_input(input);
    const struct element_estimates to = estimates(n);
    done(gpu_vtrace(memory_stream(), &on_gpu, settings, bring(log_ratios, n * sizeof(float)), to));
    fetch_estimates(to, n, advantages, targets);
}

static struct loss_batch bring_batch(const struct loss_settings *settings,
                                     const struct loss_batch *batch)
{
    const size_t n = batch->n, dim = settings->action_dim, bytes = n * sizeof(float);
    struct loss_batch on_gpu = *batch;
    on_gpu.actions = bring(batch->actions, settings->gaussian ? dim * bytes : bytes);
    on_gpu.log_behaviour = bring(batch->log_behaviour, bytes);
    on_gpu.log_proximal = batch->log_proximal ? bring(batch->log_proximal, bytes) : NULL;
    on_gpu.advantages = bring(batch->advantages, bytes);
    on_gpu.targets = bring(batch->targets, bytes);
    on_gpu.old_values = bring(batch->old_values, bytes);
    on_gpu.head = bring(batch->head, dim * bytes);
    on_gpu.value = bring(batch->value, bytes);
    on_gpu.log_std = settings->gaussian ? bring(batch->log_std, dim * sizeof(float)) : NULL;
    return on_gpu;
}

static struct statistics statistics_on_gpu(const float *values, const float *minus, size_t n)
{
    struct statistics made;
    const struct gpu_statistics_work work = {.values = values,
                                             .minus = minus,
                                             .n = n,
                                             .scratch = place(GPU_STATISTICS_SCRATCH),
                                             .to = place(sizeof made)};
    done(gpu_statistics(memory_stream(), &work));
    memory_fetch(&made, work.to, sizeof made);
    return made;
}

static void fetch_arrays(const struct loss_settings *settings, size_t n,
                         const struct loss_arrays *from, const struct loss_arrays *to)
{
    const size_t dim = settings->action_dim, bytes = n * sizeof(float);
    memory_fetch(to->d_head, from->d_head, dim * bytes);
    memory_fetch(to->d_value, from->d_value, bytes);
    if (settings->gaussian)
        memory_fetch(to->d_log_std, from->d_log_std, dim * sizeof(float));
    memory_fetch(to->log_new, from->log_new, bytes);
    memory_fetch(to->entropy, from->entropy, bytes);
    memory_fetch(to->ratio, from->ratio, bytes);
    memory_fetch(to->advantage, from->advantage, bytes);
    memory_fetch(to->weight, from->weight, bytes);
}

void gpu_trainer_loss(const struct loss_settings *settings, const struct loss_batch *batch,
                      struct loss_result *result)
{
    const size_t n = batch->n, dim = settings->action_dim, bytes = n * sizeof(float);
    const struct loss_batch on_gpu = bring_batch(settings, batch);
    const struct statistics own = statistics_on_gpu(on_gpu.advantages, NULL, n);
    const struct statistics targets = statistics_on_gpu(on_gpu.targets, NULL, n);
    const struct statistics errors = statistics_on_gpu(on_gpu.targets, on_gpu.old_values, n);
    struct loss_centre *centre = place(sizeof *centre);
    struct loss_sums sums;
    done(gpu_loss_centre(memory_stream(), settings, bring(&own, sizeof own), centre));
    const struct gpu_loss_work work = {
        .batch = on_gpu,
        .arrays = {place(dim * bytes), place(bytes), place(dim * sizeof(float)), place(bytes),
                   place(bytes), place(bytes), place(bytes), place(bytes)},
        .centre = centre,
        .scratch = place(gpu_loss_scratch(settings, n)),
        .sums = place(sizeof sums)};
    done(gpu_loss(memory_stream(), settings, &work));
    fetch_arrays(settings, n, &work.arrays, &result->arrays);
    memory_fetch(&sums, work.sums, sizeof sums);
    loss_tell(settings, &sums, n, result);
    result->explained_variance = element_explained_variance(targets.m2, errors.m2);
    free_places();
}
