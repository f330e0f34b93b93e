/* See runtime_host.h: streams, graphs and their order. Memory is runtime_host_memory.c. */
#include "tests/gpu/runtime_host.h"

#include "tests/gpu/runtime_host_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OPS_MAX = 1 << 16 };

struct op {
    void (*run)(const void *arguments);
    max_align_t arguments[RUNTIME_ARGUMENTS_MAX / sizeof(max_align_t)];
};

struct CUgraph_st {
    struct op *ops;
    size_t n;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
};

/* ops [done, given) are still to do; both count on for ever. */
struct CUstream_st {
    struct op *ops;
    uint64_t done, given;
    struct CUgraph_st *capturing;
    uint32_t chance;
};

struct CUevent_st {
    struct CUstream_st *stream;
    uint64_t at; /* all before it are done when it is */
};

static struct runtime_counts counts;
static unsigned launches_until_failure, events_until_failure;

struct runtime_counts runtime_counts(void)
{
    runtime_memory_count(&counts);
    return counts;
}

void runtime_fail_launch(unsigned n)
{
    launches_until_failure = n;
}

void runtime_fail_event(unsigned n)
{
    events_until_failure = n;
}

static void run_until(struct CUstream_st *stream, uint64_t at)
{
    const bool was_open = runtime_memory_open(true);
    while (stream->done < at) {
        const struct op *op = &stream->ops[stream->done % OPS_MAX];
        op->run(op->arguments);
        stream->done++;
    }
    runtime_memory_open(was_open);
}

static int put(struct CUstream_st *stream, const struct op *op)
{
    if (stream->capturing != NULL) {
        struct CUgraph_st *graph = stream->capturing;
        if (graph->n == OPS_MAX)
            return cudaErrorMemoryAllocation;
        graph->ops[graph->n++] = *op;
        return cudaSuccess;
    }
    if (stream->given - stream->done == OPS_MAX)
        run_until(stream, stream->done + 1);
    stream->ops[stream->given++ % OPS_MAX] = *op;
    return cudaSuccess;
}

int runtime_queue(cudaStream_t stream, void (*run)(const void *), const void *arguments,
                  size_t bytes)
{
    struct op op = {.run = run};
    if (bytes > sizeof op.arguments)
        abort();
    memcpy(op.arguments, arguments, bytes);
    return put(stream, &op);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    struct CUstream_st *made = calloc(1, sizeof *made);
    (void)flags;
    made->ops = malloc(OPS_MAX * sizeof *made->ops);
    made->chance = 12345;
    counts.streams++;
    *stream = made;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    run_until(stream, stream->given);
    counts.streams--;
    free(stream->ops);
    free(stream);
    return cudaSuccess;
}

/* Some of it is done by now, and now and then all. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    stream->chance = stream->chance * 1664525u + 1013904223u;
    const uint64_t left = stream->given - stream->done;
    if (stream->capturing != NULL)
        return cudaErrorStreamCaptureUnsupported;
    run_until(stream, stream->done + (stream->chance >> 31 == 0 ? left : left / 2));
    return stream->done == stream->given ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    run_until(stream, stream->given);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (stream->capturing != NULL)
        return cudaErrorStreamCaptureUnsupported;
    *event = (struct CUevent_st){stream, stream->given};
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event->stream != NULL)
        run_until(event->stream, event->at);
    return cudaSuccess;
}

/* Some of what is before it is done by now. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (events_until_failure > 0 && --events_until_failure == 0)
        return cudaErrorIllegalAddress;
    if (event->stream == NULL || event->stream->done >= event->at)
        return cudaSuccess;
    run_until(event->stream, event->stream->done + (event->at - event->stream->done + 1) / 2);
    return event->stream->done >= event->at ? cudaSuccess : cudaErrorNotReady;
}

static void wait_for(const void *arguments)
{
    const struct CUevent_st *event = arguments;
    if (event->stream != NULL)
        run_until(event->stream, event->at);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    if (stream->capturing != NULL)
        return cudaErrorStreamCaptureUnsupported;
    return event->stream == stream
               ? cudaSuccess
               : (cudaError_t)runtime_queue(stream, wait_for, event, sizeof *event);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    if (stream->capturing != NULL)
        return cudaErrorIllegalState;
    stream->capturing = calloc(1, sizeof *stream->capturing);
    stream->capturing->ops = malloc(OPS_MAX * sizeof *stream->capturing->ops);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = stream->capturing;
    stream->capturing = NULL;
    return *graph == NULL ? cudaErrorIllegalState : cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    struct CUgraphExec_st *made = calloc(1, sizeof *made);
    made->graph.n = graph->n;
    made->graph.ops = malloc((graph->n + 1) * sizeof *graph->ops);
    memcpy(made->graph.ops, graph->ops, graph->n * sizeof *graph->ops);
    counts.captured++;
    *exec = made;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (launches_until_failure > 0 && --launches_until_failure == 0)
        return cudaErrorIllegalAddress;
    for (size_t i = 0; i < exec->graph.n; i++)
        put(stream, &exec->graph.ops[i]);
    counts.launched++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    free(graph->ops);
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    free(exec->graph.ops);
    free(exec);
    return cudaSuccess;
}

void runtime_finish(cudaStream_t stream)
{
    run_until(stream, stream->given);
}

bool runtime_captures(cudaStream_t stream)
{
    return stream->capturing != NULL;
}
