#include "tests/unit/device_far.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/element_gradient.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { AREAS_MAX = 256, PINS_MAX = 64, GAP = 1 << 20 }; /* GAP: behind each area is nothing */

struct device_far_faults device_far_faults;
struct device_far_seen device_far_seen;

/* Two mappings of the same pages. */
struct area {
    uint8_t *far, *near;
    size_t bytes;
    uint32_t ordinal;
};

static struct area areas[AREAS_MAX];

struct device_state {
    uint32_t ordinal;
    uint64_t given, done, lost_from, idle;
    struct {
        uint64_t tag;
        struct device_copy copy;
        struct device_encode encode; /* its n is 0: another kind; and so on */
        struct device_give_back give_back;
    } ring[DEVICE_JOBS_MAX];
    struct {
        const uint8_t *at;
        size_t bytes;
    } pins[PINS_MAX];
};

void device_far_reset(void)
{
    device_far_faults = (struct device_far_faults){.absent = false};
    device_far_seen = (struct device_far_seen){.given = 0};
}

static const struct area *area_of(const void *pointer)
{
    const uint8_t *at = pointer;
    for (size_t i = 0; i < AREAS_MAX; i++)
        if (areas[i].far && at >= areas[i].far && at < areas[i].far + areas[i].bytes)
            return &areas[i];
    return NULL;
}

/* Where far bytes can be reached; NULL: they are not far. All of them must be in one area. */
static uint8_t *near_of(const void *pointer, size_t bytes)
{
    const struct area *area = area_of(pointer);
    if (!area)
        return NULL;
    const size_t offset = (size_t)((const uint8_t *)pointer - area->far);
    ASSERT(bytes <= area->bytes - offset);
    return area->near + offset;
}

const void *device_far_reach(const void *far, size_t bytes)
{
    return near_of(far, bytes);
}

void *device_far_new(size_t bytes, uint32_t ordinal)
{
    size_t i = 0;
    while (i < AREAS_MAX && areas[i].far)
        i++;
    ASSERT(i < AREAS_MAX && bytes > 0);
    const int fd = memfd_create("far", MFD_CLOEXEC);
    ASSERT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    void *far = mmap(NULL, bytes + GAP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT(far != MAP_FAILED);
    far = mmap(far, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0);
    void *near = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT(far != MAP_FAILED && near != MAP_FAILED);
    close(fd);
    areas[i] = (struct area){.far = far, .near = near, .bytes = bytes, .ordinal = ordinal};
    return far;
}

void device_far_put(void *far, const void *from, size_t bytes)
{
    memcpy(near_of(far, bytes), from, bytes);
}

void device_far_get(const void *far, void *to, size_t bytes)
{
    memcpy(to, near_of(far, bytes), bytes);
}

void device_far_delete(void *far)
{
    for (size_t i = 0; far && i < AREAS_MAX; i++)
        if (areas[i].far == far) {
            munmap(areas[i].far, areas[i].bytes + GAP);
            munmap(areas[i].near, areas[i].bytes);
            areas[i] = (struct area){.far = NULL};
        }
}

static gradweir_status far_open(const struct device_options *options, struct device_state **state)
{
    if (device_far_faults.absent)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "far: there is no such device");
    struct device_state *new = calloc(1, sizeof *new);
    ASSERT(new);
    new->ordinal = options->ordinal;
    device_far_seen.opened++;
    *state = new;
    return GRADWEIR_OK;
}

static void far_close(struct device_state *state)
{
    if (!state)
        return;
    for (size_t i = 0; i < PINS_MAX; i++)
        ASSERT(!state->pins[i].at); /* all is unpinned before */
    device_far_seen.closed++;
    free(state);
}

static void far_info(const struct device_state *state, struct device_info *info)
{
    *info = (struct device_info){.alignment = 4096};
    snprintf(info->text, sizeof info->text, "far %u", state->ordinal);
}

static gradweir_status far_alloc(struct device_state *state, size_t bytes, void **memory)
{
    if (bytes == 0)
        return fail(GRADWEIR_ERR_INVALID, "far: no bytes");
    if (device_far_faults.memory_max && bytes > device_far_faults.memory_max)
        return fail(GRADWEIR_ERR_NO_MEMORY, "far: %zu bytes are too many", bytes);
    *memory = device_far_new(bytes, state->ordinal);
    return GRADWEIR_OK;
}

static void far_free(struct device_state *state, void *memory, size_t bytes)
{
    (void)state;
    (void)bytes;
    device_far_delete(memory);
}

static gradweir_status far_locate(struct device_state *state, const void *pointer,
                                  enum device_place *place, uint32_t *ordinal)
{
    const struct area *area = area_of(pointer);
    *ordinal = area ? area->ordinal : 0;
    *place = !area                             ? DEVICE_PLACE_HOST
             : area->ordinal == state->ordinal ? DEVICE_PLACE_OWN
                                               : DEVICE_PLACE_FOREIGN;
    return GRADWEIR_OK;
}

static gradweir_status far_pin(struct device_state *state, void *memory, size_t bytes)
{
    size_t i = 0;
    if (!memory || bytes == 0 || bytes % 4096 != 0)
        return fail(GRADWEIR_ERR_INVALID, "far: nothing to pin, or no whole pages");
    if (device_far_faults.no_pinning ||
        (device_far_faults.pins_max && device_far_seen.pins >= device_far_faults.pins_max))
        return fail(GRADWEIR_ERR_NO_MEMORY, "far: %zu bytes cannot be pinned", bytes);
    while (i < PINS_MAX && state->pins[i].at)
        i++;
    ASSERT(i < PINS_MAX);
    state->pins[i].at = memory;
    state->pins[i].bytes = bytes;
    device_far_seen.pins++;
    return GRADWEIR_OK;
}

static void far_unpin(struct device_state *state, void *memory, size_t bytes)
{
    for (size_t i = 0; memory && i < PINS_MAX; i++)
        if (state->pins[i].at == memory) {
            ASSERT(state->pins[i].bytes == bytes);
            state->pins[i].at = NULL;
            device_far_seen.unpins++;
            return;
        }
    ASSERT(!memory);
}

static bool is_pinned(const struct device_state *state, const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < PINS_MAX; i++)
        if (state->pins[i].at && at >= state->pins[i].at &&
            at + bytes <= state->pins[i].at + state->pins[i].bytes)
            return true;
    return false;
}

static gradweir_status check_room(const struct device_state *state)
{
    if (state->lost_from)
        return fail(GRADWEIR_ERR_LOST, "far: the device is lost");
    if (state->given - state->done == DEVICE_JOBS_MAX)
        return fail(GRADWEIR_ERR_FULL, "far: full");
    return GRADWEIR_OK;
}

static void give(struct device_state *state, uint64_t tag)
{
    state->ring[state->given++ % DEVICE_JOBS_MAX].tag = tag;
    device_far_seen.given++;
    if (state->given - state->done > device_far_seen.most)
        device_far_seen.most = state->given - state->done;
}

static gradweir_status far_copy(struct device_state *state, uint64_t tag,
                                const struct device_copy *copy)
{
    if (!copy->from || !copy->to)
        return fail(GRADWEIR_ERR_INVALID, "far: copy of nothing");
    TRY(check_room(state));
    const bool from_far = near_of(copy->from, copy->bytes) != NULL;
    const bool to_far = near_of(copy->to, copy->bytes) != NULL;
    if (!from_far && !is_pinned(state, copy->from, copy->bytes))
        device_far_seen.unpinned++;
    if (!to_far && !is_pinned(state, copy->to, copy->bytes))
        device_far_seen.unpinned++;
    if (!to_far)
        memset(copy->to, 0xff, copy->bytes); /* what is not there yet are NaNs */
    state->ring[state->given % DEVICE_JOBS_MAX].copy = *copy;
    state->ring[state->given % DEVICE_JOBS_MAX].encode.n = 0;
    state->ring[state->given % DEVICE_JOBS_MAX].give_back.n = 0;
    give(state, tag);
    return GRADWEIR_OK;
}

/* The numbers on the host are poison until they are there. */
static gradweir_status far_encode(struct device_state *state, uint64_t tag,
                                  const struct device_encode *job)
{
    TRY(device_check_encode(job));
    TRY(check_room(state));
    ASSERT(near_of(job->to, codec_bytes(job->codec, job->n)));
    ASSERT(!job->from || near_of(job->from, job->n * sizeof *job->from));
    memset(job->sums, 0xff, arithmetic_blocks(job->n) * sizeof *job->sums);
    memset(job->crcs, 0xff, ((job->n - 1) / job->piece + 1) * sizeof *job->crcs);
    state->ring[state->given % DEVICE_JOBS_MAX].encode = *job;
    give(state, tag);
    return GRADWEIR_OK;
}

static gradweir_status far_give_back(struct device_state *state, uint64_t tag,
                                     const struct device_give_back *job)
{
    TRY(device_check_give_back(job));
    TRY(check_room(state));
    ASSERT(near_of(job->sent, codec_bytes(job->codec, job->n)));
    ASSERT(near_of(job->rest, job->n * sizeof *job->rest));
    state->ring[state->given % DEVICE_JOBS_MAX].encode.n = 0;
    state->ring[state->given % DEVICE_JOBS_MAX].give_back = *job;
    give(state, tag);
    return GRADWEIR_OK;
}

static gradweir_status far_decode(struct device_state *state, uint64_t tag,
                                  const struct device_decode *job)
{
    (void)state, (void)tag, (void)job;
    return fail(GRADWEIR_ERR_INVALID, "far: copies only");
}

static gradweir_status far_accumulate(struct device_state *state, uint64_t tag,
                                      const struct device_accumulate *job)
{
    (void)state, (void)tag, (void)job;
    return fail(GRADWEIR_ERR_INVALID, "far: copies only");
}

static gradweir_status far_step(struct device_state *state, uint64_t tag,
                                const struct device_step *job)
{
    (void)state, (void)tag, (void)job;
    return fail(GRADWEIR_ERR_INVALID, "far: copies only");
}

static void copy_now(const struct device_copy *copy)
{
    const uint8_t *from = near_of(copy->from, copy->bytes);
    uint8_t *to = near_of(copy->to, copy->bytes);
    memcpy(to ? to : copy->to, from ? from : copy->from, copy->bytes);
    device_far_seen.bytes += copy->bytes;
}

/* As device_cpu does it, on the mapping that may be touched. */
static uint32_t encode_now(const struct device_encode *job)
{
    const uint8_t *from = job->from ? near_of(job->from, job->n * sizeof *job->from) : NULL;
    uint8_t *to = near_of(job->to, codec_bytes(job->codec, job->n));
    device_far_seen.encoded += job->n;
    if (from && job->rest)
        arithmetic_scalar.encode_rest(
            job->codec, (const float *)(const void *)from, job->n,
            (float *)(void *)near_of(job->rest, job->n * sizeof *job->rest), to);
    else if (from)
        arithmetic_scalar.encode(job->codec, 1.0f, (const float *)(const void *)from, job->n, to);
    for (size_t at = 0; at < job->n; at += job->piece) {
        const size_t some = job->n - at < job->piece ? job->n - at : job->piece;
        job->crcs[at / job->piece] =
            checksum_crc32c(0, to + codec_bytes(job->codec, at), codec_bytes(job->codec, some));
    }
    return arithmetic_measure_blocks(&arithmetic_scalar, job->codec, to, job->n, job->sums);
}

static void give_back_now(const struct device_give_back *job)
{
    const size_t bytes = job->n * sizeof(float);
    const uint8_t *sent = near_of(job->sent, codec_bytes(job->codec, job->n));
    const float *from = (const float *)(void *)(job->from ? near_of(job->from, bytes) : NULL);
    float *rest = (float *)(void *)near_of(job->rest, bytes);
    if (!from)
        arithmetic_scalar.decode_add(job->codec, sent, job->n, rest);
    for (size_t i = 0; from && i < job->n; i++)
        rest[i] = element_untaken(rest[i], codec_element(job->codec, sent, i), from[i]);
}

/* One job at a time. */
static size_t far_poll(struct device_state *state, struct device_done *done, size_t room)
{
    if (room == 0 || state->given == state->done)
        return 0;
    if (state->idle++ < device_far_faults.polls_idle)
        return 0;
    state->idle = 0;
    const size_t place = state->done % DEVICE_JOBS_MAX;
    const uint64_t good = device_far_faults.copies_good;
    if (good && device_far_seen.done >= good && !state->lost_from)
        state->lost_from = state->done + 1;
    *done = (struct device_done){.tag = state->ring[place].tag};
    if (state->lost_from)
        done->status = fail(GRADWEIR_ERR_LOST, "far: the device is lost");
    else if (state->ring[place].encode.n > 0)
        done->largest_bits = encode_now(&state->ring[place].encode);
    else if (state->ring[place].give_back.n > 0)
        give_back_now(&state->ring[place].give_back);
    else
        copy_now(&state->ring[place].copy);
    state->done++;
    device_far_seen.done++;
    return 1;
}

static size_t far_in_flight(const struct device_state *state)
{
    return (size_t)(state->given - state->done);
}

const struct device device_far = {.name = "cuda",
                                  .open = far_open,
                                  .close = far_close,
                                  .info = far_info,
                                  .alloc = far_alloc,
                                  .free = far_free,
                                  .locate = far_locate,
                                  .pin = far_pin,
                                  .unpin = far_unpin,
                                  .copy = far_copy,
                                  .decode = far_decode,
                                  .encode = far_encode,
                                  .give_back = far_give_back,
                                  .accumulate = far_accumulate,
                                  .step = far_step,
                                  .poll = far_poll,
                                  .in_flight = far_in_flight};
