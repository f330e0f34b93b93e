/* What the cpu device's jobs do, a tile at a time: shared by device_cpu.c, which queues them, and
 * the threads that help. */
#ifndef GRADWEIR_COMMON_DEVICE_CPU_JOBS_H
#define GRADWEIR_COMMON_DEVICE_CPU_JOBS_H

#include "common/device.h"

#include <stdatomic.h>

enum cpu_job_kind { CPU_COPY, CPU_DECODE, CPU_ENCODE, CPU_GIVE_BACK, CPU_ACCUMULATE, CPU_STEP };

struct cpu_job {
    enum cpu_job_kind kind;
    uint64_t tag;
    size_t begin, end; /* elements (bytes for copy) */
    size_t pieces;     /* LAMB: sums written */
    union {
        struct device_copy copy;
        struct device_decode decode;
        struct device_encode encode;
        struct device_give_back give_back;
        struct device_accumulate accumulate;
        struct device_step step;
    };
};

/* Who computes, and in what portions. */
struct cpu_means {
    const struct arithmetic *arithmetic;
    size_t tile;
    atomic_uint largest_bits; /* decode, encode: of the job under way */
};

/* Does one tile of [at, end), a part of the job, and returns where it ended. */
size_t cpu_job_tile(struct cpu_means *means, struct cpu_job *job, size_t at, size_t end);

/* Elements (bytes) of the pieces in which several threads do the job: each piece but the last has
 * so many, and no two write to the same place. All of the job when it cannot be cut. */
size_t cpu_job_grain(const struct cpu_job *job);

#endif
