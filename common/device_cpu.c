/* The device that is this machine's memory and its cores: the definition that other devices are
 * compared with. Jobs wait in a ring; each poll carries out one tile of the oldest, so a loop is
 * never held up for longer than a tile. With more threads than one, helpers take pieces of the same
 * job meanwhile; no sum goes over a piece's border, so how many there are changes no bit. */
#include "common/device_cpu_jobs.h"
#include "common/helpers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE  ((size_t)2 << 20)
#define CACHE_LINE ((size_t)64)
#define TILE_DEFAULT                                                                               \
    ((size_t)2 * ARITHMETIC_BLOCK) /* elements: about 0.5 ms of Adam with a window of 16 */

struct device_state {
    struct cpu_means means;
    struct helpers *helpers; /* NULL: none */
    uint64_t given, done;    /* jobs; the ring holds [done, given) */
    bool begun, shared;      /* the oldest; helpers have a part in it */
    size_t grain;            /* of its pieces */
    size_t at, end;          /* what the owner is at */
    struct cpu_job ring[DEVICE_JOBS_MAX];
};

static struct cpu_job *oldest(struct device_state *state)
{
    return &state->ring[state->done % DEVICE_JOBS_MAX];
}

static gradweir_status cpu_open(const struct device_options *options, struct device_state **state)
{
    const struct arithmetic *arithmetic = arithmetic_choose(options->simd);
    if (arithmetic == NULL)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "simd %s: this machine or build does not have it",
                    options->simd);
    struct device_state *new = calloc(1, sizeof *new);
    if (new == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cpu device: %zu bytes", sizeof *new);
    new->means.arithmetic = arithmetic;
    new->means.tile =
        options->tile == 0 ? TILE_DEFAULT : arithmetic_blocks(options->tile) * ARITHMETIC_BLOCK;
    const gradweir_status status =
        options->threads > 1 ? helpers_new(options->threads - 1, options->crowded, &new->helpers)
                             : GRADWEIR_OK;
    if (status != GRADWEIR_OK) {
        free(new);
        return status;
    }
    *state = new;
    return GRADWEIR_OK;
}

static void cpu_close(struct device_state *state)
{
    if (state != NULL)
        helpers_free(state->helpers);
    free(state);
}

static void cpu_info(const struct device_state *state, struct device_info *info)
{
    *info =
        (struct device_info){.host_memory = true, .registers_host = true, .alignment = CACHE_LINE};
    snprintf(info->text, sizeof info->text, "cpu %s", state->means.arithmetic->name);
}

/* Large pieces are whole huge pages, so that the kernel can back them with such; it is asked, not
 * forced. */
static size_t rounded(size_t bytes)
{
    const size_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : CACHE_LINE;
    return (bytes + unit - 1) / unit * unit;
}

static gradweir_status cpu_alloc(struct device_state *state, size_t bytes, void **memory)
{
    (void)state;
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return fail(GRADWEIR_ERR_INVALID, "cpu device: %zu bytes asked for", bytes);
    const size_t size = rounded(bytes);
    void *new = aligned_alloc(size >= HUGE_PAGE ? HUGE_PAGE : CACHE_LINE, size);
    if (new == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "cpu device: %zu bytes", size);
    if (size >= HUGE_PAGE)
        madvise(new, size, MADV_HUGEPAGE);
    memset(new, 0, size);
    *memory = new;
    return GRADWEIR_OK;
}

static void cpu_free(struct device_state *state, void *memory, size_t bytes)
{
    (void)state;
    (void)bytes;
    free(memory);
}

/* All memory of this process is this device's. */
static gradweir_status cpu_locate(struct device_state *state, const void *pointer,
                                  enum device_place *place, uint32_t *ordinal)
{
    (void)state;
    (void)pointer;
    *place = DEVICE_PLACE_BOTH;
    *ordinal = 0;
    return GRADWEIR_OK;
}

static gradweir_status cpu_pin(struct device_state *state, void *memory, size_t bytes)
{
    (void)state;
    if (memory == NULL || bytes == 0)
        return fail(GRADWEIR_ERR_INVALID, "cpu device: nothing to pin");
    return GRADWEIR_OK;
}

static void cpu_unpin(struct device_state *state, void *memory, size_t bytes)
{
    (void)state;
    (void)memory;
    (void)bytes;
}

static gradweir_status give(struct device_state *state, const struct cpu_job *job)
{
    if (state->given - state->done == DEVICE_JOBS_MAX)
        return fail(GRADWEIR_ERR_FULL, "cpu device: %d jobs are waiting", DEVICE_JOBS_MAX);
    state->ring[state->given++ % DEVICE_JOBS_MAX] = *job;
    return GRADWEIR_OK;
}

static gradweir_status cpu_copy(struct device_state *state, uint64_t tag,
                                const struct device_copy *copy)
{
    if (copy->from == NULL || copy->to == NULL)
        return fail(GRADWEIR_ERR_INVALID, "copy: no memory given");
    return give(state,
                &(struct cpu_job){.kind = CPU_COPY, .tag = tag, .end = copy->bytes, .copy = *copy});
}

static gradweir_status cpu_decode(struct device_state *state, uint64_t tag,
                                  const struct device_decode *decode)
{
    if (decode->from == NULL || decode->sums == NULL)
        return fail(GRADWEIR_ERR_INVALID, "decode: no memory given");
    return give(state, &(struct cpu_job){
                           .kind = CPU_DECODE, .tag = tag, .end = decode->n, .decode = *decode});
}

static gradweir_status cpu_encode(struct device_state *state, uint64_t tag,
                                  const struct device_encode *encode)
{
    TRY(device_check_encode(encode));
    return give(state, &(struct cpu_job){
                           .kind = CPU_ENCODE, .tag = tag, .end = encode->n, .encode = *encode});
}

static gradweir_status cpu_give_back(struct device_state *state, uint64_t tag,
                                     const struct device_give_back *give_back)
{
    TRY(device_check_give_back(give_back));
    return give(state, &(struct cpu_job){.kind = CPU_GIVE_BACK,
                                         .tag = tag,
                                         .end = give_back->n,
                                         .give_back = *give_back});
}

static gradweir_status check_plan(const struct arithmetic_plan *plan, size_t block, size_t begin,
                                  size_t end)
{
    if (begin >= end || begin % ARITHMETIC_BLOCK != 0)
        return fail(GRADWEIR_ERR_INVALID,
                    "device: [%zu, %zu) is empty or does not begin at a block", begin, end);
    if (device_block(block) == 0)
        return fail(GRADWEIR_ERR_INVALID, "device: blocks of %zu elements", block);
    if (plan->entries_n > ARITHMETIC_ENTRIES_MAX)
        return fail(GRADWEIR_ERR_INVALID, "device: %u entries in a plan", plan->entries_n);
    return GRADWEIR_OK;
}

static gradweir_status cpu_accumulate(struct device_state *state, uint64_t tag,
                                      const struct device_accumulate *accumulate)
{
    TRY(check_plan(accumulate->plan, accumulate->block, accumulate->begin, accumulate->end));
    return give(state, &(struct cpu_job){.kind = CPU_ACCUMULATE,
                                         .tag = tag,
                                         .begin = accumulate->begin,
                                         .end = accumulate->end,
                                         .accumulate = *accumulate});
}

static gradweir_status cpu_step(struct device_state *state, uint64_t tag,
                                const struct device_step *step)
{
    const bool sums = step->update_sums != NULL && step->theta_sums != NULL;
    const bool whole = step->plan->phase == ARITHMETIC_WHOLE;
    TRY(check_plan(step->plan, step->block, step->begin, step->end));
    if (whole != (step->plan->algorithm != ARITHMETIC_LAMB))
        return fail(GRADWEIR_ERR_INVALID, "step: the phase does not fit the algorithm");
    if (sums && step->plan->phase != ARITHMETIC_MOMENTS)
        return fail(GRADWEIR_ERR_INVALID, "step: sums belong to LAMB's moments and only there");
    return give(
        state,
        &(struct cpu_job){
            .kind = CPU_STEP, .tag = tag, .begin = step->begin, .end = step->end, .step = *step});
}

static void do_piece(void *context, size_t i)
{
    struct device_state *state = context;
    struct cpu_job *job = oldest(state);
    size_t at = job->begin + i * state->grain;
    const size_t end = job->end - at < state->grain ? job->end : at + state->grain;
    while (at < end)
        at = cpu_job_tile(&state->means, job, at, end);
}

/* The oldest job is cut: into pieces that helpers take too, or not at all. */
static void begin(struct device_state *state)
{
    const struct cpu_job *job = oldest(state);
    const size_t size = job->end - job->begin;
    state->begun = true;
    atomic_store(&state->means.largest_bits, 0);
    state->grain = state->helpers != NULL ? cpu_job_grain(job) : size;
    state->shared = state->grain < size;
    state->at = job->begin;
    state->end = state->shared ? job->begin : job->end;
    if (state->shared)
        helpers_begin(state->helpers, do_piece, state, (size - 1) / state->grain + 1);
}

/* The owner's next piece; false when there is none left. */
static bool take(struct device_state *state)
{
    const struct cpu_job *job = oldest(state);
    size_t i;
    if (!state->shared || !helpers_take(state->helpers, &i))
        return false;
    state->at = job->begin + i * state->grain;
    state->end = job->end - state->at < state->grain ? job->end : state->at + state->grain;
    return true;
}

static size_t cpu_poll(struct device_state *state, struct device_done *done, size_t room)
{
    if (room == 0 || state->done == state->given)
        return 0;
    struct cpu_job *job = oldest(state);
    if (!state->begun)
        begin(state);
    if (state->at < state->end || take(state)) {
        state->at = cpu_job_tile(&state->means, job, state->at, state->end);
        if (state->shared && state->at == state->end)
            helpers_did(state->helpers);
    }
    if (state->at < state->end || (state->shared && !helpers_done(state->helpers)))
        return 0;
    *done = (struct device_done){.tag = job->tag,
                                 .status = GRADWEIR_OK,
                                 .largest_bits = atomic_load(&state->means.largest_bits)};
    state->begun = false;
    state->done++;
    return 1;
}

static size_t cpu_in_flight(const struct device_state *state)
{
    return (size_t)(state->given - state->done);
}

const struct device device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .locate = cpu_locate,
    .pin = cpu_pin,
    .unpin = cpu_unpin,
    .copy = cpu_copy,
    .decode = cpu_decode,
    .encode = cpu_encode,
    .give_back = cpu_give_back,
    .accumulate = cpu_accumulate,
    .step = cpu_step,
    .poll = cpu_poll,
    .in_flight = cpu_in_flight,
};
