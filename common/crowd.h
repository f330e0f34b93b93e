/* Whether a thread that has nothing to do may look for something instead of sleeping: only while
 * nobody else wants its core, and while looking finds something.
 *
 * The kernel counts how long a thread ran, and how long it could have run while others did
 * (/proc/thread-self/schedstat). A thread that may look is judged every CROWD_TRIAL_NS: when of the
 * time that it wanted a core more than one part in CROWD_PARTS went by in waiting for it, or when
 * of its looks not one in CROWD_VAIN found anything, it rests from looking, CROWD_REST_MIN_NS at
 * first and twice as long each time, up to CROWD_REST_MAX_NS. So where looking does harm it is
 * tried for one trial in fifty. Where the kernel does not say, or the process has one core, nobody
 * looks.
 *
 * Who looks is never idle, so what waits for another core is not brought to his. That he does not
 * see in his own times: it is when somebody on this machine waited (/proc/pressure/cpu, where there
 * is one) for more than one part in CROWD_PRESSED_PARTS of the trial. */
#ifndef GRADWEIR_COMMON_CROWD_H
#define GRADWEIR_COMMON_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#define CROWD_TRIAL_NS    (UINT64_C(10) * 1000000)
#define CROWD_REST_MIN_NS (UINT64_C(20) * 1000000)
#define CROWD_REST_MAX_NS (UINT64_C(500) * 1000000)

enum { CROWD_PARTS = 16, CROWD_PRESSED_PARTS = 3, CROWD_VAIN = 4, CROWD_LOOKS_MIN = 8 };

/* Of one thread, since it began; and how long anybody on this machine waited for a core, 0: not
 * told. */
struct crowd_times {
    uint64_t ran_ns, waited_ns, pressed_ns;
};

/* All zeros at first. */
struct crowd {
    bool may_look;
    uint32_t looks, found; /* in this trial */
    uint64_t since_ns;     /* when it began */
    uint64_t judge_ns;     /* when the next times are wanted */
    uint64_t rest_ns;      /* how long it will rest next; 0: CROWD_REST_MIN_NS */
    struct crowd_times since;
};

/* Whether crowd_told() is due. */
bool crowd_asks(const struct crowd *crowd, uint64_t now_ns);

/* The thread's times now. `crowd->may_look` is the answer. */
void crowd_told(struct crowd *crowd, uint64_t now_ns, struct crowd_times times);

/* Where the kernel says these times of the thread that calls. All zeros at first. */
struct crowd_source {
    int thread;      /* 0: not opened yet */
    int fd;          /* of `thread`'s schedstat; -1: none */
    int pressure_fd; /* -1: none */
};

/* False: the kernel does not say, or there is one core. Opens the source when it is first called,
 * and anew when another thread calls. */
bool crowd_source_read(struct crowd_source *source, struct crowd_times *times);
void crowd_source_close(struct crowd_source *source);

#endif
