/* Time, for shells only: cores get it as a field of their events.
 *
 * Everything is decided by the monotonic clock, in nanoseconds. Wall time serves names of files and
 * nothing else. */
#ifndef GRADWEIR_COMMON_CLOCK_H
#define GRADWEIR_COMMON_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLOCK_MS       UINT64_C(1000000)
#define CLOCK_SECOND   UINT64_C(1000000000)
#define DEADLINE_NEVER UINT64_MAX

/* Monotonic time. Never 0. */
uint64_t clock_now_ns(void);

/* CPU time of this process, all threads. */
uint64_t clock_cpu_ns(void);

/* "20260131-235959" in UTC, for names of files. Needs 16 bytes; ASSERTs it. */
void clock_wall_name(char *text, size_t size);

/* "23:59:59.123456Z", the time of day in UTC, for people. Needs 17 bytes; ASSERTs it. */
void clock_wall_time(char *text, size_t size);

/* The deadline `wait_ns` after now; never wraps, DEADLINE_NEVER stays never. */
uint64_t deadline_after(uint64_t now_ns, uint64_t wait_ns);

bool deadline_passed(uint64_t now_ns, uint64_t deadline_ns);

/* What poll(2) wants: -1 for never, 0 when passed, else milliseconds rounded up so that a waiter
 * does not spin. */
int deadline_poll_ms(uint64_t now_ns, uint64_t deadline_ns);

#endif
