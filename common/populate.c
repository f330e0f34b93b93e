/* See populate.h. */
#include "common/populate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The number behind `name` in a file of "name value" lines; behind nothing when name is "". */
static uint64_t read_number(const char *path, const char *name)
{
    uint64_t number = UINT64_MAX;
    char line[256];
    FILE *file = fopen(path, "r");
    while (file && number == UINT64_MAX && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 &&
            sscanf(line + strlen(name), " %" SCNu64, &number) != 1)
            number = UINT64_MAX;
    if (file)
        fclose(file);
    return number;
}

/* Pages of files that nobody has used lately are given up before anybody is killed. */
static uint64_t left_to_group(void)
{
    const uint64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
    const uint64_t used = read_number("/sys/fs/cgroup/memory.current", "");
    const uint64_t files = read_number("/sys/fs/cgroup/memory.stat", "inactive_file ");
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    const uint64_t spare = files == UINT64_MAX ? 0 : files;
    return limit + spare > used ? limit + spare - used : 0;
}

uint64_t populate_available(void)
{
    const uint64_t kib = read_number("/proc/meminfo", "MemAvailable:");
    const uint64_t machine = kib == UINT64_MAX ? UINT64_MAX : kib * 1024;
    const uint64_t group = left_to_group();
    return machine < group ? machine : group;
}

/* For kernels before 5.14: a write to each page that changes nothing. */
static void touch(volatile char *memory, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t i = 0; i < bytes; i += page)
        memory[i] = memory[i];
}

gradweir_status populate_memory(void *memory, uint64_t bytes)
{
    const uint64_t available = populate_available();
    if (bytes > available)
        return fail(GRADWEIR_ERR_NO_MEMORY,
                    "%.1f MiB are wanted, and the machine or its control group has %.1f MiB left",
                    (double)bytes / 0x1p20, (double)available / 0x1p20);
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* asked, not forced */
#endif
#ifdef MADV_POPULATE_WRITE
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return GRADWEIR_OK;
    if (errno != EINVAL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "%.1f MiB could not be made real: %s",
                    (double)bytes / 0x1p20, strerror(errno));
#endif
    touch(memory, bytes);
    return GRADWEIR_OK;
}

void populate_huge(void *memory, uint64_t bytes)
{
    const uint64_t worth_it = UINT64_C(4) << 20; /* two huge pages */
    if (bytes >= worth_it)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
}
