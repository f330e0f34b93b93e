/* Children are started, waited for and started again; how long to wait between, and when to give
 * up. Everything goes by sigtimedwait: no handler, no thread. */
#include "server/supervise.h"

#include "common/checksum.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/record.h"
#include "server/host.h"
#include "server/host_listen.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CHILDREN_MAX = MEMBERS_MAX + 1,
    EXTRA_MAX = 12, /* arguments that a child has beyond ours */
    CRASHES_MAX = 5,
    CRASHES_S = 60, /* by its own fault, so many in so many seconds */
    YOUNG_MS = 250, /* who dies before that waits before the next try */
    WAIT_FIRST_MS = 20,
    WAIT_KILLED_MAX_MS = 160, /* somebody kills it again and again: the kernel, for memory? */
    WAIT_MAX_MS = 2000,
    FAREWELL_MS = 30000 /* for shards, once the coordinator has ended */
};

static const char default_folder[] = "/dev/shm";

struct child {
    char name[24];
    bool coordinator;
    uint32_t shard;
    pid_t pid; /* 0: not running */
    uint64_t born_ns, due_ns;
    uint32_t wait_ms;
    uint64_t crashes_ns[CRASHES_MAX]; /* ring of the last ones */
    uint32_t crashes;
};

struct supervisor {
    const struct settings *settings;
    struct log log;
    int count;
    char **arguments;
    char listen[160], address[160];
    char port_file[1100]; /* the coordinator's for us; the user's is written after it */
    struct child children[CHILDREN_MAX];
    uint32_t children_count;
    uint32_t signals; /* how many asked us to end */
    bool fenced;      /* the job has another coordinator now */
    bool ending;      /* nobody is started again */
    bool unrecorded;  /* a child's part of the recording is not whole */
    gradweir_status status;
    char reason[300];
    uint64_t farewell_ns;  /* ending: how long shards may take */
    sigset_t waited, held; /* held: waited for, or meant for children alone */
};

/* A child's arguments: ours, and behind them what is different. The later one counts. */
struct arguments {
    const char **list;
    int count;
};

static void add(struct arguments *arguments, const char *name, const char *value)
{
    arguments->list[arguments->count++] = name;
    arguments->list[arguments->count++] = value;
}

/* shard: its number as text, kept by the caller. */
static struct arguments arguments_of(const struct supervisor *parent, const struct child *child,
                                     const char *shard)
{
    const char *folder = settings_text(parent->settings, "arena_dir");
    struct arguments arguments = {
        .list = calloc((size_t)parent->count + EXTRA_MAX + 1, sizeof *arguments.list)};
    ASSERT(arguments.list);
    for (int i = 0; i < parent->count; i++)
        arguments.list[arguments.count++] = parent->arguments[i];
    add(&arguments, "--supervise", "off");
    add(&arguments, "--arena_dir", folder[0] ? folder : default_folder);
    if (child->coordinator && parent->listen[0]) {
        add(&arguments, "--shards_elsewhere", "on");
        add(&arguments, "--listen", parent->listen);
        add(&arguments, "--port_file", parent->address[0] ? "" : parent->port_file);
    } else if (!child->coordinator) {
        add(&arguments, "--shard", shard);
        add(&arguments, "--coordinator", parent->address);
    }
    return arguments;
}

/* Its own process group: what a terminal sends must come to us first, and once. What we say before
 * it has handlers it hears then: host.c lets in what is held back here. */
static void become(const struct supervisor *parent, const struct child *child, pid_t parent_pid)
{
    char shard[16];
    snprintf(shard, sizeof shard, "%u", child->shard);
    const struct arguments arguments = arguments_of(parent, child, shard);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent_pid)
        _exit(1);
    setpgid(0, 0);
    execv("/proc/self/exe", (char *const *)(uintptr_t)arguments.list);
    _exit(127);
}

static void start(struct supervisor *parent, struct child *child)
{
    const pid_t own = getpid();
    fflush(NULL);
    child->due_ns = 0;
    child->born_ns = clock_now_ns();
    child->pid = fork();
    if (child->pid == 0)
        become(parent, child, own);
    if (child->pid < 0) {
        child->pid = 0;
        child->due_ns = clock_now_ns() + CLOCK_SECOND;
        log_line(&parent->log, LOG_ERROR, "supervise", "%s: fork: %s", child->name,
                 strerror(errno));
        return;
    }
    if (parent->signals > 0 && child->coordinator) /* whoever heard them is no more */
        kill(child->pid, SIGTERM);
    log_line(&parent->log, LOG_INFO, "supervise", "%s runs as process %d", child->name,
             (int)child->pid);
}

static void send_signal(struct supervisor *parent, int number, bool coordinator_only)
{
    for (uint32_t i = 0; i < parent->children_count; i++)
        if (parent->children[i].pid && (parent->children[i].coordinator || !coordinator_only))
            kill(parent->children[i].pid, number);
}

static void end_all(struct supervisor *parent, gradweir_status status, const char *why)
{
    if (parent->ending)
        return;
    parent->ending = true;
    parent->farewell_ns = clock_now_ns() + (uint64_t)FAREWELL_MS * 1000000;
    parent->status = status;
    snprintf(parent->reason, sizeof parent->reason, "%s", why);
    if (status == GRADWEIR_OK)
        return; /* the shards have been told to stop, or are by watch() */
    /* At once: a coordinator that drains would tell the others that the job has ended in order, and
     * they would give up their memory. */
    send_signal(parent, SIGKILL, false);
}

/* The last CRASHES_MAX of them within CRASHES_S? */
static bool crashes_too_often(struct child *child, uint64_t now_ns)
{
    child->crashes_ns[child->crashes++ % CRASHES_MAX] = now_ns;
    const uint64_t oldest_ns = child->crashes_ns[child->crashes % CRASHES_MAX];
    return child->crashes >= CRASHES_MAX && now_ns - oldest_ns < (uint64_t)CRASHES_S * CLOCK_SECOND;
}

/* When the job has ended in order a shard goes on in its memory once more, to give it up. */
static bool starts_again(const struct supervisor *parent, const struct child *child)
{
    return !parent->ending || (parent->status == GRADWEIR_OK && !child->coordinator &&
                               !deadline_passed(clock_now_ns(), parent->farewell_ns));
}

static void say_killed(struct supervisor *parent, const struct child *child, int number)
{
    if (child->due_ns)
        log_line(&parent->log, LOG_WARN, "supervise", "%s ended by signal %d (%s): again in %u ms",
                 child->name, number, strsignal(number), child->wait_ms);
    else
        log_line(&parent->log, LOG_INFO, "supervise",
                 "%s ended by signal %d (%s): the job ends, nothing is started again", child->name,
                 number, strsignal(number));
}

static void killed(struct supervisor *parent, struct child *child, int number)
{
    const uint64_t now_ns = clock_now_ns();
    const bool young = now_ns - child->born_ns < (uint64_t)YOUNG_MS * 1000000;
    const bool crash =
        number != SIGKILL && number != SIGTERM && number != SIGINT && number != SIGHUP;
    const uint32_t most = crash ? WAIT_MAX_MS : WAIT_KILLED_MAX_MS;
    char why[200];
    child->wait_ms = young || crash ? (child->wait_ms ? 2 * child->wait_ms : WAIT_FIRST_MS) : 0;
    child->wait_ms = child->wait_ms > most ? most : child->wait_ms;
    if (crash && crashes_too_often(child, now_ns)) {
        snprintf(why, sizeof why, "%s crashed %d times within %d s, the last time by signal %d",
                 child->name, CRASHES_MAX, CRASHES_S, number);
        end_all(parent, GRADWEIR_ERR_LOST, why);
    }
    if (starts_again(parent, child))
        child->due_ns = now_ns + (uint64_t)child->wait_ms * 1000000;
    say_killed(parent, child, number);
}

static void ended(struct supervisor *parent, struct child *child, int status)
{
    char why[200];
    child->pid = 0;
    if (WIFSIGNALED(status)) {
        killed(parent, child, WTERMSIG(status));
        return;
    }
    if (WEXITSTATUS(status) == HOST_UNRECORDED) {
        parent->unrecorded = true; /* and else in order */
    } else if (child->coordinator && WEXITSTATUS(status) == HOST_FENCED &&
               parent->children_count > 1) { /* its shards are the other one's now */
        parent->fenced = true;
        log_line(&parent->log, LOG_WARN, "supervise",
                 "the shards follow another coordinator: ours is not started again, they go on");
        return;
    } else if (WEXITSTATUS(status) != 0) {
        snprintf(why, sizeof why, "%s cannot go on (exit status %d): it has said why", child->name,
                 WEXITSTATUS(status));
        end_all(parent, GRADWEIR_ERR_STATE, why);
        return;
    }
    log_line(&parent->log, LOG_INFO, "supervise", "%s ended in order", child->name);
    if (child->coordinator || parent->children_count == 1)
        end_all(parent, GRADWEIR_OK, "");
}

/* Or will. */
static bool any_lives(const struct supervisor *parent)
{
    for (uint32_t i = 0; i < parent->children_count; i++)
        if (parent->children[i].pid ||
            (parent->children[i].due_ns && starts_again(parent, &parent->children[i])))
            return true;
    return false;
}

static void reap(struct supervisor *parent)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (uint32_t i = 0; i < parent->children_count; i++)
            if (parent->children[i].pid == pid)
                ended(parent, &parent->children[i], status);
}

/* Sleeps until a child ends, somebody asks us to end, or `until_ns`. */
static void wait_a_while(struct supervisor *parent, uint64_t until_ns)
{
    const uint64_t now_ns = clock_now_ns(), left = until_ns > now_ns ? until_ns - now_ns : 0;
    const struct timespec time = {.tv_sec = (time_t)(left / CLOCK_SECOND),
                                  .tv_nsec = (long)(left % CLOCK_SECOND)};
    const int number = sigtimedwait(&parent->waited, NULL, &time);
    if (number == SIGHUP) /* a terminal that closes may say so twice */
        send_signal(parent, number, parent->children_count > 1);
    if (number == SIGTERM || number == SIGINT)
        send_signal(parent, number, parent->signals++ == 0 && parent->children_count > 1);
    reap(parent);
}

static void start_due(struct supervisor *parent, uint64_t *until_ns)
{
    const uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < parent->children_count; i++) {
        struct child *child = &parent->children[i];
        const bool due = child->pid == 0 && child->due_ns && starts_again(parent, child);
        if (due && now_ns >= child->due_ns)
            start(parent, child);
        if (due && child->due_ns && child->due_ns < *until_ns)
            *until_ns = child->due_ns;
    }
}

static gradweir_status watch(struct supervisor *parent)
{
    while (!parent->ending || any_lives(parent)) {
        uint64_t until_ns = clock_now_ns() + (parent->ending ? CLOCK_SECOND / 20 : CLOCK_SECOND);
        if (parent->ending && parent->status == GRADWEIR_OK) /* who was not in when STOP was said */
            send_signal(parent, SIGUSR1, false);
        if (parent->fenced && (parent->signals > 0 || !any_lives(parent))) {
            end_all(parent, GRADWEIR_OK, ""); /* nobody else tells the shards */
            send_signal(parent, SIGTERM, false);
        }
        start_due(parent, &until_ns);
        if (parent->ending && deadline_passed(clock_now_ns(), parent->farewell_ns))
            send_signal(parent, SIGKILL, false);
        wait_a_while(parent, until_ns);
    }
    return parent->status == GRADWEIR_OK ? GRADWEIR_OK : fail(parent->status, "%s", parent->reason);
}

/* The coordinator's address: as given, or with the port it found. It keeps it when it is started
 * again. Shards on this machine reach it over loopback when it listens everywhere. */
static gradweir_status learn_address(struct supervisor *parent)
{
    char line[160] = "";
    const uint64_t end_ns = clock_now_ns() + 30 * (uint64_t)CLOCK_SECOND;
    while (!line[0] && !parent->ending && clock_now_ns() < end_ns) {
        FILE *file = fopen(parent->port_file, "r");
        if (file) {
            if (!fgets(line, sizeof line, file))
                line[0] = 0;
            fclose(file);
        }
        uint64_t until_ns = clock_now_ns() + 5000000;
        start_due(parent, &until_ns);
        wait_a_while(parent, until_ns);
    }
    unlink(parent->port_file);
    line[strcspn(line, "\n")] = 0;
    const char *port = strrchr(line, ':');
    if (!port)
        return parent->ending ? GRADWEIR_OK
                              : fail(GRADWEIR_ERR_TIMEOUT, "the coordinator does not listen");
    const bool everywhere = strncmp(line, "0.0.0.0:", 8) == 0 || strncmp(line, "[::]:", 5) == 0;
    snprintf(parent->listen, sizeof parent->listen, "%s", line);
    snprintf(parent->address, sizeof parent->address, "%s%s", everywhere ? "127.0.0.1" : "",
             everywhere ? port : line);
    return host_write_port_file(settings_text(parent->settings, "port_file"), line);
}

static void name_port_file(struct supervisor *parent)
{
    const char *folder = settings_text(parent->settings, "arena_dir");
    snprintf(parent->port_file, sizeof parent->port_file, "%.1000s/gradweir-%d-port",
             folder[0] ? folder : default_folder, (int)getpid());
    unlink(parent->port_file);
}

static struct child *add_child(struct supervisor *parent, bool coordinator, uint32_t shard)
{
    struct child *child = &parent->children[parent->children_count++];
    *child = (struct child){.coordinator = coordinator, .shard = shard};
    if (coordinator)
        snprintf(child->name, sizeof child->name, "coordinator");
    else
        snprintf(child->name, sizeof child->name, "shard %u", shard);
    return child;
}

static gradweir_status start_all(struct supervisor *parent)
{
    const struct settings *settings = parent->settings;
    if (settings_text(settings, "coordinator")[0]) {
        struct child *only = add_child(parent, true, 0);
        snprintf(only->name, sizeof only->name, "the server");
        start(parent, only);
        return GRADWEIR_OK;
    }
    const int64_t shards =
        settings_bool(settings, "shards_elsewhere") ? 0 : settings_int(settings, "shards");
    snprintf(parent->listen, sizeof parent->listen, "%s", settings_text(settings, "listen"));
    name_port_file(parent);
    struct child *coordinator = add_child(parent, true, 0);
    for (uint32_t i = 0; i < shards; i++)
        add_child(parent, false, i);
    start(parent, coordinator);
    TRY(learn_address(parent));
    for (uint32_t i = 1; i < parent->children_count && !parent->ending; i++)
        start(parent, &parent->children[i]);
    return GRADWEIR_OK;
}

/* An ignored SIGHUP (nohup) stays ignored, here and in the children: what is blocked and waited for
 * comes although it is ignored. */
static void choose_signals(struct supervisor *parent)
{
    struct sigaction before;
    sigemptyset(&parent->waited);
    sigaddset(&parent->waited, SIGCHLD);
    sigaddset(&parent->waited, SIGTERM);
    sigaddset(&parent->waited, SIGINT);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaddset(&parent->waited, SIGHUP);
    parent->held = parent->waited;
    sigaddset(&parent->held, SIGUSR1);
}

gradweir_status supervise_run(const struct settings *settings, int count, char **arguments,
                              bool *unrecorded)
{
    static struct supervisor parent;
    parent = (struct supervisor){.settings = settings, .count = count, .arguments = arguments};
    log_init(&parent.log, (enum log_level)settings_choice(settings, "log_level"), STDERR_FILENO);
    choose_signals(&parent);
    if (sigprocmask(SIG_BLOCK, &parent.held, NULL) != 0)
        return fail(GRADWEIR_ERR_IO, "sigprocmask: %s", strerror(errno));
    const gradweir_status status = start_all(&parent);
    if (status != GRADWEIR_OK)
        end_all(&parent, status, fail_reason());
    const gradweir_status ended_with = watch(&parent);
    *unrecorded = parent.unrecorded;
    return ended_with;
}
