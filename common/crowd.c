/* See crowd.h. */
#include "common/crowd.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

bool crowd_asks(const struct crowd *crowd, uint64_t now_ns)
{
    return now_ns >= crowd->judge_ns;
}

static bool harms(const struct crowd *crowd, uint64_t now_ns, struct crowd_times times)
{
    const struct crowd_times *since = &crowd->since;
    if (times.waited_ns < since->waited_ns || times.ran_ns < since->ran_ns)
        return false; /* of another thread: nothing is known yet */
    const uint64_t waited = times.waited_ns - since->waited_ns;
    const uint64_t wanted = waited + times.ran_ns - since->ran_ns;
    const uint64_t pressed = times.pressed_ns - since->pressed_ns;
    const bool vain = crowd->looks >= CROWD_LOOKS_MIN && crowd->found < crowd->looks / CROWD_VAIN;
    return vain || waited > wanted / CROWD_PARTS ||
           pressed > (now_ns - crowd->since_ns) / CROWD_PRESSED_PARTS;
}

void crowd_told(struct crowd *crowd, uint64_t now_ns, struct crowd_times times)
{
    uint64_t rest_ns = crowd->rest_ns ? crowd->rest_ns : CROWD_REST_MIN_NS;
    if (crowd->may_look && harms(crowd, now_ns, times)) {
        crowd->may_look = false;
        crowd->judge_ns = now_ns + rest_ns;
        rest_ns = rest_ns < CROWD_REST_MAX_NS / 2 ? rest_ns * 2 : CROWD_REST_MAX_NS;
    } else {
        if (crowd->may_look && rest_ns > CROWD_REST_MIN_NS)
            rest_ns -= rest_ns / 8;
        crowd->may_look = true;
        crowd->judge_ns = now_ns + CROWD_TRIAL_NS;
    }
    crowd->rest_ns = rest_ns;
    crowd->since = times;
    crowd->since_ns = now_ns;
    crowd->looks = crowd->found = 0;
}

static void source_open(struct crowd_source *source, int thread)
{
    cpu_set_t cores;
    crowd_source_close(source);
    source->thread = thread;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 1)
        source->fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (source->fd >= 0)
        source->pressure_fd = open("/proc/pressure/cpu", O_RDONLY | O_CLOEXEC);
}

static bool read_text(int fd, char *text, size_t size)
{
    const ssize_t length = fd < 0 ? -1 : pread(fd, text, size - 1, 0);
    if (length <= 0)
        return false;
    text[length] = 0;
    return true;
}

bool crowd_source_read(struct crowd_source *source, struct crowd_times *times)
{
    const int thread = (int)syscall(SYS_gettid);
    unsigned long long ran, waited, pressed = 0;
    char text[256];
    if (source->thread != thread)
        source_open(source, thread);
    if (!read_text(source->fd, text, sizeof text) || sscanf(text, "%llu %llu", &ran, &waited) != 2)
        return false;
    if (read_text(source->pressure_fd, text, sizeof text)) {
        const char *some = strstr(text, "total="); /* the first line's, in microseconds */
        if (!some || sscanf(some, "total=%llu", &pressed) != 1)
            pressed = 0;
    }
    *times = (struct crowd_times){.ran_ns = ran, .waited_ns = waited, .pressed_ns = pressed * 1000};
    return true;
}

void crowd_source_close(struct crowd_source *source)
{
    if (source->thread && source->fd >= 0)
        close(source->fd);
    if (source->thread && source->pressure_fd >= 0)
        close(source->pressure_fd);
    *source = (struct crowd_source){.fd = -1, .pressure_fd = -1};
}
