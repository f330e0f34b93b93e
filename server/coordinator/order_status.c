/* Figures, and the status page: one JSON object that also names what everything waits for. */
#include "common/page.h"
#include "server/coordinator/order_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void order_figures(const struct order *order, struct order_figures *figures)
{
    *figures = order->figures;
    figures->waiting = places_waiting(order);
    figures->queue = places_used(order);
    figures->window = ledger_window(&order->ledger);
    figures->version = ledger_version(&order->ledger);
    figures->whole = order->whole;
    figures->index = order->ledger.index;
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        figures->workers_live += roster_live(order, i);
    for (uint32_t i = 0; i < order->options.shards; i++)
        figures->shards_ready += order->members[i].ready && order->members[i].peer != 0;
}

/* Peers chose these bytes. */
static void put_text(struct page *page, const char *text)
{
    page_put(page, "\"");
    for (; *text != 0; text++) {
        if (*text == '"' || *text == '\\')
            page_put(page, "\\%c", *text);
        else if ((unsigned char)*text >= 0x20 && (unsigned char)*text < 0x7f)
            page_put(page, "%c", *text);
        else
            page_put(page, "?");
    }
    page_put(page, "\"");
}

static void put_verdicts(struct page *page, const uint64_t verdicts[VERDICTS])
{
    page_put(page, "\"verdicts\":{");
    for (uint32_t i = VERDICT_ADMITTED; i < VERDICTS; i++)
        page_put(page, "%s\"%s\":%" PRIu64, i == VERDICT_ADMITTED ? "" : ",", verdict_name(i),
                 verdicts[i]);
    page_put(page, "}");
}

static void put_figures(struct page *page, const struct order *order)
{
    struct order_figures f;
    order_figures(order, &f);
    page_put(page,
             "\"version\":%" PRIu64 ",\"whole\":%" PRIu64 ",\"index\":%" PRIu64 ",\"first\":%s,"
             "\"draining\":%s,\"alarm\":%s,\"workers_live\":%u,\"shards_ready\":%u,\"window\":%u,",
             f.version, f.whole, f.index, order->ledger.first ? "true" : "false",
             order->draining ? "true" : "false", order->alarm ? "true" : "false", f.workers_live,
             f.shards_ready, f.window);
    page_put(page,
             "\"queue\":%u,\"queue_peak\":%u,\"waiting\":%u,\"pushes\":%" PRIu64
             ",\"duplicates\":%" PRIu64 ",\"foreign\":%" PRIu64 ",\"waits\":%" PRIu64 ",",
             f.queue, f.queue_peak, f.waiting, f.pushes, f.duplicates, f.foreign, f.waits);
    page_put(page,
             "\"staleness_sum\":%" PRIu64 ",\"staleness_max\":%" PRIu64 ",\"unused\":%" PRIu64
             ",\"flushes\":%" PRIu64 ",\"drains\":%" PRIu64 ",\"sum_mismatch_max\":%.6g,",
             f.staleness_sum, f.staleness_max, order->ledger.law.unused, f.flushes, f.drains,
             f.sum_mismatch_max);
    put_verdicts(page, f.verdicts);
}

static void put_settings(struct page *page, const struct order *order)
{
    const struct law_settings *law =
        order->ledger.mapped ? &order->ledger.law.settings : &order->options.law;
    page_put(page,
             ",\"settings\":{\"mode\":\"%s\",\"window\":%u,\"stride\":%u,\"stride_asked\":%u,"
             "\"staleness_max\":%" PRId64 ",\"learning_rate\":%.9g,\"clip\":%.9g,"
             "\"clip_average\":%.9g,\"queue\":%u}",
             order->options.sync ? "sync" : "async", law->window, law->stride,
             order->ledger.mapped ? order->ledger.settings.stride : law->stride, law->staleness_max,
             law->learning_rate, law->clip, law->clip_average, order->options.queue);
}

static void put_workers(struct page *page, const struct order *order)
{
    page_put(page, ",\"workers\":[");
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        const struct ledger_worker *known = &order->ledger.workers[i];
        const struct order_worker *worker = &order->workers[i];
        page_put(page, "%s{\"worker\":%u,\"identity\":", i == 0 ? "" : ",", i);
        put_text(page, known->identity);
        page_put(page,
                 ",\"state\":\"%s\",\"role\":\"%s\",\"incarnation\":%" PRIu64
                 ",\"last_sequence\":%" PRIu64 ",\"places\":%u,\"waiting\":%" PRIu64 ",",
                 known->state != WORKER_LIVE ? "left"
                 : worker->peer == 0         ? "lost"
                                             : "live",
                 known->role == ROLE_READER ? "reader" : "worker", known->incarnation,
                 known->last_sequence, worker->held, worker->asked - worker->granted);
        put_verdicts(page, known->verdicts);
        page_put(page, "}");
    }
    page_put(page, "]");
}

static void put_shards(struct page *page, const struct order *order, int64_t now_ns)
{
    page_put(page, ",\"shards\":[");
    for (uint32_t i = 0; i < order->options.shards; i++) {
        const struct order_member *member = &order->members[i];
        page_put(page, "%s{\"shard\":%u,\"address\":", i == 0 ? "" : ",", i);
        put_text(page, member->address);
        page_put(page,
                 ",\"here\":%s,\"ready\":%s,\"logged\":%" PRIu64 ",\"version\":%" PRIu64
                 ",\"silence_ms\":%" PRId64 ",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64
                 ",\"step_ns\":%" PRIu64 ",\"transport\":",
                 member->peer != 0 ? "true" : "false", member->ready ? "true" : "false",
                 member->logged, member->stepped,
                 member->known ? (now_ns - member->seen_ns) / 1000000 : -1, member->pulse.bytes_in,
                 member->pulse.bytes_out, member->pulse.step_ns);
        char transport[sizeof member->pulse.transport + 1] = {0};
        memcpy(transport, member->pulse.transport, sizeof member->pulse.transport);
        put_text(page, transport);
        page_put(page, "}");
    }
    page_put(page, "]");
}

/* One sentence, in a list of strings. */
static void put_wait(struct page *page, bool *any, const char *sentence)
{
    page_put(page, "%s", *any ? "," : "");
    put_text(page, sentence);
    *any = true;
}

static void put_waits_shards(struct page *page, const struct order *order, int64_t now_ns,
                             bool *any)
{
    char text[160];
    for (uint32_t i = 0; i < order->options.shards; i++) {
        const struct order_member *member = &order->members[i];
        text[0] = 0;
        if (member->peer == 0)
            snprintf(text, sizeof text, "everything waits for shard %u: it is not connected", i);
        else if (order->model && !member->ready)
            snprintf(text, sizeof text, "workers wait for shard %u: it takes its memory", i);
        else if (order->ledger.stepping && !member->summed)
            snprintf(text, sizeof text, "step %" PRIu64 " waits for the sums of shard %u",
                     ledger_version(&order->ledger), i);
        else if (member->logged < order->ledger.index &&
                 now_ns - member->seen_ns > order->options.shard_patience_ns)
            snprintf(text, sizeof text, "receipts wait for shard %u: it is silent", i);
        if (text[0] != 0)
            put_wait(page, any, text);
    }
}

static void put_waits_slots(struct page *page, const struct order *order, bool *any)
{
    char text[160];
    for (uint32_t i = 0; i < order->slots_count; i++) {
        const struct order_slot *slot = &order->slots[i];
        const uint64_t missing = order->bodies & ~slot->landed;
        if (slot->state != SLOT_PLACED || !slot->described || slot->ready != 0 || missing == 0)
            continue;
        uint32_t shard = 0;
        while (!(missing >> shard & 1))
            shard++;
        snprintf(text, sizeof text,
                 "gradient %" PRIu64 " of worker %u waits until it has landed on shard %u",
                 slot->name.sequence, slot->name.worker, shard);
        put_wait(page, any, text);
    }
}

static void put_waits(struct page *page, const struct order *order, int64_t now_ns)
{
    bool any = false;
    page_put(page, ",\"waits\":[");
    if (!order->model)
        put_wait(page, &any, "shards wait for the first worker, which tells the layout");
    else if (order->ledger.mapped && !order->ledger.first)
        put_wait(page, &any, "gradients wait for the first parameters");
    if (order->alarm)
        put_wait(page, &any, "nothing is admitted: a shard's log or sums contradict ours");
    if (order->ledger.mapped && !order_room(order))
        put_wait(page, &any, "admissions wait: the slowest shard is a whole ring behind");
    put_waits_shards(page, order, now_ns, &any);
    put_waits_slots(page, order, &any);
    page_put(page, "]");
}

size_t order_status(const struct order *order, int64_t now_ns, char *text, size_t size)
{
    struct page page = {.text = text, .size = size};
    page_put(&page, "{");
    put_figures(&page, order);
    put_settings(&page, order);
    put_shards(&page, order, now_ns);
    put_waits(&page, order, now_ns);
    put_workers(&page, order);
    page_put(&page, "}\n");
    return page.used;
}
