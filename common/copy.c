/* See copy.h. */
#include "common/copy.h"

#include "common/arithmetic_stream.h"

void copy_past(void *to, const void *from, size_t bytes)
{
    const size_t n = bytes / sizeof(float);
    if ((uintptr_t)to % sizeof(float) || (uintptr_t)from % sizeof(float)) {
        memcpy(to, from, bytes);
        return;
    }
    stream(to, from, n);
    memcpy((float *)to + n, (const float *)from + n, bytes - n * sizeof(float));
    stream_end();
}
