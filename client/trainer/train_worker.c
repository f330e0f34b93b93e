/* A worker process of a run: joins the servers, trains until told to stop. */
#include "client/trainer/train_worker.h"

#include "client/trainer/learner_remote.h"
#include "client/trainer/train_channel.h"
#include "client/trainer/train_loop.h"

#include <gradweir/gradweir.h>

#include <stdio.h>
#include <stdlib.h>

static int complain(const struct train_settings *settings, const char *what, const char *why)
{
    fprintf(stderr, "gradweir-train: worker-%llu: %s: %s\n",
            (unsigned long long)settings->worker - 1, what, why);
    return 2;
}

static int train(const struct train_settings *settings, struct learner *learner)
{
    struct channel_overseer channel;
    struct train_outcome outcome;
    channel_overseer_init(&channel, (int)settings->channel, (uint32_t)settings->worker - 1,
                          learner);
    gradweir_status status =
        train_loop(settings, settings->worker - 1, learner, &channel.overseer, &outcome);
    if (status == GRADWEIR_ERR_STOPPED) /* another rank has heard it first, and left */
        status = GRADWEIR_OK;
    const char *why = outcome.reason.text[0] != '\0' ? outcome.reason.text : gradweir_last_error();
    channel_finish(&channel, status == GRADWEIR_OK ? "" : why);
    if (outcome.end == TRAIN_NOT_FINITE)
        fprintf(
            stderr,
            "gradweir-train: worker-%llu: %llu gradients in a row were not finite: it ends here\n",
            (unsigned long long)settings->worker - 1,
            (unsigned long long)learner->counts.not_finite_in_row);
    return status == GRADWEIR_OK ? 0 : complain(settings, "training stopped", why);
}

int train_worker(const struct train_settings *given)
{
    struct train_settings settings = *given;
    struct network network;
    struct learner *learner = NULL;
    char identity[128]; /* the library says what is too long */
    const uint64_t index = settings.worker - 1;
    snprintf(identity, sizeof(identity), "%s-%llu", settings.identity,
             (unsigned long long)(index / settings.ranks));
    if (settings.slow_worker.given && settings.slow_worker.worker == index)
        settings.slowness = settings.slow_worker.value;
    train_network(&settings, &network);
    float *first = calloc(network.n_parameters, sizeof(float));
    if (first == NULL)
        return 2;
    train_first_parameters(&settings, &network, first);
    const struct learner_remote_options options = {.address = settings.servers,
                                                   .identity = identity,
                                                   .transport = settings.transport,
                                                   .first = first,
                                                   .patience_s = settings.patience_s,
                                                   .poison = index == 0 ? settings.poison : 0,
                                                   .rank = (uint32_t)(index % settings.ranks),
                                                   .channel = (int)settings.channel};
    int result = 2;
    const gradweir_status opened =
        settings.ranks > 1 ? learner_group_open(&settings, &network, &options, &learner)
                           : learner_remote_open(&settings, &network, &options, &learner);
    if (opened == GRADWEIR_OK) {
        result = train(&settings, learner);
        learner->close(learner);
    } else {
        channel_give_up((int)settings.channel, (uint32_t)index, gradweir_last_error());
        result = complain(&settings, "cannot join", gradweir_last_error());
    }
    free(first);
    return result;
}
