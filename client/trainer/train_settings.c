/* The options of gradweir-train. See train_settings.h. */
#include "client/trainer/train_settings.h"

#include "client/trainer/train_checks.h"
#include "client/trainer/train_words.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum option_kind { OPTION_WORD, OPTION_COUNT, OPTION_NUMBER, OPTION_FLAG, OPTION_PAIR };

struct option {
    const char *name;
    enum option_kind kind;
    size_t offset;
    double low;
    double high;
    const char *help;
};

#define AT(member) offsetof(struct train_settings, member)
static const struct option options[] = {
    {"env", OPTION_WORD, AT(env), 0, 0,
     "CartPole-v1, Acrobot-v1, Pendulum-v1 or MountainCarContinuous-v0"},
    {"json", OPTION_WORD, AT(json), 0, 0, "file for the summary"},
    {"servers", OPTION_WORD, AT(servers), 0, 0, "address of a running server; none: start one"},
    {"identity", OPTION_WORD, AT(identity), 0, 0, "workers are IDENTITY-0, IDENTITY-1, ..."},
    {"keys", OPTION_WORD, AT(keys), 0, 0, "folder or file with the keys of workers and server"},
    {"insecure", OPTION_FLAG, AT(insecure), 0, 1,
     "no keys, though the servers are not on loopback"},
    {"seed", OPTION_COUNT, AT(seed), 0, 9e15, "seed of all chance"},
    {"workers", OPTION_COUNT, AT(workers), 1, 256, "worker processes"},
    {"shards", OPTION_COUNT, AT(shards), 1, 64, "server shards, when it starts its own"},
    {"local", OPTION_FLAG, AT(local), 0, 1, "one worker without a server"},
    {"window", OPTION_COUNT, AT(window), 0, 256, "gradients that a step averages; 0: one a worker"},
    {"stride", OPTION_COUNT, AT(stride), 1, 256, "new gradients that make a step due"},
    {"queue", OPTION_COUNT, AT(queue), 1, 4096, "room for gradients not yet in the window"},
    {"mode", OPTION_WORD, AT(mode), 0, 0, "async, or sync: one gradient of each worker a step"},
    {"gradient-dtype", OPTION_WORD, AT(gradient_dtype), 0, 0,
     "in which gradients travel: float32, bfloat16, float16 or int8"},
    {"feedback", OPTION_WORD, AT(feedback), 0, 0,
     "carry on what that rounds off: auto (with int8), on or off"},
    {"server-settings", OPTION_WORD, AT(server_settings), 0, 0,
     "more words for its own server's command line, in one"},
    {"transport", OPTION_WORD, AT(transport), 0, 0, "of its own server: auto, posix, tcp, rc"},
    {"record", OPTION_WORD, AT(record), 0, 0, "folder that gets the log, for replay"},
    {"server-log", OPTION_WORD, AT(server_log), 0, 0, "file of its own server's lines"},
    {"patience", OPTION_COUNT, AT(patience_s), 1, 86400,
     "seconds to wait for servers that do not answer"},
    {"progress", OPTION_FLAG, AT(progress), 0, 1, "a line a second"},
    {"curve", OPTION_WORD, AT(curve), 0, 0, "CURVE.csv and CURVE.svg get the learning curve"},
    {"poison", OPTION_COUNT, AT(poison), 0, 1e12, "worker 0 sends its gradient of that number NaN"},
    {"slow-worker", OPTION_PAIR, AT(slow_worker), 1, 1e6,
     "I FACTOR: worker I takes so much longer"},
    {"kill-worker", OPTION_PAIR, AT(kill_worker), 0, 1e6, "I SECONDS: kill -9 worker I then"},
    {"worker", OPTION_COUNT, AT(worker), 0, 256, NULL},
    {"channel", OPTION_COUNT, AT(channel), 0, 1024, NULL},
    {"until", OPTION_NUMBER, AT(until), -1e9, 1e9,
     "mean of 100 returns that is solved; Acrobot -90, Pendulum -200, MountainCar 90"},
    {"max-steps", OPTION_COUNT, AT(max_steps), 1, 1e12, "environment steps of all workers at most"},
    {"evaluate", OPTION_COUNT, AT(evaluate), 0, 100000, "fresh greedy episodes at the end"},
    {"pace", OPTION_COUNT, AT(pace_ms), 0, 60000, "milliseconds to sleep per rollout and gradient"},
    {"envs", OPTION_COUNT, AT(envs), 1, 4096, "environments of a worker"},
    {"rollout", OPTION_COUNT, AT(rollout), 1, 65536, "steps of a rollout, per environment"},
    {"epochs", OPTION_COUNT, AT(epochs), 1, 1000, "passes over a rollout"},
    {"minibatches", OPTION_COUNT, AT(minibatches), 1, 65536, "gradients of a pass"},
    {"accumulate", OPTION_COUNT, AT(accumulate), 1, 65536, "gradients averaged into one push"},
    {"pull-per-rollout", OPTION_FLAG, AT(pull_per_rollout), 0, 1,
     "do not pull before every gradient"},
    {"lr", OPTION_NUMBER, AT(lr), 1e-12, 10, "learning rate of Adam"},
    {"anneal-steps", OPTION_COUNT, AT(anneal_steps), 0, 1e12,
     "steps until lr reaches 0; 0: constant"},
    {"adam-eps", OPTION_NUMBER, AT(adam_eps), 1e-16, 1, "epsilon of Adam"},
    {"grad-norm", OPTION_NUMBER, AT(grad_norm), 0, 1e9, "limit of the gradient's norm; 0: none"},
    {"gamma", OPTION_NUMBER, AT(gamma), 0, 1, "discount"},
    {"lambda", OPTION_NUMBER, AT(lambda), 0, 1, "of the advantage estimate"},
    {"clip", OPTION_NUMBER, AT(clip), 1e-6, 10, "of the ratio and of the value"},
    {"no-value-clip", OPTION_FLAG, AT(no_value_clip), 0, 1, "plain squared error of the value"},
    {"entropy", OPTION_NUMBER, AT(entropy), 0, 10, "weight of the entropy"},
    {"value", OPTION_NUMBER, AT(value), 0, 100, "weight of the value loss"},
    {"dual-clip", OPTION_NUMBER, AT(dual_clip), 0, 1e6,
     "limit of the ratio where advantages are negative"},
    {"target-kl", OPTION_NUMBER, AT(target_kl), 0, 1e6,
     "end the epochs of a rollout above this KL"},
    {"decoupled", OPTION_FLAG, AT(decoupled), 0, 1,
     "ratio against the policy at the rollout's end"},
    {"behaviour-cap", OPTION_NUMBER, AT(behaviour_cap), 0, 1e6,
     "cap of the decoupled weight; 0: none"},
    {"vtrace", OPTION_FLAG, AT(vtrace), 0, 1, "V-trace in place of GAE"},
    {"reward-norm", OPTION_FLAG, AT(reward_norm), 0, 1,
     "divide rewards by the deviation of returns"},
    {"raw-advantages", OPTION_FLAG, AT(raw_advantages), 0, 1, "do not normalise advantages"},
    {"hidden", OPTION_COUNT, AT(hidden), 1, 4096, "width of the two hidden layers"},
    {"shared-trunk", OPTION_FLAG, AT(shared_trunk), 0, 1,
     "policy and value share the hidden layers"},
    {"log-std", OPTION_NUMBER, AT(log_std), -20, 5, "first log deviation of a continuous policy"},
    {"stable", OPTION_FLAG, AT(stable), 0, 1,
     "norm clip, shared statistics, KL stop and dual clip"},
    {"not-finite-max", OPTION_COUNT, AT(not_finite_max), 1, 1e9,
     "stable: end after so many in a row"},
};
enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };
static_assert(N_OPTIONS <= 64, "`given` has a bit for each");

void train_settings_init(struct train_settings *settings)
{
    *settings = (struct train_settings){
        .env = "CartPole-v1",
        .identity = "worker",
        .seed = 1,
        .workers = 1,
        .slowness = 1,
        .shards = 1,
        .stride = 1,
        .queue = 16,
        .mode = "async",
        .gradient_dtype = "float32",
        .feedback = "auto",
        .transport = "auto",
        .patience_s = 60,
        .until = 475,
        .max_steps = 1000000,
        .evaluate = 100,
        .envs = 4,
        .rollout = 128,
        .epochs = 4,
        .minibatches = 4,
        .accumulate = 1,
        .lr = 2.5e-4,
        .anneal_steps = 500000,
        .adam_eps = 1e-5,
        .grad_norm = 0.5,
        .gamma = 0.99,
        .lambda = 0.95,
        .clip = 0.2,
        .entropy = 0.01,
        .value = 0.5,
        .hidden = 64,
        .not_finite_max = 16,
    };
}

static void *member(struct train_settings *settings, const struct option *option)
{
    return (char *)settings + option->offset;
}

static const void *member_of(const struct train_settings *settings, const struct option *option)
{
    return (const char *)settings + option->offset;
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
    const struct option *nearest = &options[0];
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (same_name(options[i].name, name))
            return &options[i];
        if (train_word_distance(name, options[i].name) < train_word_distance(name, nearest->name))
            nearest = &options[i];
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
    settings->given |= UINT64_C(1) << (option - options);
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
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0)
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
    if (!train_mode_apply(settings, reason))
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

static void print_value(const struct train_settings *settings, const struct option *option,
                        FILE *file)
{
    const void *value = member_of(settings, option);
    const struct train_pair *pair = value;
    if (option->kind == OPTION_PAIR && pair->given)
        fprintf(file, "[%llu, %.9g]", (unsigned long long)pair->worker, pair->value);
    else if (option->kind == OPTION_PAIR)
        fputs("null", file);
    else if (option->kind == OPTION_FLAG)
        fputs(*(const bool *)value ? "true" : "false", file);
    else if (option->kind == OPTION_NUMBER)
        fprintf(file, "%.9g", *(const double *)value);
    else if (option->kind == OPTION_COUNT)
        fprintf(file, "%llu", (unsigned long long)*(const uint64_t *)value);
    else
        train_word_json(file, *(const char *const *)value);
}

void train_settings_help(const struct train_settings *settings, FILE *file)
{
    fputs("gradweir-train: the reference PPO trainer. Options, with the values in force:\n", file);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (options[i].help == NULL)
            continue;
        fprintf(file, "  --%-17s ", options[i].name);
        print_value(settings, &options[i], file);
        fprintf(file, "  %s", options[i].help);
        if (options[i].kind == OPTION_COUNT || options[i].kind == OPTION_NUMBER)
            fprintf(file, " (%g to %g)", options[i].low, options[i].high);
        fputc('\n', file);
    }
}

void train_settings_json(const struct train_settings *settings, FILE *file)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (options[i].help == NULL)
            continue;
        fputs("  \"", file);
        for (const char *p = options[i].name; *p != '\0'; p++)
            fputc(*p == '-' ? '_' : *p, file);
        fputs("\": ", file);
        if (settings->servers != NULL && train_check_servers_have(options[i].name))
            fputs("null", file);
        else
            print_value(settings, &options[i], file);
        fputs(",\n", file);
    }
}
