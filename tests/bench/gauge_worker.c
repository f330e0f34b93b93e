/* A worker of gradweir-bench: the public client library, as a user's program calls it. It does what
 * its channel tells it, burst by burst, and answers once everything it pushed is applied. */
#include "tests/bench/gauge_children.h"

#include "common/clock.h"

#include <gradweir/gradweir.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 60000, STATUS_SIZE = 1 << 18, IN_FLIGHT_MAX = 8 };

struct worker {
    gradweir_client *client;
    const struct gauge *gauge;
    struct gauge_shared *shared;
    int channel;
    float *parameters, *gradient;
    char *status;
    gradweir_ticket tickets[IN_FLIGHT_MAX];
    uint64_t begun_ns[IN_FLIGHT_MAX];
    uint32_t first, under_way;
};

static gradweir_status connect_client(struct worker *worker, const char *address, uint32_t number)
{
    const struct gauge *gauge = worker->gauge;
    char identity[32];
    gradweir_options options;
    gradweir_options_default(&options);
    snprintf(identity, sizeof identity, "bench-%u", number);
    options.address = address;
    options.identity = identity;
    options.outstanding = gauge->outstanding;
    options.transport = gauge->transport;
    options.connect_timeout_ms = WAIT_MS;
    TRY(gradweir_open(&options, &worker->client));
    const gradweir_tensor tensor = {.name = "w",
                                    .dimensions = 1,
                                    .shape = {gauge->elements},
                                    .parameters = worker->parameters,
                                    .gradient = worker->gradient};
    TRY(gradweir_bind(worker->client, &tensor, 1));
    TRY(gradweir_offer(worker->client, WAIT_MS));
    gradweir_ticket ticket;
    TRY(gradweir_pull(worker->client, &ticket));
    return gradweir_wait(worker->client, ticket, WAIT_MS, NULL);
}

static void note(struct worker *worker, struct gauge_result *result, uint64_t begun_ns)
{
    const uint64_t took_ns = clock_now_ns() - begun_ns;
    const uint32_t place = (uint32_t)(result->operations++ % GAUGE_LATENCIES_MAX);
    worker->shared->latencies_ns[place] = took_ns < UINT32_MAX ? (uint32_t)took_ns : UINT32_MAX;
    if (result->latencies_count < GAUGE_LATENCIES_MAX)
        result->latencies_count++;
}

static gradweir_status hear_oldest(struct worker *worker, struct gauge_result *result)
{
    gradweir_receipt receipt;
    TRY(gradweir_wait(worker->client, worker->tickets[worker->first], WAIT_MS, &receipt));
    note(worker, result, worker->begun_ns[worker->first]);
    result->refused += receipt.verdict != GRADWEIR_ADMITTED;
    worker->first = (worker->first + 1) % IN_FLIGHT_MAX;
    worker->under_way--;
    return receipt.status;
}

static gradweir_status push(struct worker *worker, struct gauge_result *result)
{
    if (worker->under_way == worker->gauge->in_flight)
        TRY(hear_oldest(worker, result));
    const uint32_t place = (worker->first + worker->under_way) % IN_FLIGHT_MAX;
    worker->begun_ns[place] = clock_now_ns();
    TRY(gradweir_push(worker->client, 1, &worker->tickets[place]));
    worker->under_way++;
    return GRADWEIR_OK;
}

static gradweir_status pull(struct worker *worker)
{
    gradweir_ticket ticket;
    TRY(gradweir_pull(worker->client, &ticket));
    return gradweir_wait(worker->client, ticket, WAIT_MS, NULL);
}

/* Whether a push makes a step due by itself, so that an exchange can wait for it. */
static bool each_steps(const struct gauge *gauge)
{
    return gauge->host.order.law.stride == 1;
}

static gradweir_status exchange(struct worker *worker, struct gauge_result *result)
{
    const uint64_t begun_ns = clock_now_ns();
    gradweir_receipt receipt;
    TRY(gradweir_exchange(worker->client, 1, WAIT_MS, &receipt));
    result->pulls++;
    while (each_steps(worker->gauge) && receipt.verdict == GRADWEIR_ADMITTED &&
           gradweir_version(worker->client) <= receipt.version) {
        TRY(pull(worker));
        result->pulls++;
    }
    note(worker, result, begun_ns);
    result->refused += receipt.verdict != GRADWEIR_ADMITTED;
    return GRADWEIR_OK;
}

static bool number_of(const char *text, const char *name, uint64_t *value)
{
    const char *at = strstr(text, name);
    if (!at)
        return false;
    *value = strtoull(at + strlen(name), NULL, 10);
    return true;
}

/* Until every step that was decided when this began is done on all shards. */
static gradweir_status settle(struct worker *worker)
{
    uint64_t version, whole, wanted = 0;
    const uint64_t end = deadline_after(clock_now_ns(), WAIT_MS * CLOCK_MS);
    do {
        TRY(gradweir_status_json(worker->client, WAIT_MS, worker->status, STATUS_SIZE));
        if (!number_of(worker->status, "\"version\":", &version) ||
            !number_of(worker->status, "\"whole\":", &whole))
            return GRADWEIR_ERR_UNSUPPORTED;
        wanted = wanted ? wanted : version;
    } while (whole < wanted && !deadline_passed(clock_now_ns(), end));
    return whole < wanted ? GRADWEIR_ERR_TIMEOUT : GRADWEIR_OK;
}

static gradweir_status one(struct worker *worker, const struct gauge_task *task,
                           struct gauge_result *result)
{
    if (task->work == GAUGE_EXCHANGE)
        return exchange(worker, result);
    if (task->work == GAUGE_PUSH)
        return push(worker, result);
    const uint64_t begun_ns = clock_now_ns();
    TRY(pull(worker));
    note(worker, result, begun_ns);
    return GRADWEIR_OK;
}

static gradweir_status burst(struct worker *worker, const struct gauge_task *task,
                             struct gauge_result *result)
{
    uint64_t begun = 0;
    while (clock_now_ns() < task->begin_ns)
        ;
    const uint64_t cpu_ns = clock_cpu_ns();
    result->begin_ns = clock_now_ns();
    while (task->operations ? begun < task->operations : clock_now_ns() < task->end_ns) {
        TRY(one(worker, task, result));
        begun++;
    }
    while (worker->under_way > 0)
        TRY(hear_oldest(worker, result));
    if (task->work != GAUGE_PULL)
        TRY(settle(worker));
    result->end_ns = clock_now_ns();
    result->cpu_ns = clock_cpu_ns() - cpu_ns;
    return GRADWEIR_OK;
}

/* The answer; a failure is told with its reason, and ends the process. */
static void answer(const struct worker *worker, gradweir_status status, struct gauge_result *result)
{
    if (status != GRADWEIR_OK) {
        const char *reason = gradweir_last_error();
        result->failed = true;
        snprintf(result->reason, sizeof result->reason, "%s",
                 reason[0] ? reason : gradweir_status_text(status));
    }
    const bool told = send(worker->channel, result, sizeof *result, MSG_NOSIGNAL) > 0;
    if (!told || status != GRADWEIR_OK)
        _exit(1);
}

void gauge_worker(const struct gauge *gauge, const char *address, uint32_t number, int channel,
                  struct gauge_shared *shared)
{
    struct worker worker = {.gauge = gauge, .shared = shared, .channel = channel};
    struct gauge_result result = {.operations = 0};
    struct gauge_task task;
    worker.parameters = calloc(gauge->elements, sizeof(float));
    worker.gradient = calloc(gauge->elements, sizeof(float));
    worker.status = calloc(1, STATUS_SIZE);
    if (!worker.parameters || !worker.gradient || !worker.status)
        answer(&worker,
               fail(GRADWEIR_ERR_NO_MEMORY,
                    "no memory for parameters and gradient, %llu bytes each",
                    (unsigned long long)gauge->bytes),
               &result);
    for (uint64_t i = 0; i < gauge->elements; i++)
        worker.gradient[i] = 1e-3f * (float)((int)(i % 17) - 8);
    answer(&worker, connect_client(&worker, address, number), &result);
    while (recv(channel, &task, sizeof task, 0) == (ssize_t)sizeof task) {
        result = (struct gauge_result){.operations = 0};
        answer(&worker, burst(&worker, &task, &result), &result);
    }
    gradweir_close(worker.client);
    _exit(0);
}
