/* records: how fast the coordinator's core decides, with simulated workers and shards. */
#include "tests/bench/gauge.h"
#include "tests/bench/records.h"

int gauge_records(const struct gauge *gauge)
{
    const struct law_settings *law = &gauge->host.order.law;
    const struct records_options options = {.workers = gauge->workers,
                                            .shards = gauge->host.shards,
                                            .window = law->window,
                                            .stride = law->stride,
                                            .seconds = gauge->seconds / gauge->rounds};
    struct gauge_values rate = {.count = 0}, per_record = rate, per_event = rate, gradients = rate;
    for (uint32_t i = 0; i < gauge->rounds; i++) {
        struct records_result result;
        gauge_progress(gauge, i);
        if (records_run(&options, &result) != GRADWEIR_OK) {
            fprintf(stderr, "gradweir-bench: %s\n", fail_reason());
            return 1;
        }
        gauge_add(&rate, result.records_per_second);
        gauge_add(&per_record, result.ns_per_record);
        gauge_add(&per_event, result.ns_per_event);
        gauge_add(&gradients, (double)result.gradients / result.cpu_seconds);
    }
    struct gauge_row row = gauge_row();
    row.ops_per_s = gauge_median(&rate);
    row.p50_us = 1e-3 * gauge_percentile(&per_record, 0.5);
    row.p99_us = 1e-3 * gauge_percentile(&per_record, 1);
    gauge_extra(&row, "records_per_s_min", gauge_percentile(&rate, 0));
    gauge_extra(&row, "records_per_s_max", gauge_percentile(&rate, 1));
    gauge_extra(&row, "ns_per_record", gauge_median(&per_record));
    gauge_extra(&row, "ns_per_event", gauge_median(&per_event));
    gauge_extra(&row, "gradients_per_s", gauge_median(&gradients));
    gauge_print(gauge, &row);
    return 0;
}
