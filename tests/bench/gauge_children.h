/* The real processes of a case: gradweir-server, and workers that know nothing but the public
 * client library. All of them die with this program, however it ends. */
#ifndef GRADWEIR_BENCH_GAUGE_CHILDREN_H
#define GRADWEIR_BENCH_GAUGE_CHILDREN_H

#include "tests/bench/gauge.h"

#include <sys/types.h>

enum { GAUGE_WORKERS_MAX = 256, GAUGE_LATENCIES_MAX = 1 << 16 };

enum gauge_work { GAUGE_PUSH, GAUGE_PULL, GAUGE_EXCHANGE };

/* A burst, told to every worker: until end_ns, or `operations` when that is not 0. */
struct gauge_task {
    uint32_t work; /* enum gauge_work */
    uint64_t begin_ns, end_ns, operations;
};

/* What a worker did, once all of it was applied on the servers. */
struct gauge_result {
    bool failed;
    char reason[200];
    uint64_t operations, refused;
    uint64_t begin_ns, end_ns, cpu_ns;
    uint64_t pulls; /* of exchanges: those beyond the first mean that a step was not there yet */
    uint32_t latencies_count;
};

/* In memory that both sides share: the newest latencies. */
struct gauge_shared {
    uint32_t latencies_ns[GAUGE_LATENCIES_MAX];
};

struct gauge_child {
    pid_t pid;  /* 0: none, or waited for */
    int status; /* as waitpid told it, once it has ended */
    int channel;
    struct gauge_shared *shared;
};

struct gauge_children {
    struct gauge_child server;
    struct gauge_child workers[GAUGE_WORKERS_MAX];
    uint32_t workers_count;
    char address[128];
    double server_rss_mib; /* at most, told by gauge_server_use */
};

/* Calls this first in a child: it dies with its parent, and leaves Ctrl-C to it. */
void gauge_become_child(pid_t parent);

/* Where a program of ours lies: beside this one, else NAME itself, for PATH. */
void gauge_beside(const char *name, char *path, size_t size);

/* The server of the gauge's settings, listening; the workers, bound, with first parameters and one
 * pull. ERR_*, with the reason. */
gradweir_status gauge_start_server(const struct gauge *gauge, struct gauge_children *children);
gradweir_status gauge_start_workers(const struct gauge *gauge, struct gauge_children *children);

/* Hands a task to all workers and waits for all results. Whoever ends meanwhile, server or worker,
 * is named at once, with how it ended. */
gradweir_status gauge_burst(struct gauge_children *children, const struct gauge_task *task,
                            struct gauge_result *results);

/* The server's CPU so far; notes its peak of memory. 0 when it is gone. */
uint64_t gauge_server_cpu_ns(const struct gauge_children *children);
void gauge_server_memory(struct gauge_children *children);

/* Ends workers in order, then the server; kills who does not. */
void gauge_end(struct gauge_children *children);

/* The worker's side: never returns. */
void gauge_worker(const struct gauge *gauge, const char *address, uint32_t number, int channel,
                  struct gauge_shared *shared);

#endif
