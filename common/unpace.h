/* How TCP paces what stays on this host.
 *
 * BBR models a path: it lets bytes go at the rate that it has seen arrive, by a timer. Between two
 * processes of one host there is no path to model; the timers cost the sender up to a third of its
 * time, and a receiver that was not running is taken for a slow path (tests/bench/CHANGES.md).
 * Where the system's choice is BBR, connections between two equal addresses get CUBIC instead, or
 * Reno. Others keep what the system chose.
 *
 * UCX does not show its sockets, but waits for them by epoll, and the kernel lists who is waited
 * for (/proc/self/fdinfo). So no socket of anybody else is touched. Where it does not, nothing is
 * changed. */
#ifndef GRADWEIR_COMMON_UNPACE_H
#define GRADWEIR_COMMON_UNPACE_H

/* All that this epoll waits for now, and the epolls that it waits for, three deep. */
void unpace(int epoll_fd);

#endif
