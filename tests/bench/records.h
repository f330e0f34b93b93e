/* The coordinator's core with simulated workers and shards: how many records it decides per second.
 * No sockets and no bytes on a wire: every message of every worker and shard is made, given to the
 * core, and what it says is answered as a real one would. */
#ifndef GRADWEIR_BENCH_RECORDS_H
#define GRADWEIR_BENCH_RECORDS_H

#include "common/status.h"

#include <stdint.h>

struct records_options {
    uint32_t workers, shards;
    uint32_t window, stride; /* of the law; exp is not tried: weights cost the same */
    uint32_t batch; /* events that come between two LOGGEDs of a shard; 0: one per worker */
    double seconds; /* of CPU, about */
};

struct records_result {
    uint64_t records, gradients, events;
    double seconds, cpu_seconds;
    double records_per_second, ns_per_record, ns_per_event;
};

gradweir_status records_run(const struct records_options *options, struct records_result *result);

#endif
