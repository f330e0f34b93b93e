/* Slots: who has room. A place is room, never order; every live worker without one has one reserved
 * before anyone gets a second. */
#include "server/coordinator/order_internal.h"

#include <string.h>

uint32_t places_find(const struct order *order, const struct name *name)
{
    const uint32_t i =
        order->workers[name->worker].places[(uint32_t)(name->sequence % OUTSTANDING_MAX)];
    const struct order_slot *slot = &order->slots[i];
    const bool found = slot->state == SLOT_PLACED && slot->name.worker == name->worker &&
                       slot->name.incarnation == name->incarnation &&
                       slot->name.sequence == name->sequence;
    return found ? i : order->slots_count;
}

uint32_t places_used(const struct order *order)
{
    return order->sets.placed_count;
}

/* How many places could be given now. */
static uint32_t room(const struct order *order)
{
    const uint32_t free = order->sets.free_count, used = places_used(order);
    const uint32_t rest = order->options.queue > used ? order->options.queue - used : 0;
    return free < rest ? free : rest;
}

static uint32_t reserved_for_others(const struct order *order, uint32_t worker)
{
    const bool itself = roster_live(order, worker) && order->workers[worker].held == 0;
    return order->sets.placeless_count - itself;
}

/* Until the first parameters are there, places are for nothing else; and where gradients are
 * smaller than these, a shard has room for one body of them. */
static bool room_for_first(const struct order *order)
{
    if (order->ledger.first || order->options.law.gradient_dtype == ARITHMETIC_F32)
        return true;
    for (uint32_t i = 0; i < order->slots_count; i++)
        if (order->slots[i].state != SLOT_FREE)
            return false;
    return true;
}

static bool may_have(const struct order *order, uint32_t worker)
{
    const struct order_worker *w = &order->workers[worker];
    if (!room_for_first(order))
        return false;
    if (order->draining || !roster_live(order, worker) || w->peer == 0 ||
        w->held >= order->ledger.workers[worker].outstanding_max)
        return false;
    const uint32_t reserved = w->held == 0 ? 0 : reserved_for_others(order, worker);
    return room(order) > reserved;
}

bool places_waits(const struct order *order, uint32_t worker)
{
    return roster_live(order, worker) &&
           order->workers[worker].granted < order->workers[worker].asked;
}

uint32_t places_waiting(const struct order *order)
{
    return order->sets.waiting_count;
}

/* An unused place may be taken back then, at the earliest. */
static void expire_at(struct order *order, const struct order_slot *slot)
{
    const int64_t due = order_later(slot->since_ns, order->options.place_patience_ns);
    order->expire_ns = due < order->expire_ns ? due : order->expire_ns;
}

/* Gives the worker a slot for its next sequence. */
static uint32_t grant(struct order *order, uint32_t worker)
{
    struct order_worker *w = &order->workers[worker];
    const uint32_t index = sets_next(order->sets.free, 0, order->slots_count);
    ASSERT(index < order->slots_count);
    struct order_slot *slot = &order->slots[index];
    const uint64_t last = slot->generation;
    memset(slot, 0, sizeof *slot);
    slot->state = SLOT_PLACED;
    slot->generation = (uint64_t)order->ledger.epoch << 40 | ++order->generations;
    if (order->plants.generations_anew) /* every coordinator counts from 1 */
        slot->generation = order->generations;
    if (order->plants.generation_reuse && last != 0)
        slot->generation = last;
    slot->name = (struct name){.worker = worker,
                               .incarnation = order->ledger.workers[worker].incarnation,
                               .sequence = ++w->granted};
    slot->since_ns = order->now_ns;
    slot->not_finite = UINT64_MAX;
    w->held++;
    w->ticket = ++order->tickets; /* back to the end of the line */
    if (w->asked < w->granted)
        w->asked = w->granted;
    w->places[slot->name.sequence % OUTSTANDING_MAX] = (uint16_t)index;
    sets_slot(order, index);
    sets_worker(order, worker);
    expire_at(order, slot);
    const uint32_t used = places_used(order);
    if (used > order->figures.queue_peak)
        order->figures.queue_peak = used;
    return index;
}

static void say_place(struct order *order, uint32_t index)
{
    const struct order_slot *slot = &order->slots[index];
    const uint32_t peer = order->workers[slot->name.worker].peer;
    if (peer == 0)
        return;
    order_send(order, peer, MESSAGE_PLACE)->place =
        (struct message_place){.name = slot->name, .slot = index, .generation = slot->generation};
}

static void say_full(struct order *order, const struct name *name)
{
    struct message *message = order_send(order, order->workers[name->worker].peer, MESSAGE_RECEIPT);
    message->receipt = (struct message_receipt){.name = *name,
                                                .verdict = VERDICT_QUEUE_FULL,
                                                .version = ledger_version(&order->ledger),
                                                .durable = order->ledger.durable,
                                                .whole = order->whole};
    order->figures.verdicts[VERDICT_QUEUE_FULL]++;
}

/* Asked before: the same answer. */
static void ask_again(struct order *order, const struct name *name)
{
    const struct ledger_receipt *receipt = ledger_receipt(&order->ledger, name);
    const uint32_t slot = places_find(order, name);
    order->figures.duplicates++;
    if (order->plants.no_dedupe)
        return;
    if (slot < order->slots_count)
        say_place(order, slot);
    else if (receipt && receipt->index <= order_watermark(order))
        judge_answer(order, receipt, name);
}

void places_ask(struct order *order, const struct name *name, bool had_one)
{
    struct order_worker *worker = &order->workers[name->worker];
    if (!roster_live(order, name->worker) || name->sequence > worker->asked + 1 ||
        name->sequence == 0) {
        order->figures.foreign++;
        return;
    }
    if (name->sequence <= worker->granted) {
        ask_again(order, name);
        return;
    }
    if (name->sequence <= worker->asked || order->draining)
        return; /* it waits already */
    if (worker->asked - order->ledger.workers[name->worker].last_sequence >= OUTSTANDING_MAX) {
        order->figures.foreign++;
        return;
    }
    /* With overflow = reject only groups wait, and who has lost a place: the number that had it is
     * kept until there is another. Nobody is turned away for them. */
    const bool behind = !order->options.overflow_reject && places_waiting(order) > 0;
    if (!may_have(order, name->worker) || behind) {
        order->figures.waits++;
        if (order->options.overflow_reject && worker->ranks == 0 && !had_one) {
            say_full(order, name);
            return;
        }
    }
    if (!places_waits(order, name->worker)) {
        worker->ticket = ++order->tickets;
        worker->asked_ns = order->now_ns;
    }
    worker->asked = name->sequence;
    sets_worker(order, name->worker);
}

void places_serve(struct order *order)
{
    const uint32_t count = order->ledger.workers_count;
    while (order->sets.waiting_count > 0 && room(order) > 0) {
        uint32_t first = WORKERS_MAX;
        for (uint32_t i = sets_next(order->sets.waiting, 0, count); i < count;
             i = sets_next(order->sets.waiting, i + 1, count))
            if (may_have(order, i) &&
                (first == WORKERS_MAX || order->workers[i].ticket < order->workers[first].ticket))
                first = i;
        if (first == WORKERS_MAX)
            return;
        say_place(order, grant(order, first));
    }
}

bool places_next(struct order *order, uint32_t worker, struct message_receipt *receipt)
{
    const struct order_worker *w = &order->workers[worker];
    places_serve(order);
    if (w->granted != w->asked || !may_have(order, worker))
        return false;
    const bool plenty = 2 * room(order) > order->options.queue;
    for (uint32_t i = 0; i < OUTSTANDING_MAX && !plenty; i++) {
        const struct order_slot *slot = &order->slots[w->places[i]];
        if (slot->state == SLOT_PLACED && slot->name.worker == worker && !slot->described)
            return false; /* one unused place is enough, unless most of the room is free */
    }
    const uint32_t index = grant(order, worker);
    receipt->next_sequence = order->slots[index].name.sequence;
    receipt->next_slot = index;
    receipt->next_generation = order->slots[index].generation;
    return true;
}

/* Only a worker's newest place expires, so that its places stay in a row. */
void places_expire(struct order *order)
{
    if (order->now_ns < order->expire_ns || places_waiting(order) == 0)
        return;
    order->expire_ns = INT64_MAX;
    for (uint32_t i = sets_next(order->sets.placed, 0, order->slots_count); i < order->slots_count;
         i = sets_next(order->sets.placed, i + 1, order->slots_count)) {
        const struct order_slot *slot = &order->slots[i];
        struct order_worker *worker = &order->workers[slot->name.worker];
        if (slot->described)
            continue;
        if (places_waiting(order) == 0 || slot->name.sequence != worker->granted ||
            order->now_ns - slot->since_ns < order->options.place_patience_ns) {
            expire_at(order, slot);
            continue;
        }
        worker->granted--;
        worker->asked = worker->granted;
        sets_worker(order, slot->name.worker);
        places_close(order, i, order->ledger.index);
    }
}

void places_close(struct order *order, uint32_t index, uint64_t after)
{
    struct order_slot *slot = &order->slots[index];
    ASSERT(slot->state == SLOT_PLACED || slot->state == SLOT_WINDOW);
    if (slot->state == SLOT_PLACED)
        order->workers[slot->name.worker].held--;
    slot->state = order->plants.retire_early ? SLOT_FREE : SLOT_CLOSING;
    slot->freed = 0;
    slot->close_after = after;
    sets_slot(order, index);
    sets_worker(order, slot->name.worker);
    order_send_all(order, MESSAGE_CLOSE)->close =
        (struct message_close){.slot = index, .generation = slot->generation, .after = after};
}

void places_freed(struct order *order, uint32_t member, const struct message_freed *freed)
{
    const uint64_t all =
        order->options.shards == 64 ? UINT64_MAX : (UINT64_C(1) << order->options.shards) - 1;
    if (freed->slot >= order->slots_count) {
        order->figures.foreign++;
        return;
    }
    struct order_slot *slot = &order->slots[freed->slot];
    if (slot->state != SLOT_CLOSING || slot->generation != freed->generation)
        return;
    slot->freed |= UINT64_C(1) << member;
    order->inert = slot->freed != all;
    if (slot->freed != all)
        return;
    slot->state = SLOT_FREE;
    sets_slot(order, freed->slot);
}
