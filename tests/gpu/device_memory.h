/* Memory that kernels see, their stream, and a stopwatch. Two of them: a GPU's
 * (device_memory_cuda.c), and the host's (device_memory_host.c), with which the check itself is
 * tested where there is no GPU: gpu_* are then the CPU's twins of the kernels (twin_*.c). */
#ifndef GRADWEIR_TESTS_GPU_DEVICE_MEMORY_H
#define GRADWEIR_TESTS_GPU_DEVICE_MEMORY_H

#include "common/status.h"
#include "gpu/kernels.h"

#include <stddef.h>

/* ERR_UNSUPPORTED, with the reason: there is no GPU to open. text: what was opened. */
gradweir_status memory_open(char *text, size_t size);
gpu_stream memory_stream(void);

/* What stands behind the host's memory: twins, or the kernels themselves on the CPU. */
extern const char *const memory_host_text;

/* Ends the program with a sentence when there is none. */
void *memory_get(size_t bytes);
void memory_free(void *memory);
void memory_put(void *device, const void *host, size_t bytes);
void memory_fetch(void *host, const void *device, size_t bytes);

/* From device to device, on the stream. */
void memory_copy(void *to, const void *from, size_t bytes);

/* Waits for the stream. False: what was started has failed, and fail_reason says how. */
bool memory_wait(void);

/* Elements of the arrays that are timed: far more than a GPU's cache holds; few, where it is a test
 * of the check. */
size_t memory_timed(void);

/* Seconds of one call, each of which starts work on the stream: the median of 9 times of `rounds`
 * calls in a row, after one that is not counted. */
double memory_seconds(void (*call)(void *), void *context, int rounds);

#endif
