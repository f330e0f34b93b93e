/* See learner_remote.h. The next pull rides with each push, so the worker waits once a gradient:
 * for parameters that come after its verdict. A second push under way would only add staleness of
 * one's own. */
#include "client/trainer/learner_remote.h"

#include "client/trainer/learner_client.h"
#include "client/trainer/pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double REPORT_S = 0.2;

enum { SHARED = LEARNER_SHARED };

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
        learner_client_count(&remote->learner.counts, remote->client, &receipt);
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
    if (!learner->far)
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
    if (!learner->far)
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

static gradweir_status join(struct learner_remote *remote, const struct train_settings *settings,
                            const struct network *network,
                            const struct learner_remote_options *options)
{
    struct learner_memory memory = {remote->parameters, remote->gradient, remote->pulled,
                                    remote->carried};
    if (remote->learner.far) {
        memory.parameters = options->arrays->parameters;
        memory.gradient = options->arrays->gradient;
    }
    const gradweir_options client = learner_client_options(settings, options, remote->patience_ms);
    gradweir_status status = gradweir_open(&client, &remote->client);
    if (status == GRADWEIR_OK)
        status = gradweir_bind(remote->client, remote->tensors,
                               learner_client_tensors(network, &memory, remote->tensors));
    if (status == GRADWEIR_OK)
        status = gradweir_offer(remote->client, remote->patience_ms);
    return status;
}

/* What is far is not ours: nothing to take. */
static gradweir_status take_arrays(struct learner_remote *remote,
                                   const struct learner_remote_options *options)
{
    if (remote->learner.far)
        return GRADWEIR_OK;
    remote->parameters = malloc(remote->n * sizeof(float));
    remote->gradient = calloc(remote->n, sizeof(float));
    if (remote->parameters == NULL || remote->gradient == NULL)
        return GRADWEIR_ERR_NO_MEMORY;
    memcpy(remote->parameters, options->first, remote->n * sizeof(float));
    return GRADWEIR_OK;
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
    remote->learner.far = options->arrays != NULL;
    gradweir_status status = take_arrays(remote, options);
    if (status == GRADWEIR_OK)
        status = join(remote, settings, network, options);
    if (status != GRADWEIR_OK) {
        close_remote(&remote->learner);
        return status;
    }
    *learner = &remote->learner;
    return GRADWEIR_OK;
}
