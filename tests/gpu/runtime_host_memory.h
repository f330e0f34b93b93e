/* Between the two halves of the runtime on the host. */
#ifndef GRADWEIR_GPU_RUNTIME_HOST_MEMORY_H
#define GRADWEIR_GPU_RUNTIME_HOST_MEMORY_H

#include "tests/gpu/runtime_host.h"

/* Opens the GPU's memory to what runs there, or closes it; returns how it was. */
bool runtime_memory_open(bool open);

void runtime_memory_count(struct runtime_counts *counts);

/* Does what is on the stream. */
void runtime_finish(cudaStream_t stream);
bool runtime_captures(cudaStream_t stream);

#endif
