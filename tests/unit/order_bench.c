#include "tests/unit/order_bench.h"

#include "common/wire.h"

#include <criterion/criterion.h>
#include <string.h>

static const int64_t SECOND = 1000000000;

void bench_init(struct bench *bench)
{
    memset(bench, 0, sizeof *bench);
    bench->options = (struct order_options){.job = 9,
                                            .seed = 1,
                                            .shards = 2,
                                            .workers_max = 8,
                                            .queue = 8,
                                            .window_max = 8,
                                            .outstanding_max = 2,
                                            .parameter_slots = 4,
                                            .chunk_bytes = 1 << 20,
                                            .flush_after_ns = -1,
                                            .place_patience_ns = 10 * SECOND,
                                            .push_patience_ns = 30 * SECOND,
                                            .lease_ns = 2 * SECOND,
                                            .shard_patience_ns = 2 * SECOND,
                                            .ring = 64,
                                            .law = law_classic(),
                                            .optimizer = {.epsilon = 1e-8}};
    bench->now_ns = SECOND;
    struct model_tensor tensor = {.name = "w", .dimensions = 1, .shape = {1000}};
    cr_assert_eq(model_new(1, &bench->model), GRADWEIR_OK);
    cr_assert_eq(model_add(bench->model, &tensor), GRADWEIR_OK);
    cr_assert_eq(model_seal(bench->model), GRADWEIR_OK);
    bench->layout_bytes = model_encoded_bytes(bench->model);
    cr_assert_eq(model_encode(bench->model, bench->layout, sizeof bench->layout), GRADWEIR_OK);
}

static void run(struct bench *bench, const struct order_event *event)
{
    order_step(bench->order, event, &bench->actions);
    cr_assert(order_sound(bench->order));
    for (uint32_t i = 0; i < bench->actions.count; i++) {
        const struct order_action *action = &bench->actions.items[i];
        if (action->kind == ORDER_APPEND) {
            bench->log[action->message.record.index % BENCH_LOG] = action->message.record;
        }
    }
}

void bench_say(struct bench *bench, uint32_t peer, const struct message *message)
{
    struct message copy = *message;
    copy.epoch = bench->epoch ? bench->epoch : 1;
    copy.timeline = 1;
    run(bench, &(struct order_event){
                   .kind = ORDER_MESSAGE, .now_ns = bench->now_ns, .peer = peer, .message = &copy});
}

void bench_event(struct bench *bench, uint32_t kind, uint32_t peer)
{
    run(bench, &(struct order_event){.kind = kind, .now_ns = bench->now_ns, .peer = peer});
}

void bench_tick(struct bench *bench, int64_t after_ns)
{
    bench->now_ns += after_ns;
    bench_event(bench, ORDER_TICK, 0);
}

void bench_log_one(struct bench *bench, uint32_t shard)
{
    const struct ledger *ledger = order_ledger(bench->order);
    struct message message = {.kind = MESSAGE_LOGGED};
    message.logged = (struct message_logged){.index = ledger->index, .hash = ledger->hash};
    bench_say(bench, 1 + shard, &message);
}

void bench_log(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->options.shards; i++)
        bench_log_one(bench, i);
}

void bench_stepped(struct bench *bench, uint64_t version)
{
    for (uint32_t i = 0; i < bench->options.shards; i++)
        bench_say(bench, 1 + i,
                  &(struct message){.kind = MESSAGE_STEPPED, .stepped = {.version = version}});
}

void bench_freed(struct bench *bench, uint32_t slot, uint64_t generation)
{
    for (uint32_t i = 0; i < bench->options.shards; i++)
        bench_say(bench, 1 + i,
                  &(struct message){.kind = MESSAGE_FREED, .freed = {slot, generation}});
}

void bench_join_as(struct bench *bench, uint32_t peer, char identity, uint8_t nonce)
{
    struct message message = {.kind = MESSAGE_JOIN};
    message.join = (struct message_join){.protocol_oldest = 1,
                                         .protocol_newest = 1,
                                         .identity = {identity},
                                         .nonce = {nonce},
                                         .role = ROLE_WORKER,
                                         .layout_hash = bench->model->hash,
                                         .outstanding_max = 2};
    bench_say(bench, peer, &message);
}

void bench_join(struct bench *bench, uint32_t worker)
{
    bench_join_as(bench, 101 + worker, (char)('a' + worker), (uint8_t)(worker + 1));
    bench_log(bench);
}

static void enlist(struct bench *bench, uint32_t shard)
{
    struct message message = {.kind = MESSAGE_ENLIST};
    message.enlist = (struct message_enlist){.protocol_oldest = PROTOCOL_SERVERS,
                                             .protocol_newest = PROTOCOL_SERVERS,
                                             .job = 9,
                                             .shard = shard,
                                             .address = "127.0.0.1:1",
                                             .cold = 1};
    bench_say(bench, 1 + shard, &message);
}

void bench_start(struct bench *bench, bool first)
{
    cr_assert_eq(order_new(&bench->options, &bench->order), GRADWEIR_OK, "%s", fail_reason());
    bench->actions.max = order_actions_max(&bench->options);
    bench->actions.items = calloc(bench->actions.max, sizeof *bench->actions.items);
    for (uint32_t i = 0; i < bench->options.shards; i++)
        enlist(bench, i);
    bench_join_as(bench, 101, 'a', 1);
    cr_assert_not_null(bench_sent(bench, 101, MESSAGE_WANT, 0));
    struct message page = {.kind = MESSAGE_PAGE};
    content_page(CONTENT_LAYOUT, bench->layout, bench->layout_bytes, 0, &page.page);
    bench_say(bench, 101, &page);
    for (uint32_t i = 0; i < bench->options.shards; i++)
        cr_assert_not_null(bench_sent(bench, 1 + i, MESSAGE_MEMBER, 0));
    for (uint32_t i = 0; i < bench->options.shards; i++) {
        struct message ready = {.kind = MESSAGE_READY};
        ready.ready = (struct message_ready){.shard = i, .layout_hash = bench->model->hash};
        bench_say(bench, 1 + i, &ready);
    }
    bench_log(bench);
    if (!first)
        return;
    struct message_place place;
    cr_assert(bench_place(bench, 0, 1, &place));
    struct message_describe head = bench_head(bench, &place);
    head.purpose = PURPOSE_FIRST;
    bench_describe(bench, &head);
    const struct message_landed body = bench_body(&head);
    for (uint32_t i = 0; i < bench->options.shards; i++)
        bench_landed(bench, i, &body);
    cr_assert_eq(bench_records(bench, RECORD_FIRST), 1);
    bench_log(bench);
    bench_stepped(bench, 0);
    bench_freed(bench, place.slot, place.generation);
    bench->first = true;
}

void bench_end(struct bench *bench)
{
    order_free(bench->order);
    model_free(bench->model);
    free(bench->actions.items);
}

struct name bench_name(uint32_t worker, uint64_t sequence)
{
    return (struct name){.worker = worker, .incarnation = 1, .sequence = sequence};
}

void bench_ask(struct bench *bench, uint32_t worker, uint64_t sequence)
{
    bench_say(
        bench, 101 + worker,
        &(struct message){.kind = MESSAGE_ASK, .ask = {.name = bench_name(worker, sequence)}});
}

bool bench_place(struct bench *bench, uint32_t worker, uint64_t sequence,
                 struct message_place *place)
{
    bench_ask(bench, worker, sequence);
    const struct message *message = bench_sent(bench, 101 + worker, MESSAGE_PLACE, 0);
    if (!message)
        return false;
    *place = message->place;
    return true;
}

struct message_describe bench_head(struct bench *bench, const struct message_place *place)
{
    return (struct message_describe){.name = place->name,
                                     .slot = place->slot,
                                     .generation = place->generation,
                                     .basis = ledger_version(order_ledger(bench->order)),
                                     .samples = 4,
                                     .norm = 2,
                                     .layout_hash = bench->model->hash,
                                     .digest = 1000 + place->name.sequence};
}

void bench_describe(struct bench *bench, const struct message_describe *describe)
{
    bench_say(bench, 101 + describe->name.worker,
              &(struct message){.kind = MESSAGE_DESCRIBE, .describe = *describe});
}

struct message_landed bench_body(const struct message_describe *describe)
{
    return (struct message_landed){.slot = describe->slot,
                                   .generation = describe->generation,
                                   .name = describe->name,
                                   .digest = describe->digest,
                                   .intact = 1,
                                   .not_finite = UINT64_MAX,
                                   .magnitude = 1,
                                   .sum_squares = 2};
}

void bench_landed(struct bench *bench, uint32_t shard, const struct message_landed *landed)
{
    bench_say(bench, 1 + shard, &(struct message){.kind = MESSAGE_LANDED, .landed = *landed});
}

void bench_push(struct bench *bench, uint32_t worker, uint64_t sequence)
{
    struct message_place place;
    cr_assert(bench_place(bench, worker, sequence, &place));
    const struct message_describe head = bench_head(bench, &place);
    bench_describe(bench, &head);
    const struct message_landed body = bench_body(&head);
    for (uint32_t i = 0; i < bench->options.shards; i++)
        bench_landed(bench, i, &body);
}

const struct message *bench_sent(const struct bench *bench, uint32_t peer, uint32_t kind,
                                 uint32_t n)
{
    for (uint32_t i = 0; i < bench->actions.count; i++) {
        const struct order_action *action = &bench->actions.items[i];
        const bool sent = peer == 0 ? action->kind == ORDER_SEND_ALL
                                    : action->kind == ORDER_SEND && action->peer == peer;
        if (sent && action->message.kind == kind && n-- == 0)
            return &action->message;
    }
    return NULL;
}

uint32_t bench_count(const struct bench *bench, uint32_t action)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < bench->actions.count; i++)
        count += bench->actions.items[i].kind == action;
    return count;
}

static uint64_t oldest(const struct bench *bench)
{
    const uint64_t index = order_ledger(bench->order)->index;
    return index < BENCH_LOG ? 1 : index - BENCH_LOG + 1;
}

const struct record *bench_record(const struct bench *bench, uint32_t kind)
{
    const struct record *found = NULL;
    for (uint64_t i = oldest(bench); i <= order_ledger(bench->order)->index; i++)
        if (bench->log[i % BENCH_LOG].kind == kind)
            found = &bench->log[i % BENCH_LOG];
    return found;
}

uint32_t bench_records(const struct bench *bench, uint32_t kind)
{
    uint32_t count = 0;
    for (uint64_t i = oldest(bench); i <= order_ledger(bench->order)->index; i++)
        count += bench->log[i % BENCH_LOG].kind == kind;
    return count;
}
