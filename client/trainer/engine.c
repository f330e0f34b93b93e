/* The table of engines, and what people write to name one. The one #ifdef of each backend is here.
 */
#include "client/trainer/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct engine *const engines[] = {
    &engine_cpu,
#ifdef GRADWEIR_CUDA
    &engine_cuda,
#endif
};

const struct engine *engine_at(size_t i)
{
    return i < sizeof(engines) / sizeof(engines[0]) ? engines[i] : NULL;
}

const struct engine *engine_find(const char *name, struct engine_reason *reason)
{
    for (size_t i = 0; engine_at(i) != NULL; i++)
        if (strcmp(engine_at(i)->name, name) == 0)
            return engine_at(i);
    if (strcmp(name, "cuda") == 0)
        snprintf(reason->text, sizeof(reason->text),
                 "cuda: this build has no CUDA; build with -DGRADWEIR_CUDA=ON where the CUDA "
                 "toolkit is, or use cpu");
    else
        snprintf(reason->text, sizeof(reason->text),
                 "%.60s: unknown device; it is cpu, cuda, or cuda:N for GPU number N", name);
    return NULL;
}

const struct engine *engine_parse(const char *device, struct engine_options *options,
                                  struct engine_reason *reason)
{
    char name[64];
    const char *colon = strchr(device, ':');
    const size_t length = colon == NULL ? strlen(device) : (size_t)(colon - device);
    options->gpu = ENGINE_GPU_ANY;
    if (length >= sizeof(name) || (colon != NULL && strncmp(device, "cuda:", 5) != 0))
        return engine_find(device, reason);
    memcpy(name, device, length);
    name[length] = '\0';
    if (colon != NULL) {
        char *end = NULL;
        const long number = strtol(colon + 1, &end, 10);
        if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || number > 255) {
            snprintf(reason->text, sizeof(reason->text),
                     "%.60s: behind cuda: comes the number of a GPU, from 0 to 255", device);
            return NULL;
        }
        options->gpu = (int)number;
    }
    return engine_find(name, reason);
}
