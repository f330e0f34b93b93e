/* See train_loop.h. */
#include "client/trainer/train_loop.h"

#include "client/trainer/pace.h"
#include "client/trainer/reward_share.h"
#include "client/trainer/rollout.h"
#include "client/trainer/train_device.h"
#include "client/trainer/update.h"

#include <stdio.h>

void train_network(const struct train_settings *settings, struct network *network)
{
    const struct network_shape shape = {
        .observation_dim = settings->environment->observation_dim,
        .hidden = {settings->hidden, settings->hidden},
        .action_dim = settings->environment->action_dim,
        .shared = settings->shared_trunk,
        .gaussian = !settings->environment->discrete,
    };
    network_init(network, &shape);
}

void train_first_parameters(const struct train_settings *settings, const struct network *network,
                            float *parameters)
{
    struct chance chance;
    chance_init_for(&chance, settings->seed, 0, CHANCE_PARAMETERS);
    network_first_parameters(network, &chance, (float)settings->log_std, parameters);
}

/* Leaves the newest parameters pulled: for the overseer, and for the next rollout. */
static gradweir_status run(const struct train_settings *settings, struct rollout *rollout,
                           struct update *update, struct learner *learner,
                           struct reward_normaliser *normaliser)
{
    const double cpu_s = pace_cpu_seconds();
    gradweir_status status = update->running.engine->collect(update->running.state, rollout);
    if (status != GRADWEIR_OK)
        return status;
    if (settings->reward_norm)
        rollout_normalise(rollout, normaliser);
    pace_sleep_after(settings->pace_ms, settings->slowness, cpu_s);
    status = reward_share(settings, learner, normaliser);
    if (status == GRADWEIR_OK)
        status = update_run(update, rollout, learner);
    return status == GRADWEIR_OK ? update_pull(update, learner) : status;
}

static bool tell(struct overseer *overseer, const struct rollout *rollout,
                 const struct update *update, struct learner *learner)
{
    double sum = 0;
    for (size_t i = 0; i < rollout->n_returns; i++)
        sum += rollout->returns[i];
    if (rollout->n_returns > 0)
        learner->report(learner, sum / (double)rollout->n_returns, update->kl);
    const struct overseer_news news = {
        .returns = rollout->returns,
        .n_returns = rollout->n_returns,
        .environment_steps = rollout->steps * rollout->environments,
        .parameters = learner->far ? NULL : update->parameters,
        .version = learner->version,
        .kl = update->kl,
    };
    return overseer->hear(overseer, &news);
}

static gradweir_status run_until_over(struct rollout *rollout, struct update *update,
                                      struct learner *learner, struct overseer *overseer,
                                      enum train_end *end)
{
    const struct train_settings *settings = update->settings;
    struct reward_normaliser normaliser = reward_start(settings);
    gradweir_status status = update_pull(update, learner);
    *end = TRAIN_OVER;
    if (status == GRADWEIR_OK)
        status = reward_share(settings, learner, &normaliser); /* what others have seen by now */
    while (status == GRADWEIR_OK) {
        status = run(settings, rollout, update, learner, &normaliser);
        if (settings->stable && learner->counts.not_finite_in_row >= settings->not_finite_max)
            *end = TRAIN_NOT_FINITE;
        if (*end != TRAIN_OVER ||
            (status == GRADWEIR_OK && tell(overseer, rollout, update, learner)))
            break;
    }
    return status == GRADWEIR_OK ? learner->flush(learner) : status;
}

static struct engine_reason why(struct engine_running running)
{
    struct engine_reason reason;
    snprintf(reason.text, sizeof(reason.text), "%s", running.engine->reason(running.state));
    return reason;
}

gradweir_status trainer_open(const struct train_settings *settings, uint64_t worker,
                             struct trainer *trainer, struct engine_reason *reason)
{
    struct engine_options options;
    *trainer = (struct trainer){.settings = settings, .worker = worker};
    train_network(settings, &trainer->network);
    struct engine_running *running = &trainer->running;
    running->engine = train_engine(settings, &trainer->network, worker, &options, reason);
    return running->engine == NULL ? GRADWEIR_ERR_UNSUPPORTED
                                   : running->engine->open(&options, &running->state, reason);
}

void trainer_close(struct trainer *trainer)
{
    if (trainer->running.engine != NULL)
        trainer->running.engine->close(trainer->running.state);
}

gradweir_status trainer_run(const struct trainer *trainer, struct learner *learner,
                            struct overseer *overseer, struct train_outcome *outcome)
{
    const struct train_settings *settings = trainer->settings;
    const struct engine_running running = trainer->running;
    struct engine_info info;
    struct rollout rollout = {.steps = 0};
    struct update update = {.samples = 0};
    *outcome = (struct train_outcome){.end = TRAIN_OVER};
    running.engine->info(running.state, &info);
    const struct rollout_shape shape = {settings->environment, settings->rollout, settings->envs,
                                        settings->seed,        trainer->worker,   info.groups};
    gradweir_status status = GRADWEIR_ERR_NO_MEMORY;
    if (rollout_init(&rollout, &shape) &&
        update_init(&update, settings, &trainer->network, trainer->worker, running))
        status = run_until_over(&rollout, &update, learner, overseer, &outcome->end);
    if (status != GRADWEIR_OK)
        outcome->reason = why(running);
    update_deinit(&update);
    rollout_deinit(&rollout);
    return status;
}

gradweir_status train_loop(const struct train_settings *settings, uint64_t worker,
                           struct learner *learner, struct overseer *overseer,
                           struct train_outcome *outcome)
{
    struct trainer trainer;
    *outcome = (struct train_outcome){.end = TRAIN_OVER};
    gradweir_status status = trainer_open(settings, worker, &trainer, &outcome->reason);
    if (status == GRADWEIR_OK)
        status = trainer_run(&trainer, learner, overseer, outcome);
    trainer_close(&trainer);
    return status;
}
