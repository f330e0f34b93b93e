/* See heir_bench.h. */
#include "tests/unit/heir_bench.h"

#include "common/sealed.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

void heir_job(struct bench *bench, uint32_t workers, uint32_t gradients)
{
    bench_init(bench);
    bench->options.law.staleness_max = -1;
    bench_start(bench, true);
    for (uint32_t i = 1; i < workers; i++)
        bench_join(bench, i);
    for (uint32_t i = 0; i < gradients; i++) {
        bench_push(bench, 0, 2 + i);
        bench_log(bench);
        const struct record_admit admit = bench_record(bench, RECORD_ADMIT)->admit;
        bench_freed(bench, admit.slot, admit.generation);
    }
}

void heir_init(struct heir *heir, struct bench *old)
{
    memset(heir, 0, sizeof *heir);
    heir->old = old;
    bench_init(&heir->bench);
    heir->bench.options = old->options;
    heir->bench.options.instance[0] = 2;
    heir->bench.options.seed = 2;
    heir->bench.now_ns = old->now_ns;
    memcpy(heir->bench.log, old->log, sizeof old->log);
    cr_assert_eq(order_new(&heir->bench.options, &heir->bench.order), GRADWEIR_OK, "%s",
                 fail_reason());
    heir->bench.actions.max = order_actions_max(&heir->bench.options);
    heir->bench.actions.items = calloc(heir->bench.actions.max, sizeof *heir->bench.actions.items);
    heir->content_room = sealed_bytes_max(sizeof old->layout, old->options.ring, SLOTS_MAX);
    heir->content = malloc(heir->content_room);
    cr_assert(heir->bench.actions.items && heir->content);
    for (uint32_t i = 0; i < old->options.shards; i++) {
        heir->shards[i].index = order_ledger(old->order)->index;
        heir->shards[i].promise = 1;
    }
}

void heir_end(struct heir *heir)
{
    bench_end(&heir->bench);
    free(heir->content);
}

void heir_landed(struct heir *heir, uint32_t shard, const struct message_landed *landed)
{
    heir->shards[shard].landed[heir->shards[shard].landed_count++] = *landed;
}

void heir_landed_all(struct heir *heir, const struct message_landed *landed)
{
    for (uint32_t i = 0; i < heir->bench.options.shards; i++)
        heir_landed(heir, i, landed);
}

static void fold(const struct heir *heir, uint64_t index, struct ledger *ledger)
{
    struct law_entry entry;
    ledger_init(ledger);
    for (uint64_t i = 1; i <= index; i++) {
        cr_assert_eq(ledger_apply(ledger, &heir->bench.log[i]), GRADWEIR_OK, "%s", fail_reason());
        while (ledger_retired(ledger, &entry))
            ;
    }
}

static struct ledger ledger;

void heir_enlist(struct heir *heir, uint32_t shard)
{
    const struct heir_shard *from = &heir->shards[shard];
    struct message message = {.kind = MESSAGE_ENLIST};
    fold(heir, from->index, &ledger);
    message.enlist = (struct message_enlist){.protocol_oldest = PROTOCOL_SERVERS,
                                             .protocol_newest = PROTOCOL_SERVERS,
                                             .job = 9,
                                             .shard = shard,
                                             .instance = {7},
                                             .address = "127.0.0.1:1",
                                             .cold = from->cold,
                                             .epoch = from->promise,
                                             .index = from->cold ? 0 : from->index,
                                             .hash = from->cold ? 0 : ledger.hash};
    bench_say(&heir->bench, 1 + shard, &message);
}

void heir_sealed(struct heir *heir, uint32_t shard, uint32_t epoch, uint8_t instance)
{
    struct message message = {.kind = MESSAGE_SEALED};
    fold(heir, heir->shards[shard].index, &ledger);
    message.sealed =
        (struct message_sealed){.instance = {instance}, .index = ledger.index, .hash = ledger.hash};
    heir->bench.epoch = epoch;
    bench_say(&heir->bench, 1 + shard, &message);
}

void heir_content(struct heir *heir, uint32_t shard)
{
    const struct heir_shard *from = &heir->shards[shard];
    const struct message_member member = {
        .job = 9, .shard = shard, .members = heir->bench.options.shards};
    const uint64_t ring = heir->bench.options.ring;
    struct sealed_writer writer = {.bytes = heir->content, .room = heir->content_room};
    fold(heir, from->index, &ledger);
    sealed_begin(&writer, &member, &ledger, heir->old->layout, heir->old->layout_bytes);
    for (uint64_t i = from->index > ring ? from->index - ring + 1 : 1; i <= from->index; i++)
        sealed_add(&writer,
                   &(struct message){.kind = MESSAGE_RECORD, .record = heir->bench.log[i]});
    for (uint32_t i = 0; i < from->landed_count; i++)
        sealed_add(&writer, &(struct message){.kind = MESSAGE_LANDED, .landed = from->landed[i]});
    const size_t count = sealed_end(&writer);
    for (uint32_t i = 0; i < content_pages(count); i++) {
        struct message page = {.kind = MESSAGE_PAGE};
        content_page(CONTENT_SEALED, heir->content, count, i, &page.page);
        bench_say(&heir->bench, 1 + shard, &page);
    }
}

void heir_answer(struct heir *heir, uint32_t shard)
{
    heir_sealed(heir, shard, 2, 2);
    heir_content(heir, shard);
}

void heir_take_over(struct heir *heir)
{
    for (uint32_t i = 0; i < heir->bench.options.shards; i++)
        heir_enlist(heir, i);
    for (uint32_t i = 0; i < heir->bench.options.shards; i++)
        heir_answer(heir, i);
}

const struct message_joined *heir_join(struct heir *heir, uint32_t worker)
{
    bench_join_as(&heir->bench, 101 + worker, (char)('a' + worker), (uint8_t)(worker + 1));
    const struct message *joined = bench_sent(&heir->bench, 101 + worker, MESSAGE_JOINED, 0);
    return joined ? &joined->joined : NULL;
}

uint32_t heir_sent_else(const struct heir *heir, uint32_t kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < heir->bench.actions.count; i++) {
        const struct order_action *action = &heir->bench.actions.items[i];
        count += action->kind != ORDER_SAY &&
                 (action->kind != ORDER_SEND || action->message.kind != kind);
    }
    return count;
}

int heir_exit(const struct heir *heir)
{
    for (uint32_t i = 0; i < heir->bench.actions.count; i++)
        if (heir->bench.actions.items[i].kind == ORDER_EXIT)
            return heir->bench.actions.items[i].message.denied.status;
    return 1;
}
