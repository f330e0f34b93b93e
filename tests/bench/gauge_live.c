/* push, pull, exchange: real servers and workers, and the references in turn with them. */
#include "tests/bench/gauge_children.h"

#include "common/clock.h"
#include "tests/bench/floor.h"

#include <stdlib.h>
#include <string.h>

static const double reference_s = 0.05;
enum { WARM_UP = 8, WARM_UP_MS = 150, BEGIN_MS = 3 };

/* Of all rounds. */
struct live {
    const struct gauge *gauge;
    struct gauge_children children;
    struct floor *floor;
    uint32_t work;
    struct gauge_values goodput, memcpy, floor_rate, floor_ratio, perftest, perftest_ratio;
    struct gauge_values server_cpu, worker_cpu, operations, wire_us;
    uint32_t *latencies_ns; /* of all operations; the array grows, it is nobody's server */
    size_t latencies_count, latencies_room;
    uint64_t all, refused, pulls;
};

static uint32_t work_of(const char *command)
{
    return strcmp(command, "push") == 0   ? GAUGE_PUSH
           : strcmp(command, "pull") == 0 ? GAUGE_PULL
                                          : GAUGE_EXCHANGE;
}

/* A floor's step is SGD or Adam; the others are compared with the nearer one. */
static enum floor_optimizer floor_optimizer(const struct gauge *gauge)
{
    return strcmp(gauge->optimizer, "sgd") == 0 ? FLOOR_SGD : FLOOR_ADAM;
}

/* Of a pull: a copy is the least it can be. */
static double reference(struct live *live, double *floor)
{
    const double memcpy_rate = floor_memcpy_rate(live->floor, reference_s);
    *floor = live->work == GAUGE_PULL ? memcpy_rate : floor_push_rate(live->floor, reference_s);
    gauge_add(&live->memcpy, memcpy_rate);
    gauge_add(&live->floor_rate, *floor);
    if (!live->gauge->perftest)
        return GAUGE_NONE;
    const double wire = gauge_perftest_bandwidth(live->gauge->transport, live->gauge->bytes);
    gauge_add(&live->perftest, wire);
    if (live->work == GAUGE_EXCHANGE)
        gauge_add(&live->wire_us,
                  gauge_perftest_latency(live->gauge->transport, live->gauge->bytes));
    return wire;
}

static void keep_latencies(struct live *live, const uint32_t *from, uint32_t count)
{
    if (live->latencies_count + count > live->latencies_room) {
        const size_t room = 2 * (live->latencies_count + count);
        uint32_t *more = realloc(live->latencies_ns, room * sizeof *more);
        if (!more)
            return; /* the percentiles are then those of what was kept */
        live->latencies_ns = more;
        live->latencies_room = room;
    }
    memcpy(live->latencies_ns + live->latencies_count, from, count * sizeof *from);
    live->latencies_count += count;
}

static int compare(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* Of the sorted latencies, in us. */
static double latency(const struct live *live, double share)
{
    if (live->latencies_count == 0)
        return GAUGE_NONE;
    return 1e-3 * live->latencies_ns[(size_t)(share * (double)(live->latencies_count - 1))];
}

static double count_results(struct live *live, const struct gauge_result *results, double *cpu_s)
{
    uint64_t operations = 0, begin_ns = UINT64_MAX, end_ns = 0, cpu_ns = 0;
    for (uint32_t i = 0; i < live->children.workers_count; i++) {
        const struct gauge_result *result = &results[i];
        operations += result->operations;
        live->refused += result->refused;
        live->pulls += result->pulls;
        cpu_ns += result->cpu_ns;
        begin_ns = result->begin_ns < begin_ns ? result->begin_ns : begin_ns;
        end_ns = result->end_ns > end_ns ? result->end_ns : end_ns;
        keep_latencies(live, live->children.workers[i].shared->latencies_ns,
                       result->latencies_count);
    }
    live->all += operations;
    *cpu_s = 1e-9 * (double)cpu_ns;
    const double rate = 1e9 * (double)operations / (double)(end_ns - begin_ns);
    gauge_add(&live->operations, rate);
    return rate;
}

static gradweir_status measure(struct live *live, double seconds)
{
    static struct gauge_result results[GAUGE_WORKERS_MAX];
    double floor, worker_s;
    const uint64_t before = live->all;
    const double wire = reference(live, &floor);
    const uint64_t cpu_ns = gauge_server_cpu_ns(&live->children);
    struct gauge_task task = {.work = live->work, .begin_ns = clock_now_ns() + BEGIN_MS * CLOCK_MS};
    task.operations = live->gauge->operations;
    task.end_ns = task.begin_ns + (uint64_t)(seconds * 1e9);
    TRY(gauge_burst(&live->children, &task, results));
    const double rate = count_results(live, results, &worker_s);
    const double server_s = 1e-9 * (double)(gauge_server_cpu_ns(&live->children) - cpu_ns);
    const double gb = 1e-9 * (double)(live->all - before) * (double)live->gauge->bytes;
    const double goodput = 1e-9 * rate * (double)live->gauge->bytes;
    gauge_add(&live->goodput, goodput);
    gauge_add(&live->floor_ratio, goodput / floor);
    gauge_add(&live->perftest_ratio, goodput / wire);
    gauge_add(&live->server_cpu, server_s / gb);
    gauge_add(&live->worker_cpu, worker_s / gb);
    return GRADWEIR_OK;
}

static gradweir_status warm_up(struct live *live)
{
    static struct gauge_result results[GAUGE_WORKERS_MAX];
    struct gauge_task task = {.work = live->work, .operations = WARM_UP};
    TRY(gauge_burst(&live->children, &task, results));
    task =
        (struct gauge_task){.work = live->work, .end_ns = clock_now_ns() + WARM_UP_MS * CLOCK_MS};
    return gauge_burst(&live->children, &task, results);
}

static void report(struct live *live)
{
    struct gauge_row row = gauge_row();
    row.goodput_gbps = gauge_median(&live->goodput);
    row.floor_gbps = gauge_median(&live->floor_rate);
    row.floor_ratio = gauge_median(&live->floor_ratio);
    row.perftest_gbps = gauge_median(&live->perftest);
    row.perftest_ratio = gauge_median(&live->perftest_ratio);
    row.memcpy_gbps = gauge_median(&live->memcpy);
    row.server_cpu_s_per_gb = gauge_median(&live->server_cpu);
    row.worker_cpu_s_per_gb = gauge_median(&live->worker_cpu);
    row.rss_mib = live->children.server_rss_mib;
    row.plan_mib = gauge_plan_mib(live->gauge);
    qsort(live->latencies_ns, live->latencies_count, sizeof *live->latencies_ns, compare);
    row.p50_us = latency(live, 0.5);
    row.p99_us = latency(live, 0.99);
    row.ops_per_s = gauge_median(&live->operations);
    gauge_extra(&row, "goodput_min", gauge_percentile(&live->goodput, 0));
    gauge_extra(&row, "goodput_max", gauge_percentile(&live->goodput, 1));
    gauge_extra(&row, "floor_ratio_min", gauge_percentile(&live->floor_ratio, 0));
    gauge_extra(&row, "floor_ratio_max", gauge_percentile(&live->floor_ratio, 1));
    gauge_extra(&row, "perftest_ratio_min", gauge_percentile(&live->perftest_ratio, 0));
    gauge_extra(&row, "perftest_ratio_max", gauge_percentile(&live->perftest_ratio, 1));
    gauge_extra(&row, "perftest_lat_us", gauge_median(&live->wire_us));
    gauge_extra(&row, "operations", (double)live->all);
    gauge_extra(&row, "refused", (double)live->refused);
    gauge_extra(&row, "pulls_per_exchange",
                live->work == GAUGE_EXCHANGE ? (double)live->pulls / (double)live->all
                                             : GAUGE_NONE);
    gauge_extra(&row, "server_cpu_us_per_op",
                1e-3 * row.server_cpu_s_per_gb * (double)live->gauge->bytes);
    gauge_extra(&row, "worker_cpu_us_per_op",
                1e-3 * row.worker_cpu_s_per_gb * (double)live->gauge->bytes);
    gauge_print(live->gauge, &row);
}

static gradweir_status run(struct live *live)
{
    const struct gauge *gauge = live->gauge;
    if (gauge->workers > GAUGE_WORKERS_MAX)
        return fail(GRADWEIR_ERR_INVALID,
                    "workers is %u: %s has each in a process of its own, at most %d of them",
                    gauge->workers, gauge->command, GAUGE_WORKERS_MAX);
    TRY(gauge_start_server(gauge, &live->children));
    TRY(gauge_start_workers(gauge, &live->children));
    live->floor = floor_open(gauge->bytes, floor_optimizer(gauge));
    if (!live->floor)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the floor's slots");
    TRY(warm_up(live));
    for (uint32_t i = 0; i < gauge->rounds; i++) {
        gauge_progress(gauge, i);
        TRY(measure(live, gauge->seconds / gauge->rounds));
    }
    gauge_server_memory(&live->children);
    return GRADWEIR_OK;
}

int gauge_live(const struct gauge *gauge)
{
    static struct live live;
    live.gauge = gauge;
    live.work = work_of(gauge->command);
    const gradweir_status status = run(&live);
    if (status == GRADWEIR_OK)
        report(&live);
    else
        fprintf(stderr, "gradweir-bench: %s\n", fail_reason());
    gauge_end(&live.children);
    floor_close(live.floor);
    free(live.latencies_ns);
    return status == GRADWEIR_OK ? 0 : status == GRADWEIR_ERR_INVALID ? 2 : 1;
}
