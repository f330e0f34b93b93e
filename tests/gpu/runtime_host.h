/* A CUDA runtime that is this CPU, as unkind as a GPU may be: what is put on a stream is not done
 * before somebody waits, and then not at the first asking; the GPU's memory can be touched by
 * nobody but what runs there, and comes full of poison. For tests of what stands on the runtime. */
#ifndef GRADWEIR_GPU_RUNTIME_HOST_H
#define GRADWEIR_GPU_RUNTIME_HOST_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

enum { RUNTIME_ARGUMENTS_MAX = 512 };

/* Puts `run` on the stream, or into the graph that is being captured from it; it gets a copy of the
 * arguments. Returns a cudaError_t. */
int runtime_queue(cudaStream_t stream, void (*run)(const void *arguments), const void *arguments,
                  size_t bytes);

/* Whether the n bytes are the GPU's memory. */
bool runtime_on_gpu(const void *memory, size_t bytes);

/* Where a network card reaches the n bytes of the GPU's memory; NULL: they are not its. */
const void *runtime_reach(const void *memory, size_t bytes);

/* What went on so far: a test looks whether graphs were made and replayed, and memory given back.
 */
struct runtime_counts {
    unsigned captured, launched, allocated, pinned, streams;
};
struct runtime_counts runtime_counts(void);

/* From now on allocations fail when more than that many bytes are taken; 0: no limit. */
void runtime_limit(size_t bytes);

/* Whether what runs there may touch these bytes: the GPU's memory, or the host's that is pinned. */
bool runtime_reaches(const void *memory, size_t bytes);

/* The n-th asking for an event from now on fails, and the GPU with it; 0: none. */
void runtime_fail_event(unsigned n);

/* The n-th launch of a graph from now on fails; 0: none. */
void runtime_fail_launch(unsigned n);

#endif
