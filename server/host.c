/* Puts a server process together: signals, threads, the lines it starts with. */
#include "server/host.h"

#include "server/host_coordinator.h"
#include "server/host_shard.h"
#include "server/host_threads.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct host {
    struct host_options options;
    struct log log;
    char process[32]; /* how log lines call this one; "" when it is all of the job */
    struct control_context *context;
    char coordinator[160]; /* where this process's shards find it */
    struct host_shard *shards;
    uint32_t shards_count;
    gradweir_status shards_status;
    char shards_reason[256];
};

enum host_threads { HOST_THREADS_AUTO, HOST_THREADS_ONE, HOST_THREADS_EACH };

/* What a signal handler may touch. */
static atomic_bool stop_asked, drain_asked, over_told;
static int wake_fd = -1;

static void on_signal(int number)
{
    if (number == SIGUSR1)
        atomic_store(&over_told, true);
    /* A terminal that closes may say so twice, and a supervisor again and again. */
    if (atomic_exchange(&drain_asked, true) && number != SIGHUP && number != SIGUSR1)
        atomic_store(&stop_asked, true);
    const uint64_t one = 1;
    const ssize_t written = write(wake_fd, &one, sizeof one);
    (void)written;
}

static gradweir_status catch_signals(void)
{
    wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_fd < 0)
        return fail(GRADWEIR_ERR_IO, "eventfd: %s", strerror(errno));
    const int caught[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal}, before;
    sigset_t held; /* by a supervising parent, until now */
    sigemptyset(&held);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        const bool ignored =
            sigaction(caught[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!ignored || caught[i] != SIGHUP) /* the terminal is gone; ignored: nohup */
            sigaction(caught[i], &action, NULL);
        sigaddset(&held, caught[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on files is as a full disk: the recording says so */
    sigprocmask(SIG_UNBLOCK, &held, NULL);
    return GRADWEIR_OK;
}

static enum log_level level_of(const struct settings *settings)
{
    return (enum log_level)settings_choice(settings, "log_level");
}

/* What these settings mean together, before anybody waits for anything. */
static void explain(const struct host *host)
{
    char text[4096];
    if (host->options.order.sync) {
        log_line(&host->log, LOG_INFO, "law",
                 "mode sync: each step averages one gradient of every live worker (at most %u), in "
                 "worker order; window and stride follow their number.",
                 host->options.order.workers_max);
        return;
    }
    law_explain(&host->options.order.law, host->options.order.workers_max, text, sizeof text);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (line[0])
            log_line(&host->log, LOG_INFO, "law", "%s", line);
}

static void name_shards(struct host *host)
{
    const int64_t only = host->options.only_shard;
    for (uint32_t i = 0; i < host->shards_count; i++)
        host->shards[i] =
            (struct host_shard){.options = &host->options,
                                .context = host->context,
                                .coordinator = host->coordinator,
                                .log = &host->log,
                                .index = only >= 0 ? (uint32_t)only : i,
                                .stop = &stop_asked,
                                .drain = host->options.coordinator[0] ? &drain_asked : NULL,
                                .over = &over_told};
}

static void start_shards(void *argument)
{
    struct host *host = argument;
    for (uint32_t i = 0; i < host->shards_count; i++) {
        const gradweir_status status = host_shard_start(&host->shards[i]);
        if (status != GRADWEIR_OK) {
            log_line(&host->log, LOG_ERROR, "host", "%s", fail_reason());
            atomic_store(&stop_asked, true);
        }
    }
}

static gradweir_status join_shards(struct host *host)
{
    gradweir_status status = GRADWEIR_OK;
    for (uint32_t i = 0; i < host->shards_count; i++) {
        const gradweir_status one = host_shard_join(&host->shards[i]);
        if (one != GRADWEIR_OK && status == GRADWEIR_OK)
            status = fail(one, "%s", host->shards[i].reason);
    }
    return status;
}

static bool on_one_thread(const struct host *host)
{
    cpu_set_t cores;
    const enum host_threads threads =
        (enum host_threads)settings_choice(host->options.settings, "threads");
    if (threads != HOST_THREADS_AUTO || sched_getaffinity(0, sizeof cores, &cores) != 0)
        return threads == HOST_THREADS_ONE;
    return host_threads_share((uint32_t)CPU_COUNT(&cores), host->shards_count);
}

static gradweir_status run_coordinator(struct host *host)
{
    const bool one = host->shards_count && on_one_thread(host);
    snprintf(host->coordinator, sizeof host->coordinator, "%s", HOST_INPROC);
    struct host_coordinator coordinator = {.options = &host->options,
                                           .context = host->context,
                                           .log = &host->log,
                                           .listen =
                                               settings_text(host->options.settings, "listen"),
                                           .stop = &stop_asked,
                                           .drain = &drain_asked,
                                           .wake_fd = wake_fd,
                                           .shards = host->shards,
                                           .shards_count = one ? host->shards_count : 0};
    explain(host);
    if (host->shards_count)
        log_line(&host->log, LOG_INFO, "host", "coordinator and %u shards on %s",
                 host->shards_count, one ? "one thread" : "a thread each");
    gradweir_status status = host_coordinator_run(&coordinator, one ? NULL : start_shards, host);
    if (status != GRADWEIR_OK)
        atomic_store(&stop_asked, true);
    const gradweir_status shards = join_shards(host);
    return status != GRADWEIR_OK ? status : shards;
}

/* Shards alone: the coordinator drains the job, and a signal ends this process where there is none
 * any more. */
static gradweir_status run_shards(struct host *host)
{
    snprintf(host->coordinator, sizeof host->coordinator, "tcp://%.150s",
             host->options.coordinator);
    start_shards(host);
    return join_shards(host);
}

static gradweir_status run(struct host *host)
{
    host->shards_count = host->options.only_shard >= 0 ? 1 : host->options.shards;
    if (settings_bool(host->options.settings, "shards_elsewhere"))
        host->shards_count = 0;
    host->shards = calloc(host->shards_count + 1, sizeof *host->shards);
    if (!host->shards)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %u shards", host->shards_count);
    TRY(control_context_new(&host->context));
    name_shards(host);
    if (host->shards_count)
        host_threads_choose(&host->options, host->shards_count, &host->log);
    if (host->options.coordinator[0])
        return run_shards(host);
    return run_coordinator(host);
}

/* Where coordinator and shards are processes of their own, their lines often meet in one file. */
static void name_process(struct host *host)
{
    if (host->options.only_shard >= 0)
        snprintf(host->process, sizeof host->process, "shard %lld",
                 (long long)host->options.only_shard);
    else if (settings_bool(host->options.settings, "shards_elsewhere"))
        snprintf(host->process, sizeof host->process, "coordinator");
    host->log.process = host->process[0] ? host->process : NULL;
}

gradweir_status host_run(const struct settings *settings, bool *unrecorded)
{
    struct host host = {.context = NULL};
    log_init(&host.log, level_of(settings), STDERR_FILENO);
    gradweir_status status = host_options_read(settings, &host.options);
    host.options.control.log = &host.log;
    if (status == GRADWEIR_OK)
        name_process(&host);
    if (status == GRADWEIR_OK)
        status = catch_signals();
    if (status == GRADWEIR_OK)
        status = run(&host);
    for (uint32_t i = 0; host.shards && i < host.shards_count; i++)
        *unrecorded = *unrecorded || host.shards[i].unrecorded;
    free(host.shards);
    control_context_free(host.context);
    host_options_free(&host.options);
    if (wake_fd >= 0)
        close(wake_fd);
    return status;
}
