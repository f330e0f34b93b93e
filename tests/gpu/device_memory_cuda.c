#include "tests/gpu/device_memory.h"

#include "common/device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

static cudaStream_t stream;

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf("device_check: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

gradweir_status memory_open(char *text, size_t size)
{
    const struct device_options options = {0};
    struct device_state *state = NULL;
    struct device_info info;
    TRY(device_cuda.open(&options, &state)); /* it knows the sentences */
    device_cuda.info(state, &info);
    snprintf(text, size, "%s", info.text);
    device_cuda.close(state);
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no stream");
    return GRADWEIR_OK;
}

gpu_stream memory_stream(void)
{
    return stream;
}

void *memory_get(size_t bytes)
{
    void *memory = NULL;
    must(cudaMalloc(&memory, bytes), "no memory on the GPU");
    return memory;
}

void memory_free(void *memory)
{
    must(cudaFree(memory), "freeing memory");
}

void memory_put(void *device, const void *host, size_t bytes)
{
    must(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copying to the GPU");
}

void memory_fetch(void *host, const void *device, size_t bytes)
{
    must(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copying from the GPU");
}

void memory_copy(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copying on the GPU");
}

bool memory_wait(void)
{
    const cudaError_t error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess)
        return true;
    (void)fail(GRADWEIR_ERR_LOST, "%s", cudaGetErrorString(error));
    return false;
}

size_t memory_timed(void)
{
    return 1 << 26; /* 256 MiB of floats */
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

double memory_seconds(void (*call)(void *), void *context, int rounds)
{
    cudaEvent_t before, after;
    float ms[9];
    must(cudaEventCreate(&before), "no event");
    must(cudaEventCreate(&after), "no event");
    call(context);
    for (int i = 0; i < 9; i++) {
        must(cudaEventRecord(before, stream), "timing");
        for (int k = 0; k < rounds; k++)
            call(context);
        must(cudaEventRecord(after, stream), "timing");
        must(cudaEventSynchronize(after), "timing");
        must(cudaEventElapsedTime(&ms[i], before, after), "timing");
    }
    must(cudaEventDestroy(before), "timing");
    must(cudaEventDestroy(after), "timing");
    qsort(ms, 9, sizeof *ms, by_size);
    return (double)ms[4] / 1e3 / rounds;
}
