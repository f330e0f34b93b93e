/* Why there is no GPU to open, in words that say what to do: for both seams. */
#ifndef GRADWEIR_GPU_CUDA_ABSENT_H
#define GRADWEIR_GPU_CUDA_ABSENT_H

#include <cuda_runtime_api.h>
#include <stddef.h>

/* error: of the call that looked for GPUs, or cudaErrorNoDevice where it found none. */
void cuda_absent(cudaError_t error, char *text, size_t size);

#endif
