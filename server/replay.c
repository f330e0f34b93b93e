/* Feeds a recording's records and bodies to shard cores in this process. The records are taken as
 * they are, so every number in them is the run's own; sums over the model are computed again and
 * must give the recorded bits. Only without a worker are they rewritten (replay_without.c). */
#include "server/replay.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/sums.h"
#include "server/replay_without.h"
#include "server/shard/shard_local.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replay {
    const struct replay_options *options;
    struct recording_reader *reader;
    struct replay_without *without; /* NULL: the run as it was */
    struct shard_local *shards[MEMBERS_MAX];
    struct sums *sums; /* of the step that waits for SUMMED */
    struct optimizer_options optimizer;
    enum arithmetic_codec codec; /* of gradients */
    bool lamb;
    double clip_average; /* in force at that step: it can be tuned */
    uint64_t *digests;
    struct replay_result result;
};

static gradweir_status open_shards(struct replay *replay, const struct record *map)
{
    struct law_settings law;
    struct optimizer_options optimizer;
    TRY(ledger_settings_read(map->map.settings, &law, &optimizer));
    const struct model *model = recording_model(replay->reader);
    replay->optimizer = optimizer;
    replay->lamb = sums_kind_of(&law) == SUMS_TENSORS;
    if (map->map.layout_hash != model->hash)
        return fail(GRADWEIR_ERR_CORRUPT, "the log was made with another layout than layout.model");
    replay->codec = law.gradient_dtype;
    if (replay->codec != recording_codec(replay->reader))
        return fail(GRADWEIR_ERR_CORRUPT, "the log says gradients are %s, the bodies are %s",
                    codec_name(replay->codec), codec_name(recording_codec(replay->reader)));
    for (uint32_t i = 0; i < replay->options->shards; i++) {
        const struct model_range range = model_shard(model, replay->options->shards, i);
        const struct shard_options options = {.member = {.shard = i,
                                                         .members = replay->options->shards,
                                                         .first = range.first,
                                                         .count = range.elements,
                                                         .moments = range.moments > 0,
                                                         .slots = map->map.slots,
                                                         .parameter_slots = 3,
                                                         .layout_hash = model->hash,
                                                         .gradient_dtype = law.gradient_dtype},
                                              .optimizer = optimizer,
                                              .sessions_max = 1,
                                              .pulls_max = 1,
                                              .chunk_bytes = 1 << 20,
                                              .pull_patience_ns = 1,
                                              .stripe_max = recording_stripe_max(replay->reader)};
        TRY(shard_local_open(model, &law, &options, replay->options->simd, &replay->shards[i]));
    }
    return sums_new(model, sums_kind_of(&law), replay->options->shards, &replay->sums);
}

static void put_nothing(struct replay *replay, uint32_t slot)
{
    for (uint32_t i = 0; i < replay->options->shards; i++) {
        uint64_t bytes;
        void *body = shard_slot(replay->shards[i]->shard, slot, &bytes);
        memset(body, 0, (size_t)bytes);
    }
}

static gradweir_status put_bodies(struct replay *replay, uint64_t index, uint32_t slot, bool first)
{
    const struct model *model = recording_model(replay->reader);
    const enum arithmetic_codec codec = first ? ARITHMETIC_F32 : replay->codec;
    for (uint32_t i = 0; i < replay->options->shards; i++) {
        const struct model_range range = model_shard(model, replay->options->shards, i);
        uint64_t bytes;
        struct shard *shard = replay->shards[i]->shard;
        unsigned char *body =
            first ? shard_first(shard, slot, &bytes) : shard_slot(shard, slot, &bytes);
        struct moments *tail = range.moments ? calloc(range.moments, sizeof *tail) : NULL;
        if (range.moments && !tail)
            return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for moments");
        const struct recording_piece piece = {
            .index = index, .codec = codec, .first = range.first, .elements = range.elements};
        const gradweir_status status = recording_fetch(replay->reader, &piece, body, tail);
        if (status == GRADWEIR_OK && tail)
            memcpy(body + codec_bytes(codec, range.elements), tail, range.moments * sizeof *tail);
        free(tail);
        TRY(status);
    }
    return GRADWEIR_OK;
}

static gradweir_status add_sums(struct replay *replay, uint32_t shard,
                                const struct message_sums *sums)
{
    if (sums->version != sums_version(replay->sums))
        sums_begin(replay->sums, sums->version);
    if (!sums_take(replay->sums, shard, sums))
        return fail(GRADWEIR_ERR_PROTOCOL, "shard %u: those are not its sums", shard);
    return GRADWEIR_OK;
}

static gradweir_status feed(struct replay *replay, const struct message *message)
{
    for (uint32_t i = 0; i < replay->options->shards; i++) {
        struct shard_local *local = replay->shards[i];
        shard_local_event(local, &(struct shard_event){.kind = SHARD_MESSAGE, .message = message});
        for (uint32_t k = 0; k < local->outbox_count; k++) {
            const struct shard_action *action = &local->outbox[k];
            if (action->kind == SHARD_SEND && action->message.kind == MESSAGE_SUMS)
                TRY(add_sums(replay, i, &action->message.sums));
            if (action->kind == SHARD_SAY)
                return fail(GRADWEIR_ERR_CORRUPT, "%s", action->message.denied.text);
        }
    }
    return GRADWEIR_OK;
}

static gradweir_status differs(const struct replay *replay, uint64_t version, const char *what,
                               double number)
{
    if (replay->without)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_CORRUPT, "version %llu: %s is %.9g here and was another in the run",
                (unsigned long long)version, what, number);
}

static gradweir_status take_ratios(const struct replay *replay, struct record_summed *summed)
{
    uint32_t ratios[RATIOS_MAX];
    const struct model *model = recording_model(replay->reader);
    if (summed->ratios_count != model->parameter_tensors || model->parameter_tensors > RATIOS_MAX)
        return fail(GRADWEIR_ERR_CORRUPT, "%u trust ratios for %u tensors", summed->ratios_count,
                    model->parameter_tensors);
    const bool sound = sums_ratios(replay->sums, &replay->optimizer, ratios);
    if (sound == (summed->factor == 0))
        TRY(differs(replay, summed->version, "whether the sums are numbers", sound));
    for (uint32_t i = 0; sound && i < summed->ratios_count; i++)
        if (ratios[i] != summed->ratios[i])
            TRY(differs(replay, summed->version, model->by_offset[i]->name,
                        (double)element_float(ratios[i])));
    if (sound)
        memcpy(summed->ratios, ratios, summed->ratios_count * sizeof *ratios);
    return GRADWEIR_OK;
}

/* What the sums make, computed anew; in the run as it was it must be the run's. */
static gradweir_status take_factor(const struct replay *replay, struct record_summed *summed)
{
    if (!sums_whole(replay->sums) || sums_version(replay->sums) != summed->version)
        return fail(GRADWEIR_ERR_CORRUPT, "version %llu: nothing was to be summed",
                    (unsigned long long)summed->version);
    if (replay->lamb)
        return take_ratios(replay, summed);
    if (summed->ratios_count > 0)
        return fail(GRADWEIR_ERR_CORRUPT, "trust ratios, but the optimizer is not LAMB");
    const double norm = sums_norm(replay->sums);
    const float factor = (float)arithmetic_clip_factor(norm, replay->clip_average);
    if (element_bits(factor) != summed->factor)
        TRY(differs(replay, summed->version, "the average's clip factor", (double)factor));
    if (replay->without) { /* else the record stays what the next one's chain hash is of */
        summed->norm = norm;
        summed->factor = element_bits(factor);
    }
    return GRADWEIR_OK;
}

static gradweir_status take_digest(struct replay *replay)
{
    const struct model *model = recording_model(replay->reader);
    size_t blocks = 0;
    for (uint32_t i = 0; i < replay->options->shards; i++) {
        const struct model_range range = model_shard(model, replay->options->shards, i);
        const float *parameters =
            shard_parameters(replay->shards[i]->shard, &replay->result.version);
        if (!parameters)
            return fail(GRADWEIR_ERR_STATE, "the recording ends before the first parameters");
        blocks += checksum_blocks(parameters, range.elements, sizeof(float), model->block,
                                  replay->digests + blocks);
    }
    replay->result.digest = checksum_combine(replay->digests, blocks);
    return GRADWEIR_OK;
}

static gradweir_status stepped(struct replay *replay, uint64_t version)
{
    const struct replay_options *options = replay->options;
    const struct message whole = {
        .kind = MESSAGE_WHOLE, .epoch = UINT32_MAX, .timeline = 1, .whole.version = version};
    TRY(feed(replay, &whole));
    if (options->every == 0 || version % options->every || !options->tell)
        return GRADWEIR_OK;
    TRY(take_digest(replay));
    options->tell(options->context, version, replay->result.digest);
    return GRADWEIR_OK;
}

static gradweir_status put_what_landed(struct replay *replay, const struct record *record)
{
    if (replay->without && replay_without_leaves(replay->without, record))
        put_nothing(replay, record->admit.slot);
    else if (record->kind == RECORD_ADMIT)
        return put_bodies(replay, record->index, record->admit.slot, false);
    else if (record->kind == RECORD_FIRST)
        return put_bodies(replay, record->index, record->first.slot, true);
    return GRADWEIR_OK;
}

static void count(struct replay *replay, const struct record *record)
{
    if (record->kind == RECORD_STEP)
        replay->clip_average = shard_ledger(replay->shards[0]->shard)->law.settings.clip_average;
    replay->result.records++;
    replay->result.admitted += record->kind == RECORD_ADMIT;
    replay->result.refused += record->kind == RECORD_REFUSE;
}

static gradweir_status replay_record(struct replay *replay, struct record *record)
{
    if (record->kind == RECORD_MAP && !replay->shards[0])
        TRY(open_shards(replay, record));
    if (!replay->shards[0])
        return fail(GRADWEIR_ERR_CORRUPT, "the log does not begin with a MAP");
    TRY(put_what_landed(replay, record));
    if (record->kind == RECORD_SUMMED)
        TRY(take_factor(replay, &record->summed));
    if (replay->without)
        replay_without_seal(replay->without, record);
    /* Whom these shards follow, whatever the record's epoch. */
    const struct message message = {
        .kind = MESSAGE_RECORD, .epoch = 1, .timeline = record->timeline, .record = *record};
    TRY(feed(replay, &message));
    count(replay, record);
    if (record->kind == RECORD_STEP && !record->step.rounds)
        TRY(stepped(replay, record->step.version));
    if (record->kind == RECORD_SUMMED)
        TRY(stepped(replay, record->summed.version));
    return GRADWEIR_OK;
}

static void note_end(struct replay *replay)
{
    const char *file;
    replay->result.ended = recording_ended(replay->reader, &file);
    snprintf(replay->result.ended_file, sizeof replay->result.ended_file, "%s", file);
}

/* What comes behind the wanted version's step has nothing to do with it. */
static bool arrived(const struct replay *replay)
{
    if (replay->options->until == UINT64_MAX || !replay->shards[0])
        return false;
    const struct ledger *ledger = shard_ledger(replay->shards[0]->shard);
    return ledger->first && !ledger->stepping && ledger_version(ledger) >= replay->options->until;
}

/* ERR_AGAIN when the recording, or what is wanted of it, is over. */
static gradweir_status replay_next(struct replay *replay)
{
    struct record record;
    replay->result.until = arrived(replay);
    if (replay->result.until)
        return GRADWEIR_ERR_AGAIN;
    gradweir_status status = recording_next(replay->reader, &record);
    if (status == GRADWEIR_OK && replay->without)
        status = replay_without_record(replay->without, recording_model(replay->reader), &record,
                                       &replay->result);
    if (status == GRADWEIR_OK)
        status = replay_record(replay, &record);
    if (status == GRADWEIR_ERR_AGAIN)
        note_end(replay);
    return status;
}

static gradweir_status replay_all(struct replay *replay)
{
    const struct replay_options *options = replay->options;
    TRY(recording_read(options->folder, &replay->reader));
    if (options->without)
        TRY(replay_without_new(replay->reader, options->without, &replay->without));
    const struct model *model = recording_model(replay->reader);
    replay->digests = calloc(model->blocks + 1, sizeof *replay->digests);
    if (!replay->digests)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for digests");
    gradweir_status status;
    do {
        status = replay_next(replay);
    } while (status == GRADWEIR_OK);
    if (status != GRADWEIR_ERR_AGAIN)
        return status;
    if (!replay->shards[0])
        return fail(GRADWEIR_ERR_STATE, "the recording in %s holds no records", options->folder);
    TRY(take_digest(replay));
    if (!replay->result.until && options->until != UINT64_MAX &&
        replay->result.version < options->until)
        return fail(GRADWEIR_ERR_STATE, "the recording ends at version %llu, before version %llu",
                    (unsigned long long)replay->result.version, (unsigned long long)options->until);
    return GRADWEIR_OK;
}

gradweir_status replay_run(const struct replay_options *options, struct replay_result *result)
{
    if (options->shards == 0 || options->shards > MEMBERS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "shards is %u: 1 to %d are allowed", options->shards,
                    MEMBERS_MAX);
    struct replay *replay = calloc(1, sizeof *replay);
    if (!replay)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory to replay");
    replay->options = options;
    const gradweir_status status = replay_all(replay);
    *result = replay->result;
    for (uint32_t i = 0; i < options->shards; i++)
        shard_local_close(replay->shards[i]);
    replay_without_free(replay->without);
    sums_free(replay->sums);
    recording_reader_free(replay->reader);
    free(replay->digests);
    free(replay);
    return status;
}
