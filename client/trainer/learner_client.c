/* See learner_client.h. */
#include "client/trainer/learner_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOIN_MS = 10000, STATUS_BYTES = 1 << 20 };

/* The limit that is in force, from the servers' status; 0: they do not say. */
static double magnitude_max(gradweir_client *client)
{
    static const char name[] = "\"magnitude_max\":";
    char *text = malloc(STATUS_BYTES);
    double limit = 0;
    if (text != NULL && gradweir_status_json(client, 1000, text, STATUS_BYTES) == GRADWEIR_OK) {
        const char *place = strstr(text, name);
        limit = place != NULL ? strtod(place + strlen(name), NULL) : 0;
    }
    free(text);
    return limit;
}

/* No tensor is named when all its elements are finite, and one too large. */
static void say_not_finite(gradweir_client *client, const gradweir_receipt *receipt)
{
    char what[160];
    if (receipt->tensor[0] != '\0') {
        snprintf(what, sizeof(what), "has a NaN or infinity in %s", receipt->tensor);
    } else {
        char limit[32] = "";
        const double known = magnitude_max(client);
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

void learner_client_count(struct learner_counts *counts, gradweir_client *client,
                          const gradweir_receipt *receipt)
{
    const bool admitted = receipt->verdict == GRADWEIR_ADMITTED;
    const bool not_finite = receipt->verdict == GRADWEIR_NOT_FINITE;
    counts->pushes++;
    counts->admitted += admitted;
    counts->refused += !admitted;
    counts->not_finite += not_finite;
    counts->not_finite_in_row = not_finite ? counts->not_finite_in_row + 1 : 0;
    if (not_finite)
        say_not_finite(client, receipt);
    if (!admitted)
        return;
    counts->staleness_sum += (double)receipt->staleness;
    if (receipt->staleness > counts->staleness_max)
        counts->staleness_max = receipt->staleness;
}

size_t learner_client_tensors(const struct network *network, const struct learner_memory *memory,
                              gradweir_tensor *tensors)
{
    static const char *const shared[LEARNER_SHARED] = {"reward.moments", "advantage.moments"};
    for (size_t i = 0; i < network->n_tensors; i++) {
        const struct network_tensor *tensor = &network->tensors[i];
        tensors[i] = (gradweir_tensor){.name = tensor->name,
                                       .dimensions = tensor->cols > 1 ? 2 : 1,
                                       .shape = {tensor->rows, tensor->cols > 1 ? tensor->cols : 0},
                                       .kind = GRADWEIR_PARAMETER,
                                       .parameters = memory->parameters + tensor->offset,
                                       .gradient = memory->gradient + tensor->offset};
    }
    for (size_t i = 0; i < LEARNER_SHARED; i++)
        tensors[network->n_tensors + i] = (gradweir_tensor){.name = shared[i],
                                                            .kind = GRADWEIR_MOMENTS,
                                                            .parameters = &memory->pulled[i],
                                                            .gradient = &memory->carried[i]};
    return network->n_tensors + LEARNER_SHARED;
}

gradweir_options learner_client_options(const struct train_settings *settings,
                                        const struct learner_remote_options *options,
                                        uint32_t patience_ms)
{
    gradweir_options client;
    gradweir_options_default(&client);
    client.address = options->address;
    client.connect_timeout_ms = patience_ms < JOIN_MS ? patience_ms : JOIN_MS;
    client.identity = options->identity;
    client.transport = options->transport;
    client.keys = settings->keys;
    client.insecure = settings->insecure;
    client.feedback = strcmp(settings->feedback, "on") == 0    ? GRADWEIR_FEEDBACK_ON
                      : strcmp(settings->feedback, "off") == 0 ? GRADWEIR_FEEDBACK_OFF
                                                               : GRADWEIR_FEEDBACK_AUTO;
    if (options->arrays != NULL) {
        client.memory = GRADWEIR_MEMORY_AUTO; /* statistics are the host's */
        client.gpu = options->arrays->gpu;
        client.memory_path =
            strcmp(settings->memory_path, "direct") == 0    ? GRADWEIR_MEMORY_PATH_DIRECT
            : strcmp(settings->memory_path, "staging") == 0 ? GRADWEIR_MEMORY_PATH_STAGING
                                                            : GRADWEIR_MEMORY_PATH_AUTO;
    }
    return client;
}
