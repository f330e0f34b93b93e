/* Computes a shard's jobs at once, in the caller's thread. */
#include "server/shard/shard_local.h"

#include "common/codec.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE (UINT64_C(2) << 20)

gradweir_status shard_local_around(struct shard *shard, const char *simd,
                                   struct shard_local **local)
{
    struct shard_local *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a shard");
    made->shard = shard;
    made->arithmetic = arithmetic_choose(simd);
    made->actions.max = shard_actions_max(made->shard);
    made->outbox_max = 4 * made->actions.max;
    made->actions.items = calloc(made->actions.max, sizeof *made->actions.items);
    made->outbox = calloc(made->outbox_max, sizeof *made->outbox);
    gradweir_status status = GRADWEIR_OK;
    if (!made->arithmetic)
        status = fail(GRADWEIR_ERR_UNSUPPORTED, "this machine cannot run %s", simd);
    else if (!made->actions.items || !made->outbox)
        status = fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a shard's actions");
    if (status != GRADWEIR_OK) {
        shard_local_close(made);
        return status;
    }
    *local = made;
    return GRADWEIR_OK;
}

/* In large pages, like a server's. */
static void *take_arena(uint64_t bytes)
{
    const uint64_t alignment = bytes < HUGE_PAGE ? 64 : HUGE_PAGE;
    const uint64_t size = (bytes + alignment - 1) / alignment * alignment;
    void *arena = aligned_alloc(alignment, size);
    if (arena && alignment == HUGE_PAGE)
        madvise(arena, size, MADV_HUGEPAGE);
    return arena;
}

gradweir_status shard_local_open(const struct model *model, const struct law_settings *law,
                                 const struct shard_options *options, const char *simd,
                                 struct shard_local **local)
{
    uint64_t bytes;
    char plan[512];
    TRY(shard_arena_bytes(model, law, options, &bytes, plan, sizeof plan));
    struct shard *shard = take_arena(bytes);
    if (!shard)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for an arena: %s", plan);
    memset(shard, 0, bytes);
    gradweir_status status = shard_init(shard, bytes, model, law, options);
    if (status == GRADWEIR_OK)
        status = shard_local_around(shard, simd, local);
    if (status != GRADWEIR_OK) {
        free(shard);
        return status;
    }
    (*local)->owned = true;
    return GRADWEIR_OK;
}

gradweir_status shard_local_threads(struct shard_local *local, uint32_t threads, bool crowded)
{
    const struct device_options options = {
        .simd = local->arithmetic->name, .threads = threads, .crowded = crowded};
    ASSERT(!local->device);
    return device_cpu.open(&options, &local->device);
}

void shard_local_close(struct shard_local *local)
{
    if (!local)
        return;
    device_cpu.close(local->device);
    free(local->actions.items);
    free(local->outbox);
    if (local->owned)
        free(local->shard);
    free(local);
}

static void scan(struct shard_local *local, const struct shard_job *job, struct shard_event *done)
{
    const unsigned char *numbers = shard_address(local->shard, job->offset);
    const uint64_t count = job->end;
    for (uint64_t at = 0; at < count; at += ARITHMETIC_BLOCK) {
        struct arithmetic_measure piece;
        const uint64_t rest = count - at;
        local->arithmetic->measure(job->codec, numbers + codec_bytes(job->codec, at),
                                   rest < ARITHMETIC_BLOCK ? rest : ARITHMETIC_BLOCK, &piece);
        done->sum_squares += piece.sum_squares;
        if (piece.largest_bits > done->largest_bits)
            done->largest_bits = piece.largest_bits;
    }
    if (!arithmetic_finite(done->largest_bits))
        done->not_finite = codec_first_not_finite(job->codec, numbers, count);
}

static void behind_average(void *context, uint64_t begin, uint64_t end)
{
    struct shard_local *local = context;
    shard_measure_average(local->shard, local->arithmetic, begin, end);
}

static void behind_step(void *context, uint64_t begin, uint64_t end)
{
    struct shard_local *local = context;
    shard_measure_update(local->shard, local->arithmetic, begin, end);
}

static void average(struct shard_local *local, const struct shard_job *job)
{
    struct arithmetic_work work;
    shard_work(local->shard, &work);
    local->arithmetic->average(shard_plan(local->shard), &work.sources, job->begin, job->end,
                               shard_average(local->shard) + job->begin);
    behind_average(local, job->begin, job->end);
}

static void step(struct shard_local *local, const struct shard_job *job)
{
    struct arithmetic_work work;
    shard_work(local->shard, &work);
    local->arithmetic->step(shard_plan(local->shard), &work, job->begin, job->end);
    behind_step(local, job->begin, job->end);
}

/* The same by the device's threads. */
static void share(struct shard_local *local, const struct shard_job *job)
{
    struct arithmetic_work work;
    struct device_done done;
    shard_work(local->shard, &work);
    const struct device_accumulate accumulate = {.plan = shard_plan(local->shard),
                                                 .sources = work.sources,
                                                 .average = shard_average(local->shard),
                                                 .begin = job->begin,
                                                 .end = job->end,
                                                 .behind = {behind_average, local}};
    const bool measures = shard_measures_update(local->shard);
    const struct device_step stretch = {.plan = shard_plan(local->shard),
                                        .work = &work,
                                        .begin = job->begin,
                                        .end = job->end,
                                        .behind = {measures ? behind_step : NULL, local}};
    const gradweir_status status = job->kind == SHARD_AVERAGE
                                       ? device_cpu.accumulate(local->device, 0, &accumulate)
                                       : device_cpu.step(local->device, 0, &stretch);
    ASSERT(status == GRADWEIR_OK);
    while (device_cpu.poll(local->device, &done, 1) == 0)
        ;
}

static void compute(struct shard_local *local, const struct shard_job *job, int64_t now_ns,
                    struct shard_event *done)
{
    *done = (struct shard_event){
        .kind = SHARD_DONE, .now_ns = now_ns, .token = job->token, .not_finite = UINT64_MAX};
    if (job->kind == SHARD_SCAN)
        scan(local, job, done);
    else if (local->device)
        share(local, job);
    else if (job->kind == SHARD_AVERAGE)
        average(local, job);
    else
        step(local, job);
}

static void queue_job(struct shard_local *local, const struct shard_action *action)
{
    ASSERT(local->jobs_count < SHARD_LOCAL_JOBS_MAX);
    const uint32_t last = (local->jobs_first + local->jobs_count++) % SHARD_LOCAL_JOBS_MAX;
    local->jobs[last] = (struct shard_job){.kind = action->kind,
                                           .codec = action->codec,
                                           .token = action->token,
                                           .offset = action->offset,
                                           .begin = action->begin,
                                           .end = action->end};
}

/* Jobs are queued, the other actions go out. */
static void sort_out(struct shard_local *local)
{
    for (uint32_t i = 0; i < local->actions.count; i++) {
        const struct shard_action *action = &local->actions.items[i];
        if (action->kind == SHARD_SCAN || action->kind == SHARD_AVERAGE ||
            action->kind == SHARD_STEP) {
            queue_job(local, action);
            continue;
        }
        ASSERT(local->outbox_count < local->outbox_max);
        local->outbox[local->outbox_count++] = *action;
    }
}

void shard_local_event(struct shard_local *local, const struct shard_event *event)
{
    struct shard_event next;
    local->outbox_count = 0;
    shard_step(local->shard, event, &local->actions);
    for (sort_out(local); local->jobs_count > 0; sort_out(local)) {
        compute(local, &local->jobs[local->jobs_first], event->now_ns, &next);
        local->jobs_first = (local->jobs_first + 1) % SHARD_LOCAL_JOBS_MAX;
        local->jobs_count--;
        shard_step(local->shard, &next, &local->actions);
    }
}
