/* A shard's arena in private memory or in a file: found, locked, checked, made, removed. Whether
 * what lies in it can be believed is the core's to say (shard_resume). */
#include "server/host_shard_memory.h"

#include "common/populate.h"
#include "server/host_shard_mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const double mib = 1024.0 * 1024.0;

static bool in_file(const struct shard_loop *loop)
{
    return loop->host->options->arena_dir[0] != 0;
}

static void name_file(struct shard_loop *loop)
{
    const struct host_options *options = loop->host->options;
    snprintf(loop->arena_path, sizeof loop->arena_path, "%.900s/gradweir-%016llx-shard-%u",
             options->arena_dir, (unsigned long long)options->job, loop->host->index);
}

static gradweir_status taken(const struct shard_loop *loop)
{
    return fail(GRADWEIR_ERR_STATE,
                "%s: another process has it: give each job its own --job, which this name is made "
                "of",
                loop->arena_path);
}

/* A process that has just died may still hold its lock for as long as its memory takes to go. */
static gradweir_status lock_file(const struct shard_loop *loop)
{
    for (int tries = 0; flock(loop->arena_fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK)
            return fail(GRADWEIR_ERR_IO, "%s: %s", loop->arena_path, strerror(errno));
        if (tries == 200)
            return taken(loop);
        usleep(10000);
    }
    return GRADWEIR_OK;
}

static gradweir_status map_file(struct shard_loop *loop, void **arena)
{
    *arena = mmap(NULL, loop->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, loop->arena_fd, 0);
    if (*arena == MAP_FAILED)
        return fail(GRADWEIR_ERR_NO_MEMORY, "%s: %llu bytes: %s", loop->arena_path,
                    (unsigned long long)loop->arena_bytes, strerror(errno));
    return GRADWEIR_OK;
}

/* Ours, and a plain file: in a folder that everybody may write to, it could be anything. */
static gradweir_status look_at_file(struct shard_loop *loop)
{
    struct stat about;
    if (fstat(loop->arena_fd, &about) != 0)
        return fail(GRADWEIR_ERR_IO, "%s: %s", loop->arena_path, strerror(errno));
    if (!S_ISREG(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077))
        return fail(GRADWEIR_ERR_REFUSED,
                    "%s: it is no file of this user alone. Remove it, or give another --arena_dir",
                    loop->arena_path);
    loop->arena_bytes = (uint64_t)about.st_size;
    return GRADWEIR_OK;
}

static gradweir_status in_use(struct shard_loop *loop, bool goes_on)
{
    TRY(shard_loop_tables(loop));
    TRY(loop->device->pin(loop->device_state, loop->shard, loop->arena_bytes));
    loop->pinned = true;
    TRY(shard_mirror_open(loop, goes_on));
    return transport_memory_map(loop->transport, loop->shard, loop->arena_bytes,
                                &loop->arena_memory);
}

static gradweir_status resume(struct shard_loop *loop, void *arena)
{
    const struct host_options *options = loop->host->options;
    struct shard_options shard = options->shard;
    char text[256];
    shard.member.job = options->job;
    shard.member.shard = loop->host->index;
    const gradweir_status status =
        shard_resume(arena, loop->arena_bytes, &options->order.law, &shard, text, sizeof text);
    if (status != GRADWEIR_OK) {
        munmap(arena, loop->arena_bytes);
        char why[400];
        snprintf(why, sizeof why, "%.390s", fail_reason());
        return fail(status, "%s: %s. %s: what it holds is lost then", loop->arena_path, why,
                    status == GRADWEIR_ERR_CORRUPT
                        ? "Remove the file to start anew (a recording can be replayed up to there)"
                        : "Start with the settings of that run to go on with it, or remove the "
                          "file to start anew");
    }
    loop->shard = arena;
    loop->member = *shard_member(loop->shard);
    loop->epoch = shard_promise(loop->shard);
    log_line(loop->host->log, LOG_INFO, "memory", "shard %u goes on in %s: %s", loop->host->index,
             loop->arena_path, text);
    return in_use(loop, true);
}

/* The process died before it said READY: nobody counts on what is in there. */
static void remove_unfinished(struct shard_loop *loop)
{
    log_line(loop->host->log, LOG_INFO, "memory",
             "shard %u: %s was never finished: removed, nothing is lost", loop->host->index,
             loop->arena_path);
    unlink(loop->arena_path);
    close(loop->arena_fd);
    loop->arena_fd = -1;
}

gradweir_status shard_memory_find(struct shard_loop *loop)
{
    void *arena = NULL;
    loop->arena_fd = -1;
    if (!in_file(loop))
        return GRADWEIR_OK;
    name_file(loop);
    loop->arena_fd = open(loop->arena_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (loop->arena_fd < 0 && errno == ENOENT)
        return GRADWEIR_OK;
    if (loop->arena_fd < 0 && errno == EACCES)
        return fail(GRADWEIR_ERR_REFUSED,
                    "%s: it is another user's: give each job its own --job, or another --arena_dir",
                    loop->arena_path);
    if (loop->arena_fd < 0)
        return fail(GRADWEIR_ERR_IO, "%s: %s", loop->arena_path, strerror(errno));
    TRY(lock_file(loop)); /* first: what is in another living job's is none of our business */
    TRY(look_at_file(loop));
    if (loop->arena_bytes)
        TRY(map_file(loop, &arena));
    if (!arena || !shard_arena_begun(arena, loop->arena_bytes)) {
        if (arena)
            munmap(arena, loop->arena_bytes);
        remove_unfinished(loop);
        return GRADWEIR_OK;
    }
    return resume(loop, arena);
}

static gradweir_status make_file(struct shard_loop *loop, void **arena)
{
    const char *folder = loop->host->options->arena_dir;
    const uint64_t available = populate_available();
    if (loop->arena_bytes > available)
        return fail(GRADWEIR_ERR_NO_MEMORY, "shard %u: its arena needs %.1f MiB, %.1f are left",
                    loop->host->index, (double)loop->arena_bytes / mib, (double)available / mib);
    loop->arena_fd =
        open(loop->arena_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (loop->arena_fd < 0 && errno == EEXIST) /* it was not there when we started */
        return taken(loop);
    if (loop->arena_fd < 0)
        return fail(GRADWEIR_ERR_IO, "%s: %s", loop->arena_path, strerror(errno));
    TRY(lock_file(loop));
    const int error = posix_fallocate(loop->arena_fd, 0, (off_t)loop->arena_bytes);
    if (error) {
        unlink(loop->arena_path);
        return fail(GRADWEIR_ERR_NO_MEMORY,
                    "shard %u: %.1f MiB for its arena in %s: %s. A container's /dev/shm has 64 MiB "
                    "unless told otherwise (--shm-size; emptyDir: {medium: Memory, sizeLimit})",
                    loop->host->index, (double)loop->arena_bytes / mib, folder, strerror(error));
    }
    return map_file(loop, arena);
}

static gradweir_status make_private(struct shard_loop *loop, void **arena)
{
    *arena =
        mmap(NULL, loop->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*arena == MAP_FAILED)
        return fail(GRADWEIR_ERR_NO_MEMORY, "shard %u: %llu bytes for its arena: %s",
                    loop->member.shard, (unsigned long long)loop->arena_bytes, strerror(errno));
    populate_huge(*arena, loop->arena_bytes);
    return populate_memory(*arena, loop->arena_bytes);
}

gradweir_status shard_memory_take(struct shard_loop *loop, const struct model *model)
{
    const struct host_options *options = loop->host->options;
    struct shard_options shard = options->shard;
    char plan[1024];
    void *arena = NULL;
    shard.member = loop->member;
    shard.epoch = loop->epoch;
    TRY(shard_arena_bytes(model, &options->order.law, &shard, &loop->arena_bytes, plan,
                          sizeof plan));
    for (char *line = strtok(plan, "\n"); line; line = strtok(NULL, "\n"))
        log_line(loop->host->log, LOG_INFO, "memory", "shard %u: %s", loop->member.shard, line);
    const gradweir_status status =
        in_file(loop) ? make_file(loop, &arena) : make_private(loop, &arena);
    TRY(status);
    TRY(shard_init(arena, loop->arena_bytes, model, &options->order.law, &shard));
    loop->shard = arena;
    return in_use(loop, false);
}

gradweir_status shard_memory_device(struct shard_loop *loop)
{
    const struct host_options *options = loop->host->options;
    struct device_info info;
    loop->device = device_find(options->device);
    if (loop->device == NULL)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "device %s: this program was built without it",
                    options->device);
    TRY(loop->device->open(&(struct device_options){.simd = options->simd,
                                                    .ordinal = options->gpu,
                                                    .threads = options->shard_threads,
                                                    .crowded = options->crowded},
                           &loop->device_state));
    loop->device->info(loop->device_state, &info);
    loop->device_sums = !info.host_memory;
    return GRADWEIR_OK;
}

void shard_memory_device_close(struct shard_loop *loop)
{
    if (!loop->device)
        return;
    shard_mirror_close(loop);
    if (loop->pinned)
        loop->device->unpin(loop->device_state, loop->shard, loop->arena_bytes);
    loop->pinned = false;
    loop->device->close(loop->device_state);
}

gradweir_status shard_memory_fits(const struct shard_loop *loop,
                                  const struct message_member *member)
{
    const struct message_member *have = shard_member(loop->shard);
    if (have->job == member->job && have->shard == member->shard &&
        have->members == member->members && have->first == member->first &&
        have->count == member->count && have->moments == member->moments &&
        have->slots == member->slots && have->parameter_slots == member->parameter_slots &&
        have->layout_hash == member->layout_hash && have->ring == member->ring)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_MISMATCH,
                "%s is of another layout, number of shards, window or queue than the coordinator "
                "has. Start that with the settings of the arena's run, or remove the file: what "
                "it holds is lost then",
                in_file(loop) ? loop->arena_path : "the arena");
}

void shard_memory_close(struct shard_loop *loop)
{
    if (loop->shard)
        munmap(loop->shard, loop->arena_bytes);
    if (loop->arena_fd < 0 || !in_file(loop))
        return;
    if (loop->stopped)
        unlink(loop->arena_path);
    close(loop->arena_fd);
}
