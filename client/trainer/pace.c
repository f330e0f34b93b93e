/* See pace.h. */
#include "client/trainer/pace.h"

#include <errno.h>
#include <time.h>

void pace_sleep(uint64_t milliseconds)
{
    struct timespec left = {
        .tv_sec = (time_t)(milliseconds / 1000),
        .tv_nsec = (long)(milliseconds % 1000) * 1000000,
    };
    while (milliseconds > 0 && nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static double seconds_of(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double pace_wall_seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double pace_cpu_seconds(void)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}
