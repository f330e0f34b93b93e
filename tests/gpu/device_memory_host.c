#include "tests/gpu/device_memory.h"

#include "common/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gradweir_status memory_open(char *text, size_t size)
{
    snprintf(text, size, "%s", memory_host_text);
    return GRADWEIR_OK;
}

gpu_stream memory_stream(void)
{
    return NULL;
}

void *memory_get(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        printf("device_check: no memory\n");
        exit(1);
    }
    return memory;
}

void memory_free(void *memory)
{
    free(memory);
}

void memory_put(void *device, const void *host, size_t bytes)
{
    memcpy(device, host, bytes);
}

void memory_fetch(void *host, const void *device, size_t bytes)
{
    memcpy(host, device, bytes);
}

void memory_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

bool memory_wait(void)
{
    return true;
}

size_t memory_timed(void)
{
    return 1 << 16;
}

double memory_seconds(void (*call)(void *), void *context, int rounds)
{
    const uint64_t before = clock_now_ns();
    for (int i = 0; i < rounds; i++)
        call(context);
    return (double)(clock_now_ns() - before) / 1e9 / rounds;
}
