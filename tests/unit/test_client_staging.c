/* The ring between a device's memory and the host's, on a device whose memory nobody can touch. */
#include "client/client_staging.h"
#include "tests/unit/device_far.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOT = 3 * ARITHMETIC_BLOCK * 4 };

struct rig {
    struct device_state *state;
    struct staging staging;
};

static void rig_open(struct rig *rig, uint64_t slots)
{
    const struct device_options options = {.ordinal = 0};
    cr_assert_eq(device_far.open(&options, &rig->state), GRADWEIR_OK);
    cr_assert_eq(staging_init(&rig->staging, &device_far, rig->state, slots * STAGING_SLOT),
                 GRADWEIR_OK);
}

static void rig_close(struct rig *rig)
{
    staging_deinit(&rig->staging);
    device_far.close(rig->state);
    cr_expect_eq(device_far_seen.pins, device_far_seen.unpins);
    cr_expect_eq(device_far_seen.unpinned, 0u);
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *seed >> 33;
}

/* A stream of stretches that are far, in host memory, or zeros, by chance. */
struct pattern {
    uint8_t *truth, *far;
    uint64_t bytes, asked; /* where it was asked for last */
    uint64_t seed, each;   /* bytes of a stretch; 0: all of them */
    uint32_t kinds;
};

static uint64_t kind_at(const struct pattern *pattern, uint64_t at)
{
    uint64_t mixed = pattern->seed + (pattern->each ? at / pattern->each : 0) * 977;
    (void)next(&mixed);
    return next(&mixed) % pattern->kinds;
}

static void find(void *context, uint64_t at, struct staging_stretch *stretch)
{
    struct pattern *pattern = context;
    const uint64_t kind = kind_at(pattern, at), rest = pattern->bytes - at;
    cr_assert_geq(at, pattern->asked, "asked for out of order");
    pattern->asked = at;
    stretch->bytes = pattern->each ? pattern->each - at % pattern->each : rest;
    if (stretch->bytes > rest)
        stretch->bytes = rest;
    stretch->far = kind == 0;
    stretch->from = kind == 0 ? pattern->far + at : kind == 1 ? pattern->truth + at : NULL;
}

static void pattern_make(struct pattern *pattern, uint64_t bytes, uint64_t each, uint32_t kinds,
                         uint64_t seed)
{
    *pattern = (struct pattern){.bytes = bytes, .seed = seed, .each = each, .kinds = kinds};
    pattern->truth = malloc((size_t)bytes);
    cr_assert(pattern->truth);
    for (uint64_t i = 0; i < bytes; i++)
        pattern->truth[i] = (uint8_t)(kind_at(pattern, i) == 2 ? 0 : next(&seed) % 255);
    pattern->far = device_far_new((size_t)bytes, 0);
    device_far_put(pattern->far, pattern->truth, (size_t)bytes);
}

static void pattern_free(struct pattern *pattern)
{
    free(pattern->truth);
    device_far_delete(pattern->far);
}

static void read_all(struct rig *rig, struct pattern *pattern, uint8_t *target, uint64_t seed)
{
    const struct staging_source source = {.find = find, .context = pattern};
    pattern->asked = 0;
    cr_assert_eq(staging_read_begin(&rig->staging, &source, pattern->bytes, target), GRADWEIR_OK);
    for (uint64_t at = 0; at < pattern->bytes;) {
        const uint64_t room = staging_room(&rig->staging);
        cr_assert(room > 0);
        uint64_t some = 1 + next(&seed) % (2 * room);
        some = some < room ? some : room;
        const void *data = NULL;
        cr_assert_eq(staging_read(&rig->staging, some, &data), GRADWEIR_OK, "%s", fail_reason());
        cr_assert(!target || data == target + at);
        cr_assert_eq(memcmp(data, pattern->truth + at, (size_t)some), 0, "at %llu",
                     (unsigned long long)at);
        at += some;
    }
    cr_expect_eq(staging_room(&rig->staging), 0u);
}

Test(client_staging, a_stream_comes_whole_whatever_its_pieces_and_its_odd_ends)
{
    static const uint64_t sizes[] = {1, 4, 777, SLOT - 1, SLOT, SLOT + 1, 5 * SLOT + 12345};
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct rig rig;
        struct pattern pattern;
        device_far_reset();
        device_far_faults.polls_idle = seed % 3;
        rig_open(&rig, 2 + seed % 3);
        const uint64_t bytes = sizes[seed % 7], longest = seed % 2 ? SLOT / 7 + 1 : 3 * SLOT + 3;
        pattern_make(&pattern, bytes, bytes < 1000 ? 9 : longest, 1 + (uint32_t)seed % 3, seed);
        read_all(&rig, &pattern, NULL, seed);
        read_all(&rig, &pattern, NULL, seed + 100); /* and again: it can be rewound */
        pattern_free(&pattern);
        rig_close(&rig);
    }
}

Test(client_staging, many_small_pieces_do_not_fill_the_device_for_good)
{
    struct rig rig;
    struct pattern pattern;
    device_far_reset();
    rig_open(&rig, 2);
    pattern_make(&pattern, 100000, 16, 1, 5);
    read_all(&rig, &pattern, NULL, 7);
    cr_expect_eq(device_far_seen.most, (uint64_t)DEVICE_JOBS_MAX);
    pattern_free(&pattern);
    rig_close(&rig);
}

Test(client_staging, while_one_piece_is_looked_at_the_next_are_on_their_way)
{
    struct rig rig;
    struct pattern pattern;
    const struct staging_source source = {.find = find, .context = &pattern};
    device_far_reset();
    rig_open(&rig, 4);
    pattern_make(&pattern, 10 * SLOT, 0, 1, 3); /* one copy a slot */
    cr_assert_eq(staging_read_begin(&rig.staging, &source, pattern.bytes, NULL), GRADWEIR_OK);
    for (uint64_t k = 0; k < 10; k++) {
        const void *data;
        cr_assert_eq(staging_read(&rig.staging, SLOT, &data), GRADWEIR_OK);
        const uint64_t given = k + 4 < 10 ? k + 4 : 10;
        cr_expect_eq(device_far_seen.given, given, "piece %llu", (unsigned long long)k);
        cr_expect_eq(device_far_seen.done, k + 1, "nobody waits for more than the piece he wants");
        cr_expect_eq(memcmp(data, pattern.truth + k * SLOT, SLOT), 0);
    }
    pattern_free(&pattern);
    rig_close(&rig);
}

Test(client_staging, with_a_target_the_stream_is_where_it_goes)
{
    struct rig rig;
    struct pattern pattern;
    device_far_reset();
    rig_open(&rig, 2);
    pattern_make(&pattern, 4 * SLOT + 100, SLOT, 3, 9);
    uint8_t *target = aligned_alloc(4096, 5 * SLOT);
    cr_assert(target);
    cr_assert_eq(device_far.pin(rig.state, target, 5 * SLOT), GRADWEIR_OK);
    read_all(&rig, &pattern, target, 4);
    cr_expect_eq(memcmp(target, pattern.truth, pattern.bytes), 0);
    device_far.unpin(rig.state, target, 5 * SLOT);
    free(target);
    pattern_free(&pattern);
    rig_close(&rig);
}

Test(client_staging, what_is_written_is_there_after_the_flush_and_its_source_may_change_before)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct rig rig;
        struct pattern pattern;
        device_far_reset();
        device_far_faults.polls_idle = seed % 2;
        rig_open(&rig, 2);
        const uint64_t bytes = seed * SLOT / 2 + seed * 13;
        pattern_make(&pattern, bytes, SLOT, 1, seed);
        uint8_t *far = device_far_new((size_t)bytes, 0), *back = malloc((size_t)bytes);
        uint8_t *piece = malloc(2 * SLOT);
        cr_assert(back && piece);
        read_all(&rig, &pattern, NULL, seed); /* what was read before does not matter */
        uint64_t chance = seed;
        for (uint64_t at = 0; at < bytes;) {
            uint64_t some = 1 + next(&chance) % (seed % 2 ? 5000 : 2 * SLOT);
            some = some < bytes - at ? some : bytes - at;
            memcpy(piece, pattern.truth + at, (size_t)some);
            cr_assert_eq(staging_write(&rig.staging, piece, far + at, some), GRADWEIR_OK);
            memset(piece, 0xff, (size_t)some);
            at += some;
        }
        cr_assert_eq(staging_flush(&rig.staging), GRADWEIR_OK);
        device_far_get(far, back, (size_t)bytes);
        cr_expect_eq(memcmp(back, pattern.truth, (size_t)bytes), 0);
        free(piece);
        free(back);
        device_far_delete(far);
        pattern_free(&pattern);
        rig_close(&rig);
    }
}

Test(client_staging, a_lost_device_is_told_at_every_place_and_for_ever_and_nobody_hangs)
{
    for (uint64_t good = 1; good <= 12; good++) {
        struct rig rig;
        struct pattern pattern;
        const void *data;
        device_far_reset();
        device_far_faults.copies_good = good;
        rig_open(&rig, 3);
        pattern_make(&pattern, 9 * SLOT + 5, 0, 1, good);
        const struct staging_source source = {.find = find, .context = &pattern};
        gradweir_status status = staging_read_begin(&rig.staging, &source, pattern.bytes, NULL);
        uint64_t pieces = 0;
        for (; status == GRADWEIR_OK && staging_room(&rig.staging); pieces++)
            status = staging_read(&rig.staging, staging_room(&rig.staging), &data);
        cr_expect_eq(status, good < 10 ? GRADWEIR_ERR_LOST : GRADWEIR_OK);
        cr_expect_eq(pieces, good < 10 ? good + 1 : 10, "%llu", (unsigned long long)pieces);
        if (good >= 10)
            for (int i = 0; status == GRADWEIR_OK && i < 5; i++) {
                status = staging_write(&rig.staging, pattern.truth, pattern.far, SLOT);
                status = status == GRADWEIR_OK ? staging_flush(&rig.staging) : status;
            }
        cr_expect_eq(status, GRADWEIR_ERR_LOST);
        cr_expect_eq(staging_whole(&rig.staging), GRADWEIR_ERR_LOST);
        cr_expect_str_eq(fail_reason(), "far: the device is lost");
        cr_expect_eq(staging_flush(&rig.staging), GRADWEIR_ERR_LOST);
        pattern_free(&pattern);
        rig_close(&rig);
    }
}

Test(client_staging, without_memory_to_pin_there_is_no_ring_and_nothing_is_left)
{
    struct device_state *state;
    struct staging staging;
    const struct device_options options = {.ordinal = 0};
    device_far_reset();
    device_far_faults.no_pinning = true;
    cr_assert_eq(device_far.open(&options, &state), GRADWEIR_OK);
    cr_expect_eq(staging_init(&staging, &device_far, state, STAGING_BYTES), GRADWEIR_ERR_NO_MEMORY);
    staging_deinit(&staging);
    device_far.close(state);
}

Test(client_staging, device_memory_cannot_be_touched_but_by_jobs)
{
    volatile uint8_t *far = device_far_new(4096, 0);
    int status = 0;
    const pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers have a handler */
        far[5] = 1;
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
