#include "tests/bench/mill.h"

#include "common/clock.h"
#include "common/codec.h"
#include "common/wire.h"
#include "server/shard/shard_local.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHARD = 1, WORKER = 2, POST_MAX = 1024, LAYOUT_BYTES = 4096, STEP_NS = 1000 };

/* A message on its way: to the shard, or to the coordinator from a peer. */
struct letter {
    bool to_shard;
    uint32_t peer;
    struct message message;
};

struct mill {
    const struct host_options *host;
    uint32_t threads;
    struct order_options options;
    struct order *order;
    struct order_actions actions;
    struct model *model;
    struct shard_local *shard; /* NULL until the coordinator has said what it is */
    struct message_member member;
    uint32_t member_epoch;
    struct letter *post; /* a ring, in order */
    uint32_t post_first, post_count;
    int64_t now_ns;
    uint64_t bytes, shard_ns, version;
    bool placed, heard; /* the worker: it has a place; it has its receipt */
    struct message_place place;
    uint32_t verdict;
    uint8_t layout[LAYOUT_BYTES];
    size_t layout_bytes;
};

static struct letter *letter_new(struct mill *mill, bool to_shard, uint32_t peer)
{
    ASSERT(mill->post_count < POST_MAX);
    struct letter *letter = &mill->post[(mill->post_first + mill->post_count++) % POST_MAX];
    letter->to_shard = to_shard;
    letter->peer = peer;
    return letter;
}

static struct message *say(struct mill *mill, uint32_t peer, uint32_t kind)
{
    struct message *message = &letter_new(mill, false, peer)->message;
    *message = (struct message){.kind = kind, .epoch = 1, .timeline = 1};
    return message;
}

static void worker_hears(struct mill *mill, const struct message *message)
{
    const struct message_receipt *receipt = &message->receipt;
    if (message->kind == MESSAGE_WANT)
        content_page(CONTENT_LAYOUT, mill->layout, mill->layout_bytes, 0,
                     &say(mill, WORKER, MESSAGE_PAGE)->page);
    if (message->kind == MESSAGE_PLACE) {
        mill->place = message->place;
        mill->placed = true;
    }
    if (message->kind != MESSAGE_RECEIPT)
        return;
    mill->heard = true;
    mill->verdict = receipt->verdict;
    mill->placed = receipt->next_sequence != 0;
    mill->place = (struct message_place){
        .name = receipt->name, .slot = receipt->next_slot, .generation = receipt->next_generation};
    mill->place.name.sequence = receipt->next_sequence;
}

/* A block at a time, as clients encode. */
static void fill_slots(struct mill *mill)
{
    const enum arithmetic_codec codec = mill->options.law.gradient_dtype;
    float floats[CODEC_BLOCK];
    for (uint32_t slot = 0; slot < mill->member.slots; slot++) {
        uint64_t bytes;
        unsigned char *body = shard_slot(mill->shard->shard, slot, &bytes);
        for (uint64_t at = 0; at < mill->member.count; at += CODEC_BLOCK) {
            const uint64_t rest = mill->member.count - at;
            for (uint64_t i = 0; i < CODEC_BLOCK; i++)
                floats[i] = 1e-3f * (float)((int)((at + i + slot) % 17) - 8);
            mill->shard->arithmetic->encode(codec, 1.0f, floats,
                                            rest < CODEC_BLOCK ? rest : CODEC_BLOCK,
                                            body + codec_bytes(codec, at));
        }
    }
}

/* The layout follows MEMBER: the shard takes its memory, and fills its slots with gradients. */
static gradweir_status make_shard(struct mill *mill)
{
    struct shard_options options = mill->host->shard;
    char text[1024];
    options.member = mill->member;
    options.epoch = mill->member_epoch;
    options.tile_elements = shard_tile(mill->threads);
    TRY(shard_arena_bytes(mill->model, &mill->options.law, &options, &mill->bytes, text,
                          sizeof text));
    TRY(shard_local_open(mill->model, &mill->options.law, &options, mill->host->simd,
                         &mill->shard));
    if (mill->threads > 1)
        TRY(shard_local_threads(mill->shard, mill->threads,
                                (long)mill->threads > sysconf(_SC_NPROCESSORS_ONLN)));
    fill_slots(mill);
    say(mill, SHARD, MESSAGE_READY)->ready =
        (struct message_ready){.layout_hash = mill->model->hash, .bytes = mill->bytes};
    return GRADWEIR_OK;
}

static void shard_hears(struct mill *mill, const struct message *message)
{
    if (!mill->shard)
        return;
    const uint64_t begin = clock_now_ns();
    shard_local_event(
        mill->shard,
        &(struct shard_event){.kind = SHARD_MESSAGE, .now_ns = mill->now_ns, .message = message});
    mill->shard_ns += clock_now_ns() - begin;
    for (uint32_t i = 0; i < mill->shard->outbox_count; i++) {
        const struct shard_action *action = &mill->shard->outbox[i];
        if (action->kind == SHARD_SEND && action->message.kind != MESSAGE_PULSE)
            letter_new(mill, false, SHARD)->message = action->message;
    }
}

static gradweir_status carry_out(struct mill *mill, const struct order_action *action)
{
    if (action->kind == ORDER_EXIT)
        return fail(GRADWEIR_ERR_LOST, "the coordinator ends: %s", action->message.denied.text);
    if (action->kind == ORDER_CONTENT && action->message.want.content == CONTENT_LAYOUT)
        return make_shard(mill);
    if (action->kind == ORDER_SEND && action->message.kind == MESSAGE_MEMBER) {
        mill->member = action->message.member;
        mill->member_epoch = action->message.epoch;
        return GRADWEIR_OK;
    }
    if (action->kind == ORDER_SEND_ALL || (action->kind == ORDER_SEND && action->peer == SHARD))
        letter_new(mill, true, SHARD)->message = action->message;
    else if (action->kind == ORDER_SEND && action->peer == WORKER)
        worker_hears(mill, &action->message);
    return GRADWEIR_OK;
}

/* Until nobody has anything to say. */
static gradweir_status turn(struct mill *mill)
{
    while (mill->post_count > 0) {
        struct letter *letter = &mill->post[mill->post_first];
        mill->now_ns += STEP_NS;
        if (letter->to_shard) {
            shard_hears(mill, &letter->message);
        } else {
            order_step(mill->order,
                       &(struct order_event){.kind = ORDER_MESSAGE,
                                             .now_ns = mill->now_ns,
                                             .peer = letter->peer,
                                             .message = &letter->message},
                       &mill->actions);
            for (uint32_t i = 0; i < mill->actions.count; i++)
                TRY(carry_out(mill, &mill->actions.items[i]));
        }
        mill->post_first = (mill->post_first + 1) % POST_MAX;
        mill->post_count--;
    }
    return GRADWEIR_OK;
}

static gradweir_status gradient(struct mill *mill, uint32_t purpose)
{
    const uint64_t sequence = mill->place.name.sequence;
    if (!mill->placed) {
        const struct ledger *ledger = order_ledger(mill->order);
        say(mill, WORKER, MESSAGE_ASK)->ask.name =
            (struct name){0, 1, ledger->workers[0].last_sequence + 1};
        TRY(turn(mill));
    }
    if (!mill->placed)
        return fail(GRADWEIR_ERR_STATE, "no place for gradient %llu",
                    (unsigned long long)sequence + 1);
    const struct message_place place = mill->place;
    mill->placed = mill->heard = false;
    say(mill, WORKER, MESSAGE_DESCRIBE)->describe =
        (struct message_describe){.name = place.name,
                                  .slot = place.slot,
                                  .generation = place.generation,
                                  .purpose = purpose,
                                  .basis = ledger_version(order_ledger(mill->order)),
                                  .samples = 1,
                                  .norm = 1,
                                  .layout_hash = mill->model->hash,
                                  .digest = 7};
    say(mill, SHARD, MESSAGE_LANDED)->landed =
        (struct message_landed){.slot = place.slot,
                                .generation = place.generation,
                                .name = place.name,
                                .digest = 7,
                                .intact = 1,
                                .not_finite = UINT64_MAX,
                                .magnitude = 1,
                                .sum_squares = 1};
    TRY(turn(mill));
    if (!mill->heard || mill->verdict != VERDICT_ADMITTED)
        return fail(GRADWEIR_ERR_STATE, "a gradient was not admitted: %s",
                    mill->heard ? verdict_name(mill->verdict) : "no receipt");
    return GRADWEIR_OK;
}

static gradweir_status start(struct mill *mill)
{
    struct message_enlist *enlist = &say(mill, SHARD, MESSAGE_ENLIST)->enlist;
    *enlist = (struct message_enlist){.protocol_oldest = PROTOCOL_SERVERS,
                                      .protocol_newest = PROTOCOL_SERVERS,
                                      .job = mill->options.job,
                                      .address = "127.0.0.1:1",
                                      .cold = 1};
    /* A stride is what live workers can have under way at most: so many join, and one pushes. */
    for (uint32_t i = 0; i * OUTSTANDING_MAX < mill->options.law.stride; i++) {
        struct message_join *join = &say(mill, WORKER + i, MESSAGE_JOIN)->join;
        *join = (struct message_join){.protocol_oldest = PROTOCOL_OLDEST,
                                      .protocol_newest = PROTOCOL_VERSION,
                                      .nonce = {(uint8_t)(i + 1)},
                                      .role = ROLE_WORKER,
                                      .layout_hash = mill->model->hash,
                                      .outstanding_max = OUTSTANDING_MAX};
        snprintf(join->identity, sizeof join->identity, "mill-%u", i);
        TRY(turn(mill));
    }
    if (!mill->shard)
        return fail(GRADWEIR_ERR_STATE, "the coordinator does not start");
    return gradient(mill, PURPOSE_FIRST);
}

static gradweir_status make(struct mill *mill, uint64_t elements)
{
    const struct model_tensor tensor = {.name = "w", .dimensions = 1, .shape = {elements}};
    TRY(model_new(1, &mill->model));
    TRY(model_add(mill->model, &tensor));
    TRY(model_seal(mill->model));
    mill->layout_bytes = model_encoded_bytes(mill->model);
    TRY(model_encode(mill->model, mill->layout, sizeof mill->layout));
    TRY(order_new(&mill->options, &mill->order));
    mill->actions.max = order_actions_max(&mill->options);
    mill->actions.items = calloc(mill->actions.max, sizeof *mill->actions.items);
    mill->post = calloc(POST_MAX, sizeof *mill->post);
    if (!mill->actions.items || !mill->post)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a mill");
    return start(mill);
}

gradweir_status mill_open(const struct host_options *host, uint64_t elements, uint32_t threads,
                          struct mill **mill)
{
    struct mill *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a mill");
    made->host = host;
    made->options = host->order;
    made->options.flush_after_ns = -1;
    made->now_ns = (int64_t)CLOCK_SECOND;
    made->threads = threads;
    const gradweir_status status = make(made, elements);
    if (status == GRADWEIR_OK)
        *mill = made;
    else
        mill_close(made);
    return status;
}

void mill_close(struct mill *mill)
{
    if (!mill)
        return;
    shard_local_close(mill->shard);
    order_free(mill->order);
    model_free(mill->model);
    free(mill->actions.items);
    free(mill->post);
    free(mill);
}

gradweir_status mill_push(struct mill *mill, struct mill_pushed *pushed)
{
    const uint64_t version = ledger_version(order_ledger(mill->order));
    mill->shard_ns = 0;
    TRY(gradient(mill, PURPOSE_GRADIENT));
    pushed->stepped = ledger_version(order_ledger(mill->order)) > version;
    pushed->shard_ns = mill->shard_ns;
    return GRADWEIR_OK;
}

uint64_t mill_bytes(const struct mill *mill)
{
    return mill->bytes;
}
