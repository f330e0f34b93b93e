/* Sorts what comes in: who may say what, and who hears it. Nothing in a message is trusted. */
#include "server/coordinator/order_internal.h"

#include <stdio.h>
#include <string.h>

static void logged_came(struct order *order, uint32_t member, const struct message_logged *logged)
{
    if (logged->index > order->ledger.index || logged->index < order->logged[member]) {
        order->figures.foreign++;
        return;
    }
    if (logged->index > 0 && logged->index >= order->hashes_from &&
        logged->index + HASHES > order->ledger.index &&
        order->hashes[logged->index % HASHES] != logged->hash) {
        if (!order->alarm)
            order_say(order,
                      "ALARM: shard %u has another log at index %llu: nothing is admitted "
                      "any more",
                      member, (unsigned long long)logged->index);
        order->alarm = true;
        return;
    }
    const uint64_t before = order_watermark(order);
    order->logged[member] = logged->index;
    order->inert = order_watermark(order) == before;
}

static void pulse_came(const struct order *order, struct order_member *member,
                       const struct message_pulse *pulse)
{
    if (pulse->waiting != member->pulse.waiting)
        member->pinned_ns = order->now_ns;
    member->pulse = *pulse;
}

/* A worker's words by way of a shard, which knows by its session who said them. */
static void described_by(struct order *order, uint32_t member,
                         const struct message_describe *describe)
{
    const struct name *name = &describe->name;
    const struct ledger_worker *worker = &order->ledger.workers[name->worker];
    if (name->worker >= order->ledger.workers_count || worker->state != WORKER_LIVE ||
        worker->incarnation != name->incarnation || order->workers[name->worker].ranks > 0) {
        order->figures.foreign++;
        return;
    }
    const uint32_t slot = places_find(order, name);
    if (slot < order->slots_count)
        order->slots[slot].by = member + 1;
    judge_describe(order, 0, describe);
}

static void shard_message(struct order *order, uint32_t member, const struct message *message)
{
    order->members[member].seen_ns = order->now_ns;
    switch (message->kind) {
    case MESSAGE_LOGGED: logged_came(order, member, &message->logged); break;
    case MESSAGE_DESCRIBE: described_by(order, member, &message->describe); break;
    case MESSAGE_LANDED: judge_landed(order, member, &message->landed); break;
    case MESSAGE_FREED: places_freed(order, member, &message->freed); break;
    case MESSAGE_STEPPED: steps_stepped(order, member, message->stepped.version); break;
    case MESSAGE_SUMS: steps_sums(order, member, &message->sums); break;
    case MESSAGE_PULSE:
        pulse_came(order, &order->members[member], &message->pulse);
        order->inert = true;
        break;
    default: order->figures.foreign++; break;
    }
}

static const struct name *name_of(const struct message *message)
{
    switch (message->kind) {
    case MESSAGE_ASK: return &message->ask.name;
    case MESSAGE_DESCRIBE: return &message->describe.name;
    case MESSAGE_BYE: return &message->bye.name;
    case MESSAGE_REPORT: return &message->report.name;
    default: return NULL;
    }
}

/* As if its name were the newest incarnation's. */
static const struct message *as_newest(const struct order *order, const struct peer *peer,
                                       const struct message *message, struct message *copy)
{
    if (!order->plants.zombie_incarnation || !name_of(message))
        return message;
    *copy = *message;
    copy->ask.name.incarnation = order->ledger.workers[peer->index].incarnation;
    copy->ask.name.worker = peer->index; /* name comes first in all of them */
    return copy;
}

static void worker_message(struct order *order, struct peer *peer, const struct message *said)
{
    struct message copy;
    const struct message *message = as_newest(order, peer, said, &copy);
    const struct name *name = name_of(message);
    const struct ledger_worker *worker = &order->ledger.workers[peer->index];
    if (!name || name->worker != peer->index || name->incarnation != worker->incarnation ||
        worker->state != WORKER_LIVE ||
        (order->workers[peer->index].ranks > 0 && !ranks_own(order, peer))) {
        order->figures.foreign++;
        return;
    }
    if (order->workers[peer->index].ranks > 0 && order->workers[peer->index].peer == 0 &&
        message->kind != MESSAGE_BYE)
        return; /* one of its ranks is missing: all say it again once it is back */
    switch (message->kind) {
    case MESSAGE_ASK: places_ask(order, name, false); break;
    case MESSAGE_DESCRIBE: judge_describe(order, peer->rank.rank, &message->describe); break;
    case MESSAGE_BYE:
        order_send(order, peer->number, MESSAGE_BYE)->bye.name = *name;
        if (ranks_bye(order, peer) && order_room(order)) /* else its lease will end */
            joins_leave(order, peer->index, LEAVE_BYE);
        break;
    case MESSAGE_REPORT: reports_came(order, peer->index, &message->report); break;
    default: break;
    }
}

static void want_came(struct order *order, uint32_t peer, uint32_t content)
{
    size_t count = 0;
    switch (content) {
    case CONTENT_LAYOUT:
        if (order->layout)
            order_content(order, peer, content, order->layout, order->layout_bytes);
        else
            roster_deny(order, peer, GRADWEIR_ERR_AGAIN, "no worker has told the layout yet");
        break;
    case CONTENT_STATUS:
        count = order_status(order, order->now_ns, order->status, STATUS_BYTES);
        order_content(order, peer, content, order->status, count);
        break;
    case CONTENT_SETTINGS:
        if (ledger_settings_write(
                order->ledger.mapped ? &order->ledger.law.settings : &order->options.law,
                &order->options.optimizer, order->status, STATUS_BYTES) == GRADWEIR_OK)
            order_content(order, peer, content, order->status, strlen(order->status));
        break;
    default: order->figures.foreign++; break;
    }
}

/* Whom a connection says it is, held against whose key it has proved. */
static void introduce(struct order *order, struct peer *peer, const struct order_event *event)
{
    struct message message = *event->message;
    if (!proven(order, event->peer, event->identity, &message))
        return;
    if (message.kind == MESSAGE_JOIN)
        joins_came(order, peer, &message.join);
    else if (message.kind == MESSAGE_SWAP)
        swaps_came(order, peer->number, &message.swap);
    else
        members_enlist(order, peer, &message.enlist);
}

static void page_came(struct order *order, struct peer *peer, const struct message *message)
{
    if (peer->state == PEER_SHARD && message->page.content == CONTENT_SEALED)
        take_over_page(order, peer->index, message);
    else if (message->page.content == CONTENT_PARTS)
        ranks_page(order, peer, &message->page);
    else
        roster_page(order, peer, &message->page);
}

/* Messages that whoever connects may send, before it is anybody. */
static bool anyone(struct order *order, struct peer *peer, const struct order_event *event)
{
    const struct message *message = event->message;
    switch (message->kind) {
    case MESSAGE_JOIN:
    case MESSAGE_SWAP:
    case MESSAGE_ENLIST: introduce(order, peer, event); return true;
    case MESSAGE_RANK: ranks_came(order, peer, &message->rank); return true;
    case MESSAGE_WANT: want_came(order, peer->number, message->want.content); return true;
    case MESSAGE_PAGE: page_came(order, peer, message); return true;
    case MESSAGE_TUNE_ASK: tune_came(order, peer->number, &message->tune_ask); return true;
    default: return false;
    }
}

void inbox_message(struct order *order, const struct order_event *event)
{
    const uint32_t number = event->peer;
    const struct message *message = event->message;
    struct peer *peer = roster_take(order, number);
    if (!peer) {
        roster_deny(order, number, GRADWEIR_ERR_FULL, "too many connections");
        order_drop(order, number);
        return;
    }
    if (anyone(order, peer, event))
        return;
    if (order->phase != PHASE_ACT) {
        if (peer->state == PEER_SHARD && message->kind == MESSAGE_SEALED)
            take_over_sealed(order, peer->index, message);
        else
            order->figures.foreign++;
        return;
    }
    if (peer->state == PEER_SHARD && message->epoch > order->ledger.epoch) {
        take_over_fenced(order, message->epoch);
        return;
    }
    if (message->epoch != order->ledger.epoch || message->timeline != order->ledger.timeline) {
        order->figures.foreign++;
        return;
    }
    if (peer->state == PEER_SHARD && message->kind == MESSAGE_READY)
        members_ready(order, peer, &message->ready);
    else if (peer->state == PEER_SHARD)
        shard_message(order, peer->index, message);
    else if (peer->state == PEER_WORKER) {
        worker_message(order, peer, message);
    } else {
        order->figures.foreign++;
        if (name_of(message) && peer->state == PEER_NEW)
            order_send(order, number, MESSAGE_REJOIN);
    }
}
