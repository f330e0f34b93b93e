/* The step function: takes one event, lets the parts do what follows, in a fixed order. */
#include "server/coordinator/order_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Half of it is what admissions may fill; what follows one event without asking (a JOIN that
 * replaces a worker with all its places, and the step behind) fits in the other half. */
enum { MILLISECOND_NS = 1000000, RING_MIN = 32 };

static gradweir_status check_options(const struct order_options *options)
{
    TRY(law_settings_check(&options->law));
    if (options->shards == 0 || options->shards > MEMBERS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "shards is %u; 1 to %d", options->shards, MEMBERS_MAX);
    if (options->workers_max == 0 || options->workers_max > WORKERS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "workers_max is %u; 1 to %d", options->workers_max,
                    WORKERS_MAX);
    if (options->queue == 0 || options->window_max < options->law.window ||
        options->window_max > WINDOW_MAX || options->queue > SLOTS_MAX ||
        options->window_max + options->queue > SLOTS_MAX)
        return fail(GRADWEIR_ERR_INVALID,
                    "window_max is %u and queue %u: window <= window_max <= %d, queue >= 1, and at "
                    "most %d together",
                    options->window_max, options->queue, WINDOW_MAX, SLOTS_MAX);
    if (options->sync &&
        (options->queue < options->workers_max || options->window_max < options->workers_max))
        return fail(GRADWEIR_ERR_INVALID,
                    "mode = sync with workers_max %u needs queue and window_max of at least that, "
                    "for a round holds one gradient of every worker; queue is %u, window_max %u",
                    options->workers_max, options->queue, options->window_max);
    if (options->outstanding_max == 0 || options->outstanding_max > OUTSTANDING_MAX)
        return fail(GRADWEIR_ERR_INVALID, "outstanding_max is %u; 1 to %d",
                    options->outstanding_max, OUTSTANDING_MAX);
    if (options->ring < RING_MIN || options->ring > RING_MAX)
        return fail(GRADWEIR_ERR_INVALID, "ring is %u; %d to %d", options->ring, RING_MIN,
                    RING_MAX);
    return GRADWEIR_OK;
}

/* One gradient of every worker: W = S = N is W = S = as many as may come, lowered by the ledger to
 * those that live. */
static void set_sync(struct order_options *options)
{
    options->law.window = options->law.stride = options->window_max;
    options->law.decay = LAW_UNIFORM;
    options->outstanding_max = 1;
}

gradweir_status order_new(const struct order_options *options, struct order **out)
{
    TRY(check_options(options));
    struct order *order = calloc(1, sizeof *order);
    if (!order)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the coordinator");
    order->options = *options;
    if (options->sync)
        set_sync(&order->options);
    order->peers_max = 2 * (options->workers_max + options->shards) + 16;
    order->peers = calloc(order->peers_max, sizeof *order->peers);
    order->status = calloc(1, STATUS_BYTES);
    order->slots_count = options->window_max + options->queue;
    order->swaps = swaps_new();
    if (!order->peers || !order->status || !order->swaps ||
        content_assembler_new(CONTENT_BYTES_MAX, &order->assembler) != GRADWEIR_OK ||
        wire_decoder_new(&order->decoder) != GRADWEIR_OK) {
        order_free(order);
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the coordinator");
    }
    ledger_init(&order->ledger);
    sets_all(order);
    order->patience_ns = order->expire_ns = INT64_MAX;
    random_split(&order->random, options->seed, "pass", 0);
    *out = order;
    return GRADWEIR_OK;
}

void order_free(struct order *order)
{
    if (!order)
        return;
    if (order->assembler)
        content_assembler_free(order->assembler);
    for (uint32_t i = 0; i < MEMBERS_MAX; i++)
        content_assembler_free(order->members[i].content);
    wire_decoder_free(order->decoder);
    if (order->model)
        model_free(order->model);
    sums_free(order->sums);
    free(order->layout);
    free(order->status);
    for (uint32_t i = 0; order->peers && i < order->peers_max; i++)
        ranks_forget(&order->peers[i]);
    free(order->peers);
    free(order->swaps);
    free(order);
}

uint32_t order_actions_max(const struct order_options *options)
{
    const uint32_t slots = options->window_max + options->queue;
    return 64 + RANKS_MAX * (RANKS_MAX + 2) + options->ring * options->shards + 12 * slots +
           24 * (options->workers_max + options->shards);
}

static struct order_action *act(struct order *order, enum order_action_kind kind, uint32_t peer)
{
    ASSERT(order->actions->count < order->actions->max);
    struct order_action *action = &order->actions->items[order->actions->count++];
    memset(action, 0, sizeof *action);
    action->kind = kind;
    action->peer = peer;
    action->message.epoch = order->ledger.epoch;
    action->message.timeline = order->ledger.timeline;
    return action;
}

struct message *order_send(struct order *order, uint32_t peer, uint32_t kind)
{
    struct message *message = &act(order, ORDER_SEND, peer)->message;
    message->kind = kind;
    return message;
}

struct message *order_send_all(struct order *order, uint32_t kind)
{
    struct message *message = &act(order, ORDER_SEND_ALL, 0)->message;
    message->kind = kind;
    return message;
}

void order_content(struct order *order, uint32_t peer, uint32_t content, const void *bytes,
                   size_t count)
{
    struct order_action *action = act(order, ORDER_CONTENT, peer);
    action->message.kind = MESSAGE_WANT;
    action->message.want.content = content;
    action->bytes = bytes;
    action->bytes_count = count;
}

void order_drop(struct order *order, uint32_t peer)
{
    act(order, ORDER_DROP, peer);
}

void order_exit(struct order *order, gradweir_status status, const char *text)
{
    struct message *message = &act(order, ORDER_EXIT, 0)->message;
    message->denied.status = status;
    snprintf(message->denied.text, sizeof message->denied.text, "%s", text);
    order->stopped = true;
}

void order_say(struct order *order, const char *format, ...)
{
    struct message *message = &act(order, ORDER_SAY, 0)->message;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->denied.text, sizeof message->denied.text, format, arguments);
    va_end(arguments);
}

void order_append(struct order *order, struct record *record)
{
    const uint32_t stride = order->ledger.law.settings.stride;
    ledger_seal(&order->ledger, record);
    const gradweir_status status = ledger_apply(&order->ledger, record);
    ASSERT(status == GRADWEIR_OK);
    if (record->kind == RECORD_JOIN)
        sets_worker(order, record->join.worker);
    if (record->kind == RECORD_LEAVE)
        sets_worker(order, record->leave.worker);
    order->hashes[order->ledger.index % HASHES] = order->ledger.hash;
    record_copy(&order->kept[order->ledger.index % KEPT], record);
    order->appended_ns[order->ledger.index % KEPT] = order->now_ns;
    record_copy(&order_send_all(order, MESSAGE_RECORD)->record, record);
    struct order_action *append = act(order, ORDER_APPEND, 0);
    append->message.kind = MESSAGE_RECORD;
    record_copy(&append->message.record, record);
    struct law_entry entry;
    while (ledger_retired(&order->ledger, &entry))
        places_close(order, entry.slot, order->ledger.index);
    if (record->kind != RECORD_MAP && stride != order->ledger.law.settings.stride)
        order_say(order,
                  "the stride is now %u (asked for: %u): what live workers can have under way",
                  order->ledger.law.settings.stride, order->ledger.settings.stride);
}

uint64_t order_watermark(const struct order *order)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < order->options.shards; i++)
        least = order->logged[i] < least ? order->logged[i] : least;
    return least;
}

bool order_members_here(const struct order *order)
{
    return order->here == UINT64_MAX >> (MEMBERS_MAX - order->options.shards);
}

bool order_room(const struct order *order)
{
    return order->ledger.index - order_watermark(order) < order->options.ring / 2;
}

/* Whatever the event makes possible, in a fixed order. */
static void follow(struct order *order)
{
    roster_leases(order);
    joins_retry(order);
    joins_tell(order);
    judge_patience(order);
    judge_all(order);
    rounds_watch(order);
    steps_flush(order);
    judge_receipts(order);
    places_expire(order);
    places_serve(order);
}

void order_step(struct order *order, const struct order_event *event, struct order_actions *actions)
{
    actions->count = 0;
    order->actions = actions;
    order->now_ns = event->now_ns;
    order->inert = false;
    if (order->stopped)
        return;
    switch (event->kind) {
    case ORDER_MESSAGE: inbox_message(order, event); break;
    case ORDER_LOST: roster_lost(order, event->peer); break;
    case ORDER_DRAIN:
        order->drain_ns = order->draining ? order->drain_ns : event->now_ns;
        order->draining = true;
        break;
    case ORDER_TICK: break;
    }
    take_over_tick(order);
    swaps_tick(order);
    if (order->phase == PHASE_ACT && !order->stopped && !order->inert)
        follow(order);
    if (order->draining && !order->stopped && !order->inert)
        steps_drain(order);
    ranks_mirror(order);
}

/* Deadlines. What has passed and could not be acted on must not make the loop spin. */

int64_t order_later(int64_t time_ns, int64_t wait_ns)
{
    return wait_ns < 0 || time_ns > INT64_MAX - wait_ns ? INT64_MAX : time_ns + wait_ns;
}

int64_t order_next(const struct order *order)
{
    int64_t next = steps_flush_at(order);
    if (rounds_next(order) < next)
        next = rounds_next(order);
    if (take_over_next(order) < next)
        next = take_over_next(order);
    if (swaps_next(order) < next)
        next = swaps_next(order);
    const bool waiting = places_waiting(order) > 0;
    const uint32_t workers = order->ledger.workers_count;
    for (uint32_t i = sets_next(order->sets.lost, 0, workers); i < workers;
         i = sets_next(order->sets.lost, i + 1, workers)) {
        const int64_t end = order_later(order->workers[i].lost_ns, order->options.lease_ns);
        next = end < next ? end : next;
    }
    next = order->patience_ns < next ? order->patience_ns : next;
    next = waiting && order->expire_ns < next ? order->expire_ns : next;
    if (order->draining && !order->stopped &&
        order_later(order->now_ns, 50 * MILLISECOND_NS) < next)
        next = order->now_ns + 50 * MILLISECOND_NS;
    return next <= order->now_ns ? order->now_ns + 10 * MILLISECOND_NS : next;
}

const struct ledger *order_ledger(const struct order *order)
{
    return &order->ledger;
}

bool order_plant(struct order *order, const char *name)
{
    const struct {
        const char *name;
        bool *flag;
    } plants[] = {{"admit-partial", &order->plants.admit_partial},
                  {"early-receipt", &order->plants.early_receipt},
                  {"no-dedupe", &order->plants.no_dedupe},
                  {"refusal-unlogged", &order->plants.refusal_unlogged},
                  {"zombie-incarnation", &order->plants.zombie_incarnation},
                  {"generation-reuse", &order->plants.generation_reuse},
                  {"flush-off", &order->plants.flush_off},
                  {"lease-off", &order->plants.lease_off},
                  {"retire-early", &order->plants.retire_early},
                  {"one-seal-enough", &order->plants.one_seal},
                  {"shortest-log", &order->plants.shortest_log},
                  {"owed-not-resent", &order->plants.owed_lost},
                  {"joined-early", &order->plants.joined_early},
                  {"generations-anew", &order->plants.generations_anew},
                  {"weight-twice", &order->plants.weight_twice},
                  {"swap-reopened", &order->plants.swap_reopened}};
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++)
        if (strcmp(plants[i].name, name) == 0)
            return *plants[i].flag = true;
    return false;
}
