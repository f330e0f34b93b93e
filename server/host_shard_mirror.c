/* The arena's floats on the GPU: taken, brought there, and addressed. */
#include "server/host_shard_mirror.h"

/* Left free for what jobs take: sums, ranges, ratios. */
static const uint64_t spare_bytes = 16 << 20;

static gradweir_status copy(struct shard_loop *loop, uint64_t offset, uint64_t bytes)
{
    struct shard_mirror *mirror = &loop->mirror;
    TRY(loop->device->copy(
        loop->device_state, MIRROR_TAG,
        &(struct device_copy){.from = shard_address(loop->shard, offset),
                              .to = shard_mirror_at(loop, shard_address(loop->shard, offset)),
                              .bytes = bytes}));
    mirror->copies++;
    return GRADWEIR_OK;
}

static gradweir_status take(struct shard_loop *loop)
{
    void *spare = NULL, *memory = NULL;
    TRY(loop->device->alloc(loop->device_state, spare_bytes, &spare));
    const gradweir_status status =
        loop->device->alloc(loop->device_state, loop->mirror.bytes, &memory);
    loop->device->free(loop->device_state, spare, spare_bytes);
    loop->mirror.memory = memory;
    return status;
}

static void describe(struct shard_loop *loop, const char *where)
{
    struct device_info info;
    loop->device->info(loop->device_state, &info);
    log_line(loop->host->log, LOG_INFO, "device", "shard %u computes on %s, %s", loop->host->index,
             info.text, where);
}

gradweir_status shard_mirror_open(struct shard_loop *loop, bool goes_on)
{
    struct shard_mirror *mirror = &loop->mirror;
    const struct host_options *options = loop->host->options;
    struct shard_floats floats;
    char text[400];
    *mirror = (struct shard_mirror){.states = options->shard.warm};
    if (!loop->device_sums)
        return GRADWEIR_OK;
    shard_floats(loop->shard, &floats);
    mirror->begin = floats.slots;
    mirror->bytes = (mirror->states ? floats.partials : floats.end) - floats.slots;
    if (options->device_memory == HOST_DEVICE_MAPPED || mirror->bytes == 0) {
        describe(loop, "in pinned memory");
        return GRADWEIR_OK;
    }
    const gradweir_status status = take(loop);
    if (status == GRADWEIR_ERR_NO_MEMORY && options->device_memory == HOST_DEVICE_AUTO) {
        snprintf(text, sizeof text, "in pinned memory, not in its own (%.300s)", fail_reason());
        describe(loop, text);
        return GRADWEIR_OK;
    }
    TRY(status);
    snprintf(text, sizeof text, "in %.2f MiB of its memory%s",
             (double)mirror->bytes / (1024.0 * 1024.0),
             mirror->states ? "; the arena follows each tile" : "");
    describe(loop, text);
    return goes_on ? copy(loop, mirror->begin, mirror->bytes) : GRADWEIR_OK;
}

void shard_mirror_close(struct shard_loop *loop)
{
    if (loop->mirror.memory)
        loop->device->free(loop->device_state, loop->mirror.memory, loop->mirror.bytes);
    loop->mirror.memory = NULL;
}

void *shard_mirror_at(const struct shard_loop *loop, const void *address)
{
    const struct shard_mirror *mirror = &loop->mirror;
    const uintptr_t arena = (uintptr_t)loop->shard + mirror->begin;
    return (void *)((uintptr_t)mirror->memory + ((uintptr_t)address - arena));
}

void shard_mirror_landed(struct shard_loop *loop, uint64_t offset, uint64_t length)
{
    struct shard_mirror *mirror = &loop->mirror;
    struct shard_floats floats;
    shard_floats(loop->shard, &floats);
    if (!mirror->memory || length == 0 || offset < floats.slots || offset >= floats.parameters)
        return;
    struct shard_news *news = &mirror->news[(offset - floats.slots) / floats.slot_stride];
    if (news->end == 0) {
        mirror->news_count++;
        news->begin = offset;
    }
    news->begin = offset < news->begin ? offset : news->begin;
    news->end = offset + length > news->end ? offset + length : news->end;
}

gradweir_status shard_mirror_bring(struct shard_loop *loop, bool at_once)
{
    struct shard_mirror *mirror = &loop->mirror;
    if (mirror->copies > 0 && !at_once)
        return GRADWEIR_OK;
    for (uint32_t i = 0; mirror->news_count > 0 && i < SLOTS_MAX; i++) {
        struct shard_news *news = &mirror->news[i];
        if (news->end == 0)
            continue;
        TRY(copy(loop, news->begin, news->end - news->begin));
        *news = (struct shard_news){.end = 0};
        mirror->news_count--;
    }
    return GRADWEIR_OK;
}

/* The parameters that a step goes from: made here by the step before, unless it is the first. */
static gradweir_status bring_parameters(struct shard_loop *loop)
{
    struct shard_mirror *mirror = &loop->mirror;
    const struct arithmetic_work *work = &loop->work;
    const uint64_t from = (uint64_t)((const char *)work->parameters - (const char *)loop->shard);
    struct shard_floats floats;
    shard_floats(loop->shard, &floats);
    if (from != mirror->from && from != mirror->made)
        TRY(copy(loop, from, floats.parameter_bytes));
    mirror->from = from;
    if (shard_plan(loop->shard)->phase != ARITHMETIC_MOMENTS)
        mirror->made = (uint64_t)((char *)work->parameters_next - (char *)loop->shard);
    return GRADWEIR_OK;
}

/* NULL stays NULL. */
#define TURN(field) ((field) = (field) ? shard_mirror_at(loop, (field)) : NULL)

static void turn_addresses(struct shard_loop *loop)
{
    struct arithmetic_work *work = &loop->work;
    TURN(work->sources.base);
    if (!loop->mirror.states) {
        TURN(work->sources.back);
        TURN(work->sources.fronts);
    }
    TURN(work->average);
    TURN(work->parameters);
    TURN(work->parameters_next);
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX; k++) {
        TURN(work->state[k]);
        TURN(work->state_next[k]);
    }
}

gradweir_status shard_mirror_job(struct shard_loop *loop, const struct shard_loop_job *job,
                                 struct device_echo *echo)
{
    const struct arithmetic_work *work = &loop->work;
    *echo = (struct device_echo){.parameters = NULL};
    if (!loop->mirror.memory)
        return GRADWEIR_OK;
    TRY(shard_mirror_bring(loop, true));
    if (job->kind == SHARD_STEP) {
        TRY(bring_parameters(loop));
        echo->parameters = work->parameters_next;
        for (size_t k = 0; k < ARITHMETIC_STATES_MAX && loop->mirror.states; k++)
            echo->state[k] = work->state_next[k];
    }
    turn_addresses(loop);
    return GRADWEIR_OK;
}
