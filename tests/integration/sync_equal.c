/* Is `mode = sync` equal to a synchronous trainer in one process, to the bit?
 *
 *     sync_equal ADDRESS WORKERS STEPS [SEED [CONTROL]]
 *
 * WORKERS threads, each a worker of the real client library, train against the servers at ADDRESS;
 * beside them runs the reference. After every step each worker's pulled parameters are compared
 * with it, all of them, as bits. In odd steps the workers push one after the other, in an order
 * that seed and step decide; in even steps each after a pause of its own, as the machine has it.
 *
 * CONTROL spoils the reference on purpose: "swap" sums its gradients in the opposite order, "drop"
 * leaves one worker's gradient out of one step. Ends with 0: equal; 1: they differ, and where; 2:
 * something failed. test_sync.py starts the servers and runs the cases. */
#include "tests/integration/sync_reference.h"

#include <gradweir/gradweir.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Three blocks of 64 Ki elements, so that two servers share them, in tensors that no border suits.
 */
enum { A = 300 * 211, B = 70001, C = 17, ELEMENTS = A + B + C + 1, WORKERS_MAX = 16 };
enum { PATIENCE_MS = 120000, PAUSE_MAX_NS = 600000 };

struct worker {
    uint32_t index;
    gradweir_client *client;
    float *parameters, *gradient;
    uint64_t random;
    struct run *run;
};

struct run {
    uint32_t workers;
    uint64_t steps, seed;
    bool swap, drop;
    struct sync_reference reference;
    struct worker all[WORKERS_MAX];
    float *theirs[WORKERS_MAX]; /* the reference's gradients */
    pthread_barrier_t computed, compared;
    atomic_bool failed, differs;
    atomic_uint pushed;       /* in this round */
    atomic_ullong disordered; /* pushes of odd steps whose turn was not their worker's number */
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* In [-1, 1). */
static float noise(uint64_t seed)
{
    return (float)((int32_t)(mix(seed) >> 40) - (1 << 23)) / (float)(1 << 23);
}

/* The work: a gradient that depends on every bit of the parameters, on worker, step and seed. */
static void compute(const struct run *run, uint32_t worker, uint64_t step, const float *parameters,
                    float *gradient)
{
    const uint64_t seed = mix(run->seed << 40 ^ step << 8 ^ worker);
    for (size_t i = 0; i < ELEMENTS; i++)
        gradient[i] = (0.1f + 0.01f * (float)worker) * parameters[i] + noise(seed + i);
}

static uint64_t samples_of(const struct run *run, uint32_t worker, uint64_t step)
{
    return 1 + mix(run->seed ^ step << 16 ^ worker) % 64;
}

static bool fine(struct run *run, gradweir_status status, const char *what)
{
    if (status == GRADWEIR_OK)
        return true;
    fprintf(stderr, "sync_equal: %s: %s\n", what, gradweir_last_error());
    atomic_store(&run->failed, true);
    return false;
}

static void pause_at_random(struct worker *worker)
{
    worker->random = mix(worker->random + UINT64_C(0x9e3779b97f4a7c15));
    nanosleep(&(struct timespec){.tv_nsec = (long)(worker->random % PAUSE_MAX_NS)}, NULL);
}

static bool pull(struct worker *worker, uint64_t version)
{
    for (int i = 0; i < PATIENCE_MS; i++) {
        gradweir_ticket ticket;
        gradweir_receipt receipt;
        if (!fine(worker->run, gradweir_pull(worker->client, &ticket), "pull") ||
            !fine(worker->run, gradweir_wait(worker->client, ticket, PATIENCE_MS, &receipt),
                  "pull"))
            return false;
        if (receipt.version >= version)
            return receipt.version == version;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return false;
}

/* The worker's turn in a step: the workers are shuffled by draws from seed and step. */
static uint32_t turn_of(const struct run *run, uint32_t worker, uint64_t step)
{
    uint32_t turn = worker;
    for (uint32_t last = run->workers - 1; last > 0; last--) {
        const uint32_t other = (uint32_t)(mix(run->seed << 32 ^ step << 8 ^ last) % (last + 1));
        if (turn == last)
            turn = other;
        else if (turn == other)
            turn = last;
    }
    return turn;
}

static void wait_for_turn(struct worker *worker, uint64_t step)
{
    struct run *run = worker->run;
    const uint32_t turn = turn_of(run, worker->index, step);
    if (turn != worker->index)
        atomic_fetch_add(&run->disordered, 1);
    while (atomic_load(&run->pushed) < turn && !atomic_load(&run->failed))
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static bool push(struct worker *worker, uint64_t step)
{
    struct run *run = worker->run;
    gradweir_ticket ticket;
    gradweir_receipt receipt;
    if (step % 2 == 1)
        wait_for_turn(worker, step);
    else
        pause_at_random(worker);
    if (!fine(run, gradweir_push(worker->client, samples_of(run, worker->index, step), &ticket),
              "push"))
        return false;
    atomic_fetch_add(&run->pushed, 1);
    if (!fine(run, gradweir_wait(worker->client, ticket, PATIENCE_MS, &receipt), "verdict"))
        return false;
    if (receipt.verdict != GRADWEIR_ADMITTED)
        fprintf(stderr, "sync_equal: step %llu: %s\n", (unsigned long long)step,
                gradweir_verdict_text(receipt.verdict));
    return receipt.verdict == GRADWEIR_ADMITTED;
}

static void compare(struct worker *worker, uint64_t step)
{
    const float *ours = worker->run->reference.parameters;
    if (memcmp(worker->parameters, ours, ELEMENTS * sizeof *ours) == 0)
        return;
    size_t i = 0;
    uint32_t server, reference;
    while (memcmp(&worker->parameters[i], &ours[i], sizeof *ours) == 0)
        i++;
    memcpy(&server, &worker->parameters[i], sizeof server);
    memcpy(&reference, &ours[i], sizeof reference);
    if (!atomic_exchange(&worker->run->differs, true))
        printf("version %llu differs from element %zu on: servers %08x, reference %08x\n",
               (unsigned long long)step, i, (unsigned)server, (unsigned)reference);
}

/* All threads leave the loop in the same round: flags are set before a barrier and read after it.
 */
static bool ended(const struct run *run, uint64_t step)
{
    return step > run->steps || atomic_load(&run->failed) || atomic_load(&run->differs);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct run *run = worker->run;
    for (uint64_t step = 1; !ended(run, step); step++) {
        compute(run, worker->index, step, worker->parameters, worker->gradient);
        if (!push(worker, step) || !pull(worker, step))
            atomic_store(&run->failed, true);
        pthread_barrier_wait(&run->computed);
        if (!atomic_load(&run->failed))
            compare(worker, step);
        pthread_barrier_wait(&run->compared);
        pthread_barrier_wait(&run->compared);
    }
    return NULL;
}

static void step_reference(struct run *run, uint64_t step)
{
    const float *gradients[WORKERS_MAX];
    uint64_t samples[WORKERS_MAX];
    uint32_t count = run->workers;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t worker = run->swap ? count - 1 - i : i;
        compute(run, worker, step, run->reference.parameters, run->theirs[worker]);
        gradients[i] = run->theirs[worker];
        samples[i] = samples_of(run, worker, step);
    }
    if (run->drop && step == run->steps / 2 + 1)
        count--;
    sync_reference_step(&run->reference, gradients, samples, count);
}

static float *floats(size_t count)
{
    float *memory = calloc(count, sizeof *memory);
    if (!memory)
        abort();
    return memory;
}

static bool open_worker(struct run *run, uint32_t index, const char *address)
{
    struct worker *worker = &run->all[index];
    char identity[32];
    snprintf(identity, sizeof identity, "sync-%u", index);
    *worker = (struct worker){.index = index,
                              .parameters = floats(ELEMENTS),
                              .gradient = floats(ELEMENTS),
                              .random = mix(run->seed << 8 ^ index),
                              .run = run};
    run->theirs[index] = floats(ELEMENTS);
    memcpy(worker->parameters, run->reference.parameters, ELEMENTS * sizeof(float));
    gradweir_options options;
    gradweir_options_default(&options);
    options.address = address;
    options.identity = identity;
    const struct {
        const char *name;
        uint32_t dimensions;
        uint64_t shape[2];
        size_t at;
    } parts[] = {
        {"a", 2, {300, 211}, 0}, {"b", 1, {B}, A}, {"c", 1, {C}, A + B}, {"d", 0, {0}, A + B + C}};
    gradweir_tensor tensors[4] = {0};
    for (int i = 0; i < 4; i++) {
        tensors[i].name = parts[i].name;
        tensors[i].dimensions = parts[i].dimensions;
        memcpy(tensors[i].shape, parts[i].shape, sizeof parts[i].shape);
        tensors[i].parameters = worker->parameters + parts[i].at;
        tensors[i].gradient = worker->gradient + parts[i].at;
    }
    return fine(run, gradweir_open(&options, &worker->client), "open") &&
           fine(run, gradweir_bind(worker->client, tensors, 4), "bind") &&
           fine(run, gradweir_offer(worker->client, PATIENCE_MS), "offer") && pull(worker, 0);
}

static void train(struct run *run)
{
    pthread_t threads[WORKERS_MAX];
    pthread_barrier_init(&run->computed, NULL, run->workers + 1);
    pthread_barrier_init(&run->compared, NULL, run->workers + 1);
    for (uint32_t i = 0; i < run->workers; i++)
        if (pthread_create(&threads[i], NULL, work, &run->all[i]) != 0)
            abort();
    for (uint64_t step = 1; !ended(run, step); step++) {
        step_reference(run, step);
        pthread_barrier_wait(&run->computed);
        pthread_barrier_wait(&run->compared);
        atomic_store(&run->pushed, 0);
        pthread_barrier_wait(&run->compared);
    }
    for (uint32_t i = 0; i < run->workers; i++)
        pthread_join(threads[i], NULL);
}

static bool read_arguments(struct run *run, int argc, char **argv)
{
    if (argc < 4)
        return false;
    run->workers = (uint32_t)strtoul(argv[2], NULL, 10);
    run->steps = strtoull(argv[3], NULL, 10);
    run->seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    run->swap = argc > 5 && strcmp(argv[5], "swap") == 0;
    run->drop = argc > 5 && strcmp(argv[5], "drop") == 0;
    return run->workers >= 1 && run->workers <= WORKERS_MAX && (argc < 6 || run->swap || run->drop);
}

static void free_all(struct run *run)
{
    for (uint32_t i = 0; i < run->workers; i++) {
        gradweir_close(run->all[i].client);
        free(run->all[i].parameters);
        free(run->all[i].gradient);
        free(run->theirs[i]);
    }
    free(run->reference.parameters);
    free(run->reference.first);
    free(run->reference.second);
}

int main(int argc, char **argv)
{
    static struct run run;
    if (!read_arguments(&run, argc, argv)) {
        fprintf(stderr, "usage: sync_equal ADDRESS WORKERS STEPS [SEED [swap|drop]]\n");
        return 2;
    }
    run.reference = (struct sync_reference){.elements = ELEMENTS,
                                            .rate = 0.003,
                                            .beta1 = 0.9,
                                            .beta2 = 0.999,
                                            .epsilon = 1e-8,
                                            .decay = 0.01,
                                            .parameters = floats(ELEMENTS),
                                            .first = floats(ELEMENTS),
                                            .second = floats(ELEMENTS)};
    for (size_t i = 0; i < ELEMENTS; i++)
        run.reference.parameters[i] = noise(run.seed * ELEMENTS + i);
    for (uint32_t i = 0; i < run.workers && !atomic_load(&run.failed); i++)
        if (!open_worker(&run, i, argv[1]))
            atomic_store(&run.failed, true);
    if (!atomic_load(&run.failed))
        train(&run);
    if (!atomic_load(&run.failed) && !atomic_load(&run.differs))
        printf("workers %u: %llu steps of %d elements equal to the bit; digest %016llx; %llu of "
               "%llu pushes were sent out of worker order\n",
               run.workers, (unsigned long long)run.steps, (int)ELEMENTS,
               (unsigned long long)gradweir_digest(run.all[0].client),
               (unsigned long long)atomic_load(&run.disordered),
               (unsigned long long)(run.steps * run.workers));
    free_all(&run);
    return atomic_load(&run.failed) ? 2 : atomic_load(&run.differs) ? 1 : 0;
}
