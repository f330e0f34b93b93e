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

static int train(const struct trainer *trainer, struct learner *learner)
{
    const struct train_settings *settings = trainer->settings;
    struct channel_overseer channel;
    struct train_outcome outcome;
    channel_overseer_init(&channel, (int)settings->channel, (uint32_t)trainer->worker, learner);
    gradweir_status status = trainer_run(trainer, learner, &channel.overseer, &outcome);
    /* Another rank has heard that the run is over, and left; else the servers were shut down. */
    if (status == GRADWEIR_ERR_STOPPED && channel_is_over((int)settings->channel, 0))
        status = GRADWEIR_OK;
    const char *why = outcome.reason.text[0] != '\0' ? outcome.reason.text : gradweir_last_error();
    channel_finish(&channel, status == GRADWEIR_OK ? "" : why);
    if (outcome.end == TRAIN_NOT_FINITE)
        fprintf(
            stderr,
            "gradweir-train: worker-%llu: %llu gradients in a row were not finite: it ends here\n",
            (unsigned long long)trainer->worker,
            (unsigned long long)learner->counts.not_finite_in_row);
    return status == GRADWEIR_OK ? 0 : complain(settings, "training stopped", why);
}

/* Nothing has come of it, and nothing will. */
static int give_up(const struct train_settings *settings, const char *what, const char *why)
{
    channel_give_up((int)settings->channel, (uint32_t)settings->worker - 1, why);
    return complain(settings, what, why);
}

/* The engine's own arrays with the first parameters in them, where it has some and nobody needs the
 * floats on the host: to accumulate, to sum over ranks, or to spoil them. */
static gradweir_status find_arrays(const struct trainer *trainer,
                                   const struct learner_remote_options *options,
                                   struct engine_arrays *arrays)
{
    const struct engine_running running = trainer->running;
    const struct train_settings *settings = trainer->settings;
    *arrays = (struct engine_arrays){.parameters = NULL};
    if (settings->accumulate > 1 || settings->ranks > 1 || options->poison != 0)
        return GRADWEIR_OK;
    gradweir_status status = running.engine->load(running.state, options->first);
    if (status == GRADWEIR_OK)
        status = running.engine->arrays(running.state, arrays);
    return status;
}

static int join_and_train(const struct trainer *trainer, struct learner_remote_options *options)
{
    const struct train_settings *settings = trainer->settings;
    struct learner *learner = NULL;
    struct engine_arrays arrays;
    if (find_arrays(trainer, options, &arrays) != GRADWEIR_OK)
        return give_up(settings, "cannot compute",
                       trainer->running.engine->reason(trainer->running.state));
    options->arrays = arrays.parameters != NULL ? &arrays : NULL;
    const gradweir_status opened =
        settings->ranks > 1 ? learner_group_open(settings, &trainer->network, options, &learner)
                            : learner_remote_open(settings, &trainer->network, options, &learner);
    if (opened != GRADWEIR_OK)
        return give_up(settings, "cannot join", gradweir_last_error());
    const int result = train(trainer, learner);
    learner->close(learner);
    return result;
}

static int work(const struct trainer *trainer)
{
    const struct train_settings *settings = trainer->settings;
    const uint64_t index = trainer->worker;
    char identity[128]; /* the library says what is too long */
    snprintf(identity, sizeof(identity), "%s-%llu", settings->identity,
             (unsigned long long)(index / settings->ranks));
    float *first = calloc(trainer->network.n_parameters, sizeof(float));
    if (first == NULL)
        return 2;
    train_first_parameters(settings, &trainer->network, first);
    struct learner_remote_options options = {.address = settings->servers,
                                             .identity = identity,
                                             .transport = settings->transport,
                                             .first = first,
                                             .patience_s = settings->patience_s,
                                             .poison = index == 0 ? settings->poison : 0,
                                             .rank = (uint32_t)(index % settings->ranks),
                                             .channel = (int)settings->channel};
    const int result = join_and_train(trainer, &options);
    free(first);
    return result;
}

int train_worker(const struct train_settings *given)
{
    struct train_settings settings = *given;
    struct trainer trainer;
    struct engine_reason reason = {.text = ""};
    const uint64_t index = settings.worker - 1;
    if (settings.slow_worker.given && settings.slow_worker.worker == index)
        settings.slowness = settings.slow_worker.value;
    const gradweir_status status = trainer_open(&settings, index, &trainer, &reason);
    const int result =
        status == GRADWEIR_OK ? work(&trainer) : give_up(&settings, "cannot compute", reason.text);
    trainer_close(&trainer);
    return result;
}
