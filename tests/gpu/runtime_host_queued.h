/* Calls of kernels on the runtime that is the CPU: each is put on its stream, and done by its twin
 * when its turn comes. The linker hands calls to these (--wrap). */
#ifndef GRADWEIR_GPU_RUNTIME_HOST_QUEUED_H
#define GRADWEIR_GPU_RUNTIME_HOST_QUEUED_H

#include "tests/gpu/runtime_host.h"

#include <stdlib.h>

/* A call of one struct of arguments. */
#define QUEUED_WORK(name, type)                                                                    \
    int __real_##name(gpu_stream stream, const type *work);                                        \
    int __wrap_##name(gpu_stream stream, const type *work);                                        \
    static void run_##name(const void *arguments)                                                  \
    {                                                                                              \
        if (__real_##name(NULL, arguments) != 0)                                                   \
            abort();                                                                               \
    }                                                                                              \
    int __wrap_##name(gpu_stream stream, const type *work)                                         \
    {                                                                                              \
        return runtime_queue(stream, run_##name, work, sizeof *work);                              \
    }

/* The others: their arguments are made one struct, `arguments`. Whoever includes this may have said
 * before what looks at it, and what takes it to the stream. */
#ifndef QUEUED_LOOK
#define QUEUED_LOOK(name) (void)0
#define QUEUED_TAKE       runtime_queue
#endif
#define QUEUED(name, parameters, fields, values, call)                                             \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    struct name##_arguments fields;                                                                \
    static void run_##name(const void *arguments)                                                  \
    {                                                                                              \
        const struct name##_arguments *a = arguments;                                              \
        if (__real_##name call != 0)                                                               \
            abort();                                                                               \
    }                                                                                              \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        const struct name##_arguments arguments = values;                                          \
        QUEUED_LOOK(name);                                                                         \
        return QUEUED_TAKE(stream, run_##name, &arguments, sizeof arguments);                      \
    }
#define WITH(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

#endif
