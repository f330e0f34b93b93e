/* What a shard has the device do: scans, averages and steps, one at a time, and what came of them.
 */
#include "server/host_shard_mirror.h"

#include "common/clock.h"
#include "common/codec.h"

#include <stdio.h>

/* The processor measures behind its own arithmetic, while floats are in the cache; another device
 * makes sums itself, and what is left to be done behind it is digests. */

static void behind_average(void *context, uint64_t begin, uint64_t end)
{
    struct shard_loop *loop = context;
    shard_measure_average(loop->shard, loop->arithmetic, begin, end);
}

static void behind_step(void *context, uint64_t begin, uint64_t end)
{
    struct shard_loop *loop = context;
    shard_measure_update(loop->shard, loop->arithmetic, begin, end);
}

static void behind_digests(void *context, uint64_t begin, uint64_t end)
{
    struct shard_loop *loop = context;
    shard_digest_job(loop->shard, begin, end);
}

static struct device_behind behind(struct shard_loop *loop, bool average)
{
    const bool wanted = loop->device_sums ? shard_digests(loop->shard)
                                          : average || shard_measures_update(loop->shard);
    if (!wanted)
        return (struct device_behind){.call = NULL};
    return (struct device_behind){.call = loop->device_sums ? behind_digests
                                          : average         ? behind_average
                                                            : behind_step,
                                  .context = loop};
}

/* First parameters of a job with another codec lie where no gradient does: they are looked at where
 * they are. */
static gradweir_status give_scan(struct shard_loop *loop, const struct shard_loop_job *job)
{
    const void *from = shard_address(loop->shard, job->offset);
    struct shard_floats floats;
    shard_floats(loop->shard, &floats);
    TRY(shard_mirror_bring(loop, true));
    if (loop->mirror.memory && job->offset < floats.parameters)
        from = shard_mirror_at(loop, from);
    return loop->device->decode(
        loop->device_state, 0,
        &(struct device_decode){
            .codec = job->codec, .from = from, .n = job->end, .sums = loop->scan_sums});
}

static gradweir_status give_average(struct shard_loop *loop, const struct shard_loop_job *job,
                                    const struct shard_job_sums *sums)
{
    float *average = shard_average(loop->shard);
    const bool mirrored = loop->mirror.memory != NULL;
    return loop->device->accumulate(
        loop->device_state, 0,
        &(struct device_accumulate){.plan = shard_plan(loop->shard),
                                    .sources = loop->work.sources,
                                    .average = mirrored ? shard_mirror_at(loop, average) : average,
                                    .echo = mirrored && loop->mirror.states ? average : NULL,
                                    .begin = job->begin,
                                    .end = job->end,
                                    .sums = sums->average,
                                    .block = sums->block,
                                    .behind = behind(loop, true)});
}

static gradweir_status give_step(struct shard_loop *loop, const struct shard_loop_job *job,
                                 const struct shard_job_sums *sums, const struct device_echo *echo)
{
    return loop->device->step(loop->device_state, 0,
                              &(struct device_step){.plan = shard_plan(loop->shard),
                                                    .work = &loop->work,
                                                    .echo = *echo,
                                                    .begin = job->begin,
                                                    .end = job->end,
                                                    .update_sums = sums->update,
                                                    .theta_sums = sums->theta,
                                                    .block = sums->block,
                                                    .behind = behind(loop, false)});
}

static gradweir_status give_job(struct shard_loop *loop, const struct shard_loop_job *job)
{
    struct shard_job_sums sums = {.block = 0};
    struct device_echo echo;
    if (job->kind == SHARD_SCAN)
        return give_scan(loop, job);
    if (loop->device_sums)
        shard_job_sums(loop->shard, job->begin, &sums);
    shard_work(loop->shard, &loop->work);
    ASSERT(job->kind == SHARD_AVERAGE || job->kind == SHARD_STEP);
    TRY(shard_mirror_job(loop, job, &echo));
    return job->kind == SHARD_AVERAGE ? give_average(loop, job, &sums)
                                      : give_step(loop, job, &sums, &echo);
}

/* The loop ends with this reason. The memory is the host's: who is started again goes on in it. */
static void device_failed(struct shard_loop *loop, gradweir_status status)
{
    if (loop->device_failed == GRADWEIR_OK)
        snprintf(loop->device_reason, sizeof loop->device_reason, "%s", fail_reason());
    loop->device_failed = status;
}

/* One job at a time: scan_sums and work belong to it. */
static void give_next(struct shard_loop *loop)
{
    if (loop->jobs_given || !loop->jobs_count || loop->device_failed != GRADWEIR_OK)
        return;
    const gradweir_status status = give_job(loop, &loop->jobs[loop->jobs_first]);
    if (status == GRADWEIR_OK)
        loop->jobs_given = 1;
    else if (status != GRADWEIR_ERR_FULL) /* copies to the mirror take room too */
        device_failed(loop, status);
}

void shard_loop_queue(struct shard_loop *loop, const struct shard_action *action)
{
    ASSERT(loop->jobs_count < loop->jobs_max);
    loop->jobs[(loop->jobs_first + loop->jobs_count++) % loop->jobs_max] =
        (struct shard_loop_job){.kind = action->kind,
                                .token = action->token,
                                .offset = action->offset,
                                .begin = action->begin,
                                .end = action->end,
                                .codec = action->codec};
    give_next(loop);
}

static void job_done(struct shard_loop *loop, const struct device_done *done)
{
    if (done->status != GRADWEIR_OK) {
        device_failed(loop, done->status);
        return;
    }
    if (done->tag == MIRROR_TAG) {
        ASSERT(loop->mirror.copies > 0);
        loop->mirror.copies--;
        return;
    }
    const struct shard_loop_job job = loop->jobs[loop->jobs_first];
    loop->jobs_first = (loop->jobs_first + 1) % loop->jobs_max;
    loop->jobs_count--;
    loop->jobs_given = 0;
    struct shard_event event = {.kind = SHARD_DONE,
                                .now_ns = (int64_t)clock_now_ns(),
                                .token = job.token,
                                .status = done->status,
                                .largest_bits = done->largest_bits,
                                .not_finite = UINT64_MAX};
    if (job.kind == SHARD_SCAN) {
        const uint64_t count = job.end;
        if (!arithmetic_finite(done->largest_bits))
            event.not_finite =
                codec_first_not_finite(job.codec, shard_address(loop->shard, job.offset), count);
        const size_t blocks = arithmetic_blocks(count);
        for (size_t i = 0; i < blocks; i++)
            event.sum_squares += loop->scan_sums[i];
    }
    shard_loop_event(loop, &event);
    give_next(loop);
}

bool shard_loop_device(struct shard_loop *loop)
{
    give_next(loop);
    const gradweir_status status = shard_mirror_bring(loop, false);
    if (status != GRADWEIR_OK && status != GRADWEIR_ERR_FULL)
        device_failed(loop, status);
    if (!loop->device->in_flight(loop->device_state))
        return false;
    struct device_done done[4];
    const size_t count = loop->device->poll(loop->device_state, done, 4);
    for (size_t i = 0; i < count; i++)
        job_done(loop, &done[i]);
    return true;
}

/* Other workers' heads wait so long at most. */
#define AHEAD_NS 5000000

bool shard_loop_ahead(struct shard_loop *loop)
{
    bool any = false;
    if (!shard_guesses(loop->shard) || !loop->jobs_count)
        return false;
    const uint64_t end_ns = clock_now_ns() + AHEAD_NS;
    while (loop->device_failed == GRADWEIR_OK && loop->jobs_count && clock_now_ns() < end_ns)
        any |= shard_loop_device(loop);
    return any;
}
