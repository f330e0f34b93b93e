/* The ledger as bytes and back: little-endian numbers in the order of the structs. One walk names
 * each field once and goes both ways; what was read is then checked, for nothing that arrives is
 * trusted. */
#include "common/ledger.h"
#include "common/message.h"

#include <string.h>

enum { MAGIC = 0x33444547 }; /* "GED3" */

/* Beyond the end reads give 0 and set `torn`, which is looked at once. */
struct cursor {
    uint8_t *to;
    const uint8_t *from; /* NULL: writing */
    size_t at, room;
    bool torn;
};

static void number(struct cursor *cursor, uint64_t *value, unsigned bytes)
{
    if (cursor->room - cursor->at < bytes) {
        cursor->torn = true;
        *value = 0;
        return;
    }
    uint64_t read = 0;
    for (unsigned i = 0; i < bytes; i++) {
        if (cursor->from)
            read |= (uint64_t)cursor->from[cursor->at + i] << (8 * i);
        else
            cursor->to[cursor->at + i] = (uint8_t)(*value >> (8 * i));
    }
    if (cursor->from)
        *value = read;
    cursor->at += bytes;
}

static void u64(struct cursor *cursor, uint64_t *value)
{
    number(cursor, value, 8);
}

static void u32(struct cursor *cursor, uint32_t *value)
{
    uint64_t wide = *value;
    number(cursor, &wide, 4);
    *value = (uint32_t)wide;
}

static void i64(struct cursor *cursor, int64_t *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    number(cursor, &bits, 8);
    memcpy(value, &bits, sizeof bits);
}

static void f64(struct cursor *cursor, double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    number(cursor, &bits, 8);
    memcpy(value, &bits, sizeof bits);
}

static void f32(struct cursor *cursor, float *value)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    u32(cursor, &bits);
    memcpy(value, &bits, sizeof bits);
}

static void flag(struct cursor *cursor, bool *value)
{
    uint64_t wide = *value;
    number(cursor, &wide, 1);
    cursor->torn |= wide > 1;
    *value = wide == 1;
}

static void raw(struct cursor *cursor, void *bytes, size_t count)
{
    if (cursor->room - cursor->at < count) {
        cursor->torn = true;
        return;
    }
    if (cursor->from)
        memcpy(bytes, cursor->from + cursor->at, count);
    else
        memcpy(cursor->to + cursor->at, bytes, count);
    cursor->at += count;
}

/* Enums of law.h all start at 0; their last members are checked by law_settings_check. */
#define CHOICE(cursor, place, type)                                                                \
    do {                                                                                           \
        uint32_t choice_ = (uint32_t)(place);                                                      \
        u32(cursor, &choice_);                                                                     \
        (place) = (type)choice_;                                                                   \
    } while (0)

static void walk_settings(struct cursor *cursor, struct law_settings *settings)
{
    u32(cursor, &settings->window);
    u32(cursor, &settings->stride);
    i64(cursor, &settings->staleness_max);
    CHOICE(cursor, settings->decay, enum law_decay);
    f64(cursor, &settings->decay_beta);
    f64(cursor, &settings->decay_power);
    f64(cursor, &settings->samples_exponent);
    CHOICE(cursor, settings->staleness_at, enum law_at);
    flag(cursor, &settings->recheck);
    CHOICE(cursor, settings->normalise, enum law_normalise);
    f64(cursor, &settings->clip);
    f64(cursor, &settings->clip_average);
    CHOICE(cursor, settings->damp, enum law_damp);
    CHOICE(cursor, settings->window_algorithm, enum law_algorithm);
    u32(cursor, &settings->flush_min);
    f64(cursor, &settings->magnitude_max);
    CHOICE(cursor, settings->algorithm, enum arithmetic_algorithm);
    f64(cursor, &settings->learning_rate);
    CHOICE(cursor, settings->schedule, enum law_schedule);
    f64(cursor, &settings->learning_rate_end);
    u64(cursor, &settings->schedule_steps);
    u64(cursor, &settings->warmup_steps);
    f64(cursor, &settings->beta1);
    f64(cursor, &settings->beta2);
    CHOICE(cursor, settings->gradient_dtype, enum arithmetic_codec);
}

static void walk_optimizer(struct cursor *cursor, struct optimizer_options *optimizer)
{
    f64(cursor, &optimizer->epsilon);
    f64(cursor, &optimizer->dampening);
    f64(cursor, &optimizer->weight_decay);
    flag(cursor, &optimizer->centered);
    flag(cursor, &optimizer->momentum);
    flag(cursor, &optimizer->always_adapt);
}

static void walk_entry(struct cursor *cursor, struct law_entry *entry)
{
    u32(cursor, &entry->slot);
    u32(cursor, &entry->worker);
    u64(cursor, &entry->generation);
    u64(cursor, &entry->sequence);
    u64(cursor, &entry->basis);
    u64(cursor, &entry->samples);
    f64(cursor, &entry->sample_weight);
    f64(cursor, &entry->clip);
    u64(cursor, &entry->admitted_version);
    u64(cursor, &entry->uses);
}

static void walk_law(struct cursor *cursor, struct law *law)
{
    walk_settings(cursor, &law->settings);
    u64(cursor, &law->version);
    u64(cursor, &law->optimizer_step);
    u64(cursor, &law->fresh);
    u64(cursor, &law->unused);
    u64(cursor, &law->next);
    u64(cursor, &law->first);
    u64(cursor, &law->retired);
    for (uint32_t i = 0; i < 2 * LAW_WINDOW_MAX; i++)
        walk_entry(cursor, &law->ring[i]);
    u32(cursor, &law->stacks.room);
    u32(cursor, &law->stacks.turns_n);
    u64(cursor, &law->stacks.stepped);
    u64(cursor, &law->stacks.began);
    f64(cursor, &law->stacks.anchor);
    f64(cursor, &law->stacks.drift);
    for (uint32_t i = 0; i < LAW_WINDOW_MAX; i++) {
        u64(cursor, &law->turns[i].position);
        f64(cursor, &law->turns[i].weight);
    }
}

static void walk_receipt(struct cursor *cursor, struct ledger_receipt *receipt)
{
    u64(cursor, &receipt->sequence);
    u64(cursor, &receipt->digest);
    u64(cursor, &receipt->index);
    u64(cursor, &receipt->version);
    u64(cursor, &receipt->staleness);
    u64(cursor, &receipt->detail);
    u32(cursor, &receipt->verdict);
    f32(cursor, &receipt->weight);
}

static void walk_worker(struct cursor *cursor, struct ledger_worker *worker)
{
    u32(cursor, &worker->state);
    u32(cursor, &worker->role);
    u64(cursor, &worker->incarnation);
    raw(cursor, worker->nonce, sizeof worker->nonce);
    raw(cursor, worker->identity, sizeof worker->identity);
    u32(cursor, &worker->outstanding_max);
    u32(cursor, &worker->fenced_count);
    raw(cursor, worker->fenced, sizeof worker->fenced);
    u64(cursor, &worker->last_sequence);
    for (uint32_t i = 0; i < VERDICTS; i++)
        u64(cursor, &worker->verdicts[i]);
    for (uint32_t i = 0; i < LEDGER_RECEIPTS; i++)
        walk_receipt(cursor, &worker->receipts[i]);
}

static void walk_head(struct cursor *cursor, struct ledger *ledger)
{
    uint32_t magic = MAGIC;
    u32(cursor, &magic);
    cursor->torn |= magic != MAGIC;
    u32(cursor, &ledger->epoch);
    u32(cursor, &ledger->timeline);
    u64(cursor, &ledger->index);
    u64(cursor, &ledger->hash);
    flag(cursor, &ledger->mapped);
    flag(cursor, &ledger->first);
    u64(cursor, &ledger->first_digest);
    u32(cursor, &ledger->members);
    u64(cursor, &ledger->layout_hash);
    u32(cursor, &ledger->slots);
    u64(cursor, &ledger->generation_max);
    u64(cursor, &ledger->summed_version);
    u32(cursor, &ledger->summed_factor);
    flag(cursor, &ledger->stepping);
    for (uint32_t i = 0; i < 4; i++)
        u64(cursor, &ledger->steps_by_cause[i]);
    u64(cursor, &ledger->save_cut);
    u64(cursor, &ledger->save_index);
    u64(cursor, &ledger->durable);
    walk_settings(cursor, &ledger->settings);
    walk_optimizer(cursor, &ledger->optimizer);
    u32(cursor, &ledger->workers_count);
    for (uint32_t i = 0; i < VERDICTS; i++)
        u64(cursor, &ledger->departed[i]);
}

static void walk(struct cursor *cursor, struct ledger *ledger)
{
    walk_head(cursor, ledger);
    if (ledger->workers_count > WORKERS_MAX || cursor->torn) {
        cursor->torn = true;
        return;
    }
    walk_law(cursor, &ledger->law);
    for (uint32_t i = 0; i < ledger->workers_count; i++)
        walk_worker(cursor, &ledger->workers[i]);
}

gradweir_status ledger_write(const struct ledger *ledger, uint8_t *bytes, size_t room, size_t *used)
{
    union { /* the walk goes both ways; writing changes nothing */
        const struct ledger *is_const;
        struct ledger *is_not;
    } same = {.is_const = ledger};
    struct cursor cursor = {.to = bytes, .room = room};
    walk(&cursor, same.is_not);
    if (cursor.torn)
        return fail(GRADWEIR_ERR_FULL, "a ledger does not fit in %zu bytes", room);
    *used = cursor.at;
    return GRADWEIR_OK;
}

static bool good_worker(const struct ledger_worker *worker)
{
    for (uint32_t i = 0; i < LEDGER_RECEIPTS; i++)
        if (worker->receipts[i].verdict >= VERDICTS || !(worker->receipts[i].weight >= 0))
            return false;
    return (worker->state == WORKER_LIVE || worker->state == WORKER_LEFT) &&
           (worker->role == ROLE_WORKER || worker->role == ROLE_READER) &&
           memchr(worker->identity, 0, sizeof worker->identity) &&
           worker->outstanding_max <= OUTSTANDING_MAX && worker->incarnation > 0;
}

static bool good_law(const struct ledger *ledger)
{
    const struct law *law = &ledger->law;
    if (law->next < law->first || law->next - law->first > law->settings.window ||
        law->first < law->retired || law->next - law->retired > 2 * LAW_WINDOW_MAX ||
        law->settings.window > ledger->slots || law->stacks.room > LAW_WINDOW_MAX ||
        law->stacks.turns_n > LAW_WINDOW_MAX || law->stacks.stepped > law->next)
        return false;
    for (uint32_t i = 0; i < law->stacks.turns_n; i++)
        if (law->turns[i].position > law->stacks.stepped ||
            (i > 0 && law->turns[i].position <= law->turns[i - 1].position))
            return false;
    for (uint64_t i = law->first; i < law->next; i++)
        if (law->ring[i % (2 * LAW_WINDOW_MAX)].slot >= ledger->slots ||
            law->ring[i % (2 * LAW_WINDOW_MAX)].worker >= ledger->workers_count)
            return false;
    return true;
}

static gradweir_status check(const struct ledger *ledger)
{
    if (!ledger->mapped)
        return ledger->index == 0 ? GRADWEIR_OK
                                  : fail(GRADWEIR_ERR_PROTOCOL, "a log without a MAP is no log");
    TRY(law_settings_check(&ledger->settings));
    TRY(law_settings_check(&ledger->law.settings));
    if (ledger->members == 0 || ledger->members > MEMBERS_MAX || ledger->slots == 0 ||
        ledger->slots > SLOTS_MAX || !good_law(ledger))
        return fail(GRADWEIR_ERR_PROTOCOL, "a ledger whose window or members make no sense");
    for (uint32_t i = 0; i < ledger->workers_count; i++)
        if (!good_worker(&ledger->workers[i]))
            return fail(GRADWEIR_ERR_PROTOCOL, "a ledger whose worker %u makes no sense", i);
    return GRADWEIR_OK;
}

gradweir_status ledger_read(const uint8_t *bytes, size_t count, struct ledger *out)
{
    struct cursor cursor = {.from = bytes, .room = count};
    memset(out, 0, sizeof *out);
    walk(&cursor, out);
    if (cursor.torn || cursor.at != count)
        return fail(GRADWEIR_ERR_PROTOCOL, "%zu bytes are no ledger", count);
    return check(out);
}
