/* See train_device.h. */
#include "client/trainer/train_device.h"

#include "client/trainer/train_loop.h"
#include "client/trainer/update.h"

#include <stdio.h>
#include <string.h>

const struct engine *train_engine(const struct train_settings *settings,
                                  const struct network *network, uint64_t worker,
                                  struct engine_options *options, struct engine_reason *reason)
{
    *options = (struct engine_options){
        .network = network,
        .environment = settings->environment,
        .steps = settings->rollout,
        .environments = settings->envs,
        .minibatch_max = update_minibatch_max(settings),
        .seed = settings->seed,
        .worker = worker,
        .gamma = (float)settings->gamma,
        .lambda = (float)settings->lambda,
        .vtrace = settings->vtrace,
        .decoupled = settings->decoupled,
        .own_environments = strcmp(settings->env_device, "cpu") != 0,
    };
    const struct engine *engine = engine_parse(settings->device, options, reason);
    if (engine == NULL || !options->own_environments ||
        (engine != &engine_cpu && strcmp(settings->env_device, engine->name) == 0))
        return engine;
    snprintf(reason->text, sizeof(reason->text),
             "environments on %.60s: they are stepped on the cpu, or on the GPU that computes "
             "(--device cuda --env-device cuda)",
             settings->env_device);
    return NULL;
}

gradweir_status train_check_device(const struct train_settings *settings,
                                   struct train_reason *reason)
{
    struct network network;
    struct engine_options options;
    struct engine_reason why = {.text = ""};
    if (settings->worker > 0)
        return GRADWEIR_OK; /* it opens its engine at once */
    train_network(settings, &network);
    const struct engine *engine = train_engine(settings, &network, 0, &options, &why);
    const gradweir_status status =
        engine == NULL ? GRADWEIR_ERR_INVALID : engine->probe(&options, &why);
    if (status != GRADWEIR_OK)
        snprintf(reason->text, sizeof(reason->text), "--device %.20s: %.400s", settings->device,
                 why.text);
    return status;
}
