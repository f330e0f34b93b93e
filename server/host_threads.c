/* Shards of one machine share its cores: those of this process, and those of processes beside it
 * whose coordinator is on this machine too (--supervise starts them so). */
#include "server/host_threads.h"

#include <sched.h>
#include <string.h>

enum {
    THREADS_AUTO_MAX = 8,   /* memory has no more to give */
    CORES_FEW = 4,          /* below: workers and the coordinator need the others */
    AHEAD_ELEMENTS = 16384, /* a smaller range is stepped in a few microseconds */
    GPU_THREADS = 16        /* what a GPU counts as: 4 Mi elements a tile, or a tile is too short */
};

uint32_t host_threads_of(int64_t asked, uint32_t cores, uint32_t shards)
{
    if (asked != SETTING_WORD)
        return (uint32_t)asked;
    const uint32_t part = cores / (shards ? shards : 1);
    if (cores < CORES_FEW || part == 0)
        return 1;
    return part < THREADS_AUTO_MAX ? part : THREADS_AUTO_MAX;
}

/* Where threads outnumber cores, passing messages between them costs more than they gain. A worker
 * that pushes from here is one more. */
bool host_threads_share(uint32_t cores, uint32_t shards)
{
    const uint32_t coordinator = 1, worker = 1;
    return cores < coordinator + shards + worker;
}

static uint32_t shards_of_machine(const struct host_options *options, uint32_t shards)
{
    const bool beside =
        options->only_shard != SETTING_WORD && (strncmp(options->coordinator, "127.", 4) == 0 ||
                                                strncmp(options->coordinator, "localhost", 9) == 0);
    return beside ? options->shards : shards;
}

void host_threads_choose(struct host_options *options, uint32_t shards, const struct log *log)
{
    cpu_set_t set;
    const uint32_t cores =
        sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    const uint32_t all = shards_of_machine(options, shards);
    const uint32_t threads =
        host_threads_of(settings_int(options->settings, "shard_threads"), cores, all);
    options->shard_threads = threads;
    options->crowded = threads * all > cores;
    options->shard.tile_elements =
        shard_tile(strcmp(options->device, "cpu") == 0 ? threads : GPU_THREADS);
    const bool ahead = options->step_ahead && threads == 1 && strcmp(options->device, "cpu") == 0;
    options->shard.ahead = ahead ? AHEAD_ELEMENTS : 0;
    if (threads > 1)
        log_line(log, LOG_INFO, "host", "%u threads compute for each of %u shards on %u cores%s",
                 threads, all, cores, options->crowded ? ", more than there are" : "");
}
