/* See train_checks.h. */
#include "client/trainer/train_checks.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Options that make no sense without servers. */
static const char *const of_servers[] = {
    "servers",  "identity", "keys",        "insecure",    "transport", "patience", "curve",
    "progress", "poison",   "slow-worker", "kill-worker", "feedback",  "ranks",    "memory-path"};

/* Options of the server that a run starts for itself. */
static const char *const of_own_server[] = {"shards",          "window",     "stride",
                                            "queue",           "mode",       "record",
                                            "server-settings", "server-log", "gradient-dtype"};

/* What the optimizer goes by, wherever it runs: here with --local, in one's own server without. */
static const char *const of_optimizer[] = {"lr", "anneal-steps", "adam-eps", "grad-norm"};

enum { N_SERVERS = sizeof(of_servers) / sizeof(of_servers[0]) };
enum { N_OWN = sizeof(of_own_server) / sizeof(of_own_server[0]) };
enum { N_OPTIMIZER = sizeof(of_optimizer) / sizeof(of_optimizer[0]) };

static gradweir_status refuse(const struct train_settings *settings, const char *const *names,
                              size_t n, const char *why, struct train_reason *reason)
{
    for (size_t i = 0; i < n; i++)
        if (train_settings_given(settings, names[i])) {
            snprintf(reason->text, sizeof(reason->text), "--%s: %s", names[i], why);
            return GRADWEIR_ERR_INVALID;
        }
    return GRADWEIR_OK;
}

static bool is_among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

bool train_check_servers_have(const char *name)
{
    return is_among(name, of_own_server, N_OWN) || is_among(name, of_optimizer, N_OPTIMIZER);
}

gradweir_status train_check_options(const struct train_settings *settings,
                                    struct train_reason *reason)
{
    static const char local[] = "has no use with --local, which trains without servers";
    static const char foreign[] =
        "belongs to the servers, and those of --servers run already: give it to gradweir-server";
    gradweir_status status = GRADWEIR_OK;
    if (settings->worker > 0)
        return status; /* it has the run's own words, and --servers behind them */
    if (settings->local) {
        status = refuse(settings, of_servers, N_SERVERS, local, reason);
        if (status == GRADWEIR_OK)
            status = refuse(settings, of_own_server, N_OWN, local, reason);
    } else if (settings->servers != NULL) {
        status = refuse(settings, of_own_server, N_OWN, foreign, reason);
        if (status == GRADWEIR_OK)
            status = refuse(settings, of_optimizer, N_OPTIMIZER, foreign, reason);
    }
    return status;
}

static gradweir_status try_file(const char *option, const char *name, const char *ending,
                                struct train_reason *reason)
{
    char path[1100];
    if (name == NULL)
        return GRADWEIR_OK;
    snprintf(path, sizeof(path), "%.1000s%s", name, ending);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        snprintf(reason->text, sizeof(reason->text), "--%s %.180s: %s", option, path,
                 strerror(errno));
        return GRADWEIR_ERR_IO;
    }
    close(fd);
    return GRADWEIR_OK;
}

gradweir_status train_check_files(const struct train_settings *settings,
                                  struct train_reason *reason)
{
    if (settings->worker > 0)
        return GRADWEIR_OK;
    gradweir_status status = try_file("json", settings->json, "", reason);
    if (status == GRADWEIR_OK)
        status = try_file("curve", settings->curve, ".csv", reason);
    if (status == GRADWEIR_OK)
        status = try_file("curve", settings->curve, ".svg", reason);
    if (status == GRADWEIR_OK)
        status = try_file("server-log", settings->server_log, "", reason);
    return status;
}
