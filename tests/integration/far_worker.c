/* A whole worker whose arrays lie in a device's memory that nobody can touch but copies, against
 * real servers. The table of devices of far_worker (far_table.c) has that one under the name cuda;
 * in gpu_worker it is a GPU (tests/gpu/far_memory_cuda.c).
 *
 *     far_worker ADDRESS far|mixed|host|direct STEPS [COPIES_GOOD]
 *
 * Pulls, computes a gradient from every bit of the parameters, pushes, STEPS times. Prints one line
 * of JSON: digest, version, memory path, and whether a pull of a box, of everything as bfloat16,
 * and of a copy agree with the parameters. direct: the network knows the device's memory
 * (ucx_far.h). With COPIES_GOOD the device is lost after so many jobs, and what the failing call
 * said is printed. Ends with 0, or 1 when something failed that should not. test_memory.py compares
 * runs. */
#include "tests/integration/ucx_far.h"
#include "tests/unit/device_far.h"

#include <gradweir/gradweir.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 120000, TENSORS = 4 };

static const struct {
    const char *name;
    uint64_t rows, columns;
} shapes[TENSORS] = {{"embed", 777, 403}, {"bias", 17, 1}, {"body", 251, 999}, {"odd", 3, 1}};

struct worker {
    gradweir_client *client;
    gradweir_tensor tensors[TENSORS];
    bool far[2 * TENSORS]; /* parameters, gradient of each */
    float *host[TENSORS];  /* room for one array */
    uint64_t step;
    bool all; /* arrays are far, and options.memory says so */
};

static size_t elements_of(size_t i)
{
    return (size_t)(shapes[i].rows * shapes[i].columns);
}

static bool fine(gradweir_status status, const char *what)
{
    if (status != GRADWEIR_OK)
        printf("{\"failed\":\"%s\",\"status\":%d,\"reason\":\"%s\"}\n", what, (int)status,
               gradweir_last_error());
    return status == GRADWEIR_OK;
}

static void *new_array(struct worker *worker, size_t array, const char *place)
{
    const size_t bytes = elements_of(array / 2) * sizeof(float);
    worker->far[array] = strcmp(place, "far") == 0 || strcmp(place, "direct") == 0 ||
                         (strcmp(place, "mixed") == 0 && array % 3 != 0);
    return worker->far[array] ? device_far_new(bytes, 0) : calloc(1, bytes);
}

static void put(const struct worker *worker, size_t array, void *to, const float *from)
{
    if (worker->far[array])
        device_far_put(to, from, elements_of(array / 2) * sizeof *from);
    else
        memcpy(to, from, elements_of(array / 2) * sizeof *from);
}

static void get(const struct worker *worker, size_t array, const void *from, float *to)
{
    if (worker->far[array])
        device_far_get(from, to, elements_of(array / 2) * sizeof *to);
    else
        memcpy(to, from, elements_of(array / 2) * sizeof *to);
}

static gradweir_options options_of(const char *address, const char *place)
{
    gradweir_options options;
    const bool direct = strcmp(place, "direct") == 0;
    gradweir_options_default(&options);
    options.address = address;
    options.identity = "w";
    ucx_far_reach = device_far_reach;
    ucx_far_knows = direct;
    options.memory_path = direct ? GRADWEIR_MEMORY_PATH_DIRECT : GRADWEIR_MEMORY_PATH_AUTO;

    options.memory = direct || strcmp(place, "far") == 0 ? GRADWEIR_MEMORY_CUDA
                     : strcmp(place, "mixed") == 0       ? GRADWEIR_MEMORY_AUTO
                                                         : GRADWEIR_MEMORY_HOST;
    options.staging_bytes = options.memory == GRADWEIR_MEMORY_HOST ? 0 : UINT64_C(3) << 19;
    return options;
}

static bool start(struct worker *worker, const char *address, const char *place)
{
    const gradweir_options options = options_of(address, place);
    worker->all = options.memory == GRADWEIR_MEMORY_CUDA;
    for (size_t i = 0; i < TENSORS; i++) {
        worker->host[i] = malloc(elements_of(i) * sizeof(float));
        worker->tensors[i] = (gradweir_tensor){.name = shapes[i].name, .dimensions = 2};
        worker->tensors[i].shape[0] = shapes[i].rows;
        worker->tensors[i].shape[1] = shapes[i].columns;
        worker->tensors[i].parameters = new_array(worker, 2 * i, place);
        worker->tensors[i].gradient = new_array(worker, 2 * i + 1, place);
        for (size_t k = 0; k < elements_of(i); k++)
            worker->host[i][k] = (float)((k * 7 + i) % 41) / 64.0f - 0.25f;
        put(worker, 2 * i, worker->tensors[i].parameters, worker->host[i]);
    }
    return fine(gradweir_open(&options, &worker->client), "open") &&
           fine(gradweir_bind(worker->client, worker->tensors, TENSORS), "bind") &&
           fine(gradweir_offer(worker->client, WAIT_MS), "offer");
}

static bool pull(struct worker *worker, uint64_t version)
{
    gradweir_receipt receipt = {.version = 0};
    for (int i = 0; i < WAIT_MS; i++) {
        gradweir_ticket ticket;
        if (!fine(gradweir_pull(worker->client, &ticket), "pull") ||
            !fine(gradweir_wait(worker->client, ticket, WAIT_MS, &receipt), "pull"))
            return false;
        if (receipt.version >= version)
            return receipt.version == version;
    }
    return false;
}

static void *gradient_of(const struct worker *worker, size_t i)
{
    union {
        const void *is_const;
        void *is_not;
    } same = {.is_const = worker->tensors[i].gradient};
    return same.is_not;
}

static void compute(struct worker *worker)
{
    for (size_t i = 0; i < TENSORS; i++) {
        float *x = worker->host[i];
        get(worker, 2 * i, worker->tensors[i].parameters, x);
        for (size_t k = 0; k < elements_of(i); k++)
            x[k] = 0.5f * x[k] + (float)((k * 13 + worker->step * 5 + i) % 23) / 32.0f - 0.3f;
        put(worker, 2 * i + 1, gradient_of(worker, i), x);
    }
}

static bool step(struct worker *worker)
{
    gradweir_ticket ticket;
    gradweir_receipt receipt;
    compute(worker);
    if (worker->step % 3 == 2 && !fine(gradweir_accumulate(worker->client, 4), "accumulate"))
        return false;
    const uint64_t samples = worker->step % 3 == 2 ? 0 : 4;
    if (!fine(gradweir_push(worker->client, samples, &ticket), "push") ||
        !fine(gradweir_wait(worker->client, ticket, WAIT_MS, &receipt), "verdict"))
        return false;
    if (receipt.verdict != GRADWEIR_ADMITTED) {
        printf("{\"failed\":\"push\",\"reason\":\"%s\"}\n", gradweir_verdict_text(receipt.verdict));
        return false;
    }
    return pull(worker, ++worker->step);
}

/* All parameters in a row: as the pull left them in the bound arrays. */
static float *bound(const struct worker *worker, size_t *all)
{
    *all = 0;
    for (size_t i = 0; i < TENSORS; i++)
        *all += elements_of(i);
    float *row = malloc(*all * sizeof *row), *at = row;
    for (size_t i = 0; i < TENSORS; at += elements_of(i++))
        get(worker, 2 * i, worker->tensors[i].parameters, at);
    return row;
}

/* Waits for it only once another one, of one element, is under way. */
static bool pull_late(struct worker *worker, const gradweir_pull_options *options)
{
    gradweir_ticket first, second;
    float one;
    const gradweir_box box = {.tensor = "odd", .count = 1, .to = &one, .to_bytes = sizeof one};
    gradweir_pull_options other;
    gradweir_pull_options_default(&other);
    other.boxes = &box;
    other.boxes_count = 1;
    if (!fine(gradweir_pull_with(worker->client, options, &first), "pull_with"))
        return false;
    while (gradweir_pull_with(worker->client, &other, &second) != GRADWEIR_OK)
        if (!fine(gradweir_progress(worker->client), "progress"))
            return false;
    return fine(gradweir_wait(worker->client, first, WAIT_MS, NULL), "pull_with") &&
           fine(gradweir_wait(worker->client, second, WAIT_MS, NULL), "pull_with");
}

static bool pull_with(struct worker *worker, const gradweir_pull_options *options)
{
    gradweir_ticket ticket;
    if (options->boxes_count && !worker->all)
        return pull_late(worker, options);
    return fine(gradweir_pull_with(worker->client, options, &ticket), "pull_with") &&
           fine(gradweir_wait(worker->client, ticket, WAIT_MS, NULL), "pull_with");
}

/* Columns 100 to 199 of embed, into memory of its own. */
static bool box_agrees(struct worker *worker, const float *row)
{
    enum { COUNT = 777 * 100, BYTES = COUNT * 4 };
    gradweir_pull_options options;
    const bool far = worker->far[1] || worker->far[2];
    float *back = malloc(BYTES), *to = far ? device_far_new(BYTES, 0) : malloc(BYTES);
    const gradweir_box box = {
        .tensor = "embed", .axis = 1, .first = 100, .count = 100, .to = to, .to_bytes = BYTES};
    gradweir_pull_options_default(&options);
    options.boxes = &box;
    options.boxes_count = 1;
    bool same = pull_with(worker, &options);
    if (far)
        device_far_get(to, back, BYTES);
    else
        memcpy(back, to, BYTES);
    for (size_t i = 0; same && i < COUNT; i++)
        same = memcmp(&back[i], &row[i / 100 * 403 + 100 + i % 100], sizeof *back) == 0;
    free(back);
    if (far)
        device_far_delete(to);
    else
        free(to);
    return same;
}

/* Everything as bfloat16 (its upper halves, within rounding), and a copy of the last pull. */
static bool rest_agrees(struct worker *worker, const float *row, size_t all)
{
    gradweir_pull_options options;
    uint16_t *halves = malloc(all * sizeof *halves);
    float *copy = malloc(all * sizeof *copy);
    void *far = device_far_new(all * sizeof *copy, 0);
    const bool is_far = worker->far[0];
    gradweir_pull_options_default(&options);
    options.dtype = GRADWEIR_BFLOAT16;
    options.to = is_far ? far : halves;
    options.to_bytes = all * sizeof *halves;
    bool same = pull_with(worker, &options);
    if (is_far)
        device_far_get(far, halves, all * sizeof *halves);
    for (size_t i = 0; same && i < all; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        same = halves[i] == bits >> 16 || halves[i] == (bits >> 16) + 1;
    }
    same = same && fine(gradweir_parameters(worker->client, is_far ? far : copy, all), "copy");
    if (is_far)
        device_far_get(far, copy, all * sizeof *copy);
    same = same && memcmp(copy, row, all * sizeof *copy) == 0;
    free(halves);
    free(copy);
    device_far_delete(far);
    return same;
}

static bool report(struct worker *worker)
{
    static char json[65536], text[4096];
    size_t all;
    float *row = bound(worker, &all);
    const bool box = box_agrees(worker, row), rest = rest_agrees(worker, row, all);
    free(row);
    if (!fine(gradweir_status_json(worker->client, WAIT_MS, json, sizeof json), "status"))
        return false;
    gradweir_describe(worker->client, text, sizeof text);
    printf("{\"digest\":\"%016llx\",\"version\":%llu,\"box\":%d,\"rest\":%d,\"copies\":%llu,"
           "\"unpinned\":%llu,\"encoded\":%llu,\"sent\":%llu,\"describe\":\"%s\",\"status\":%s}\n",
           (unsigned long long)gradweir_digest(worker->client),
           (unsigned long long)gradweir_version(worker->client), box, rest,
           (unsigned long long)device_far_seen.done, (unsigned long long)device_far_seen.unpinned,
           (unsigned long long)device_far_seen.encoded, (unsigned long long)ucx_far_sent, text,
           json);
    return box && rest;
}

static void stop(struct worker *worker)
{
    gradweir_close(worker->client);
    for (size_t i = 0; i < TENSORS; i++) {
        void *arrays[2] = {worker->tensors[i].parameters, gradient_of(worker, i)};
        free(worker->host[i]);
        for (size_t k = 0; k < 2; k++)
            if (worker->far[2 * i + k])
                device_far_delete(arrays[k]);
            else
                free(arrays[k]);
    }
}

int main(int count, char **words)
{
    static struct worker worker;
    if (count < 4)
        return 2;
    const uint64_t steps = strtoull(words[3], NULL, 10);
    device_far_faults.copies_good = count > 4 ? strtoull(words[4], NULL, 10) : 0;
    device_far_faults.polls_idle = 1;
    bool good = start(&worker, words[1], words[2]) && pull(&worker, 0);
    while (good && worker.step < steps)
        good = step(&worker);
    good = good && report(&worker);
    stop(&worker);
    return good ? 0 : 1;
}
