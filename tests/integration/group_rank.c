/* One rank of a group, or the one worker that a group is compared with.
 *
 *     group_rank ADDRESS IDENTITY RANK RANKS STEPS FILE BATCHES [keys FOLDER]
 *
 * A step has SAMPLES samples. RANKS > 0: this process is rank RANK and has its share of them by its
 * place, within GROUP_RANK_TIMEOUT_MS and _PATIENCE_MS (60 s and 5 s); it goes on when others are
 * lost, and says so. With GROUP_RANK_STOP, the name of a file, it goes on beyond STEPS until that
 * file is there, which has the version at which all end. RANKS 0: it is one
 * worker and accumulates BATCHES batches, or pushes one. BATCHES of a rank: it accumulates as many.
 * With GROUP_RANK_PARTS each rank has columns of its own of tensor "a", and all work on the same
 * samples. Parameters at version STEPS go to FILE ("-": nowhere). Lines on stdout: "step VERSION
 * ranks N place P", "failed STATUS SENTENCE", "renewed STATUS ...". Ends with 0, or 1 and a
 * sentence. */
#include <gradweir/group.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TENSORS = 5, SAMPLES = 8, PATIENCE_MS = 120000 };

static const char *const names[TENSORS] = {"a", "b", "bias", "scale", "count"};
static const uint64_t shapes[TENSORS][2] = {{601, 103}, {1, 70001}, {3, 0}, {0, 0}, {2, 0}};
static const uint32_t dimensions[TENSORS] = {2, 2, 1, 0, 1};

struct rank {
    gradweir_client *client;
    gradweir_ranks *group;
    gradweir_tensor tensors[TENSORS];
    size_t elements[TENSORS];
    uint32_t batches;
    bool parts; /* of tensor 0: `width` columns from `left` on, and it is packed */
    uint64_t left, width;
};

#define MUST(call)                                                                                 \
    do {                                                                                           \
        const gradweir_status must_ = (call);                                                      \
        if (must_ != GRADWEIR_OK) {                                                                \
            fprintf(stderr, "%s:%d: %d: %s\n", __FILE__, __LINE__, (int)must_,                     \
                    gradweir_last_error());                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static float noise(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)((int32_t)((x ^ x >> 31) >> 40) - (1 << 23)) / (float)(1 << 23);
}

static void *memory(size_t bytes)
{
    void *taken = calloc(1, bytes + 1);
    if (!taken)
        exit(1);
    return taken;
}

static void prepare(struct rank *rank)
{
    for (size_t t = 0; t < TENSORS; t++) {
        gradweir_tensor *tensor = &rank->tensors[t];
        const bool moments = t == TENSORS - 1;
        tensor->name = names[t];
        tensor->dimensions = dimensions[t];
        rank->elements[t] = 1;
        for (uint32_t d = 0; d < dimensions[t]; d++)
            rank->elements[t] *= tensor->shape[d] = shapes[t][d];
        tensor->kind = moments ? GRADWEIR_MOMENTS : GRADWEIR_PARAMETER;
        const size_t size = moments ? 3 * sizeof(double) : sizeof(float);
        tensor->parameters = memory(rank->elements[t] * size);
        tensor->gradient = memory(rank->elements[t] * size);
        for (size_t i = 0; i < rank->elements[t] && !moments; i++)
            ((float *)tensor->parameters)[i] = noise((uint64_t)t << 32 | i);
    }
}

/* Where element i of what this rank holds of tensor t is in the whole of it. */
static uint64_t place(const struct rank *rank, size_t t, size_t i)
{
    return rank->parts && t == 0 ? i / rank->width * shapes[0][1] + rank->left + i % rank->width
                                 : i;
}

/* Before bind. */
static void cut(struct rank *rank, uint32_t number, uint32_t ranks)
{
    const uint64_t columns = shapes[0][1];
    rank->parts = true;
    rank->left = columns * number / ranks;
    rank->width = columns * (number + 1) / ranks - rank->left;
    rank->elements[0] = shapes[0][0] * rank->width;
    for (size_t i = 0; i < rank->elements[0]; i++)
        ((float *)rank->tensors[0].parameters)[i] = noise(place(rank, 0, i));
    MUST(gradweir_group_part(rank->group, 0, 1, rank->left, rank->width));
}

/* The whole of tensor 0, at all ranks. */
static void unite(struct rank *rank)
{
    const size_t whole = shapes[0][0] * shapes[0][1];
    float *all = memory(whole * sizeof(float));
    for (size_t i = 0; i < rank->elements[0]; i++)
        all[place(rank, 0, i)] = ((float *)rank->tensors[0].parameters)[i];
    MUST(gradweir_group_reduce(rank->group, all, rank->tensors[0].parameters, whole));
    rank->elements[0] = whole;
    MUST(gradweir_group_broadcast(rank->group, all, whole, 1));
    MUST(gradweir_group_barrier(rank->group));
    free(all);
}

/* The mean over samples [first, first + n) of the step. */
static void compute(struct rank *rank, uint64_t step, uint32_t first, uint32_t n)
{
    for (size_t t = 0; t + 1 < TENSORS; t++) {
        const float *parameters = rank->tensors[t].parameters;
        float *gradient = (float *)(uintptr_t)rank->tensors[t].gradient;
        for (size_t i = 0; i < rank->elements[t]; i++) {
            double sum = 0;
            for (uint32_t s = first; s < first + n; s++)
                sum += (0.1 + 0.01 * s) * (double)parameters[i] +
                       (double)noise(step << 44 ^ (uint64_t)s << 36 ^ (uint64_t)t << 32 ^
                                     place(rank, t, i));
            gradient[i] = (float)(sum / n);
        }
    }
    double *moments = (double *)(uintptr_t)rank->tensors[TENSORS - 1].gradient;
    for (size_t i = 0; i < rank->elements[TENSORS - 1]; i++) {
        moments[3 * i] = n;
        moments[3 * i + 1] = first + 0.5 * (n - 1);
        moments[3 * i + 2] = (double)n * ((double)n * n - 1) / 12;
    }
}

static void write_parameters(const struct rank *rank, const char *path)
{
    if (strcmp(path, "-") == 0)
        return;
    FILE *file = fopen(path, "wb");
    bool well = file != NULL;
    for (size_t t = 0; t + 1 < TENSORS && well; t++)
        well = fwrite(rank->tensors[t].parameters, sizeof(float), rank->elements[t], file) ==
               rank->elements[t];
    const double *moments = rank->tensors[TENSORS - 1].parameters;
    for (size_t i = 0; i < 3 * rank->elements[TENSORS - 1] && well; i++) {
        const float number = (float)moments[i];
        well = fwrite(&number, sizeof number, 1, file) == 1;
    }
    if (!well || fclose(file) != 0)
        exit(1);
}

static gradweir_options options_of(char **words, int n)
{
    gradweir_options options;
    gradweir_options_default(&options);
    options.address = words[1];
    options.identity = words[2];
    if (n == 10)
        options.keys = words[9];
    return options;
}

/* ---- One worker. ---- */

static void alone(struct rank *rank, const gradweir_options *options, uint64_t steps)
{
    gradweir_ticket ticket;
    gradweir_receipt receipt;
    MUST(gradweir_open(options, &rank->client));
    MUST(gradweir_bind(rank->client, rank->tensors, TENSORS));
    MUST(gradweir_offer(rank->client, PATIENCE_MS));
    for (uint64_t step = 0;; step = receipt.version) {
        do {
            MUST(gradweir_pull(rank->client, &ticket));
            MUST(gradweir_wait(rank->client, ticket, PATIENCE_MS, &receipt));
        } while (receipt.version < step);
        if (receipt.version >= steps)
            break;
        const uint32_t n = SAMPLES / rank->batches;
        for (uint32_t b = 0; b < rank->batches; b++) {
            compute(rank, receipt.version, b * n, n);
            if (rank->batches > 1)
                MUST(gradweir_accumulate(rank->client, n));
        }
        MUST(gradweir_push(rank->client, rank->batches > 1 ? 0 : SAMPLES, &ticket));
        MUST(gradweir_wait(rank->client, ticket, PATIENCE_MS, &receipt));
        receipt.version++;
    }
    gradweir_close(rank->client);
}

/* ---- One rank. ---- */

static long number_of(const char *variable, long otherwise)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : otherwise;
}

/* The version at which all end: it is written long before they are there, so that none misses it.
 */
static uint64_t last_step(uint64_t steps)
{
    const char *name = getenv("GROUP_RANK_STOP");
    unsigned long long last = UINT64_MAX;
    if (!name)
        return steps;
    FILE *file = fopen(name, "r");
    if (!file)
        return UINT64_MAX;
    if (fscanf(file, "%llu", &last) != 1)
        exit(1);
    fclose(file);
    return last;
}

static void join(struct rank *rank, gradweir_options *client, char **words)
{
    client->rank = (uint32_t)strtoul(words[3], NULL, 10);
    client->ranks = (uint32_t)strtoul(words[4], NULL, 10);
    gradweir_group_options options;
    gradweir_group_options_default(&options);
    options.client = client;
    options.timeout_ms = (uint32_t)number_of("GROUP_RANK_TIMEOUT_MS", 60000);
    options.patience_ms = (uint32_t)number_of("GROUP_RANK_PATIENCE_MS", 5000);
    options.samples = getenv("GROUP_RANK_PARTS") ? GRADWEIR_SAMPLES_SHARED : GRADWEIR_SAMPLES_OWN;
    const gradweir_status status = gradweir_group_join(&options, &rank->group);
    if (status != GRADWEIR_OK) {
        printf("join %d %s\n", (int)status, gradweir_last_error());
        exit(2);
    }
    if (getenv("GROUP_RANK_PARTS"))
        cut(rank, client->rank, client->ranks);
    MUST(gradweir_group_bind(rank->group, rank->tensors, TENSORS));
}

static gradweir_status push(struct rank *rank, uint64_t version, gradweir_receipt *receipt)
{
    gradweir_group_info info = {.size = sizeof info};
    MUST(gradweir_group_tell(rank->group, &info));
    printf("step %" PRIu64 " ranks %u place %u\n", version, info.ranks, info.rank);
    const uint32_t begin = rank->parts ? 0 : SAMPLES * info.rank / info.ranks;
    const uint32_t end = rank->parts ? SAMPLES : SAMPLES * (info.rank + 1) / info.ranks;
    const uint32_t first = begin, n = (end - begin) / rank->batches;
    for (uint32_t b = 0; b < rank->batches; b++) {
        compute(rank, version, first + b * n, n);
        if (rank->batches > 1)
            MUST(gradweir_group_accumulate(rank->group, n));
    }
    return gradweir_group_push(rank->group, rank->batches > 1 ? 0 : n, receipt);
}

/* Until it is whole again: others may be lost meanwhile. */
static void renew(struct rank *rank, gradweir_status status)
{
    for (int tries = 0; tries < 8 && status != GRADWEIR_OK; tries++) {
        printf("failed %d %s\n", (int)status, gradweir_last_error());
        status = gradweir_group_renew(rank->group);
    }
    MUST(status);
    gradweir_group_info info = {.size = sizeof info};
    MUST(gradweir_group_tell(rank->group, &info));
    printf("renewed ranks %u place %u\n", info.ranks, info.rank);
}

static void together(struct rank *rank, uint64_t steps)
{
    const long pause_ms = number_of("GROUP_RANK_PAUSE_MS", 0);
    const struct timespec rest = {.tv_sec = pause_ms / 1000, .tv_nsec = pause_ms % 1000 * 1000000};
    gradweir_receipt receipt = {.version = 0};
    MUST(gradweir_group_offer(rank->group, PATIENCE_MS));
    for (uint64_t step = 0;;) {
        gradweir_status status = gradweir_group_pull(rank->group, &receipt);
        if (status == GRADWEIR_OK && receipt.version >= last_step(steps))
            break;
        if (status == GRADWEIR_OK && receipt.version < step)
            continue; /* the step is not whole yet */
        if (status == GRADWEIR_OK) {
            step = receipt.version;
            nanosleep(&rest, NULL);
            status = push(rank, step, &receipt);
            step += status == GRADWEIR_OK && receipt.verdict == GRADWEIR_ADMITTED;
        }
        if (status != GRADWEIR_OK)
            renew(rank, status);
    }
    if (rank->parts) {
        unite(rank);
        const gradweir_status status = gradweir_group_renew(rank->group);
        printf("renew %d\n", (int)status); /* it is whole */
    }
    gradweir_group_leave(rank->group);
}

int main(int n, char **words)
{
    if (n != 8 && n != 10) {
        fprintf(stderr, "usage: group_rank ADDRESS IDENTITY RANK RANKS STEPS FILE BATCHES [keys "
                        "FOLDER]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct rank rank = {.batches = (uint32_t)strtoul(words[7], NULL, 10)};
    gradweir_options options = options_of(words, n);
    const uint64_t steps = strtoull(words[5], NULL, 10);
    prepare(&rank);
    if (strcmp(words[4], "0") == 0) {
        alone(&rank, &options, steps);
    } else {
        join(&rank, &options, words);
        together(&rank, steps);
    }
    write_parameters(&rank, words[6]);
    for (size_t t = 0; t < TENSORS; t++) {
        free(rank.tensors[t].parameters);
        free((void *)(uintptr_t)rank.tensors[t].gradient);
    }
    return 0;
}
