/* See copy.h. */
#include "common/copy.h"

#include "common/arithmetic_stream.h"

void copy_near(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void copy_past_some(void *to, const void *from, size_t bytes)
{
    const size_t n = bytes / sizeof(float);
    if ((uintptr_t)to % sizeof(float) || (uintptr_t)from % sizeof(float)) {
        memcpy(to, from, bytes);
        return;
    }
    stream(to, from, n);
    memcpy((float *)to + n, (const float *)from + n, bytes - n * sizeof(float));
}

void copy_past_end(void)
{
    stream_end();
}

void copy_past(void *to, const void *from, size_t bytes)
{
    copy_past_some(to, from, bytes);
    copy_past_end();
}
