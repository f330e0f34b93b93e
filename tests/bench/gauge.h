/* gradweir-bench: what moving and averaging gradients costs on this machine, against what the
 * machine can do at all, in one run. This header is what its files share.
 *
 * A case is measured in rounds. In each round the references (memcpy, the floor, ucx_perftest) and
 * the case take turns, so that whatever else the machine does meets all of them; the medians over
 * rounds are told, and a ratio is the median of the rounds' ratios. What was not measured is
 * GAUGE_NONE, and null in JSON. */
#ifndef GRADWEIR_BENCH_GAUGE_H
#define GRADWEIR_BENCH_GAUGE_H

#include "common/settings.h"
#include "server/host_settings.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define GAUGE_NONE ((double)NAN)

enum { GAUGE_ROUNDS_MAX = 99, GAUGE_EXTRAS_MAX = 40, GAUGE_THREADS_MAX = 64 };

/* What was asked for, checked. Texts are borrowed from the settings. */
struct gauge {
    const char *command;
    struct settings *settings; /* ours, and all of gradweir-server's */
    struct host_options host;
    uint64_t bytes, elements; /* of a gradient, in float32 */
    uint32_t workers, in_flight, outstanding, threads, rounds;
    uint64_t operations; /* of each worker in a round; 0: by time */
    double seconds;      /* of the case, over all rounds */
    bool json, perftest;
    const char *transport, *optimizer, *dtype;
    int argc; /* as given, without program and command */
    char **argv;
};

/* Reads options; prints help. `code` is what the program ends with when there is nothing to do. */
bool gauge_options_read(struct gauge *gauge, int argc, char **argv, int *code);

/* A settings object of the same table, with defaults but for the queue: for a second job. */
gradweir_status gauge_settings_like(const struct gauge *gauge, struct settings **settings);

/* Whether a setting is gradweir-bench's own: all others go on to the servers. */
bool gauge_is_own(const char *name);
void gauge_options_free(struct gauge *gauge);

/* One row of the output. Rates are 1e9 bytes of float32 payload per second. */
struct gauge_row {
    double goodput_gbps, floor_gbps, floor_ratio, perftest_gbps, perftest_ratio, memcpy_gbps;
    double server_cpu_s_per_gb, worker_cpu_s_per_gb, rss_mib, plan_mib;
    double p50_us, p99_us, ops_per_s;
    struct {
        const char *name; /* borrowed */
        double value;
    } extras[GAUGE_EXTRAS_MAX];
    uint32_t extras_count;
};

struct gauge_row gauge_row(void); /* all GAUGE_NONE */
void gauge_extra(struct gauge_row *row, const char *name, double value);
void gauge_print(const struct gauge *gauge, const struct gauge_row *row);

/* Values of rounds. Those that are GAUGE_NONE do not count; without any, GAUGE_NONE. */
struct gauge_values {
    double at[GAUGE_ROUNDS_MAX];
    uint32_t count;
};
void gauge_add(struct gauge_values *values, double value);
double gauge_percentile(const struct gauge_values *values, double share);
double gauge_median(const struct gauge_values *values);

/* Says on stderr which round it is, when the run is long enough that somebody may wonder. */
void gauge_progress(const struct gauge *gauge, uint32_t round);

/* Bytes of memory that the plan takes for all shards, in MiB. */
double gauge_plan_mib(const struct gauge *gauge);

/* ucx_perftest between two processes over a transport: GB/s of am_bw, half a round trip in us of
 * am_lat. GAUGE_NONE where it is not installed, or did not end in time. */
double gauge_perftest_bandwidth(const char *transport, uint64_t bytes);
double gauge_perftest_latency(const char *transport, uint64_t bytes);

/* The commands. They end with a program's exit status. */
int gauge_live(const struct gauge *gauge); /* push, pull, exchange */
int gauge_step(const struct gauge *gauge);
int gauge_codec(const struct gauge *gauge);
int gauge_records(const struct gauge *gauge);
int gauge_floor(const struct gauge *gauge);

#endif
