/* The operating system's clocks. */
#include "common/clock.h"

#include "common/status.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t which)
{
    struct timespec time;
    ASSERT(clock_gettime(which, &time) == 0);
    return (uint64_t)time.tv_sec * CLOCK_SECOND + (uint64_t)time.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    const uint64_t now_ns = read_clock(CLOCK_MONOTONIC);
    return now_ns ? now_ns : 1;
}

uint64_t clock_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_wall_time(char *text, size_t size)
{
    struct timespec now;
    struct tm parts;
    ASSERT(size >= 17);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    const size_t used = strftime(text, size, "%H:%M:%S", &parts);
    snprintf(text + used, size - used, ".%06ldZ", now.tv_nsec / 1000);
}

void clock_wall_name(char *text, size_t size)
{
    const time_t now = time(NULL);
    struct tm parts;
    ASSERT(gmtime_r(&now, &parts) != NULL);
    ASSERT(strftime(text, size, "%Y%m%d-%H%M%S", &parts) > 0);
}

uint64_t deadline_after(uint64_t now_ns, uint64_t wait_ns)
{
    return wait_ns > DEADLINE_NEVER - now_ns ? DEADLINE_NEVER : now_ns + wait_ns;
}

bool deadline_passed(uint64_t now_ns, uint64_t deadline_ns)
{
    return deadline_ns != DEADLINE_NEVER && now_ns >= deadline_ns;
}

int deadline_poll_ms(uint64_t now_ns, uint64_t deadline_ns)
{
    if (deadline_ns == DEADLINE_NEVER)
        return -1;
    if (now_ns >= deadline_ns)
        return 0;
    const uint64_t left_ns = deadline_ns - now_ns;
    const uint64_t left_ms = left_ns / CLOCK_MS + (left_ns % CLOCK_MS != 0);
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}
