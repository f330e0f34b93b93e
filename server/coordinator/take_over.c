/* A new coordinator: who is there, SEAL, what they hold. Until all members have promised nothing is
 * appended, and no worker hears anything.
 *
 *            all cold
 *   GATHER ------------------------------------> ACT (a new job)
 *     |  all hold a log       all contents here    ^
 *     `----------------> SEAL ---------------------'
 *                         |  ^ after a pause of chance, one epoch higher
 *                         `--'  somebody else has a promise */
#include "server/coordinator/order_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const int64_t MILLISECOND_NS = 1000000;
enum { SEAL_AGAIN_MS = 2000, PAUSE_MIN_MS = 50, PAUSE_MAX_MS = 500 };

void take_over_end(struct order *order, gradweir_status status, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    order_exit(order, status, text);
}

/* A job that runs under nobody is not ours to end. */
bool take_over_ours(const struct order *order)
{
    for (uint32_t i = 0; i < order->options.shards && order->phase != PHASE_ACT; i++)
        if (order->members[i].peer != 0 && !order->members[i].cold)
            return false;
    return true;
}

void take_over_fenced(struct order *order, uint32_t epoch)
{
    take_over_end(order, GRADWEIR_ERR_FENCED,
                  "epoch %u is over: a shard follows another coordinator, in epoch %u",
                  order->epoch, epoch);
}

static void begin(struct order *order)
{
    order->phase = PHASE_ACT;
    order->ledger.epoch = order->epoch;
    for (uint32_t i = 0; i < order->options.shards && order->model; i++)
        if (order->members[i].peer != 0)
            members_tell(order, i);
}

static void send_seal(struct order *order, uint32_t index)
{
    struct message *message = order_send(order, order->members[index].peer, MESSAGE_SEAL);
    message->epoch = order->epoch;
    memcpy(message->seal.instance, order->options.instance, NONCE_BYTES);
}

/* Says it to all that have not answered whole. */
static void seal(struct order *order)
{
    order->phase = PHASE_SEAL;
    order->seal_ns = order->now_ns + SEAL_AGAIN_MS * MILLISECOND_NS;
    for (uint32_t i = 0; i < order->options.shards; i++)
        if (order->members[i].peer != 0 && !order->members[i].sealed)
            send_seal(order, i);
}

static void seal_next(struct order *order)
{
    order->epoch = order->epoch_seen + 1;
    for (uint32_t i = 0; i < order->options.shards; i++)
        order->members[i].promised = order->members[i].sealed = false;
    order_say(order, "a job is running: sealing epoch %u", order->epoch);
    seal(order);
}

/* Somebody else tries too, or reigns. Who waits longer lets the other one finish. */
static void back_off(struct order *order)
{
    const uint64_t pause =
        PAUSE_MIN_MS + random_below(&order->random, PAUSE_MAX_MS - PAUSE_MIN_MS + 1);
    for (uint32_t i = 0; i < order->options.shards; i++)
        order->members[i].promised = order->members[i].sealed = false;
    order_say(order, "epoch %u is refused: a shard has promised epoch %u to another", order->epoch,
              order->epoch_seen);
    order->epoch = 0; /* trying for none */
    order->seal_ns = order->now_ns + (int64_t)pause * MILLISECOND_NS;
}

/* Those without memory among others that have a log. */
static void refuse_cold(struct order *order)
{
    for (uint32_t i = 0; i < order->options.shards; i++) {
        struct order_member *member = &order->members[i];
        if (!member->cold)
            continue;
        char text[TEXT_MAX];
        snprintf(text, sizeof text,
                 "shard %u has no memory of the job that the other shards are in the middle of; "
                 "without a checkpoint the job cannot go on",
                 i);
        order_say(order, "%s", text);
        roster_deny(order, member->peer, GRADWEIR_ERR_LOST, text);
        roster_find(order, member->peer)->state = PEER_NEW;
        member->peer = 0;
        order->here &= ~(UINT64_C(1) << i);
    }
}

static void all_are_here(struct order *order)
{
    uint32_t cold = 0;
    uint64_t longest = 0;
    for (uint32_t i = 0; i < order->options.shards; i++) {
        const struct order_member *member = &order->members[i];
        cold += member->cold;
        longest = !member->cold && member->index > longest ? member->index : longest;
    }
    if (cold == order->options.shards || (cold > 0 && longest == 0)) {
        order->epoch = order->epoch_seen + 1;
        begin(order);
    } else if (cold > 0) {
        refuse_cold(order);
    } else {
        seal_next(order);
    }
}

void take_over_enlisted(struct order *order, uint32_t index)
{
    const uint32_t promise = order->members[index].promise;
    if (promise > order->epoch_seen)
        order->epoch_seen = promise;
    if (order->phase == PHASE_SEAL) {
        if (order->members[index].cold)
            refuse_cold(order);
        else if (order->epoch != 0)
            send_seal(order, index);
        return;
    }
    if (order_members_here(order))
        all_are_here(order);
}

void take_over_sealed(struct order *order, uint32_t index, const struct message *message)
{
    struct order_member *member = &order->members[index];
    const struct message_sealed *sealed = &message->sealed;
    if (order->phase != PHASE_SEAL || order->epoch == 0 || message->epoch < order->epoch)
        return; /* an answer to an earlier try */
    if (message->epoch == order->epoch &&
        memcmp(sealed->instance, order->options.instance, NONCE_BYTES) == 0) {
        member->promised = true;
        member->index = sealed->index;
        member->hash = sealed->hash;
        return;
    }
    if (message->epoch > order->epoch_seen)
        order->epoch_seen = message->epoch;
    back_off(order);
}

static bool all_sealed(const struct order *order)
{
    uint32_t sealed = 0;
    for (uint32_t i = 0; i < order->options.shards; i++)
        sealed += order->members[i].promised && order->members[i].sealed;
    return sealed == order->options.shards || (order->plants.one_seal && sealed > 0);
}

static void take_over(struct order *order)
{
    const gradweir_status status = rebuild(order);
    if (status != GRADWEIR_OK) {
        take_over_end(order, status, "this job cannot be taken over: %s", fail_reason());
        return;
    }
    for (uint32_t i = 0; i < order->options.shards; i++) {
        content_assembler_free(order->members[i].content);
        order->members[i].content = NULL;
        order->members[i].ready = true;
    }
    begin(order);
    if (!order->ledger.mapped) {
        members_map(order);
        return;
    }
    members_catch_up_all(order);
    order_say(order,
              "epoch %u goes on from record %llu, version %llu, with %u workers and %u gradients "
              "under way",
              order->epoch, (unsigned long long)order->ledger.index,
              (unsigned long long)ledger_version(&order->ledger), order->ledger.workers_count,
              places_used(order));
}

void take_over_page(struct order *order, uint32_t index, const struct message *message)
{
    struct order_member *member = &order->members[index];
    if (order->phase != PHASE_SEAL || message->epoch != order->epoch || !member->promised ||
        member->sealed)
        return;
    if (!member->content &&
        content_assembler_new(CONTENT_BYTES_MAX, &member->content) != GRADWEIR_OK)
        return; /* asked again later */
    if (content_add(member->content, &message->page) != GRADWEIR_OK ||
        !content_whole(member->content))
        return;
    member->sealed = true;
    if (all_sealed(order))
        take_over(order);
}

void take_over_tick(struct order *order)
{
    if (order->phase != PHASE_SEAL || order->now_ns < order->seal_ns)
        return;
    if (order->epoch == 0)
        seal_next(order);
    else
        seal(order);
}

int64_t take_over_next(const struct order *order)
{
    return order->phase == PHASE_SEAL ? order->seal_ns : INT64_MAX;
}
