/* The next step, made ahead while its gradient lands: new parameters are written into a spare slot
 * by the pass that measures each chunk, so that a gradient is read once. That is a guess at what
 * will be decided:
 *
 *     a chunk is taken      no step is under way or due, no gradient waits for its verdict: this
 *                           gradient is guessed to be the next one, on top of the newest version,
 *                           with the numbers that the law has for it. A spare parameter slot is
 *                           reserved: to pulls it does not exist
 *     its chunks land       each is stepped on from the same registers, and noted (ahead.bits)
 *     a STEP is applied     it is made in the reserved slot, whatever it is. If it reads that
 *                           gradient alone, with those numbers, then what was made ahead is what
 *                           would have been made, and its tiles are done already. If not, all of it
 *                           is made as ever, over what was made ahead
 *
 * A wrong guess harms nothing: the slot is nobody's before a step is finished in it. All of it is
 * of the process: one that goes on in a killed one's arena knows of no guess, and makes the step
 * from the gradient, which has landed in its slot as any other. */
#include "server/shard/digests.h"
#include "server/shard/shard_internal.h"

#include "common/codec.h"

#include <string.h>

static uint64_t *bits_of(struct shard *shard)
{
    return at_offset(shard, shard->at.ahead);
}

/* Steps of one gradient each, from numbers that are known before it is described. An optimizer's
 * state cannot be made ahead: its tiles are written over what the tile before was made of. */
static bool lawful(const struct shard *shard)
{
    const struct law_settings *law = &shard->ledger.law.settings;
    return law->window == 1 && law->stride == 1 && law->algorithm == ARITHMETIC_SGD &&
           law->normalise == LAW_MEAN && law->clip == 0 && law->clip_average == 0 &&
           law->damp == LAW_DAMP_OFF;
}

bool shard_guesses(const struct shard *shard)
{
    return shard->options.ahead > 0 && shard->elements >= shard->options.ahead && lawful(shard);
}

static uint64_t chunk_elements(const struct shard *shard)
{
    return codec_elements(shard->codec, codec_chunk(shard->codec, shard->options.chunk_bytes));
}

/* Digests are of blocks: made with a chunk, which is in the cache, where it is whole blocks; else
 * with the tile. */
static bool whole_blocks(const struct shard *shard)
{
    return chunk_elements(shard) % shard->block == 0;
}

/* The log has its verdict. */
static bool judged(const struct shard *shard, const struct slot *slot)
{
    const struct ledger_worker *worker = &shard->ledger.workers[slot->name.worker];
    return worker->incarnation > slot->name.incarnation ||
           (worker->incarnation == slot->name.incarnation &&
            worker->last_sequence >= slot->name.sequence);
}

static bool waits(const struct shard *shard, const struct slot *slot)
{
    return slot->generation && slot->told && !slot->bad && !slot->closing && !judged(shard, slot);
}

/* Of gradients that land side by side the one that has come furthest is likely to be the first. */
static bool likely(const struct shard *shard, uint32_t index)
{
    for (uint32_t i = 0; i < shard->options.member.slots; i++) {
        const struct slot *slot = &shard->slots[i];
        const bool lands = slot->generation && !slot->told && !slot->closing;
        if (i != index &&
            (waits(shard, slot) || (lands && slot->received > shard->slots[index].received)))
            return false;
    }
    return true;
}

static bool still_lands(const struct shard *shard)
{
    const struct slot *slot = &shard->slots[shard->ahead.slot];
    return shard->ahead.number && slot->generation == shard->ahead.generation && !slot->closing &&
           !slot->bad && !judged(shard, slot);
}

static void fill_plan(struct shard *shard, uint32_t index)
{
    const float one = 1; /* the mean of one gradient */
    struct record_step *record = &shard->ahead.record;
    *record = (struct record_step){.version = shard->version + 1,
                                   .t = shard->ledger.law.optimizer_step + 1,
                                   .groups_count = shard->groups_count,
                                   .entries_count = 1,
                                   .entries = {{.slot = index}}};
    memcpy(&record->entries[0].weight, &one, sizeof one);
    for (uint32_t i = 0; i < shard->groups_count; i++)
        record->groups[i] =
            (struct step_group){.learning_rate = law_next_rate(&shard->ledger.law) *
                                                 shard->groups[i].learning_rate_scale,
                                .bias_correction1 = 1,
                                .bias_correction2 = 1};
    apply_plan(shard, record, &shard->ahead.plan);
}

static bool reserve(struct shard *shard)
{
    if (shard->ahead.reserved)
        return true;
    const uint32_t to = parameters_free(shard);
    if (to == UINT32_MAX)
        return false;
    KEEP(shard, shard->parameters[to]);
    shard->parameters[to] = (struct parameter_slot){.used = true, .writing = true};
    shard->ahead.reserved = true;
    shard->ahead.to = to;
    return true;
}

void ahead_guess(struct shard *shard, uint32_t index)
{
    struct ahead *ahead = &shard->ahead;
    const struct slot *slot = &shard->slots[index];
    if (!shard_guesses(shard) || still_lands(shard) || !shard->has_first ||
        shard->step.phase != STEP_IDLE || shard->records_count > 0 || shard->ledger.law.fresh > 0 ||
        slot->first || slot->ranks > 0)
        return;
    ahead->number = 0;
    if (!likely(shard, index) || !reserve(shard))
        return;
    ahead->number = ++shard->ahead_numbers;
    ahead->slot = index;
    ahead->generation = slot->generation;
    ahead->from = parameters_find(shard, shard->version);
    ASSERT(ahead->from != UINT32_MAX && ahead->from != ahead->to);
    memset(bits_of(shard), 0, shard->bit_words * sizeof(uint64_t));
    fill_plan(shard, index);
}

bool ahead_lands(const struct shard *shard, uint32_t slot)
{
    const struct ahead *ahead = &shard->ahead;
    return ahead->number && ahead->reserved && ahead->slot == slot &&
           shard->slots[slot].generation == ahead->generation;
}

void ahead_work(struct shard *shard, struct arithmetic_work *work)
{
    *work = (struct arithmetic_work){
        .parameters = at_offset(shard, parameter_offset(shard, shard->ahead.from)),
        .parameters_next = at_offset(shard, parameter_offset(shard, shard->ahead.to)),
        .ranges = at_offset(shard, shard->at.pieces),
        .ranges_n = shard->pieces_count,
        .streams = shard_streams(shard) && !digests_kept_up(shard)};
}

void ahead_stepped(struct shard *shard, uint64_t begin, uint64_t end)
{
    if (whole_blocks(shard))
        digests_ahead(shard, begin, end);
}

void ahead_landed(struct shard *shard, uint64_t chunk, const struct shard_event *event)
{
    if (!event->ahead || event->ahead != shard->ahead.number || !shard->ahead.reserved)
        return;
    bits_of(shard)[chunk / 64] |= UINT64_C(1) << (chunk % 64);
}

/* Bit for bit what an element goes through, by loop_sgd. */
static bool same_numbers(const struct arithmetic_plan *a, const struct arithmetic_plan *b)
{
    if (a->algorithm != b->algorithm || a->phase != b->phase || a->entries_n != 1 ||
        b->entries_n != 1 || a->groups_n != b->groups_n || a->stacks.window || b->stacks.window ||
        memcmp(&a->scale, &b->scale, sizeof a->scale) != 0 ||
        memcmp(&a->entries[0].weight, &b->entries[0].weight, sizeof(float)) != 0)
        return false;
    for (uint32_t i = 0; i < a->groups_n; i++) {
        const struct arithmetic_group *x = &a->groups[i], *y = &b->groups[i];
        const float one[] = {x->rate, x->weight_decay, x->keep};
        const float other[] = {y->rate, y->weight_decay, y->keep};
        if (x->frozen != y->frozen || memcmp(one, other, sizeof one) != 0)
            return false;
    }
    return true;
}

uint32_t ahead_claim(struct shard *shard)
{
    if (!shard->ahead.reserved)
        return parameters_spare(shard);
    shard->ahead.reserved = false;
    return shard->ahead.to;
}

bool ahead_right(struct shard *shard)
{
    const struct ahead *ahead = &shard->ahead;
    const struct stepping *step = &shard->step;
    const uint32_t slot = step->plan.entries[0].slot;
    const bool right =
        ahead->number && step->from == ahead->from && step->to == ahead->to &&
        (shard->plant.ahead_kept ||
         (slot == ahead->slot && shard->slots[slot].generation == ahead->generation)) &&
        !step->record.rounds && same_numbers(&ahead->plan, &step->plan);
    shard->ahead.number = 0; /* it is decided, whoever is the next */
    return right;
}

bool ahead_made(struct shard *shard, uint64_t begin, uint64_t end)
{
    const uint64_t chunk = chunk_elements(shard), *bits = bits_of(shard);
    for (uint64_t i = begin / chunk; i * chunk < end; i++)
        if (!(bits[i / 64] >> (i % 64) & 1))
            return false;
    return true;
}

void ahead_passed(struct shard *shard, uint64_t begin, uint64_t end)
{
    shard->figures.tiles_ahead++;
    if (!whole_blocks(shard))
        digests_step(shard, begin, end);
}

void ahead_forget(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->options.member.parameter_slots; i++)
        if (shard->parameters[i].writing &&
            (shard->step.phase <= STEP_WAIT_SLOT || i != shard->step.to))
            shard->parameters[i] = (struct parameter_slot){.used = false};
    memset(&shard->ahead, 0, sizeof shard->ahead);
    shard->ahead_numbers = 0;
    shard->step.ahead = false;
    memset(bits_of(shard), 0, shard->bit_words * sizeof(uint64_t));
}
