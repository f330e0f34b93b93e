/* Figures, and the status page: one JSON object; its `waits` are order_waits.c's. */
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
    figures->epoch = order->epoch;
    figures->acting = order->phase == PHASE_ACT;
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        figures->workers_live += roster_live(order, i);
    for (uint32_t i = 0; i < order->options.shards; i++)
        figures->shards_ready += order->members[i].ready && order->members[i].peer != 0;
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
             "\"epoch\":%u,\"acting\":%s,\"draining\":%s,\"alarm\":%s,\"workers_live\":%u,\"shards_"
             "ready\":%u,\"window\":%u,",
             f.version, f.whole, f.index, order->ledger.first ? "true" : "false", f.epoch,
             f.acting ? "true" : "false", order->draining ? "true" : "false",
             order->alarm ? "true" : "false", f.workers_live, f.shards_ready, f.window);
    page_put(page,
             "\"queue\":%u,\"queue_peak\":%u,\"waiting\":%u,\"pushes\":%" PRIu64
             ",\"duplicates\":%" PRIu64 ",\"foreign\":%" PRIu64 ",\"asks_waited\":%" PRIu64 ",",
             f.queue, f.queue_peak, f.waiting, f.pushes, f.duplicates, f.foreign, f.waits);
    page_put(page,
             "\"staleness_of\":%" PRIu64 ",\"staleness_sum\":%" PRIu64 ",\"staleness_max\":%" PRIu64
             ",\"unused\":%" PRIu64 ",\"flushes\":%" PRIu64 ",\"drains\":%" PRIu64
             ",\"sum_mismatch_max\":%.6g,",
             f.staleness_of, f.staleness_sum, f.staleness_max, order->ledger.law.unused, f.flushes,
             f.drains, f.sum_mismatch_max);
    put_verdicts(page, f.verdicts);
}

static void put_settings(struct page *page, const struct order *order)
{
    const struct law_settings *law =
        order->ledger.mapped ? &order->ledger.law.settings : &order->options.law;
    page_put(page,
             ",\"settings\":{\"mode\":\"%s\",\"window\":%u,\"stride\":%u,\"stride_asked\":%u,"
             "\"staleness_max\":%" PRId64 ",\"learning_rate\":%.9g,\"clip\":%.9g,"
             "\"clip_average\":%.9g,\"magnitude_max\":%.9g,\"queue\":%u}",
             order->options.sync ? "sync" : "async", law->window, law->stride,
             order->ledger.mapped ? order->ledger.settings.stride : law->stride, law->staleness_max,
             law->learning_rate, law->clip, law->clip_average, law->magnitude_max,
             order->options.queue);
}

/* Of a group only. */
static void put_ranks(struct page *page, const struct order *order, uint32_t index)
{
    const uint32_t ranks = order->workers[index].ranks, missing = ranks_missing(order, index);
    const char *comma = "";
    if (ranks == 0)
        return;
    page_put(page, "\"ranks\":%u,\"ranks_missing\":[", ranks);
    for (uint32_t r = 0; r < ranks; r++)
        if (missing >> r & 1) {
            page_put(page, "%s%u", comma, r);
            comma = ",";
        }
    page_put(page, "],");
}

static void put_workers(struct page *page, const struct order *order)
{
    page_put(page, ",\"workers\":[");
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        const struct ledger_worker *known = &order->ledger.workers[i];
        const struct order_worker *worker = &order->workers[i];
        page_put(page, "%s{\"worker\":%u,\"identity\":", i == 0 ? "" : ",", i);
        page_quoted(page, known->identity);
        page_put(page,
                 ",\"state\":\"%s\",\"role\":\"%s\",\"incarnation\":%" PRIu64
                 ",\"last_sequence\":%" PRIu64 ",\"places\":%u,\"waiting\":%" PRIu64 ",",
                 known->state != WORKER_LIVE ? "left"
                 : worker->peer == 0         ? "lost"
                                             : "live",
                 known->role == ROLE_READER ? "reader" : "worker", known->incarnation,
                 known->last_sequence, worker->held, worker->asked - worker->granted);
        put_verdicts(page, known->verdicts);
        page_put(page, ",");
        put_ranks(page, order, i);
        reports_put(page, worker);
        page_put(page, "}");
    }
    page_put(page, "]");
}

/* The PULSE's text is one word, or two. */
static void put_ways(struct page *page, const struct message_pulse *pulse)
{
    char transport[sizeof pulse->transport + 1] = {0};
    memcpy(transport, pulse->transport, sizeof pulse->transport);
    char *memory = strchr(transport, ' ');
    if (memory)
        *memory++ = '\0';
    page_put(page, "\"transport\":");
    page_quoted(page, transport);
    page_put(page, ",\"device_memory\":");
    page_quoted(page, memory ? memory : "none");
}

static void put_shards(struct page *page, const struct order *order, int64_t now_ns)
{
    page_put(page, ",\"shards\":[");
    for (uint32_t i = 0; i < order->options.shards; i++) {
        const struct order_member *member = &order->members[i];
        page_put(page, "%s{\"shard\":%u,\"address\":", i == 0 ? "" : ",", i);
        page_quoted(page, member->address);
        page_put(page,
                 ",\"here\":%s,\"ready\":%s,\"logged\":%" PRIu64 ",\"version\":%" PRIu64
                 ",\"silence_ms\":%" PRId64 ",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64
                 ",\"step_ns\":%" PRIu64 ",",
                 member->peer != 0 ? "true" : "false", member->ready ? "true" : "false",
                 order->logged[i], member->stepped,
                 member->known ? (now_ns - member->seen_ns) / 1000000 : -1, member->pulse.bytes_in,
                 member->pulse.bytes_out, member->pulse.step_ns);
        put_ways(page, &member->pulse);
        page_put(page, "}");
    }
    page_put(page, "]");
}

size_t order_status(const struct order *order, int64_t now_ns, char *text, size_t size)
{
    struct page page = {.text = text, .size = size};
    page_put(&page, "{\"protocol\":%d,", PROTOCOL_VERSION);
    put_figures(&page, order);
    put_settings(&page, order);
    put_shards(&page, order, now_ns);
    order_waits(order, now_ns, &page);
    put_workers(&page, order);
    page_put(&page, "}\n");
    return page.used;
}
