/* Speeds to plan with. */
#include "server/plan_rates.h"

#include "common/clock.h"
#include "common/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ELEMENTS = 4 << 20, /* 16 MiB each array: a few of them are more than a cache */
    SOURCES_MAX = 16,   /* gradients apart from each other; a larger window reads them again */
    MEASURE_NS = 500000000
};

struct trial {
    const struct device *device;
    struct device_state *state;
    struct arithmetic_plan plan;
    struct arithmetic_range range;
    struct arithmetic_work work;
    char *memory;
    size_t bytes;
    uint32_t sources, states;
};

static void fill_plan(struct trial *trial, const struct law_settings *law,
                      const struct optimizer_options *optimizer)
{
    struct arithmetic_plan *plan = &trial->plan;
    *plan = (struct arithmetic_plan){.algorithm = law->algorithm,
                                     .phase = ARITHMETIC_WHOLE,
                                     .centered = optimizer->centered,
                                     .momentum = optimizer->momentum,
                                     .epsilon = 1e-8f,
                                     .scale = 1,
                                     .entries_n = law->window};
    if (law->algorithm == ARITHMETIC_LAMB) /* its passes over memory are those of Adam */
        plan->algorithm = ARITHMETIC_ADAM;
    for (uint32_t i = 0; i < law->window; i++)
        plan->entries[i] =
            (struct arithmetic_entry){.slot = i % trial->sources, .weight = 1.0f / 256};
    arithmetic_plan_group(
        plan, 0,
        &(struct arithmetic_group_numbers){
            .learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .bias1 = 0.1, .bias2 = 0.001});
}

static float *array(const struct trial *trial, uint32_t i)
{
    return (float *)(void *)(trial->memory + (size_t)i * ELEMENTS * sizeof(float));
}

static void fill_work(struct trial *trial)
{
    const uint32_t sources = trial->sources;
    trial->range = (struct arithmetic_range){.begin = 0, .end = ELEMENTS};
    trial->work = (struct arithmetic_work){.sources = {.base = trial->memory,
                                                       .stride_bytes = ELEMENTS * sizeof(float),
                                                       .codec = ARITHMETIC_F32},
                                           .parameters = array(trial, sources),
                                           .parameters_next = array(trial, sources + 1),
                                           .ranges = &trial->range,
                                           .ranges_n = 1};
    for (uint32_t i = 0; i < trial->states; i++)
        trial->work.state[i] = trial->work.state_next[i] = array(trial, sources + 2 + i);
    for (uint32_t i = 0; i < sources; i++)
        for (size_t k = 0; k < ELEMENTS; k++)
            array(trial, i)[k] = 0.01f * (float)((int)(k % 17) - 8);
}

static gradweir_status step_once(struct trial *trial)
{
    TRY(trial->device->step(
        trial->state, 1,
        &(struct device_step){.plan = &trial->plan, .work = &trial->work, .end = ELEMENTS}));
    struct device_done done;
    while (trial->device->in_flight(trial->state))
        if (trial->device->poll(trial->state, &done, 1) && done.status != GRADWEIR_OK)
            return fail(done.status, "the device failed");
    return GRADWEIR_OK;
}

/* The first step touches memory that nobody has touched: it does not count. */
static gradweir_status time_steps(struct trial *trial, double *seconds)
{
    TRY(step_once(trial));
    const uint64_t began_ns = clock_now_ns();
    uint64_t least_ns = UINT64_MAX;
    while (clock_now_ns() - began_ns < MEASURE_NS || least_ns == UINT64_MAX) {
        const uint64_t one_ns = clock_now_ns();
        TRY(step_once(trial));
        const uint64_t took_ns = clock_now_ns() - one_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    *seconds = (double)least_ns * 1e-9;
    return GRADWEIR_OK;
}

gradweir_status plan_rates_step(const struct law_settings *law,
                                const struct optimizer_options *optimizer, uint64_t passes,
                                double *bytes_per_second)
{
    struct trial trial = {.device = &device_cpu,
                          .sources = law->window < SOURCES_MAX ? law->window : SOURCES_MAX,
                          .states = (uint32_t)arithmetic_states_n(
                              law->algorithm, optimizer->centered, optimizer->momentum)};
    double seconds = 0;
    trial.bytes = (size_t)(trial.sources + 2 + trial.states) * ELEMENTS * sizeof(float);
    trial.memory =
        mmap(NULL, trial.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (trial.memory == MAP_FAILED)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no %zu bytes to measure a step with", trial.bytes);
    gradweir_status status = trial.device->open(&(struct device_options){0}, &trial.state);
    if (status == GRADWEIR_OK) {
        fill_plan(&trial, law, optimizer);
        fill_work(&trial);
        status = time_steps(&trial, &seconds);
        trial.device->close(trial.state);
    }
    munmap(trial.memory, trial.bytes);
    if (status == GRADWEIR_OK)
        *bytes_per_second = (double)(passes * ELEMENTS * sizeof(float)) / seconds;
    return status;
}

/* The text of a member of a flat object, without its quotes; false when it is not there. */
static bool member(const char *line, const char *name, char *text, size_t size)
{
    char key[32];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(line, key);
    if (!at)
        return false;
    at += strlen(key);
    at += strspn(at, " \"");
    const size_t length = strcspn(at, ",}\" \n");
    if (length >= size)
        return false;
    memcpy(text, at, length);
    text[length] = 0;
    return true;
}

static gradweir_status read_line(const char *line, struct plan_wires *wires)
{
    char name[16], speed[32], *end;
    if (!member(line, "case", name, sizeof name))
        return fail(GRADWEIR_ERR_INVALID, "has no \"case\"");
    double *wire = strcmp(name, "push") == 0   ? &wires->push
                   : strcmp(name, "pull") == 0 ? &wires->pull
                                               : NULL;
    if (!wire)
        return GRADWEIR_OK;
    if (!member(line, "goodput_gbps", speed, sizeof speed))
        return fail(GRADWEIR_ERR_INVALID, "has no \"goodput_gbps\"");
    const double value = strtod(speed, &end) * 1e9;
    if (end == speed || *end != 0 || !(value > 0))
        return fail(GRADWEIR_ERR_INVALID, "goodput_gbps is %s, no speed", speed);
    if (value > *wire)
        *wire = value;
    (void)member(line, "transport", wires->transport, sizeof wires->transport);
    return GRADWEIR_OK;
}

gradweir_status plan_rates_read(const char *path, struct plan_wires *wires)
{
    char line[4096], reason[256];
    *wires = (struct plan_wires){0};
    FILE *file = fopen(path, "r");
    if (!file)
        return fail(GRADWEIR_ERR_IO, "rates %s: %s", path, strerror(errno));
    gradweir_status status = GRADWEIR_OK;
    for (int number = 1; status == GRADWEIR_OK && fgets(line, sizeof line, file); number++) {
        const bool whole = strchr(line, '\n') || feof(file);
        if (whole && line[strspn(line, " \t\r\n")] == 0)
            continue;
        status =
            whole ? read_line(line, wires)
                  : fail(GRADWEIR_ERR_INVALID, "is no text of at most %zu bytes", sizeof line - 1);
        if (status != GRADWEIR_OK) {
            snprintf(reason, sizeof reason, "%s", fail_reason());
            status = fail(status, "rates %s, line %d: %s", path, number, reason);
        }
    }
    fclose(file);
    if (status == GRADWEIR_OK && wires->push <= 0 && wires->pull <= 0)
        return fail(GRADWEIR_ERR_INVALID, "rates %s: no case push or pull in it", path);
    return status;
}
