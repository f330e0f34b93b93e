/* Whom a shard follows: its promise, and what it tells a new coordinator.
 *
 * The promise is the highest epoch it was asked for, with the instance that asked first. It lies in
 * the arena, so it outlives the process. Everything that names a lower epoch is dropped; a SEAL for
 * a lower epoch, or for the same one by another instance, is refused by SEALED with the promise
 * itself. Whoever wins an epoch has the promise of all members, so no two ever act in one. */
#include "server/shard/digests.h"
#include "server/shard/shard_internal.h"

#include "common/sealed.h"

#include <string.h>

static void promise_to(struct shard *shard, uint32_t epoch, const uint8_t instance[NONCE_BYTES])
{
    shard->promise.epoch = epoch;
    memcpy(shard->promise.instance, instance, NONCE_BYTES);
}

static void change_promise(struct shard *shard, uint32_t epoch, const uint8_t *instance)
{
    KEEP(shard, shard->promise);
    promise_to(shard, epoch, instance);
    slots_promised(shard);
}

void epoch_init(struct shard *shard, const struct shard_options *options, const struct model *model)
{
    promise_to(shard, options->epoch ? options->epoch : 1, options->member.instance);
    const gradweir_status status =
        model_encode(model, at_offset(shard, shard->at.layout), shard->layout_bytes);
    ASSERT(status == GRADWEIR_OK);
}

bool epoch_follows(struct shard *shard, const struct message *message)
{
    /* Without a log there is nothing to tell, so nobody asks for a promise first. */
    if (message->kind == MESSAGE_MEMBER && message->epoch > shard->promise.epoch &&
        shard->ledger.index == 0)
        change_promise(shard, message->epoch, message->member.instance);
    if (message->epoch == shard->promise.epoch || shard->plant.no_fence ||
        (shard->plant.stale_record && message->kind == MESSAGE_RECORD))
        return true;
    shard->figures.messages_dropped++;
    return false;
}

void epoch_seal(struct shard *shard, uint32_t epoch, const struct message_seal *seal)
{
    const struct promise *promise = &shard->promise;
    if (epoch > promise->epoch || shard->plant.no_fence)
        change_promise(shard, epoch, seal->instance);
    struct message_sealed *sealed = &tell(shard, MESSAGE_SEALED)->sealed;
    *sealed = (struct message_sealed){.index = shard->ledger.index, .hash = shard->ledger.hash};
    memcpy(sealed->instance, promise->instance, NONCE_BYTES);
    if (epoch == promise->epoch && memcmp(promise->instance, seal->instance, NONCE_BYTES) == 0)
        act(shard, SHARD_CONTENT)->message = (struct message){
            .kind = MESSAGE_PAGE, .epoch = promise->epoch, .timeline = shard->ledger.timeline};
}

void epoch_logged(struct shard *shard, const struct record *record)
{
    const uint32_t places = kept_places(shard);
    struct record *kept = at_offset(shard, shard->at.kept);
    if (!places)
        return;
    record_copy(&kept[record->index % places], record);
    digests_record(shard, &kept[record->index % places]);
}

const struct record *shard_record(const struct shard *shard, uint64_t index)
{
    const uint64_t places = kept_places(shard), last = shard->ledger.index;
    if (index == 0 || index > last || index + places <= last)
        return NULL;
    return (const struct record *)((const char *)shard + shard->at.kept) + index % places;
}

size_t shard_content_max(const struct shard *shard)
{
    return sealed_bytes_max(shard->layout_bytes, shard->options.member.ring,
                            shard->options.member.slots);
}

size_t shard_content(struct shard *shard, uint8_t *bytes, size_t room)
{
    const uint32_t ring = shard->options.member.ring;
    const uint64_t last = shard->ledger.index, first = last > ring ? last - ring + 1 : 1;
    const struct record *kept = at_offset(shard, shard->at.kept);
    struct sealed_writer writer = {.bytes = bytes, .room = room};
    sealed_begin(&writer, &shard->options.member, &shard->ledger,
                 at_offset(shard, shard->at.layout), shard->layout_bytes);
    for (uint64_t i = first; ring && i <= last; i++) {
        const struct record *record = &kept[i % kept_places(shard)];
        struct message message = {
            .kind = MESSAGE_RECORD, .epoch = record->epoch, .timeline = record->timeline};
        message.record = *record;
        sealed_add(&writer, &message);
    }
    for (uint32_t i = 0; i < shard->options.member.slots; i++) {
        const struct slot *slot = &shard->slots[i];
        if (!slot->told || slot->closing)
            continue;
        sealed_add(&writer, &(struct message){.kind = MESSAGE_LANDED,
                                              .epoch = shard->promise.epoch,
                                              .timeline = shard->ledger.timeline,
                                              .landed = slot->landed});
    }
    return sealed_end(&writer);
}

uint32_t shard_promise(const struct shard *shard)
{
    return shard->promise.epoch;
}

void shard_enlist(const struct shard *shard, struct message_enlist *enlist)
{
    *enlist = (struct message_enlist){
        .protocol_oldest = PROTOCOL_SERVERS, .protocol_newest = PROTOCOL_SERVERS, .cold = !shard};
    if (!shard)
        return;
    enlist->epoch = shard->promise.epoch;
    enlist->index = shard->ledger.index;
    enlist->hash = shard->ledger.hash;
}
