/* A shard whose process is killed at any instruction and goes on in the same memory: the bits are
 * those of a run that nobody disturbed. */
#include "tests/unit/warm_script.h"

#include "common/checksum.h"
#include "common/random.h"
#include "server/shard/shard_internal.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The victim's memory, and how far it is. */
static struct {
    struct shard *arena;
    uint64_t bytes;
    volatile uint32_t *at; /* the operation it is at */
} victim;

/* The victim. */

static bool have(const struct warm_operation *operation)
{
    const struct slot *slot = &victim.arena->slots[operation->slot];
    return slot->freed >= operation->generation ||
           (slot->generation == operation->generation && slot->told);
}

static void push(struct rig *self, const struct warm_operation *operation)
{
    char body[WARM_BODY];
    if (have(operation))
        return;
    warm_body(operation->scale, body);
    struct head_chunk head = rig_chunk_head(
        rig_hello(self, operation->worker, operation->worker + 1), operation->slot, body, 0);
    head.generation = operation->generation;
    head.sequence = operation->sequence;
    head.basis = 0;
    for (head.offset = 0; head.offset < sizeof body; head.offset += RIG_CHUNK) {
        const uint64_t rest = sizeof body - head.offset;
        head.length = (uint32_t)(rest < RIG_CHUNK ? rest : RIG_CHUNK);
        head.crc = checksum_crc32c(0, body + head.offset, head.length);
        rig_head(self, operation->worker + 1, &head, head.length);
        const struct shard_action *take = rig_action(self, SHARD_TAKE, 0);
        if (!take)
            continue; /* it is there already */
        const struct shard_action copy = *take;
        rig_land(self, &copy, body + head.offset);
    }
    if (!have(operation))
        abort();
}

static void obey(struct rig *self, const struct warm_operation *operation)
{
    const struct ledger *ledger = shard_ledger(victim.arena);
    struct message entry = {.kind = MESSAGE_ENTRY,
                            .entry = {.worker = operation->worker, .incarnation = 1}};
    memset(entry.entry.pass, (int)operation->worker + 1, sizeof entry.entry.pass);
    self->ledger.epoch = self->ledger.timeline = 1;
    if (operation->kind == WARM_PUSH)
        push(self, operation);
    if (operation->kind == WARM_ENTRY)
        rig_say(self, &entry);
    if (operation->kind == WARM_RECORD && operation->record.index == ledger->index + 1)
        rig_say(self, &(struct message){.kind = MESSAGE_RECORD, .record = operation->record});
    if (operation->kind == WARM_CLOSE)
        rig_close(self, operation->slot, operation->generation, operation->record.index);
}

/* The victim passes these places all the time: before an operation, before a commit with the
 * journal full, before a tile and in the middle of one. It stops at one of them for whoever traces
 * it. */
static uint32_t places_left;

static void place(void)
{
    if (places_left-- == 0)
        raise(SIGSTOP);
}

static void place_of_commit(struct shard *shard)
{
    if (shard->journal.used)
        place();
}

static const struct arithmetic *arithmetic;

static void step_with_places(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                             size_t begin, size_t end)
{
    const size_t middle = begin + (end - begin) / 2;
    place();
    arithmetic->step(plan, work, begin, middle);
    place();
    arithmetic->step(plan, work, middle, end);
}

/* Follows the script from its start, in this process, over the arena as it is. */
static void live(uint32_t places, bool redo_off)
{
    static struct arithmetic own;
    static struct rig self;
    char text[256];
    self.options = warm_rig.options;
    self.now_ns = (int64_t)*victim.at * 1000000000 + 1000000000;
    struct shard_options options = warm_rig.options;
    options.digest = !redo_off; /* else they would find it first */
    if (*victim.at && shard_resume(victim.arena, victim.bytes, &warm_rig.law, &options, text,
                                   sizeof text) != GRADWEIR_OK) {
        fprintf(stderr, "%s\n", fail_reason());
        _exit(3);
    }
    shard_plant(victim.arena, redo_off ? "redo-off" : "");
    if (shard_local_around(victim.arena, NULL, &self.local) != GRADWEIR_OK)
        _exit(4);
    arithmetic = self.local->arithmetic;
    own = *arithmetic;
    own.step = step_with_places;
    self.local->arithmetic = &own;
    victim.arena->audit = place_of_commit;
    places_left = places;
    for (uint32_t i = 0; i < warm_script_count; i++) {
        place();
        if (i + 1 > *victim.at)
            *victim.at = i + 1;
        obey(&self, &warm_script[i]);
        rig_tick(&self, QUIET_NS); /* what was under way at a kill may come to rest */
    }
    _exit(0);
}

static void birth(void)
{
    char text[256];
    uint64_t bytes;
    cr_assert_eq(shard_arena_bytes(warm_rig.model, &warm_rig.law, &warm_rig.options, &bytes, text,
                                   sizeof text),
                 GRADWEIR_OK);
    victim.bytes = bytes;
    victim.arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    victim.at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(victim.arena != MAP_FAILED && victim.at != MAP_FAILED);
    cr_assert_eq(shard_init(victim.arena, bytes, warm_rig.model, &warm_rig.law, &warm_rig.options),
                 GRADWEIR_OK);
}

static void burial(void)
{
    munmap(victim.arena, victim.bytes);
    munmap((void *)(uintptr_t)victim.at, 4096);
}

/* One life, that ends so many instructions after so many places; true when the script was done. */
static bool step_and_kill(uint32_t places, uint32_t instructions, bool redo_off)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        live(places, redo_off);
    }
    waitpid(child, &status, 0);
    for (uint32_t i = 0; WIFSTOPPED(status) && i < instructions; i++) {
        ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
        waitpid(child, &status, 0);
    }
    if (WIFEXITED(status)) {
        cr_assert_eq(WEXITSTATUS(status), 0);
        return true;
    }
    cr_assert(WIFSTOPPED(status), "the victim died by itself, of signal %d", WTERMSIG(status));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return false;
}

/* One life, that ends after so many nanoseconds. */
static bool wait_and_kill(long ns, bool redo_off)
{
    int status;
    const pid_t child = fork();
    if (child == 0)
        live(UINT32_MAX, redo_off);
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
        cr_assert_eq(WEXITSTATUS(status), 0);
        return true;
    }
    cr_assert_eq(WTERMSIG(status), SIGKILL, "the victim died by itself");
    return false;
}

static uint64_t digest_of(struct shard *shard)
{
    uint64_t version;
    const float *parameters = shard_parameters(shard, &version);
    uint64_t digest = checksum_hash64(version, parameters, shard->body_bytes);
    for (uint32_t i = 0; i < shard->states_count; i++)
        for (uint64_t at = 0; at < shard->elements; at += shard->tile) {
            const uint64_t left = shard->elements - at, tile = shard->tile;
            const float *states = at_offset(shard, tile_state(shard, i, at, false));
            digest = checksum_hash64(digest, states + at, (left < tile ? left : tile) * 4);
        }
    digest = checksum_hash64(digest, moments_of(shard, shard->moments_now),
                             shard->moments_count * sizeof(struct moments));
    return checksum_hash64(digest, shard_ledger(shard), sizeof(struct ledger));
}

/* Lives until the script is done; how many of them were killed. */
static uint32_t lives(struct random *random, bool redo_off)
{
    uint32_t kills = 0, at_same = 0, before = 0;
    for (;; kills++) {
        const uint32_t at = *victim.at;
        at_same = at == before ? at_same + 1 : 0;
        before = at;
        const uint32_t places = at + (uint32_t)random_below(random, 24) + 8 * at_same;
        const bool done = random_below(random, 4)
                              ? step_and_kill(places, (uint32_t)random_below(random, 300), redo_off)
                              : wait_and_kill((long)random_below(random, 3000000), redo_off);
        if (done)
            return kills;
    }
}

static uint32_t disturb(enum warm_steps steps, bool redo_off, uint32_t kills_min,
                        uint32_t *different)
{
    struct random random;
    uint32_t kills = 0;
    warm_script_write(steps);
    const uint64_t expected = digest_of(warm_rig.local->shard);
    random_init(&random, 11 + steps);
    while (kills < kills_min) {
        birth();
        kills += lives(&random, redo_off);
        *different += digest_of(victim.arena) != expected;
        burial();
    }
    rig_end(&warm_rig);
    return kills;
}

Test(shard_warm, killed_at_any_instruction_it_goes_on_with_the_same_bits, .timeout = 600)
{
    uint32_t different = 0, kills = 0;
    for (int steps = WARM_AT_ONCE; steps <= WARM_LAMB; steps++)
        kills += disturb((enum warm_steps)steps, false, 120, &different);
    cr_assert_geq(kills, 360);
    cr_assert_eq(different, 0, "%u runs ended with other bits", different);
}

/* That the test above can fail. */
Test(shard_warm, without_the_copy_of_a_tile_the_bits_differ, .timeout = 600)
{
    for (int steps = WARM_AT_ONCE; steps <= WARM_LAMB; steps += WARM_LAMB) {
        uint32_t different = 0; /* where a kill falls is chance: enough of them */
        for (int tries = 0; tries < 10 && different == 0; tries++)
            disturb((enum warm_steps)steps, true, 150, &different);
        cr_assert_gt(different, 0);
    }
}
