/* A new coordinator's state from what all members have told. The longest log is the truth: a record
 * is only acted on when all have logged it, and every epoch began with the longest log of all, so
 * the others are prefixes of it. Its ledger gives roster, receipts, window and settings; what has
 * landed gives the slots. */
#include "common/sealed.h"
#include "server/coordinator/order_internal.h"

#include "common/codec.h"

#include <stdlib.h>
#include <string.h>

static gradweir_status open_content(const struct order *order, uint32_t index,
                                    struct sealed_reader *reader)
{
    const struct content_assembler *content = order->members[index].content;
    TRY(sealed_read(content_bytes(content), content_count(content), reader));
    if (reader->job != order->options.job || reader->shard != index ||
        reader->members != order->options.shards)
        return fail(GRADWEIR_ERR_MISMATCH, "shard %u holds shard %u of %u of job %016llx", index,
                    reader->shard, reader->members, (unsigned long long)reader->job);
    return GRADWEIR_OK;
}

static uint32_t longest(const struct order *order)
{
    uint32_t best = MEMBERS_MAX;
    for (uint32_t i = 0; i < order->options.shards; i++) {
        if (!order->members[i].sealed)
            continue;
        const bool more =
            best == MEMBERS_MAX || order->members[i].index > order->members[best].index;
        const bool less =
            best == MEMBERS_MAX || order->members[i].index < order->members[best].index;
        if (order->plants.shortest_log ? less : more)
            best = i;
    }
    return best;
}

/* The layout, from one of them; all have the same, or the MAP record names it. */
static gradweir_status take_layout(struct order *order, const struct sealed_reader *reader)
{
    struct model *model;
    TRY(model_decode(reader->layout, reader->layout_bytes, &model));
    gradweir_status fits = queue_fit(order, model); /* as it did for the running job */
    if (fits == GRADWEIR_OK)
        fits = steps_room(order, model);
    if (fits != GRADWEIR_OK) {
        model_free(model);
        return fits;
    }
    uint8_t *layout = malloc(reader->layout_bytes);
    if (!layout) {
        model_free(model);
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the layout");
    }
    memcpy(layout, reader->layout, reader->layout_bytes);
    order->model = model;
    order->layout = layout;
    order->layout_bytes = reader->layout_bytes;
    return queue_fit(order, model);
}

/* The settings of this process must give the memory that the shards took. */
static gradweir_status check_ledger(const struct order *order, const struct order_member *member)
{
    const struct ledger *ledger = &order->ledger;
    if (ledger->index != member->index || ledger->hash != member->hash)
        return fail(GRADWEIR_ERR_PROTOCOL, "a ledger that is not its log's");
    if (!ledger->mapped)
        return GRADWEIR_OK;
    if (ledger->layout_hash != order->model->hash)
        return fail(GRADWEIR_ERR_MISMATCH, "the layout is not the one that the log names");
    if (ledger->members != order->options.shards || ledger->slots != order->slots_count)
        return fail(GRADWEIR_ERR_MISMATCH,
                    "the running job has %u shards with %u slots, these settings make %u with %u: "
                    "shards, window_max, queue and mode must be as they were",
                    ledger->members, ledger->slots, order->options.shards, order->slots_count);
    const uint32_t theirs = ledger->law.settings.gradient_dtype;
    const uint32_t ours = order->options.law.gradient_dtype;
    if (theirs != ours)
        return fail(GRADWEIR_ERR_MISMATCH,
                    "the running job has gradient_dtype %s, these settings say %s",
                    codec_name(theirs), codec_name(ours));
    return GRADWEIR_OK;
}

static gradweir_status take_record(struct order *order, const struct record *record)
{
    const uint64_t last = order->hashes_from == UINT64_MAX ? record->index - 1 : order->log_read;
    if (record->index != last + 1 ||
        (order->hashes_from != UINT64_MAX && record->previous != order->hashes[last % HASHES]))
        return fail(GRADWEIR_ERR_PROTOCOL, "record %llu does not follow",
                    (unsigned long long)record->index);
    if (order->hashes_from == UINT64_MAX) {
        order->hashes_from = last;
        order->hashes[last % HASHES] = record->previous;
    }
    order->hashes[record->index % HASHES] = record_hash(record);
    order->kept[record->index % KEPT] = *record;
    order->appended_ns[record->index % KEPT] = order->now_ns;
    order->log_read = record->index;
    return GRADWEIR_OK;
}

/* The newest records of the longest log: what the others may lack. */
static gradweir_status take_log(struct order *order, struct sealed_reader reader)
{
    struct message message;
    order->hashes_from = UINT64_MAX;
    order->log_read = 0;
    gradweir_status status = GRADWEIR_OK;
    while (status == GRADWEIR_OK &&
           (status = sealed_next(&reader, order->decoder, &message)) == GRADWEIR_OK)
        if (message.kind == MESSAGE_RECORD)
            status = take_record(order, &message.record);
    if (status != GRADWEIR_ERR_FULL)
        return status;
    if (order->hashes_from == UINT64_MAX) {
        order->hashes_from = order->log_read = order->ledger.index;
        order->hashes[order->ledger.index % HASHES] = order->ledger.hash;
    }
    if (order->log_read != order->ledger.index ||
        order->hashes[order->log_read % HASHES] != order->ledger.hash)
        return fail(GRADWEIR_ERR_PROTOCOL, "the newest record is not the ledger's last");
    return GRADWEIR_OK;
}

static gradweir_status check_prefixes(const struct order *order)
{
    for (uint32_t i = 0; i < order->options.shards; i++) {
        const struct order_member *member = &order->members[i];
        if (!member->sealed || order->plants.shortest_log)
            continue;
        if (member->index < order->hashes_from)
            return fail(GRADWEIR_ERR_LOST,
                        "shard %u has logged %llu records, and the oldest that anybody still has "
                        "is %llu",
                        i, (unsigned long long)member->index,
                        (unsigned long long)order->hashes_from + 1);
        if (member->hash != order->hashes[member->index % HASHES])
            return fail(GRADWEIR_ERR_MISMATCH, "the log of shard %u differs at record %llu", i,
                        (unsigned long long)member->index);
    }
    return GRADWEIR_OK;
}

static void rebuild_workers(struct order *order)
{
    memset(order->workers, 0, sizeof order->workers);
    for (uint32_t verdict = 0; verdict < VERDICTS; verdict++) {
        order->figures.verdicts[verdict] += order->ledger.departed[verdict];
        order->figures.pushes += order->ledger.departed[verdict];
    }
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        const struct ledger_worker *known = &order->ledger.workers[i];
        struct order_worker *worker = &order->workers[i];
        worker->lost_ns = worker->joined_ns = worker->asked_ns = order->now_ns;
        worker->join_at = order->ledger.index;
        worker->asked = worker->granted = known->last_sequence;
        joins_pass(order, i);
        for (uint32_t verdict = 0; verdict < VERDICTS; verdict++) {
            order->figures.verdicts[verdict] += known->verdicts[verdict];
            order->figures.pushes += known->verdicts[verdict];
        }
    }
}

static bool same_name(const struct name *a, const struct name *b)
{
    return a->worker == b->worker && a->incarnation == b->incarnation && a->sequence == b->sequence;
}

/* Adds one member's word; another use of the slot than the newest counts for nothing. */
static void add_landed(struct order *order, uint32_t member, const struct message_landed *landed)
{
    struct order_slot *slot = &order->slots[landed->slot];
    if (landed->slot >= order->slots_count || landed->generation < slot->generation)
        return;
    if (landed->generation > slot->generation)
        *slot = (struct order_slot){
            .generation = landed->generation, .name = landed->name, .not_finite = UINT64_MAX};
    slot->torn |= !same_name(&slot->name, &landed->name);
    judge_add(slot, member, landed);
}

static gradweir_status take_landed(struct order *order)
{
    memset(order->slots, 0, sizeof order->slots);
    for (uint32_t i = 0; i < order->options.shards; i++) {
        struct sealed_reader reader;
        struct message message;
        if (!order->members[i].sealed)
            continue;
        TRY(open_content(order, i, &reader));
        gradweir_status status;
        while ((status = sealed_next(&reader, order->decoder, &message)) == GRADWEIR_OK)
            if (message.kind == MESSAGE_LANDED)
                add_landed(order, i, &message.landed);
        if (status != GRADWEIR_ERR_FULL)
            return status;
    }
    return GRADWEIR_OK;
}

/* A body that is whole everywhere, whose name waits for its verdict: its place is held for it. */
static uint32_t find_whole(const struct order *order, const struct name *name)
{
    uint32_t best = order->slots_count;
    for (uint32_t i = 0; i < order->slots_count; i++) {
        const struct order_slot *slot = &order->slots[i];
        if (slot->state == SLOT_FREE && !slot->torn && same_name(&slot->name, name) &&
            (slot->landed & order->bodies) == order->bodies && slot->landed != 0 &&
            (best == order->slots_count || slot->generation > order->slots[best].generation))
            best = i;
    }
    return best;
}

/* Places of a worker lie in a row behind its last verdict; what comes after a gap is sent again. */
static void hold_places(struct order *order, uint32_t index)
{
    const struct ledger_worker *known = &order->ledger.workers[index];
    struct order_worker *worker = &order->workers[index];
    struct name name = {.worker = index, .incarnation = known->incarnation};
    if (!roster_live(order, index))
        return;
    while (worker->held < known->outstanding_max) {
        name.sequence = worker->granted + 1;
        const uint32_t slot = find_whole(order, &name);
        if (slot == order->slots_count)
            return;
        order->slots[slot].state = SLOT_PLACED;
        order->slots[slot].since_ns = order->now_ns;
        worker->places[name.sequence % OUTSTANDING_MAX] = (uint16_t)slot;
        worker->asked = ++worker->granted;
        worker->held++;
    }
}

static void rebuild_window(struct order *order)
{
    for (uint32_t i = 0; i < law_size(&order->ledger.law); i++) {
        const struct law_entry *entry = law_at(&order->ledger.law, i);
        order->slots[entry->slot] = (struct order_slot){
            .state = SLOT_WINDOW,
            .generation = entry->generation,
            .name = {.worker = entry->worker,
                     .incarnation = order->ledger.workers[entry->worker].incarnation,
                     .sequence = entry->sequence}};
    }
}

/* Everything else closes, under a generation above all that were ever given: whatever is still on
 * its way into such a slot is refused by number, and the slot is free when all have said so. */
static void close_rest(struct order *order)
{
    for (uint32_t i = 0; i < order->slots_count; i++) {
        struct order_slot *slot = &order->slots[i];
        if (slot->state == SLOT_FREE)
            *slot = (struct order_slot){.state = SLOT_CLOSING,
                                        .generation = (uint64_t)order->epoch << 40,
                                        .close_after = order->ledger.index};
    }
}

static gradweir_status rebuild_all(struct order *order)
{
    struct sealed_reader reader;
    const uint32_t best = longest(order);
    TRY(open_content(order, best, &reader));
    TRY(ledger_read(reader.ledger, reader.ledger_bytes, &order->ledger));
    TRY(take_layout(order, &reader));
    TRY(check_ledger(order, &order->members[best]));
    TRY(take_log(order, reader));
    TRY(check_prefixes(order));
    TRY(take_landed(order));
    for (uint32_t i = 0; i < order->options.shards; i++)
        order->logged[i] = order->members[i].index;
    if (!order->ledger.mapped)
        return GRADWEIR_OK;
    members_bodies(order);
    rebuild_workers(order);
    rebuild_window(order);
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        hold_places(order, i);
    close_rest(order);
    order->taken_over = order->ledger.index;
    order->step_clip = order->ledger.law.settings.clip_average;
    order->last_step_ns = order->last_admit_ns = order->now_ns;
    return GRADWEIR_OK;
}

gradweir_status rebuild(struct order *order)
{
    const gradweir_status status = rebuild_all(order);
    sets_all(order);
    order->patience_ns = order->expire_ns = 0;
    return status;
}
