/* Rows of gradweir-bench, for people and for programs; and the values of rounds. */
#include "tests/bench/gauge.h"

#include "common/model.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gauge_row gauge_row(void)
{
    const double none = GAUGE_NONE;
    return (struct gauge_row){.goodput_gbps = none,
                              .floor_gbps = none,
                              .floor_ratio = none,
                              .perftest_gbps = none,
                              .perftest_ratio = none,
                              .memcpy_gbps = none,
                              .server_cpu_s_per_gb = none,
                              .worker_cpu_s_per_gb = none,
                              .rss_mib = none,
                              .plan_mib = none,
                              .p50_us = none,
                              .p99_us = none,
                              .ops_per_s = none};
}

void gauge_extra(struct gauge_row *row, const char *name, double value)
{
    ASSERT(row->extras_count < GAUGE_EXTRAS_MAX);
    row->extras[row->extras_count].name = name;
    row->extras[row->extras_count++].value = value;
}

static void print_number(const char *name, double value)
{
    if (isfinite(value))
        printf(", \"%s\": %.6g", name, value);
    else
        printf(", \"%s\": null", name);
}

static void print_json(const struct gauge *gauge, const struct gauge_row *row)
{
    const struct law_settings *law = &gauge->host.order.law;
    printf("{\"case\": \"%s\", \"bytes\": %llu, \"transport\": \"%s\", \"workers\": %u, "
           "\"shards\": %u, \"window\": %u, \"stride\": %u, \"decay\": \"%s\", "
           "\"optimizer\": \"%s\", \"dtype\": \"%s\", \"in_flight\": %u, \"threads\": %u, "
           "\"rounds\": %u",
           gauge->command, (unsigned long long)gauge->bytes, gauge->transport, gauge->workers,
           gauge->host.shards, law->window, law->stride, settings_text(gauge->settings, "decay"),
           gauge->optimizer, gauge->dtype, gauge->in_flight, gauge->threads, gauge->rounds);
    print_number("goodput_gbps", row->goodput_gbps);
    print_number("floor_gbps", row->floor_gbps);
    print_number("floor_ratio", row->floor_ratio);
    print_number("perftest_gbps", row->perftest_gbps);
    print_number("perftest_ratio", row->perftest_ratio);
    print_number("memcpy_gbps", row->memcpy_gbps);
    print_number("server_cpu_s_per_gb", row->server_cpu_s_per_gb);
    print_number("worker_cpu_s_per_gb", row->worker_cpu_s_per_gb);
    print_number("rss_mib", row->rss_mib);
    print_number("plan_mib", row->plan_mib);
    print_number("p50_us", row->p50_us);
    print_number("p99_us", row->p99_us);
    print_number("ops_per_s", row->ops_per_s);
    for (uint32_t i = 0; i < row->extras_count; i++)
        print_number(row->extras[i].name, row->extras[i].value);
    printf("}\n");
}

static void say(const char *name, double value, const char *unit)
{
    if (isfinite(value))
        printf("  %-22s %10.4g %s\n", name, value, unit);
    else
        printf("  %-22s %10s\n", name, "-");
}

static void print_lines(const struct gauge *gauge, const struct gauge_row *row)
{
    const struct law_settings *law = &gauge->host.order.law;
    printf("%s: %llu bytes, %s, %s; %u workers, %u shards, window %u, stride %u, %s\n",
           gauge->command, (unsigned long long)gauge->bytes, gauge->dtype, gauge->transport,
           gauge->workers, gauge->host.shards, law->window, law->stride, gauge->optimizer);
    say("goodput", row->goodput_gbps, "GB/s");
    say("operations", row->ops_per_s, "per s");
    say("p50", row->p50_us, "us");
    say("p99", row->p99_us, "us");
    say("floor", row->floor_gbps, "GB/s");
    say("  of it", row->floor_ratio, "");
    say("ucx_perftest", row->perftest_gbps, "GB/s");
    say("  of it", row->perftest_ratio, "");
    say("memcpy", row->memcpy_gbps, "GB/s");
    say("server's CPU", row->server_cpu_s_per_gb, "s/GB");
    say("workers' CPU", row->worker_cpu_s_per_gb, "s/GB");
    say("server's memory", row->rss_mib, "MiB at most");
    say("  planned", row->plan_mib, "MiB");
    for (uint32_t i = 0; i < row->extras_count; i++)
        say(row->extras[i].name, row->extras[i].value, "");
}

void gauge_print(const struct gauge *gauge, const struct gauge_row *row)
{
    (gauge->json ? print_json : print_lines)(gauge, row);
    fflush(stdout);
}

void gauge_add(struct gauge_values *values, double value)
{
    if (isfinite(value) && values->count < GAUGE_ROUNDS_MAX)
        values->at[values->count++] = value;
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double gauge_percentile(const struct gauge_values *values, double share)
{
    struct gauge_values sorted = *values;
    if (values->count == 0)
        return GAUGE_NONE;
    qsort(sorted.at, sorted.count, sizeof *sorted.at, compare);
    const double place = share * (double)(sorted.count - 1);
    const uint32_t below = (uint32_t)place;
    const uint32_t above = below + 1 < sorted.count ? below + 1 : below;
    return sorted.at[below] + (place - below) * (sorted.at[above] - sorted.at[below]);
}

double gauge_median(const struct gauge_values *values)
{
    return gauge_percentile(values, 0.5);
}

void gauge_progress(const struct gauge *gauge, uint32_t round)
{
    if (isatty(STDERR_FILENO) || gauge->seconds > 10)
        fprintf(stderr, "gradweir-bench: %s, %llu bytes: round %u of %u%s", gauge->command,
                (unsigned long long)gauge->bytes, round + 1, gauge->rounds,
                isatty(STDERR_FILENO) && round + 1 < gauge->rounds ? "   \r" : "\n");
}

double gauge_plan_mib(const struct gauge *gauge)
{
    const struct host_options *host = &gauge->host;
    const struct model_tensor tensor = {.name = "w", .dimensions = 1, .shape = {gauge->elements}};
    struct model *model = NULL;
    uint32_t slots = 0;
    double all = 0;
    gradweir_status status = model_new(1, &model);
    if (status == GRADWEIR_OK)
        status = model_add(model, &tensor);
    if (status == GRADWEIR_OK)
        status = model_seal(model);
    if (status == GRADWEIR_OK)
        status = order_slots(&host->order, model, &slots);
    for (uint32_t i = 0; status == GRADWEIR_OK && i < host->shards; i++) {
        struct shard_options options = host->shard;
        uint64_t bytes = 0;
        char text[1024];
        order_member(&host->order, model, i, slots, &options.member);
        status = shard_arena_bytes(model, &host->order.law, &options, &bytes, text, sizeof text);
        all += (double)bytes / 0x1p20;
    }
    model_free(model);
    return status == GRADWEIR_OK ? all : GAUGE_NONE;
}
