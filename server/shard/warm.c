/* Going on in the arena of a killed process: is this memory ours, is it sound, what was the process
 * in the middle of, what died with it. */
#include "server/shard/digests.h"
#include "server/shard/shard_internal.h"

#include "common/codec.h"

#include <stdio.h>
#include <string.h>

bool shard_arena_begun(const void *arena, uint64_t bytes)
{
    const struct shard *shard = arena;
    return bytes >= sizeof *shard && shard->head.magic == ARENA_MAGIC;
}

const struct message_member *shard_member(const struct shard *shard)
{
    return &shard->options.member;
}

const uint8_t *shard_layout(struct shard *shard, uint64_t *bytes)
{
    *bytes = shard->layout_bytes;
    return at_offset(shard, shard->at.layout);
}

static gradweir_status differs(const char *what, uint64_t there, uint64_t here)
{
    return fail(GRADWEIR_ERR_MISMATCH, "the arena is of %s %llu, this process of %llu", what,
                (unsigned long long)there, (unsigned long long)here);
}

static gradweir_status check_head(const struct shard *shard, uint64_t bytes,
                                  const struct law_settings *law,
                                  const struct shard_options *options)
{
    if (!shard_arena_begun(shard, bytes))
        return fail(GRADWEIR_ERR_CORRUPT, "there is no shard's arena");
    if (shard->head.format != SHARD_FORMAT)
        return differs("format", shard->head.format, SHARD_FORMAT);
    if (shard->head.build != arena_build())
        return differs("build", shard->head.build, arena_build());
    const struct message_member *member = &shard->options.member;
    if (member->job != options->member.job)
        return differs("job", member->job, options->member.job);
    if (member->shard != options->member.shard)
        return differs("shard", member->shard, options->member.shard);
    if (shard->head.shape != arena_shape(law, options))
        return fail(GRADWEIR_ERR_MISMATCH,
                    "the arena was laid out for another optimizer, clip_average, workers_max, "
                    "chunk_bytes or record than this process has");
    if (shard->bytes > bytes)
        return fail(GRADWEIR_ERR_CORRUPT, "the arena has %llu bytes, its head says %llu",
                    (unsigned long long)bytes, (unsigned long long)shard->bytes);
    return GRADWEIR_OK;
}

static bool ring_of_states_sound(const struct shard *shard)
{
    if (shard->elements == 0)
        return shard->tile == 0 && shard->places == 0 && shard->state_ring == 0;
    return shard->tile > 0 && shard->tiles == (shard->elements - 1) / shard->tile + 1 &&
           shard->places == shard->tiles + 1 && shard->turn < shard->places &&
           shard->tile_stride >= shard->tile * sizeof(float) &&
           shard->tile_stride < shard->tile * sizeof(float) + 64 &&
           shard->state_ring == shard->places * shard->tile_stride;
}

/* The sizes must be those that the member, its range and the options give. The first checks keep
 * the arithmetic of the last from overflowing. */
static bool sizes_sound(const struct shard *shard, const struct shard_options *options)
{
    const struct message_member *member = &shard->options.member;
    const uint64_t most = UINT64_C(1) << 40;
    struct offsets at;
    uint64_t bytes;
    if (member->slots == 0 || member->slots > SLOTS_MAX ||
        member->parameter_slots < PARAMETER_SLOTS_MIN ||
        member->parameter_slots > PARAMETER_SLOTS_MAX || shard->options.keep != options->keep ||
        !shard->options.warm || shard->options.chunk_bytes != options->chunk_bytes ||
        shard->options.sessions_max != options->sessions_max ||
        shard->options.pulls_max != options->pulls_max)
        return false;
    if (shard->elements != member->count || shard->elements >= most ||
        shard->moments_count > most / sizeof(struct moments) || shard->tile > shard->elements ||
        shard->states_count > ARITHMETIC_STATES_MAX || shard->chunks > CHUNKS_MAX ||
        shard->bit_words != (shard->chunks + 63) / 64 ||
        shard->chunk_blocks != arena_chunk_blocks(shard) ||
        shard->body_bytes !=
            shard->elements * sizeof(float) + shard->moments_count * sizeof(struct moments) ||
        codec_name(member->gradient_dtype) == NULL || shard->codec != member->gradient_dtype ||
        shard->gradient_bytes != codec_bytes(shard->codec, shard->elements) +
                                     shard->moments_count * sizeof(struct moments) ||
        shard->slot_stride < shard->gradient_bytes || shard->slot_stride > 8 * most ||
        shard->parameter_stride < shard->body_bytes || shard->parameter_stride > 8 * most ||
        shard->state_stride < shard->elements * sizeof(float) || shard->state_stride > 8 * most ||
        !ring_of_states_sound(shard) || shard->blocks > most || shard->block == 0 ||
        shard->journal.bytes > most || shard->stacks > WINDOW_MAX || shard->stripe == 0 ||
        shard->groups_count > MODEL_GROUPS_MAX || member->ring > 1u << 20 ||
        shard->layout_bytes > CONTENT_BYTES_MAX ||
        shard->records_max != 2 * member->slots + WINDOW_MAX + 2)
        return false;
    arena_offsets(shard, &at, &bytes);
    return memcmp(&at, &shard->at, sizeof at) == 0 && bytes == shard->bytes;
}

static bool record_sound(const struct shard *shard, const struct record *record)
{
    const uint32_t slots = shard->options.member.slots;
    if (record->kind == RECORD_FIRST)
        return record->first.slot < slots;
    if (record->kind == RECORD_ADMIT)
        return record->admit.slot < slots;
    if (record->kind != RECORD_STEP || record->step.entries_count > WINDOW_MAX ||
        record->step.groups_count > GROUPS_MAX)
        return false;
    for (uint32_t i = 0; i < record->step.entries_count; i++)
        if (record->step.entries[i].slot >= slots)
            return false;
    return stacks_room(shard, record);
}

static bool ring_sound(struct shard *shard)
{
    if (shard->records_first >= shard->records_max || shard->records_count > shard->records_max ||
        shard->moments_now > 1 || shard->keeps_count > SLOTS_MAX)
        return false;
    for (uint32_t i = 0; i < shard->records_count; i++)
        if (!record_sound(shard,
                          &records_of(shard)[(shard->records_first + i) % shard->records_max]))
            return false;
    for (uint32_t i = 0; i < shard->keeps_count; i++)
        if (shard->keeps[i].slot >= shard->options.member.slots)
            return false;
    return true;
}

static bool ledger_sound(const struct ledger *ledger)
{
    const struct law *law = &ledger->law;
    return ledger->workers_count <= WORKERS_MAX && ledger->members <= MEMBERS_MAX &&
           law->first <= law->next && law->next - law->first <= LAW_WINDOW_MAX &&
           law->stacks.turns_n < LAW_WINDOW_MAX && law->retired <= law->first &&
           law->next - law->retired <= 2 * LAW_WINDOW_MAX;
}

static bool step_sound(const struct shard *shard)
{
    const struct stepping *step = &shard->step;
    const uint32_t parameters = shard->options.member.parameter_slots;
    if (step->phase > STEP_APPLYING)
        return false;
    if (step->phase <= STEP_WAIT_SLOT)
        return true;
    const struct arithmetic_plan *plan = &step->plan;
    if (shard->records_count == 0 || step->from >= parameters || step->to >= parameters ||
        step->from == step->to || tile_next(shard) > shard->elements)
        return false;
    if (plan->entries_n > ARITHMETIC_ENTRIES_MAX || plan->groups_n > ARITHMETIC_GROUPS_MAX)
        return false;
    for (uint32_t i = 0; i < plan->entries_n; i++)
        if (plan->entries[i].slot >= shard->options.member.slots)
            return false;
    return stacks_sound(shard, plan);
}

static bool slots_sound(const struct shard *shard)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++) {
        const struct slot *slot = &shard->slots[i];
        if (slot->received > slot_bytes(shard, i) || slot->measured > slot->received ||
            slot->name.worker >= WORKERS_MAX || slot->in_flight > CHUNKS_MAX ||
            slot->ranks > RANKS_MAX)
            return false;
    }
    return true;
}

static gradweir_status corrupt(const char *what)
{
    return fail(GRADWEIR_ERR_CORRUPT, "the arena's %s cannot be right", what);
}

static gradweir_status check_state(struct shard *shard)
{
    if (!ring_sound(shard))
        return corrupt("waiting records");
    if (!ledger_sound(&shard->ledger))
        return corrupt("ledger");
    if (!step_sound(shard))
        return corrupt("step");
    return slots_sound(shard) ? GRADWEIR_OK : corrupt("gradient slots");
}

/* Killed inside of an event or a tile, again at the place of the last time: perhaps it is that
 * memory which kills. Who is killed while idle, or goes on in between, is not to blame. */
static gradweir_status count_kill(struct shard *shard)
{
    struct arena_head *head = &shard->head;
    if (shard->journal.used == 0 && !tile_busy(shard))
        return GRADWEIR_OK;
    const bool same =
        head->kills_index == shard->ledger.index && head->kills_word == shard->tile_word;
    head->kills = same ? head->kills + 1 : 1;
    head->kills_index = shard->ledger.index;
    head->kills_word = shard->tile_word;
    if (head->kills >= KILLS_MAX)
        return fail(GRADWEIR_ERR_CORRUPT,
                    "%u processes ended at log index %llu and element %llu: the memory is not "
                    "believed any more",
                    head->kills, (unsigned long long)shard->ledger.index,
                    (unsigned long long)tile_next(shard));
    return GRADWEIR_OK;
}

/* What nothing kept says that it counts. */
static void forget_dead(struct shard *shard)
{
    struct record *records = records_of(shard);
    struct stepping *step = &shard->step;
    for (uint32_t i = shard->records_count; i < shard->records_max; i++)
        memset(&records[(shard->records_first + i) % shard->records_max], 0, sizeof *records);
    for (uint32_t i = shard->keeps_count; i < SLOTS_MAX; i++)
        shard->keeps[i] = (struct keep){0};
    if (step->phase <= STEP_WAIT_SLOT) {
        memset(&step->record, 0, sizeof step->record);
        memset(&step->plan, 0, sizeof step->plan);
        step->from = step->to = 0;
    } else if (step->phase != STEP_APPLYING) {
        apply_unsummed(shard);
    }
    step->job = false;
    step->began_ns = 0;
}

void shard_forget(struct shard *shard)
{
    const uint64_t arena_bytes = shard->figures.arena_bytes;
    forget_dead(shard);
    slots_forget(shard);
    ahead_forget(shard);
    memset(sessions_of(shard), 0, shard->options.sessions_max * sizeof(struct session));
    memset(pulls_of(shard), 0, shard->options.pulls_max * sizeof(struct pull));
    for (uint32_t i = 0; i < shard->options.member.parameter_slots; i++)
        shard->parameters[i].pins = 0;
    shard->figures = (struct shard_figures){.arena_bytes = arena_bytes};
    shard->session_numbers = shard->pull_numbers = shard->bodies_used = 0;
    shard->now_ns = shard->pulse_due_ns = shard->quiet_until_ns = 0;
    shard->step_ns = 0;
    shard->pulls_due = false;
    shard->out = NULL;
    shard->audit = NULL;
}

void shard_revive(struct shard *shard)
{
    shard->revived = false;
    shard->quiet_until_ns = shard->now_ns + QUIET_NS;
    apply_revive(shard);
    slots_revive(shard);
}

gradweir_status shard_resume(void *arena, uint64_t bytes, const struct law_settings *law,
                             const struct shard_options *options, char *text, size_t size)
{
    struct shard *shard = arena;
    if (!options->warm)
        return fail(GRADWEIR_ERR_STATE, "only a warm shard can be gone on with");
    TRY(check_head(shard, bytes, law, options));
    if (!sizes_sound(shard, options))
        return corrupt("sizes");
    if (!journal_sound(shard))
        return corrupt("journal");
    TRY(count_kill(shard));
    const bool half_event = shard->journal.used > 0;
    if (!shard->plant.undo_off)
        journal_undo(shard);
    TRY(check_state(shard));
    const bool half_tile = tile_busy(shard);
    tile_undo(shard);
    if (options->digest)
        TRY(digests_check(shard));
    shard_forget(shard);
    if (shard->plant.promise_forgotten)
        shard->promise.epoch = shard->ledger.epoch;
    shard->options.pull_patience_ns = options->pull_patience_ns;
    shard->options.ahead = options->ahead;
    shard->revived = true;
    snprintf(text, size, "log index %llu, version %llu; %s, %s",
             (unsigned long long)shard->ledger.index, (unsigned long long)shard->version,
             half_event ? "half an event was undone" : "no event was half done",
             half_tile ? "a tile is done again" : "no tile was half done");
    return GRADWEIR_OK;
}
