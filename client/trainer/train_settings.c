/* Reading a command line. See train_settings.h. */
#include "client/trainer/train_settings.h"

#include "client/trainer/train_options.h"
#include "client/trainer/train_words.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *member(struct train_settings *settings, const struct option *option)
{
    return (char *)settings + option->offset;
}

/* - and _ are one, as in the servers' settings. */
static bool same_name(const char *a, const char *b)
{
    for (; *a != '\0' && (*a == '_' ? '-' : *a) == (*b == '_' ? '-' : *b); a++)
        b++;
    return *a == *b;
}

static const struct option *find_option(const char *name, struct train_reason *reason)
{
    const struct option *nearest = &train_options[0];
    for (size_t i = 0; i < train_options_n; i++) {
        if (same_name(train_options[i].name, name))
            return &train_options[i];
        if (train_word_distance(name, train_options[i].name) <
            train_word_distance(name, nearest->name))
            nearest = &train_options[i];
    }
    snprintf(reason->text, sizeof(reason->text), "--%.60s: unknown option; the nearest is --%s",
             name, nearest->name);
    return NULL;
}

static gradweir_status read_number(const struct option *option, const char *word, double *number,
                                   struct train_reason *reason)
{
    char *end = NULL;
    errno = 0;
    const double value = strtod(word, &end);
    const bool whole = option->kind != OPTION_COUNT || value == floor(value);
    if (end == word || *end != '\0' || errno != 0 ||
        !(value >= option->low && value <= option->high) || !whole) {
        snprintf(reason->text, sizeof(reason->text), "--%s %.60s: must be a%s number from %g to %g",
                 option->name, word, option->kind == OPTION_COUNT ? " whole" : "", option->low,
                 option->high);
        return GRADWEIR_ERR_INVALID;
    }
    *number = value;
    return GRADWEIR_OK;
}

static gradweir_status take_pair(struct train_settings *settings, const struct option *option,
                                 char *const *words, struct train_reason *reason)
{
    static const struct option index = {"worker", OPTION_COUNT, 0, 0, 255, NULL};
    double worker = 0, value = 0;
    gradweir_status status = read_number(&index, words[0], &worker, reason);
    if (status == GRADWEIR_OK)
        status = read_number(option, words[1], &value, reason);
    if (status == GRADWEIR_OK)
        *(struct train_pair *)member(settings, option) =
            (struct train_pair){true, (uint64_t)worker, value};
    return status;
}

static gradweir_status take_number(struct train_settings *settings, const struct option *option,
                                   const char *word, struct train_reason *reason)
{
    double value = 0;
    const gradweir_status status = read_number(option, word, &value, reason);
    if (status != GRADWEIR_OK)
        return status;
    if (option->kind == OPTION_NUMBER)
        *(double *)member(settings, option) = value;
    else
        *(uint64_t *)member(settings, option) = (uint64_t)value;
    return GRADWEIR_OK;
}

/* Takes the option at argv[*i] and moves *i past it. */
static gradweir_status take_option(struct train_settings *settings, int argc, char **argv, int *i,
                                   struct train_reason *reason)
{
    const char *word = argv[(*i)++];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return GRADWEIR_ERR_STOPPED;
    if (strncmp(word, "--", 2) != 0) {
        snprintf(reason->text, sizeof(reason->text), "%.60s: options start with --", word);
        return GRADWEIR_ERR_INVALID;
    }
    const struct option *option = find_option(word + 2, reason);
    if (option == NULL)
        return GRADWEIR_ERR_INVALID;
    settings->given |= UINT64_C(1) << (option - train_options);
    if (option->kind == OPTION_FLAG) {
        *(bool *)member(settings, option) = true;
        return GRADWEIR_OK;
    }
    const int values = option->kind == OPTION_PAIR ? 2 : 1;
    if (*i + values > argc) {
        snprintf(reason->text, sizeof(reason->text), "--%s: needs %s", option->name,
                 values == 2 ? "a worker and a value" : "a value");
        return GRADWEIR_ERR_INVALID;
    }
    if (option->kind == OPTION_PAIR) {
        *i += 2;
        return take_pair(settings, option, argv + *i - 2, reason);
    }
    const char *value = argv[(*i)++];
    if (option->kind != OPTION_WORD)
        return take_number(settings, option, value, reason);
    *(const char **)member(settings, option) = value;
    return GRADWEIR_OK;
}

bool train_settings_given(const struct train_settings *settings, const char *name)
{
    for (size_t i = 0; i < train_options_n; i++)
        if (strcmp(train_options[i].name, name) == 0)
            return settings->given >> i & 1;
    return false;
}

static gradweir_status find_environment(struct train_settings *settings,
                                        struct train_reason *reason)
{
    const struct environment *nearest = environment_at(0);
    settings->environment = environment_find(settings->env);
    if (settings->environment != NULL)
        return GRADWEIR_OK;
    for (size_t i = 0; environment_at(i) != NULL; i++)
        if (train_word_distance(settings->env, environment_at(i)->name) <
            train_word_distance(settings->env, nearest->name))
            nearest = environment_at(i);
    snprintf(reason->text, sizeof(reason->text),
             "--env %.60s: unknown environment; the nearest is %s", settings->env, nearest->name);
    return GRADWEIR_ERR_INVALID;
}

/* Ranks pull and push together, so each must do it as often as the others. */
static bool check_ranks(const struct train_settings *settings, struct train_reason *reason)
{
    const char *other = settings->stable             ? "--stable"
                        : settings->target_kl > 0    ? "--target-kl"
                        : settings->pull_per_rollout ? "--pull-per-rollout"
                                                     : NULL;
    if (settings->ranks == 1)
        return true;
    if (settings->workers % settings->ranks != 0)
        snprintf(reason->text, sizeof(reason->text),
                 "--ranks %llu: --workers %llu cannot be parted into groups of so many",
                 (unsigned long long)settings->ranks, (unsigned long long)settings->workers);
    else if (other != NULL)
        snprintf(reason->text, sizeof(reason->text),
                 "--ranks: has no use with %s, by which some ranks would push more than others",
                 other);
    return settings->workers % settings->ranks == 0 && other == NULL;
}

/* Rules between options. --stable puts on what was not chosen otherwise. */
static gradweir_status settle(struct train_settings *settings, struct train_reason *reason)
{
    if (settings->minibatches > settings->envs * settings->rollout) {
        snprintf(reason->text, sizeof(reason->text),
                 "--minibatches %llu: must not exceed envs x rollout = %llu",
                 (unsigned long long)settings->minibatches,
                 (unsigned long long)(settings->envs * settings->rollout));
        return GRADWEIR_ERR_INVALID;
    }
    if (settings->envs * settings->rollout > INT32_MAX) {
        snprintf(reason->text, sizeof(reason->text),
                 "--envs %llu --rollout %llu: a rollout is at most %d samples, envs x rollout",
                 (unsigned long long)settings->envs, (unsigned long long)settings->rollout,
                 INT32_MAX);
        return GRADWEIR_ERR_INVALID;
    }
    if (settings->local && settings->workers != 1) {
        snprintf(reason->text, sizeof(reason->text), "--local: is for one worker, not %llu",
                 (unsigned long long)settings->workers);
        return GRADWEIR_ERR_INVALID;
    }
    const struct train_pair *pairs[] = {&settings->slow_worker, &settings->kill_worker};
    for (size_t i = 0; i < 2; i++) {
        if (pairs[i]->given && pairs[i]->worker >= settings->workers) {
            snprintf(reason->text, sizeof(reason->text), "worker %llu: must be from 0 to %llu",
                     (unsigned long long)pairs[i]->worker,
                     (unsigned long long)settings->workers - 1);
            return GRADWEIR_ERR_INVALID;
        }
    }
    if (settings->slow_worker.given && settings->pace_ms == 0) {
        snprintf(reason->text, sizeof(reason->text),
                 "--slow-worker: stretches the sleep of --pace, and there is none");
        return GRADWEIR_ERR_INVALID;
    }
    if (!check_ranks(settings, reason) || !train_mode_apply(settings, reason))
        return GRADWEIR_ERR_INVALID;
    if (settings->stable) {
        settings->reward_norm = true;
        settings->dual_clip = settings->dual_clip > 0 ? settings->dual_clip : 3;
        settings->target_kl = settings->target_kl > 0 ? settings->target_kl : 0.05;
        settings->grad_norm = settings->grad_norm > 0 ? settings->grad_norm : 0.5;
    }
    return GRADWEIR_OK;
}

static gradweir_status take_all(struct train_settings *settings, int argc, char **argv,
                                struct train_reason *reason)
{
    for (int i = 1; i < argc;) {
        const gradweir_status status = take_option(settings, argc, argv, &i, reason);
        if (status != GRADWEIR_OK)
            return status;
    }
    return GRADWEIR_OK;
}

/* Twice: the first reading finds the environment, whose preset the second one goes over. */
gradweir_status train_settings_parse(struct train_settings *settings, int argc, char **argv,
                                     struct train_reason *reason)
{
    train_settings_init(settings);
    gradweir_status status = take_all(settings, argc, argv, reason);
    if (status == GRADWEIR_OK)
        status = find_environment(settings, reason);
    if (status != GRADWEIR_OK)
        return status;
    train_preset_apply(settings, settings->env);
    status = take_all(settings, argc, argv, reason);
    return status == GRADWEIR_OK ? settle(settings, reason) : status;
}
