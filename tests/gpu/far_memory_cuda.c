/* far_worker's device memory (tests/unit/device_far.h) is a GPU's: with this it is gpu_worker,
 * whose library has the real device, and the network that is there. */
#include "tests/integration/ucx_far.h"
#include "tests/unit/device_far.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

struct device_far_faults device_far_faults;
struct device_far_seen device_far_seen;
const void *(*ucx_far_reach)(const void *pointer, size_t bytes);
bool ucx_far_knows;
uint64_t ucx_far_sent;

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf("{\"failed\":\"%s\",\"reason\":\"%s\"}\n", what, cudaGetErrorString(error));
    exit(1);
}

void *device_far_new(size_t bytes, uint32_t ordinal)
{
    void *memory = NULL;
    must(cudaSetDevice((int)ordinal), "choosing a GPU");
    must(cudaMalloc(&memory, bytes), "memory of the GPU");
    must(cudaMemset(memory, 0, bytes), "clearing the GPU's memory");
    return memory;
}

void device_far_put(void *far, const void *from, size_t bytes)
{
    must(cudaMemcpy(far, from, bytes, cudaMemcpyHostToDevice), "copying to the GPU");
}

void device_far_get(const void *far, void *to, size_t bytes)
{
    must(cudaMemcpy(to, far, bytes, cudaMemcpyDeviceToHost), "copying from the GPU");
}

void device_far_delete(void *far)
{
    must(cudaFree(far), "freeing the GPU's memory");
}

const void *device_far_reach(const void *far, size_t bytes)
{
    (void)bytes;
    return far;
}
