/* Values that follow from others: presets that learn each environment well, which an option on the
 * command line goes over, and what the mode means. */
#include "client/trainer/train_settings.h"

#include <stdio.h>

#include <string.h>

/* Long rollouts, because episodes are; more environments, because the first success is found by
 * chance. */
static void acrobot(struct train_settings *s)
{
    s->until = -90;
    s->max_steps = 500000;
    s->envs = 16;
    s->lr = 1e-3;
    s->lambda = 0.94;
    s->entropy = 0;
}

/* A short horizon is enough to balance, and makes the values easy to learn (as in
 * rl-baselines3-zoo). */
static void pendulum(struct train_settings *s)
{
    s->until = -200;
    s->max_steps = 300000;
    s->anneal_steps = 300000;
    s->envs = 4;
    s->rollout = 512;
    s->epochs = 10;
    s->minibatches = 32;
    s->lr = 1e-3;
    s->gamma = 0.9;
    s->entropy = 0;
    s->reward_norm = true;
}

/* Wide and undiscounted exploration: the car must reach the goal by chance before it can learn. */
static void mountain_car(struct train_settings *s)
{
    s->until = 90;
    s->max_steps = 500000;
    s->envs = 8;
    s->rollout = 512;
    s->epochs = 10;
    s->minibatches = 16;
    s->lr = 3e-4;
    s->gamma = 0.999;
    s->entropy = 0.005;
    s->log_std = 0.5;
    s->reward_norm = true;
}

void train_preset_apply(struct train_settings *settings, const char *environment)
{
    static const struct {
        const char *name;
        void (*apply)(struct train_settings *settings);
    } presets[] = {
        {"Acrobot-v1", acrobot},
        {"Pendulum-v1", pendulum},
        {"MountainCarContinuous-v0", mountain_car},
    };
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++)
        if (strcmp(presets[i].name, environment) == 0)
            presets[i].apply(settings);
}

static bool is_known(const char *const *words, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0)
            return true;
    return false;
}

/* How floats get from a GPU's memory to the network: what is asked for is not replaced. */
static bool check_path(const struct train_settings *settings, struct train_reason *reason)
{
    static const char *const paths[] = {"auto", "staging", "direct"};
    const char *path = settings->memory_path;
    const bool direct = strcmp(path, "direct") == 0;
    if (!is_known(paths, 3, path))
        snprintf(reason->text, sizeof(reason->text),
                 "--memory-path %.60s: must be auto, staging or direct", path);
    else if (strcmp(path, "auto") != 0 && strncmp(settings->device, "cuda", 4) != 0)
        snprintf(reason->text, sizeof(reason->text),
                 "--memory-path %.60s: floats are in host memory with --device %.60s", path,
                 settings->device);
    else if (direct && (settings->accumulate > 1 || settings->ranks > 1 || settings->poison != 0))
        snprintf(reason->text, sizeof(reason->text),
                 "--memory-path direct: gradients pass through the host with --accumulate, --ranks "
                 "and --poison");
    else
        return true;
    return false;
}

/* How gradients travel. */
static bool check_dtype(const struct train_settings *settings, struct train_reason *reason)
{
    static const char *const dtypes[] = {"float32", "bfloat16", "float16", "int8"};
    static const char *const feedbacks[] = {"auto", "on", "off"};
    if (!is_known(dtypes, 4, settings->gradient_dtype)) {
        snprintf(reason->text, sizeof(reason->text),
                 "--gradient-dtype %.60s: must be float32, bfloat16, float16 or int8",
                 settings->gradient_dtype);
        return false;
    }
    if (!is_known(feedbacks, 3, settings->feedback)) {
        snprintf(reason->text, sizeof(reason->text), "--feedback %.60s: must be auto, on or off",
                 settings->feedback);
        return false;
    }
    return check_path(settings, reason);
}

bool train_is_sync(const struct train_settings *settings)
{
    return strcmp(settings->mode, "sync") == 0;
}

/* A synchronous step takes one gradient of every worker, so the servers need room for them, with
 * two more for readers. */
bool train_mode_apply(struct train_settings *settings, struct train_reason *reason)
{
    if (!check_dtype(settings, reason))
        return false;
    const uint64_t workers = settings->workers / settings->ranks;
    if (!train_is_sync(settings) && strcmp(settings->mode, "async") != 0) {
        snprintf(reason->text, sizeof(reason->text), "--mode %.60s: must be async or sync",
                 settings->mode);
        return false;
    }
    if (train_is_sync(settings)) {
        settings->window = settings->stride = workers;
        settings->queue = settings->queue < workers + 2 ? workers + 2 : settings->queue;
    }
    if (settings->window == 0)
        settings->window = workers > settings->stride ? workers : settings->stride;
    return true;
}
