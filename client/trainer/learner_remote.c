/* See learner_remote.h. The next pull rides with each push, so the worker waits once a gradient:
 * for parameters that come after its verdict. A second push under way would only add staleness of
 * one's own. */
#include "client/trainer/learner_remote.h"

#include "client/trainer/pace.h"

#include <gradweir/gradweir.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double REPORT_S = 0.2;

enum { JOIN_MS = 10000, SHARED = 2, STATUS_BYTES = 1 << 20 };

struct learner_remote {
    struct learner learner;
    size_t n;
    uint64_t poison;
    uint32_t patience_ms;
    gradweir_client *client;
    gradweir_tensor tensors[NETWORK_TENSORS_MAX + SHARED];
    float *parameters, *gradient;
    bool rides;                        /* a pull follows each push */
    gradweir_ticket pushed;            /* 0: its verdict is known */
    double reported_s;                 /* when it told its numbers last; 0: never */
    gradweir_ticket riding;            /* the pull that went with it; 0: it has been waited for */
    struct statistics pending[SHARED]; /* what no admitted push has carried yet */
    struct statistics carried[SHARED]; /* what the push under way carries: bound as gradient */
    struct statistics pulled[SHARED];  /* of all workers, with the last pull */
};

/* The limit that is in force, from the servers' status; 0: they do not say. */
static double magnitude_max(struct learner_remote *remote)
{
    static const char name[] = "\"magnitude_max\":";
    char *text = malloc(STATUS_BYTES);
    double limit = 0;
    if (text != NULL &&
        gradweir_status_json(remote->client, 1000, text, STATUS_BYTES) == GRADWEIR_OK) {
        const char *place = strstr(text, name);
        limit = place != NULL ? strtod(place + strlen(name), NULL) : 0;
    }
    free(text);
    return limit;
}

/* No tensor is named when all its elements are finite, and one too large. */
static void say_not_finite(struct learner_remote *remote, const gradweir_receipt *receipt)
{
    char what[160];
    if (receipt->tensor[0] != '\0') {
        snprintf(what, sizeof(what), "has a NaN or infinity in %s", receipt->tensor);
    } else {
        char limit[32] = "";
        const double known = magnitude_max(remote);
        if (known > 0)
            snprintf(limit, sizeof(limit), " %g", known);
        snprintf(what, sizeof(what),
                 "is too large: an element is above the servers' magnitude_max%s", limit);
    }
    fprintf(stderr,
            "gradweir-train: NOT_FINITE: push %llu %s; it was applied nowhere, and training goes "
            "on\n",
            (unsigned long long)receipt->sequence, what);
}

static void count(struct learner_remote *remote, const gradweir_receipt *receipt)
{
    struct learner_counts *counts = &remote->learner.counts;
    const bool admitted = receipt->verdict == GRADWEIR_ADMITTED;
    const bool not_finite = receipt->verdict == GRADWEIR_NOT_FINITE;
    counts->pushes++;
    counts->admitted += admitted;
    counts->refused += !admitted;
    counts->not_finite += not_finite;
    counts->not_finite_in_row = not_finite ? counts->not_finite_in_row + 1 : 0;
    if (not_finite)
        say_not_finite(remote, receipt);
    if (!admitted)
        return;
    counts->staleness_sum += (double)receipt->staleness;
    if (receipt->staleness > counts->staleness_max)
        counts->staleness_max = receipt->staleness;
}

/* The verdict of the push under way. A refused push gives its share of the statistics back. */
static gradweir_status hear_verdict(struct learner_remote *remote)
{
    gradweir_receipt receipt;
    if (remote->pushed == 0)
        return GRADWEIR_OK;
    const gradweir_status status =
        gradweir_wait(remote->client, remote->pushed, remote->patience_ms, &receipt);
    if (status != GRADWEIR_OK && status != GRADWEIR_ERR_LOST)
        return status;
    remote->pushed = 0;
    if (status == GRADWEIR_OK)
        count(remote, &receipt);
    for (size_t i = 0; i < SHARED; i++) {
        if (status != GRADWEIR_OK || receipt.verdict != GRADWEIR_ADMITTED)
            statistics_merge(&remote->pending[i], &remote->carried[i]);
        remote->carried[i] = (struct statistics){0, 0, 0};
    }
    return GRADWEIR_OK;
}

static gradweir_status pull(struct learner *learner, float *parameters)
{
    struct learner_remote *remote = (struct learner_remote *)learner;
    gradweir_ticket ticket = remote->riding;
    gradweir_status status = GRADWEIR_OK;
    remote->riding = 0;
    if (ticket == 0)
        status = gradweir_pull(remote->client, &ticket);
    if (status == GRADWEIR_OK)
        status = gradweir_wait(remote->client, ticket, remote->patience_ms, NULL);
    if (status == GRADWEIR_OK)
        status = hear_verdict(remote);
    if (status != GRADWEIR_OK)
        return status;
    memcpy(parameters, remote->parameters, remote->n * sizeof(float));
    learner->version = gradweir_version(remote->client);
    return GRADWEIR_OK;
}

static gradweir_status push(struct learner *learner, const float *gradient, uint64_t samples)
{
    struct learner_remote *remote = (struct learner_remote *)learner;
    const gradweir_status status = hear_verdict(remote);
    if (status != GRADWEIR_OK)
        return status;
    memcpy(remote->gradient, gradient, remote->n * sizeof(float));
    if (remote->poison != 0 && learner->counts.pushes + 1 == remote->poison)
        remote->gradient[remote->n / 3] = NAN;
    for (size_t i = 0; i < SHARED; i++) {
        remote->carried[i] = remote->pending[i];
        remote->pending[i] = (struct statistics){0, 0, 0};
    }
    if (remote->rides && remote->riding == 0)
        return gradweir_push_pull(remote->client, samples, &remote->pushed, &remote->riding);
    return gradweir_push(remote->client, samples, &remote->pushed);
}

/* All workers' as of the last pull, and what this one has not got through yet. */
static gradweir_status share(struct learner *learner, enum learner_shared name,
                             const struct statistics *increment, struct statistics *total)
{
    struct learner_remote *remote = (struct learner_remote *)learner;
    if (statistics_finite(increment))
        statistics_merge(&remote->pending[name], increment);
    *total = remote->pulled[name];
    statistics_merge(total, &remote->carried[name]);
    statistics_merge(total, &remote->pending[name]);
    return GRADWEIR_OK;
}

/* Nobody answers, and a number that was lost is followed by the next one. People read them, so a
 * worker that is through with a rollout in milliseconds does not tell each. */
static void report(struct learner *learner, double mean_return, double kl)
{
    struct learner_remote *remote = (struct learner_remote *)learner;
    const double now_s = pace_wall_seconds();
    if (remote->reported_s > 0 && now_s - remote->reported_s < REPORT_S)
        return;
    remote->reported_s = now_s;
    const gradweir_number numbers[] = {{"return", mean_return}, {"kl", kl}};
    (void)gradweir_report(remote->client, numbers, 2);
}

static gradweir_status flush(struct learner *learner)
{
    return hear_verdict((struct learner_remote *)learner);
}

static void close_remote(struct learner *learner)
{
    struct learner_remote *remote = (struct learner_remote *)learner;
    gradweir_close(remote->client);
    free(remote->parameters);
    free(remote->gradient);
    free(remote);
}

static size_t name_tensors(struct learner_remote *remote, const struct network *network)
{
    static const char *const shared[SHARED] = {"reward.moments", "advantage.moments"};
    for (size_t i = 0; i < network->n_tensors; i++) {
        const struct network_tensor *tensor = &network->tensors[i];
        remote->tensors[i] =
            (gradweir_tensor){.name = tensor->name,
                              .dimensions = tensor->cols > 1 ? 2 : 1,
                              .shape = {tensor->rows, tensor->cols > 1 ? tensor->cols : 0},
                              .kind = GRADWEIR_PARAMETER,
                              .parameters = remote->parameters + tensor->offset,
                              .gradient = remote->gradient + tensor->offset};
    }
    for (size_t i = 0; i < SHARED; i++)
        remote->tensors[network->n_tensors + i] =
            (gradweir_tensor){.name = shared[i],
                              .kind = GRADWEIR_MOMENTS,
                              .parameters = &remote->pulled[i],
                              .gradient = &remote->carried[i]};
    return network->n_tensors + SHARED;
}

static gradweir_status join(struct learner_remote *remote, const struct train_settings *settings,
                            const struct network *network,
                            const struct learner_remote_options *options)
{
    gradweir_options client;
    gradweir_options_default(&client);
    client.address = options->address;
    client.connect_timeout_ms = remote->patience_ms < JOIN_MS ? remote->patience_ms : JOIN_MS;
    client.identity = options->identity;
    client.transport = options->transport;
    client.keys = settings->keys;
    client.insecure = settings->insecure;
    client.feedback = strcmp(settings->feedback, "on") == 0    ? GRADWEIR_FEEDBACK_ON
                      : strcmp(settings->feedback, "off") == 0 ? GRADWEIR_FEEDBACK_OFF
                                                               : GRADWEIR_FEEDBACK_AUTO;
    gradweir_status status = gradweir_open(&client, &remote->client);
    if (status == GRADWEIR_OK)
        status = gradweir_bind(remote->client, remote->tensors, name_tensors(remote, network));
    if (status == GRADWEIR_OK)
        status = gradweir_offer(remote->client, remote->patience_ms);
    return status;
}

gradweir_status learner_remote_open(const struct train_settings *settings,
                                    const struct network *network,
                                    const struct learner_remote_options *options,
                                    struct learner **learner)
{
    struct learner_remote *remote = calloc(1, sizeof(*remote));
    if (remote == NULL)
        return GRADWEIR_ERR_NO_MEMORY;
    remote->learner = (struct learner){.pull = pull,
                                       .push = push,
                                       .share = share,
                                       .report = report,
                                       .flush = flush,
                                       .close = close_remote};
    remote->n = network->n_parameters;
    remote->poison = options->poison;
    remote->rides = !settings->pull_per_rollout;
    remote->patience_ms = (uint32_t)(options->patience_s * 1000);
    remote->parameters = malloc(remote->n * sizeof(float));
    remote->gradient = calloc(remote->n, sizeof(float));
    gradweir_status status = GRADWEIR_ERR_NO_MEMORY;
    if (remote->parameters != NULL && remote->gradient != NULL) {
        memcpy(remote->parameters, options->first, remote->n * sizeof(float));
        status = join(remote, settings, network, options);
    }
    if (status != GRADWEIR_OK) {
        close_remote(&remote->learner);
        return status;
    }
    *learner = &remote->learner;
    return GRADWEIR_OK;
}
