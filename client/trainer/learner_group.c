/* One rank of a group behind the servers. Each push and each pull is a call of all ranks, so
 * nothing is under way between them. */
#include "client/trainer/learner_client.h"

#include "client/trainer/pace.h"
#include "client/trainer/train_channel.h"

#include <gradweir/group.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double REPORT_S = 0.2;

enum { SHARED = LEARNER_SHARED, RENEWALS_MAX = 8, PATIENCE_MS = 5000, TIMEOUT_MS = 60000 };

struct learner_group {
    struct learner learner;
    size_t n;
    uint64_t poison, pushes;
    int channel;
    gradweir_ranks *group;
    gradweir_tensor tensors[NETWORK_TENSORS_MAX + SHARED];
    float *parameters, *gradient;
    double reported_s;
    struct statistics pending[SHARED], carried[SHARED], pulled[SHARED]; /* as of learner_remote.c */
};

/* A rank was lost: on with the others, unless it has only left because the run is over. */
static gradweir_status renew(struct learner_group *own, gradweir_status status)
{
    for (int i = 0; i < RENEWALS_MAX; i++) {
        if (status != GRADWEIR_ERR_LOST && status != GRADWEIR_ERR_TIMEOUT &&
            (status != GRADWEIR_ERR_FENCED || i > 0)) /* the others may go on without this rank */
            return status;
        if (channel_is_over(own->channel, 1))
            return GRADWEIR_ERR_STOPPED;
        fprintf(stderr, "gradweir-train: %s; the others go on\n", gradweir_last_error());
        status = gradweir_group_renew(own->group);
    }
    return status;
}

static gradweir_status pull(struct learner *learner, float *parameters)
{
    struct learner_group *own = (struct learner_group *)learner;
    gradweir_receipt receipt = {.version = 0};
    gradweir_status status = gradweir_group_pull(own->group, &receipt);
    for (int i = 0; i < RENEWALS_MAX && status != GRADWEIR_OK; i++) {
        status = renew(own, status);
        if (status != GRADWEIR_OK)
            return status;
        status = gradweir_group_pull(own->group, &receipt);
    }
    if (status != GRADWEIR_OK)
        return status;
    memcpy(parameters, own->parameters, own->n * sizeof(float));
    learner->version = receipt.version;
    return GRADWEIR_OK;
}

static void carry(struct learner_group *own)
{
    for (size_t i = 0; i < SHARED; i++) {
        own->carried[i] = own->pending[i];
        own->pending[i] = (struct statistics){0, 0, 0};
    }
}

/* What was not admitted is given back. */
static void settle(struct learner_group *own, bool admitted)
{
    for (size_t i = 0; i < SHARED; i++) {
        if (!admitted)
            statistics_merge(&own->pending[i], &own->carried[i]);
        own->carried[i] = (struct statistics){0, 0, 0};
    }
}

/* A verdict is the group's: the rank at its first place counts it. */
static bool counts_it(const struct learner_group *own)
{
    gradweir_group_info info = {.size = sizeof(info)};
    return gradweir_group_tell(own->group, &info) == GRADWEIR_OK && info.rank == 0;
}

static gradweir_status push(struct learner *learner, const float *gradient, uint64_t samples)
{
    struct learner_group *own = (struct learner_group *)learner;
    gradweir_receipt receipt = {.verdict = GRADWEIR_NONE};
    memcpy(own->gradient, gradient, own->n * sizeof(float));
    if (++own->pushes == own->poison)
        own->gradient[own->n / 3] = NAN;
    carry(own);
    const gradweir_status status = gradweir_group_push(own->group, samples, &receipt);
    settle(own, status == GRADWEIR_OK && receipt.verdict == GRADWEIR_ADMITTED);
    if (status != GRADWEIR_OK)
        return renew(own, status);
    if (counts_it(own))
        learner_client_count(&learner->counts, gradweir_group_client(own->group), &receipt);
    return GRADWEIR_OK;
}

static gradweir_status share(struct learner *learner, enum learner_shared name,
                             const struct statistics *increment, struct statistics *total)
{
    struct learner_group *own = (struct learner_group *)learner;
    if (statistics_finite(increment))
        statistics_merge(&own->pending[name], increment);
    *total = own->pulled[name];
    statistics_merge(total, &own->pending[name]);
    return GRADWEIR_OK;
}

static void report(struct learner *learner, double mean_return, double kl)
{
    struct learner_group *own = (struct learner_group *)learner;
    const double now_s = pace_wall_seconds();
    if (own->reported_s > 0 && now_s - own->reported_s < REPORT_S)
        return;
    own->reported_s = now_s;
    const gradweir_number numbers[] = {{"return", mean_return}, {"kl", kl}};
    (void)gradweir_report(gradweir_group_client(own->group), numbers, 2);
}

static gradweir_status flush(struct learner *learner)
{
    (void)learner;
    return GRADWEIR_OK;
}

static void close_group(struct learner *learner)
{
    struct learner_group *own = (struct learner_group *)learner;
    gradweir_group_leave(own->group);
    free(own->parameters);
    free(own->gradient);
    free(own);
}

static gradweir_status join(struct learner_group *own, const struct train_settings *settings,
                            const struct network *network,
                            const struct learner_remote_options *options)
{
    const struct learner_memory memory = {own->parameters, own->gradient, own->pulled,
                                          own->carried};
    const uint32_t patience_ms = (uint32_t)(options->patience_s * 1000);
    gradweir_options client = learner_client_options(settings, options, patience_ms);
    gradweir_group_options group;
    gradweir_group_options_default(&group);
    client.rank = options->rank;
    client.ranks = (uint32_t)settings->ranks;
    group.client = &client;
    group.timeout_ms = patience_ms < TIMEOUT_MS ? patience_ms : TIMEOUT_MS;
    group.patience_ms = group.timeout_ms / 2 < PATIENCE_MS ? group.timeout_ms / 2 : PATIENCE_MS;
    gradweir_status status = gradweir_group_join(&group, &own->group);
    if (status == GRADWEIR_OK)
        status = gradweir_group_bind(own->group, own->tensors,
                                     learner_client_tensors(network, &memory, own->tensors));
    if (status == GRADWEIR_OK)
        status = gradweir_group_offer(own->group, patience_ms);
    return status;
}

gradweir_status learner_group_open(const struct train_settings *settings,
                                   const struct network *network,
                                   const struct learner_remote_options *options,
                                   struct learner **learner)
{
    struct learner_group *own = calloc(1, sizeof(*own));
    if (own == NULL)
        return GRADWEIR_ERR_NO_MEMORY;
    own->learner = (struct learner){.pull = pull,
                                    .push = push,
                                    .share = share,
                                    .report = report,
                                    .flush = flush,
                                    .close = close_group};
    own->n = network->n_parameters;
    own->poison = options->poison;
    own->channel = options->channel;
    own->parameters = malloc(own->n * sizeof(float));
    own->gradient = calloc(own->n, sizeof(float));
    gradweir_status status = GRADWEIR_ERR_NO_MEMORY;
    if (own->parameters != NULL && own->gradient != NULL) {
        memcpy(own->parameters, options->first, own->n * sizeof(float));
        status = join(own, settings, network, options);
    }
    if (status != GRADWEIR_OK) {
        close_group(&own->learner);
        return status;
    }
    *learner = &own->learner;
    return GRADWEIR_OK;
}
