/* One loop: every worker pushes its next gradient as soon as it has a place, every shard lands it,
 * logs, steps and frees what it is told. The time of
 * this script is counted with the core's: it is the smaller part. */
#include "tests/bench/records.h"

#include "common/clock.h"
#include "common/model.h"
#include "common/wire.h"
#include "server/coordinator/order.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHARD_PEER = 1, WORKER_PEER = 1 + MEMBERS_MAX, LAYOUT_BYTES = 4096 };

/* What a simulated worker has been given, and whether its push has no verdict yet. */
struct place {
    bool here, busy;
    struct message_place place;
};

struct closing {
    uint32_t slot;
    uint64_t generation;
};

struct records {
    const struct records_options *options;
    struct order_options order_options;
    struct order *order;
    struct order_actions actions;
    struct model *model;
    struct place *places; /* by worker */
    uint64_t index, hash; /* of the newest record that the shards were sent */
    uint64_t version;     /* of the newest STEP */
    bool stepped;
    struct closing *closing; /* said by CLOSE, not answered yet */
    uint32_t closing_count, closing_max;
    struct message layout; /* what WANT is answered with */
    uint8_t layout_bytes[LAYOUT_BYTES];
    bool wanted;
    int64_t now_ns;
    uint64_t events;
    struct message message; /* what is being said; cleared by its head only, for it is large */
};

static void hear_all(struct records *records, const struct message *message)
{
    if (message->kind == MESSAGE_RECORD) {
        records->index = message->record.index;
        if (message->record.kind == RECORD_STEP || message->record.kind == RECORD_FIRST) {
            records->version =
                message->record.kind == RECORD_STEP ? message->record.step.version : 0;
            records->stepped = true;
        }
    } else if (message->kind == MESSAGE_CLOSE) {
        ASSERT(records->closing_count < records->closing_max);
        records->closing[records->closing_count++] =
            (struct closing){.slot = message->close.slot, .generation = message->close.generation};
    }
}

static void place_given(struct records *records, const struct message_place *place)
{
    records->places[place->name.worker] = (struct place){.here = true, .place = *place};
}

static void hear_one(struct records *records, uint32_t peer, const struct message *message)
{
    const struct message_receipt *receipt = &message->receipt;
    if (message->kind == MESSAGE_RECEIPT)
        records->places[receipt->name.worker].busy = false;
    if (message->kind == MESSAGE_WANT && peer >= WORKER_PEER)
        records->wanted = true;
    if (message->kind == MESSAGE_PLACE)
        place_given(records, &message->place);
    if (message->kind == MESSAGE_RECEIPT && receipt->next_sequence)
        place_given(records, &(struct message_place){.name = {.worker = receipt->name.worker,
                                                              .incarnation = 1,
                                                              .sequence = receipt->next_sequence},
                                                     .slot = receipt->next_slot,
                                                     .generation = receipt->next_generation});
}

static void say(struct records *records, uint32_t peer, const struct message *message)
{
    records->now_ns += 100;
    order_step(records->order,
               &(struct order_event){.kind = message ? ORDER_MESSAGE : ORDER_TICK,
                                     .now_ns = records->now_ns,
                                     .peer = peer,
                                     .message = message},
               &records->actions);
    records->events++;
    for (uint32_t i = 0; i < records->actions.count; i++) {
        const struct order_action *action = &records->actions.items[i];
        if (action->kind == ORDER_SEND_ALL)
            hear_all(records, &action->message);
        else if (action->kind == ORDER_SEND)
            hear_one(records, action->peer, &action->message);
    }
    records->hash = order_ledger(records->order)->hash;
}

static struct message *message_of(struct records *records, enum message_kind kind)
{
    records->message.kind = kind;
    records->message.epoch = records->message.timeline = 1;
    return &records->message;
}

/* Every shard says that its log is where the coordinator's is, and that it has stepped. */
static void shards_log(struct records *records)
{
    struct message *logged = message_of(records, MESSAGE_LOGGED);
    logged->logged = (struct message_logged){.index = records->index, .hash = records->hash};
    for (uint32_t i = 0; i < records->options->shards; i++)
        say(records, SHARD_PEER + i, logged);
    struct message *stepped = message_of(records, MESSAGE_STEPPED);
    stepped->stepped.version = records->version;
    for (uint32_t i = 0; records->stepped && i < records->options->shards; i++)
        say(records, SHARD_PEER + i, stepped);
    records->stepped = false;
}

static void shards_free(struct records *records)
{
    const uint32_t count = records->closing_count;
    for (uint32_t i = 0; i < records->options->shards; i++)
        for (uint32_t k = 0; k < count; k++) {
            struct message *freed = message_of(records, MESSAGE_FREED);
            freed->freed = (struct message_freed){.slot = records->closing[k].slot,
                                                  .generation = records->closing[k].generation};
            say(records, SHARD_PEER + i, freed);
        }
    records->closing_count -= count;
    memmove(records->closing, records->closing + count,
            records->closing_count * sizeof *records->closing);
}

static void push(struct records *records, uint32_t worker, uint32_t purpose)
{
    const struct message_place place = records->places[worker].place;
    const uint64_t version = ledger_version(order_ledger(records->order));
    records->places[worker] = (struct place){.busy = true};
    struct message *describe = message_of(records, MESSAGE_DESCRIBE);
    describe->describe = (struct message_describe){.name = place.name,
                                                   .slot = place.slot,
                                                   .generation = place.generation,
                                                   .basis = version,
                                                   .samples = 64,
                                                   .norm = 1,
                                                   .purpose = purpose,
                                                   .layout_hash = records->model->hash,
                                                   .digest = place.name.sequence};
    say(records, WORKER_PEER + worker, describe);
    struct message *landed = message_of(records, MESSAGE_LANDED);
    landed->landed = (struct message_landed){.slot = place.slot,
                                             .generation = place.generation,
                                             .name = place.name,
                                             .digest = place.name.sequence,
                                             .intact = 1,
                                             .not_finite = UINT64_MAX,
                                             .magnitude = 1,
                                             .sum_squares = 1.0 / records->options->shards};
    for (uint32_t i = 0; i < records->options->shards; i++)
        say(records, SHARD_PEER + i, landed);
}

static void ask(struct records *records, uint32_t worker, uint64_t sequence)
{
    struct message *message = message_of(records, MESSAGE_ASK);
    message->ask.name = (struct name){.worker = worker, .incarnation = 1, .sequence = sequence};
    say(records, WORKER_PEER + worker, message);
}

static void join(struct records *records, uint32_t worker)
{
    struct message *message = message_of(records, MESSAGE_JOIN);
    message->join = (struct message_join){.protocol_oldest = PROTOCOL_OLDEST,
                                          .protocol_newest = PROTOCOL_VERSION,
                                          .role = ROLE_WORKER,
                                          .layout_hash = records->model->hash,
                                          .outstanding_max = 1};
    memcpy(message->join.nonce, &worker, sizeof worker);
    message->join.nonce[NONCE_BYTES - 1] = 1;
    say(records, WORKER_PEER + worker, message);
    shards_log(records);
}

static void enlist(struct records *records)
{
    for (uint32_t i = 0; i < records->options->shards; i++) {
        struct message *message = message_of(records, MESSAGE_ENLIST);
        message->enlist = (struct message_enlist){.protocol_oldest = PROTOCOL_SERVERS,
                                                  .protocol_newest = PROTOCOL_SERVERS,
                                                  .shard = i,
                                                  .address = "127.0.0.1:1",
                                                  .cold = 1};
        message->enlist.instance[0] = (uint8_t)(i + 1);
        say(records, SHARD_PEER + i, message);
    }
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* All that happens before the first gradient: members, layout, joins, the first parameters. */
static gradweir_status start(struct records *records)
{
    const uint32_t shards = records->options->shards;
    enlist(records);
    join(records, 0);
    if (!records->wanted)
        return fail(GRADWEIR_ERR_STATE, "the coordinator did not ask for the layout");
    say(records, WORKER_PEER, &records->layout);
    for (uint32_t i = 0; i < shards; i++) {
        struct message *ready = message_of(records, MESSAGE_READY);
        ready->ready = (struct message_ready){.shard = i, .layout_hash = records->model->hash};
        say(records, SHARD_PEER + i, ready);
    }
    shards_log(records);
    for (uint32_t i = 1; i < records->options->workers; i++)
        join(records, i);
    ask(records, 0, 1);
    if (!records->places[0].here)
        return fail(GRADWEIR_ERR_STATE, "the coordinator gave no place for the first parameters");
    push(records, 0, PURPOSE_FIRST);
    shards_log(records);
    shards_free(records);
    for (uint32_t i = 0; i < records->options->workers; i++)
        if (!records->places[i].here)
            ask(records, i, i == 0 ? 2 : 1);
    return GRADWEIR_OK;
}

/* Whoever has a place pushes; then the shards log, step and free, as their loops run dry. */
static gradweir_status turn(struct records *records)
{
    const uint64_t before = order_ledger(records->order)->index;
    uint32_t batch = 0;
    for (uint32_t i = 0; i < records->options->workers; i++) {
        if (!records->places[i].here)
            continue;
        push(records, i, PURPOSE_GRADIENT);
        if (records->options->batch && ++batch % records->options->batch == 0) {
            shards_log(records);
            shards_free(records);
        }
    }
    shards_log(records);
    shards_free(records);
    for (uint32_t i = 0; i < records->options->workers; i++) /* the receipt brought no place */
        if (!records->places[i].here && !records->places[i].busy)
            ask(records, i, order_ledger(records->order)->workers[i].last_sequence + 1);
    if (order_ledger(records->order)->index == before)
        return fail(GRADWEIR_ERR_STATE, "the coordinator has decided nothing for a whole turn");
    return GRADWEIR_OK;
}

static gradweir_status make(struct records *records)
{
    const struct records_options *options = records->options;
    const struct model_tensor tensor = {.name = "all", .dimensions = 1, .shape = {1u << 24}};
    records->order_options = (struct order_options){.seed = 1,
                                                    .shards = options->shards,
                                                    .workers_max = options->workers,
                                                    .queue = options->workers + 8,
                                                    .window_max = options->window,
                                                    .outstanding_max = 1,
                                                    .parameter_slots = 4,
                                                    .chunk_bytes = 1 << 20,
                                                    .flush_after_ns = -1,
                                                    .place_patience_ns = INT64_C(10000000000),
                                                    .push_patience_ns = INT64_C(30000000000),
                                                    .lease_ns = INT64_C(2000000000),
                                                    .shard_patience_ns = INT64_C(2000000000),
                                                    .ring = RING_MAX,
                                                    .law = law_classic(),
                                                    .optimizer = {.epsilon = 1e-8}};
    records->order_options.law.window = options->window;
    records->order_options.law.stride = options->stride;
    records->now_ns = 1000000000;
    TRY(order_new(&records->order_options, &records->order));
    TRY(model_new(1, &records->model));
    TRY(model_add(records->model, &tensor));
    TRY(model_seal(records->model));
    const size_t bytes = model_encoded_bytes(records->model);
    if (bytes > LAYOUT_BYTES)
        return fail(GRADWEIR_ERR_FULL, "the layout takes %zu bytes", bytes);
    TRY(model_encode(records->model, records->layout_bytes, LAYOUT_BYTES));
    records->layout = (struct message){.kind = MESSAGE_PAGE, .epoch = 1, .timeline = 1};
    content_page(CONTENT_LAYOUT, records->layout_bytes, bytes, 0, &records->layout.page);
    records->actions.max = order_actions_max(&records->order_options);
    records->actions.items = calloc(records->actions.max, sizeof *records->actions.items);
    records->places = calloc(options->workers, sizeof *records->places);
    records->closing_max = SLOTS_MAX;
    records->closing = calloc(records->closing_max, sizeof *records->closing);
    if (!records->actions.items || !records->places || !records->closing)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %u workers", options->workers);
    return GRADWEIR_OK;
}

static gradweir_status measure(struct records *records, struct records_result *result)
{
    const struct ledger *ledger = order_ledger(records->order);
    for (int i = 0; i < 3; i++)
        TRY(turn(records));
    const uint64_t index = ledger->index, events = records->events, began_ns = clock_now_ns();
    struct order_figures figures;
    order_figures(records->order, &figures);
    const uint64_t gradients = figures.verdicts[VERDICT_ADMITTED];
    const uint64_t began_cpu_ns = thread_cpu_ns();
    do
        TRY(turn(records));
    while ((double)(thread_cpu_ns() - began_cpu_ns) * 1e-9 < records->options->seconds);
    const uint64_t cpu_ns = thread_cpu_ns() - began_cpu_ns;
    order_figures(records->order, &figures);
    *result = (struct records_result){.records = ledger->index - index,
                                      .gradients = figures.verdicts[VERDICT_ADMITTED] - gradients,
                                      .events = records->events - events,
                                      .seconds = (double)(clock_now_ns() - began_ns) * 1e-9,
                                      .cpu_seconds = (double)cpu_ns * 1e-9};
    result->records_per_second = (double)result->records / result->cpu_seconds;
    result->ns_per_record = (double)cpu_ns / (double)result->records;
    result->ns_per_event = (double)cpu_ns / (double)result->events;
    return GRADWEIR_OK;
}

gradweir_status records_run(const struct records_options *options, struct records_result *result)
{
    struct records records = {.options = options};
    gradweir_status status = make(&records);
    if (status == GRADWEIR_OK)
        status = start(&records);
    if (status == GRADWEIR_OK)
        status = measure(&records, result);
    order_free(records.order);
    if (records.model)
        model_free(records.model);
    free(records.actions.items);
    free(records.places);
    free(records.closing);
    return status;
}
