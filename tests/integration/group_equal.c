/* A group of gloo ranks is one worker.
 *
 *     group_equal ADDRESS RANKS STEPS FILE
 *
 * RANKS processes share SAMPLES samples a step: each computes the gradients of its own, they sum
 * them tensor by tensor (reduce_scatter), each pushes its part, each pulls the slices of its part
 * only, and together they make the whole again (all_gather). Rank 0 writes the parameters after
 * STEPS steps to FILE: test_group.py compares those of 1, 2 and 4 ranks. Also shows the way that a
 * user of groups goes. Ends with 0, or 1 and a sentence. */
#include "common/clock.h"
#include "tests/integration/board.h"

#include <gradweir/gradweir.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TENSORS = 3, RANKS_MAX = 4, SAMPLES = 8, PATIENCE_MS = 20000 };

static const char *const names[TENSORS] = {"a", "b", "c"};
static const size_t extents[TENSORS] = {63301, 70001, 3};

struct worker {
    uint32_t rank, ranks;
    gradweir_client *client;
    struct collective *group;
    float *parameters[TENSORS], *sums[TENSORS], *parts[TENSORS];
    size_t counts[TENSORS][RANKS_MAX], begins[TENSORS]; /* begins: of this rank's part */
};

#define MUST(call)                                                                                 \
    do {                                                                                           \
        const gradweir_status must_ = (call);                                                      \
        if (must_ != GRADWEIR_OK) {                                                                \
            fprintf(stderr, "%s:%d: %d: %s %s\n", __FILE__, __LINE__, (int)must_, fail_reason(),   \
                    gradweir_last_error());                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static float noise(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)((int32_t)((x ^ x >> 31) >> 40) - (1 << 23)) / (float)(1 << 23);
}

static float *floats(size_t n)
{
    float *memory = calloc(n + 1, sizeof *memory);
    if (memory == NULL)
        _exit(1);
    return memory;
}

static void cut(struct worker *worker)
{
    for (int t = 0; t < TENSORS; t++) {
        for (uint32_t r = 0; r < worker->ranks; r++) {
            const size_t first = extents[t] * r / worker->ranks;
            worker->counts[t][r] = extents[t] * (r + 1) / worker->ranks - first;
            if (r == worker->rank)
                worker->begins[t] = first;
        }
        worker->parameters[t] = floats(extents[t]);
        worker->sums[t] = floats(extents[t]);
        worker->parts[t] = floats(worker->counts[t][worker->rank]);
        for (size_t i = 0; i < extents[t]; i++)
            worker->parameters[t][i] = noise((uint64_t)t << 32 | i);
    }
}

static void meet(struct worker *worker, struct board_place *place)
{
    struct collective_options options = collective_defaults();
    options.rank = worker->rank;
    options.ranks = worker->ranks;
    options.timeout_ns = 20 * CLOCK_SECOND;
    options.exchange = board_exchange;
    options.exchange_context = place;
    MUST(collective_join(&options, &worker->group));
}

static void bind(struct worker *worker, const char *address)
{
    gradweir_options options;
    gradweir_options_default(&options);
    options.address = address;
    options.identity = "group";
    options.group = "group-equal";
    options.rank = worker->rank;
    options.ranks = worker->ranks;
    MUST(gradweir_open(&options, &worker->client));
    gradweir_tensor tensors[TENSORS] = {0};
    for (size_t t = 0; t < TENSORS; t++) {
        tensors[t].name = names[t];
        tensors[t].dimensions = 1;
        tensors[t].shape[0] = extents[t];
        tensors[t].parameters = worker->parameters[t];
        tensors[t].gradient = worker->parts[t];
        if (worker->ranks > 1)
            MUST(gradweir_part(worker->client, t, 0, worker->begins[t],
                               worker->counts[t][worker->rank]));
    }
    MUST(gradweir_bind(worker->client, tensors, TENSORS));
    MUST(gradweir_offer(worker->client, PATIENCE_MS));
}

/* The sum over this rank's samples, each with a gradient of its own. */
static void compute(struct worker *worker, uint64_t step)
{
    const uint32_t own = SAMPLES / worker->ranks;
    for (int t = 0; t < TENSORS; t++) {
        memset(worker->sums[t], 0, extents[t] * sizeof(float));
        for (uint32_t s = worker->rank * own; s < (worker->rank + 1) * own; s++)
            for (size_t i = 0; i < extents[t]; i++)
                worker->sums[t][i] += (0.1f + 0.01f * (float)s) * worker->parameters[t][i] +
                                      noise(step << 44 ^ (uint64_t)s << 36 ^ (uint64_t)t << 32 ^ i);
    }
}

static void push(struct worker *worker, uint64_t step)
{
    for (int t = 0; t < TENSORS; t++) {
        MUST(collective_reduce_scatter(worker->group, step, worker->sums[t], worker->parts[t],
                                       worker->counts[t]));
        for (size_t i = 0; i < worker->counts[t][worker->rank]; i++)
            worker->parts[t][i] /= SAMPLES;
    }
    gradweir_ticket ticket;
    gradweir_receipt receipt;
    MUST(gradweir_push_from(worker->client, SAMPLES, step - 1, &ticket));
    MUST(gradweir_wait(worker->client, ticket, PATIENCE_MS, &receipt));
    if (receipt.verdict != GRADWEIR_ADMITTED) {
        fprintf(stderr, "rank %" PRIu32 ", step %" PRIu64 ": %s\n", worker->rank, step,
                gradweir_verdict_text(receipt.verdict));
        _exit(1);
    }
}

/* The slices of this rank's part, of exactly that version; then everybody's. */
static void pull(struct worker *worker, uint64_t version)
{
    gradweir_box boxes[TENSORS];
    size_t n = 0;
    for (int t = 0; t < TENSORS; t++)
        if (worker->counts[t][worker->rank] > 0)
            boxes[n++] =
                (gradweir_box){.tensor = names[t],
                               .first = worker->begins[t],
                               .count = worker->counts[t][worker->rank],
                               .to = worker->parts[t],
                               .to_bytes = worker->counts[t][worker->rank] * sizeof(float)};
    gradweir_pull_options options;
    gradweir_pull_options_default(&options);
    options.boxes = boxes;
    options.boxes_count = n;
    const uint64_t deadline_ns = clock_now_ns() + PATIENCE_MS * CLOCK_MS;
    gradweir_receipt receipt = {.version = 0};
    do {
        gradweir_ticket ticket;
        MUST(gradweir_pull_with(worker->client, &options, &ticket));
        MUST(gradweir_wait(worker->client, ticket, PATIENCE_MS, &receipt));
    } while (receipt.version < version && clock_now_ns() < deadline_ns);
    if (receipt.version != version)
        _exit(1);
    for (int t = 0; t < TENSORS; t++)
        MUST(collective_all_gather(worker->group, version, worker->parts[t], worker->parameters[t],
                                   worker->counts[t]));
}

static void write_parameters(const struct worker *worker, const char *path)
{
    FILE *file = fopen(path, "wb");
    bool well = file != NULL;
    for (int t = 0; t < TENSORS && well; t++)
        well = fwrite(worker->parameters[t], sizeof(float), extents[t], file) == extents[t];
    if (!well || fclose(file) != 0)
        _exit(1);
}

static void work(struct board_place *place, char **words)
{
    struct worker worker = {.rank = place->rank, .ranks = place->ranks};
    const uint64_t steps = strtoull(words[3], NULL, 10);
    cut(&worker);
    meet(&worker, place);
    bind(&worker, words[1]);
    pull(&worker, 0);
    for (uint64_t step = 1; step <= steps; step++) {
        compute(&worker, step);
        push(&worker, step);
        pull(&worker, step);
    }
    if (worker.rank == 0)
        write_parameters(&worker, words[4]);
    MUST(collective_reduce(worker.group, steps + 1, NULL, NULL, 0)); /* leave together */
    collective_leave(worker.group);
    gradweir_close(worker.client);
    for (int t = 0; t < TENSORS; t++) {
        free(worker.parameters[t]);
        free(worker.sums[t]);
        free(worker.parts[t]);
    }
}

int main(int n, char **words)
{
    const uint32_t ranks = n == 5 ? (uint32_t)strtoul(words[2], NULL, 10) : 0;
    if (ranks == 0 || ranks > RANKS_MAX || SAMPLES % ranks != 0) {
        fprintf(stderr, "usage: group_equal ADDRESS RANKS STEPS FILE (1, 2 or 4 ranks)\n");
        return 2;
    }
    if (collective_find("gloo") == NULL) {
        printf("SKIPPED: this build has no gloo\n");
        return 0;
    }
    struct board_place place = {.board = board_new(), .ranks = ranks};
    const pid_t parent = getpid();
    for (place.rank = 0; place.rank < ranks; place.rank++) {
        if (fork() != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        work(&place, words);
        _exit(0);
    }
    int failed = 0, how;
    while (wait(&how) > 0)
        failed |= how;
    board_free(place.board);
    return failed == 0 ? 0 : 1;
}
