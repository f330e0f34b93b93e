/* See pace.h. */
#include "client/trainer/pace.h"

#include <errno.h>
#include <time.h>

static void sleep_seconds(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (seconds > 0 && nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

void pace_sleep(uint64_t milliseconds)
{
    sleep_seconds(1e-3 * (double)milliseconds);
}

void pace_sleep_after(uint64_t milliseconds, double slowness, double cpu_s)
{
    const double made_up = slowness > 1 ? (slowness - 1) * (pace_cpu_seconds() - cpu_s) : 0;
    sleep_seconds(1e-3 * (double)milliseconds * slowness + made_up);
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
