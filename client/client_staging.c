/* See client_staging.h: slots are a ring by their number, copies are counted, and a slot knows the
 * number of the copy after which it may be touched. */
#include "client/client_staging.h"

#include "common/clock.h"
#include "common/idle.h"
#include "common/page.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PATIENCE_NS (30 * CLOCK_SECOND) /* for any copy to end */

/* Breaks for good, with the reason that has just been given. */
static gradweir_status break_off(struct staging *staging, gradweir_status status)
{
    if (staging->broken == GRADWEIR_OK) {
        staging->broken = status;
        snprintf(staging->reason, sizeof staging->reason, "%s", fail_reason());
    }
    return status;
}

gradweir_status staging_whole(const struct staging *staging)
{
    return staging->broken == GRADWEIR_OK ? GRADWEIR_OK
                                          : fail(staging->broken, "%s", staging->reason);
}

static gradweir_status look(struct staging *staging, bool *any)
{
    struct device_done done[16];
    const size_t count = staging->device->poll(staging->state, done, 16);
    for (size_t i = 0; i < count; i++) {
        staging->done++;
        if (done[i].largest_bits > staging->largest_bits)
            staging->largest_bits = done[i].largest_bits;
        if (done[i].status != GRADWEIR_OK)
            return break_off(staging, done[i].status);
    }
    *any = count > 0;
    return GRADWEIR_OK;
}

/* Until so many copies are done. */
static gradweir_status wait_for(struct staging *staging, uint64_t copies)
{
    const uint64_t deadline_ns = deadline_after(clock_now_ns(), PATIENCE_NS);
    for (struct idle idle = {.yields = 0}; staging->done < copies;) {
        bool any = false;
        TRY(look(staging, &any));
        if (staging->done >= copies)
            break;
        if (deadline_passed(clock_now_ns(), deadline_ns)) {
            struct device_info info;
            staging->device->info(staging->state, &info);
            return break_off(staging,
                             fail(GRADWEIR_ERR_TIMEOUT, "%s: a copy has not ended within %d s",
                                  info.text, (int)(PATIENCE_NS / CLOCK_SECOND)));
        }
        if (!idle_again(&idle, any))
            poll(NULL, 0, 0);
    }
    return GRADWEIR_OK;
}

/* ERR_FULL: the device has as many jobs as it takes; it is nobody's fault. */
static gradweir_status give(struct staging *staging, const void *from, void *to, uint64_t bytes)
{
    const struct device_copy copy = {.from = from, .to = to, .bytes = (size_t)bytes};
    if (staging->device->in_flight(staging->state) >= DEVICE_JOBS_MAX)
        return GRADWEIR_ERR_FULL;
    const gradweir_status status = staging->device->copy(staging->state, staging->given + 1, &copy);
    if (status != GRADWEIR_OK)
        return break_off(staging, status);
    staging->given++;
    return GRADWEIR_OK;
}

gradweir_status staging_init(struct staging *staging, const struct device *device,
                             struct device_state *state, uint64_t bytes)
{
    *staging = (struct staging){.device = device, .state = state};
    uint64_t slots = bytes / STAGING_SLOT;
    slots = slots < 2 ? 2 : slots > STAGING_SLOTS_MAX ? STAGING_SLOTS_MAX : slots;
    const size_t size = (size_t)slots * STAGING_SLOT;
    void *ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a staging ring of %zu MiB", size >> 20);
    const gradweir_status status = device->pin(state, ring, size);
    if (status != GRADWEIR_OK) {
        munmap(ring, size);
        return status;
    }
    staging->ring = ring;
    staging->slots = (uint32_t)slots;
    return GRADWEIR_OK;
}

void staging_deinit(struct staging *staging)
{
    if (!staging->ring)
        return;
    const size_t size = staging->slots * STAGING_SLOT;
    if (staging->broken == GRADWEIR_OK)
        (void)wait_for(staging, staging->given);
    staging->device->unpin(staging->state, staging->ring, size);
    munmap(staging->ring, size);
    staging->ring = NULL;
}

gradweir_status staging_copy(struct staging *staging, const void *from, void *to, uint64_t bytes)
{
    TRY(staging_whole(staging));
    return give(staging, from, to, bytes);
}

gradweir_status staging_encode(struct staging *staging, const struct device_encode *job,
                               uint64_t *ticket)
{
    TRY(staging_whole(staging));
    if (staging->device->in_flight(staging->state) >= DEVICE_JOBS_MAX)
        return GRADWEIR_ERR_FULL;
    const gradweir_status status = staging->device->encode(staging->state, staging->given + 1, job);
    if (status != GRADWEIR_OK)
        return break_off(staging, status);
    *ticket = ++staging->given;
    return GRADWEIR_OK;
}

gradweir_status staging_give_back(struct staging *staging, const struct device_give_back *job)
{
    TRY(staging_whole(staging));
    if (staging->device->in_flight(staging->state) >= DEVICE_JOBS_MAX)
        return GRADWEIR_ERR_FULL;
    const gradweir_status status =
        staging->device->give_back(staging->state, staging->given + 1, job);
    if (status != GRADWEIR_OK)
        return break_off(staging, status);
    staging->given++;
    return GRADWEIR_OK;
}

gradweir_status staging_wait(struct staging *staging, uint64_t ticket)
{
    TRY(staging_whole(staging));
    return wait_for(staging, ticket);
}

gradweir_status staging_wait_one(struct staging *staging)
{
    return staging_wait(staging, staging->done + 1);
}

/* Everything before is done, so that all slots may be touched. */
static gradweir_status begin(struct staging *staging)
{
    TRY(staging_whole(staging));
    TRY(wait_for(staging, staging->given));
    memset(staging->needs, 0, staging->slots * sizeof *staging->needs);
    staging->asked = staging->read = staging->end = staging->put = 0;
    return GRADWEIR_OK;
}

static uint64_t *needs_of(struct staging *staging, uint64_t at)
{
    return &staging->needs[at / STAGING_SLOT % staging->slots];
}

static uint8_t *place_of(const struct staging *staging, uint64_t at)
{
    if (staging->target)
        return staging->target + at;
    return staging->ring + at / STAGING_SLOT % staging->slots * STAGING_SLOT + at % STAGING_SLOT;
}

/* One stretch of the stream on its way, within one slot. */
static gradweir_status ask_some(struct staging *staging)
{
    const uint64_t at = staging->asked, rest = STAGING_SLOT - at % STAGING_SLOT;
    struct staging_stretch stretch = {.from = NULL};
    staging->source.find(staging->source.context, at, &stretch);
    ASSERT(stretch.bytes > 0);
    uint64_t some = stretch.bytes < rest ? stretch.bytes : rest;
    some = some < staging->end - at ? some : staging->end - at;
    uint8_t *to = place_of(staging, at);
    if (!stretch.from)
        memset(to, 0, (size_t)some);
    else if (!stretch.far)
        memcpy(to, stretch.from, (size_t)some);
    else
        TRY(give(staging, stretch.from, to, some));
    *needs_of(staging, at) = staging->given;
    staging->asked = at + some;
    return GRADWEIR_OK;
}

/* Copies into every slot that nobody looks at, as far as the device takes them now. */
static gradweir_status ask_ahead(struct staging *staging)
{
    const uint64_t until = (staging->read / STAGING_SLOT + staging->slots) * STAGING_SLOT;
    gradweir_status status = GRADWEIR_OK;
    while (status == GRADWEIR_OK && staging->asked < staging->end && staging->asked < until)
        status = ask_some(staging);
    return status == GRADWEIR_ERR_FULL ? GRADWEIR_OK : status;
}

gradweir_status staging_read_begin(struct staging *staging, const struct staging_source *source,
                                   uint64_t bytes, uint8_t *target)
{
    TRY(begin(staging));
    staging->source = *source;
    staging->target = target;
    staging->end = bytes;
    return ask_ahead(staging);
}

uint64_t staging_room(const struct staging *staging)
{
    const uint64_t rest = STAGING_SLOT - staging->read % STAGING_SLOT;
    return rest < staging->end - staging->read ? rest : staging->end - staging->read;
}

gradweir_status staging_read(struct staging *staging, uint64_t length, const void **data)
{
    ASSERT(length > 0 && length <= staging_room(staging));
    TRY(staging_whole(staging));
    const uint64_t at = staging->read;
    TRY(ask_ahead(staging));
    while (staging->asked < at + length) { /* more pieces than the device takes at a time */
        TRY(wait_for(staging, staging->done + 1));
        TRY(ask_ahead(staging));
    }
    TRY(wait_for(staging, *needs_of(staging, at)));
    *data = place_of(staging, at);
    staging->read = at + length;
    return GRADWEIR_OK;
}

gradweir_status staging_write(struct staging *staging, const void *from, void *to, uint64_t bytes)
{
    const uint8_t *next = from;
    if (staging->end) /* a stream was read before */
        TRY(begin(staging));
    TRY(staging_whole(staging));
    staging->target = NULL;
    for (uint64_t at = 0; at < bytes;) {
        const uint64_t rest = STAGING_SLOT - staging->put % STAGING_SLOT;
        const uint64_t some = bytes - at < rest ? bytes - at : rest;
        if (staging->put % STAGING_SLOT == 0)
            TRY(wait_for(staging, *needs_of(staging, staging->put)));
        uint8_t *slot = place_of(staging, staging->put);
        memcpy(slot, next + at, (size_t)some);
        while (staging->device->in_flight(staging->state) >= DEVICE_JOBS_MAX)
            TRY(wait_for(staging, staging->done + 1));
        TRY(give(staging, slot, (uint8_t *)to + at, some));
        *needs_of(staging, staging->put) = staging->given;
        staging->put += some;
        at += some;
    }
    return GRADWEIR_OK;
}

gradweir_status staging_flush(struct staging *staging)
{
    TRY(staging_whole(staging));
    return wait_for(staging, staging->given);
}
