/* Copies of bytes that are not read again soon. */
#ifndef GRADWEIR_COMMON_COPY_H
#define GRADWEIR_COMMON_COPY_H

#include <stddef.h>

/* Past the caches: for megabytes. Neither are the lines of `to` fetched first, nor do they push out
 * others. Whole when it returns, for every thread that is told so. */
void copy_past(void *to, const void *from, size_t bytes);

/* A plain copy, always by libc: the compiler makes one of a few kilobytes from rep movs, which
 * costs twice as much. */
void copy_near(void *to, const void *from, size_t bytes);

/* One of several in a row, which are whole after copy_past_end. Waiting for each would cost more
 * than a copy of some kilobytes. */
void copy_past_some(void *to, const void *from, size_t bytes);
void copy_past_end(void);

#endif
