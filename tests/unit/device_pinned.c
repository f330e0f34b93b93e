#include "tests/unit/device_pinned.h"

#include "common/codec.h"
#include "common/element_step.h"

#include <stdio.h>
#include <stdlib.h>

enum { PINS_MAX = 8 };

uint64_t device_pinned_jobs_good, device_pinned_memory_max;

struct device_state {
    struct device_state *cpu;
    uint64_t given;
    uint64_t done;
    struct {
        struct device_behind behind;
        uint64_t at, end;
    } ring[DEVICE_JOBS_MAX];
    struct {
        const uint8_t *at;
        size_t bytes;
    } pins[PINS_MAX]; /* and what alloc gave */
};

static gradweir_status pinned_open(const struct device_options *options,
                                   struct device_state **state)
{
    struct device_state *new = calloc(1, sizeof *new);
    ASSERT(new);
    const gradweir_status status =
        device_cpu.open(&(struct device_options){.simd = options->simd}, &new->cpu);
    ASSERT(status == GRADWEIR_OK);
    *state = new;
    return GRADWEIR_OK;
}

static void pinned_close(struct device_state *state)
{
    for (size_t i = 0; i < PINS_MAX; i++)
        ASSERT(!state->pins[i].at);
    device_cpu.close(state->cpu);
    free(state);
}

static void pinned_info(const struct device_state *state, struct device_info *info)
{
    (void)state;
    *info = (struct device_info){.alignment = 64};
    snprintf(info->text, sizeof info->text, "a processor in a GPU's clothes");
}

static gradweir_status pinned_locate(struct device_state *state, const void *pointer,
                                     enum device_place *place, uint32_t *ordinal)
{
    (void)state, (void)pointer;
    *place = DEVICE_PLACE_HOST;
    *ordinal = 0;
    return GRADWEIR_OK;
}

static gradweir_status pinned_pin(struct device_state *state, void *memory, size_t bytes)
{
    size_t i = 0;
    while (i < PINS_MAX && state->pins[i].at)
        i++;
    ASSERT(i < PINS_MAX && memory && bytes > 0);
    state->pins[i].at = memory;
    state->pins[i].bytes = bytes;
    return GRADWEIR_OK;
}

static void pinned_unpin(struct device_state *state, void *memory, size_t bytes)
{
    for (size_t i = 0; memory && i < PINS_MAX; i++)
        if (state->pins[i].at == memory && state->pins[i].bytes == bytes)
            state->pins[i].at = NULL;
}

static gradweir_status pinned_alloc(struct device_state *state, size_t bytes, void **memory)
{
    if (device_pinned_memory_max && bytes > device_pinned_memory_max)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cuda: %zu bytes are more than it has", bytes);
    TRY(device_cpu.alloc(state->cpu, bytes, memory));
    return pinned_pin(state, *memory, bytes);
}

static void pinned_free(struct device_state *state, void *memory, size_t bytes)
{
    pinned_unpin(state, memory, bytes);
    device_cpu.free(state->cpu, memory, bytes);
}

/* Whatever a job touches must be pinned, or the device's own. */
static void check(const struct device_state *state, const void *pointer, uint64_t bytes)
{
    const uint8_t *at = pointer;
    bool pinned = !at;
    for (size_t i = 0; i < PINS_MAX; i++)
        pinned = pinned || (state->pins[i].at && at >= state->pins[i].at &&
                            at + bytes <= state->pins[i].at + state->pins[i].bytes);
    ASSERT(pinned);
}

static gradweir_status begin(struct device_state *state, const struct device_behind *behind,
                             uint64_t at, uint64_t end)
{
    const size_t place = state->given % DEVICE_JOBS_MAX;
    if (device_pinned_jobs_good && state->given >= device_pinned_jobs_good)
        return fail(GRADWEIR_ERR_LOST, "cuda: a job: the device is lost");
    if (state->given - state->done == DEVICE_JOBS_MAX)
        return fail(GRADWEIR_ERR_FULL, "cuda: full");
    state->given++;
    state->ring[place].behind = behind ? *behind : (struct device_behind){.call = NULL};
    state->ring[place].at = at;
    state->ring[place].end = end;
    return GRADWEIR_OK;
}

static gradweir_status pinned_copy(struct device_state *state, uint64_t tag,
                                   const struct device_copy *job)
{
    TRY(begin(state, NULL, 0, 0));
    return device_cpu.copy(state->cpu, tag, job);
}

static gradweir_status pinned_decode(struct device_state *state, uint64_t tag,
                                     const struct device_decode *job)
{
    check(state, job->from, codec_bytes(job->codec, job->n));
    check(state, job->to, job->n * sizeof(float));
    TRY(begin(state, NULL, 0, 0));
    return device_cpu.decode(state->cpu, tag, job);
}

static gradweir_status pinned_encode(struct device_state *state, uint64_t tag,
                                     const struct device_encode *job)
{
    check(state, job->from, job->n * sizeof(float));
    check(state, job->to, codec_bytes(job->codec, job->n));
    TRY(begin(state, NULL, 0, 0));
    return device_cpu.encode(state->cpu, tag, job);
}

static gradweir_status pinned_give_back(struct device_state *state, uint64_t tag,
                                        const struct device_give_back *job)
{
    check(state, job->sent, codec_bytes(job->codec, job->n));
    check(state, job->rest, job->n * sizeof(float));
    TRY(begin(state, NULL, 0, 0));
    return device_cpu.give_back(state->cpu, tag, job);
}

static void check_sources(const struct device_state *state, const struct arithmetic_plan *plan,
                          const struct arithmetic_sources *sources, uint64_t end)
{
    for (uint32_t k = 0; k < plan->entries_n; k++)
        check(state, element_slot(plan, sources, k), codec_bytes(sources->codec, end));
    if (plan->stacks.window == 0)
        return;
    check(state, sources->back, end * sizeof(float));
    check(state, sources->fronts,
          ((plan->stacks.fronts - 1) * sources->front_stride + end) * sizeof(float));
}

static gradweir_status pinned_accumulate(struct device_state *state, uint64_t tag,
                                         const struct device_accumulate *job)
{
    struct device_accumulate apart = *job;
    check_sources(state, job->plan, &job->sources, job->end);
    check(state, job->average + job->begin, (job->end - job->begin) * sizeof(float));
    TRY(begin(state, &job->behind, job->begin, job->end));
    apart.behind.call = NULL;
    return device_cpu.accumulate(state->cpu, tag, &apart);
}

static gradweir_status pinned_step(struct device_state *state, uint64_t tag,
                                   const struct device_step *job)
{
    struct device_step apart = *job;
    const struct arithmetic_work *work = job->work;
    const uint64_t bytes = (job->end - job->begin) * sizeof(float);
    if (!work->average)
        check_sources(state, job->plan, &work->sources, job->end);
    else
        check(state, work->average + job->begin, bytes);
    check(state, work->parameters + job->begin, bytes);
    check(state, work->parameters_next + job->begin, bytes);
    for (size_t i = 0; i < sizeof work->state / sizeof *work->state; i++) {
        check(state, work->state[i] ? work->state[i] + job->begin : NULL, bytes);
        check(state, work->state_next[i] ? work->state_next[i] + job->begin : NULL, bytes);
    }
    TRY(begin(state, &job->behind, job->begin, job->end));
    apart.behind.call = NULL;
    return device_cpu.step(state->cpu, tag, &apart);
}

static size_t pinned_poll(struct device_state *state, struct device_done *done, size_t room)
{
    const size_t count = device_cpu.poll(state->cpu, done, room < 1 ? room : 1);
    const size_t place = state->done % DEVICE_JOBS_MAX;
    const struct device_behind *behind = &state->ring[place].behind;
    const uint64_t end = state->ring[place].end;
    for (uint64_t at = state->ring[place].at; count && behind->call && at < end;) {
        const uint64_t border = (at / ARITHMETIC_BLOCK + 4) * ARITHMETIC_BLOCK;
        const uint64_t stop = border < end ? border : end;
        behind->call(behind->context, at, stop);
        at = stop;
    }
    state->done += count;
    return count;
}

static size_t pinned_in_flight(const struct device_state *state)
{
    return device_cpu.in_flight(state->cpu);
}

const struct device device_pinned = {.name = "cuda",
                                     .open = pinned_open,
                                     .close = pinned_close,
                                     .info = pinned_info,
                                     .alloc = pinned_alloc,
                                     .free = pinned_free,
                                     .locate = pinned_locate,
                                     .pin = pinned_pin,
                                     .unpin = pinned_unpin,
                                     .copy = pinned_copy,
                                     .decode = pinned_decode,
                                     .encode = pinned_encode,
                                     .give_back = pinned_give_back,
                                     .accumulate = pinned_accumulate,
                                     .step = pinned_step,
                                     .poll = pinned_poll,
                                     .in_flight = pinned_in_flight};
