/* Starting, asking and ending the processes of a case. See gauge_children.h. */
#include "tests/bench/gauge_children.h"

#include "common/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS_MAX = 200, PATIENCE_S = 60, START_S = 60, END_S = 5, LOOK_MS = 50, GONE_MS = 1000 };

void gauge_become_child(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(2);
    setpgid(0, 0);
}

void gauge_beside(const char *name, char *path, size_t size)
{
    const ssize_t count = readlink("/proc/self/exe", path, size - 1);
    char *slash;
    if (count > 0) {
        path[count] = '\0';
        slash = strrchr(path, '/');
        if (slash && (size_t)(slash + 1 - path) + strlen(name) < size) {
            strcpy(slash + 1, name);
            if (access(path, X_OK) == 0)
                return;
        }
    }
    snprintf(path, size, "%s", name);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Settings of ours are not the server's; all others go on as they were given. */
static bool is_ours(const char *word)
{
    char name[64];
    size_t n = 0;
    for (const char *c = word + 2; *c && *c != '=' && n < sizeof name - 1; c++)
        name[n++] = *c == '-' ? '_' : *c;
    name[n] = '\0';
    return gauge_is_own(name);
}

struct words {
    const char *at[WORDS_MAX + 1];
    uint32_t count;
    char numbers[4][24];
};

static void add(struct words *words, const char *name, const char *value)
{
    ASSERT(words->count + 2 <= WORDS_MAX);
    words->at[words->count++] = name;
    words->at[words->count++] = value;
}

static void add_number(struct words *words, const char *name, int64_t value, uint32_t place)
{
    snprintf(words->numbers[place], sizeof words->numbers[place], "%lld", (long long)value);
    add(words, name, words->numbers[place]);
}

static void server_words(const struct gauge *gauge, const char *port_file, struct words *words)
{
    bool theirs = false;
    words->at[words->count++] = "gradweir-server";
    for (int i = 0; i < gauge->argc && words->count < WORDS_MAX - 20; i++) {
        if (strncmp(gauge->argv[i], "--", 2) == 0)
            theirs = !is_ours(gauge->argv[i]);
        if (theirs)
            words->at[words->count++] = gauge->argv[i];
    }
    int64_t workers = settings_int(gauge->settings, "workers_max");
    if (gauge->host.order.sync && !settings_given(gauge->settings, "workers_max"))
        workers = gauge->workers; /* the queue must hold as many */
    add(words, "--listen", "127.0.0.1:0");
    add(words, "--port-file", port_file);
    add(words, "--transport", gauge->transport);
    add(words, "--optimizer", gauge->optimizer);
    add(words, "--threads", settings_text(gauge->settings, "server_threads"));
    add_number(words, "--queue", settings_int(gauge->settings, "queue"), 0);
    add_number(words, "--workers-max", workers < gauge->workers ? gauge->workers : workers, 1);
    if (strcmp(gauge->dtype, "float32") != 0)
        add(words, "--gradient-dtype", gauge->dtype);
    if (!settings_given(gauge->settings, "log_level"))
        add(words, "--log-level", "warn");
}

static void run_program(const char *path, const char *const *words)
{
    union {
        const char *const *is_const;
        char *const *is_not;
    } same = {.is_const = words};
    execvp(path, same.is_not);
    fprintf(stderr, "gradweir-bench: %s: %s\n", path, strerror(errno));
    _exit(127);
}

static bool ended(struct gauge_child *child)
{
    if (child->pid != 0 && waitpid(child->pid, &child->status, WNOHANG) == child->pid)
        child->pid = 0;
    return child->pid == 0;
}

static gradweir_status has_ended(const char *who, const struct gauge_child *child)
{
    if (WIFSIGNALED(child->status))
        return fail(GRADWEIR_ERR_LOST, "%s was killed by signal %d (%s)", who,
                    WTERMSIG(child->status), strsignal(WTERMSIG(child->status)));
    return fail(GRADWEIR_ERR_LOST, "%s has ended with status %d", who, WEXITSTATUS(child->status));
}

static gradweir_status has_not_begun(const struct gauge_child *server)
{
    if (WIFEXITED(server->status) && WEXITSTATUS(server->status) == 2)
        return fail(GRADWEIR_ERR_INVALID, "gradweir-server refuses that: it has said why");
    return has_ended("gradweir-server", server);
}

static bool read_address(const char *port_file, char *address, size_t size)
{
    FILE *file = fopen(port_file, "r");
    if (!file)
        return false;
    const bool whole = fgets(address, (int)size, file) != NULL;
    fclose(file);
    address[strcspn(address, "\n")] = '\0';
    return whole && address[0];
}

static gradweir_status wait_for_server(struct gauge_children *children, const char *port_file)
{
    const uint64_t end = deadline_after(clock_now_ns(), START_S * CLOCK_SECOND);
    while (!deadline_passed(clock_now_ns(), end)) {
        if (read_address(port_file, children->address, sizeof children->address))
            return GRADWEIR_OK;
        if (ended(&children->server))
            return has_not_begun(&children->server);
        sleep_ms(2);
    }
    return fail(GRADWEIR_ERR_TIMEOUT, "gradweir-server does not listen after %d s", START_S);
}

gradweir_status gauge_start_server(const struct gauge *gauge, struct gauge_children *children)
{
    char folder[] = "/tmp/gradweir-bench-XXXXXX", port_file[64], path[4096];
    struct words words = {.count = 0};
    if (!mkdtemp(folder))
        return fail(GRADWEIR_ERR_IO, "%s: %s", folder, strerror(errno));
    snprintf(port_file, sizeof port_file, "%s/port", folder);
    gauge_beside("gradweir-server", path, sizeof path);
    server_words(gauge, port_file, &words);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        gauge_become_child(parent);
        dup2(STDERR_FILENO, STDOUT_FILENO); /* ours is for rows */
        run_program(path, words.at);
    }
    children->server.pid = pid > 0 ? pid : 0;
    const gradweir_status status =
        pid > 0 ? wait_for_server(children, port_file)
                : fail(GRADWEIR_ERR_IO, "no process for the server: %s", strerror(errno));
    unlink(port_file);
    rmdir(folder);
    return status;
}

static gradweir_status start_worker(const struct gauge *gauge, struct gauge_children *children,
                                    uint32_t number)
{
    struct gauge_child *child = &children->workers[number];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail(GRADWEIR_ERR_IO, "socketpair: %s", strerror(errno));
    child->shared = mmap(NULL, sizeof *child->shared, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (child->shared == MAP_FAILED)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a worker's latencies");
    fflush(NULL);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        gauge_become_child(parent);
        close(pair[0]);
        gauge_worker(gauge, children->address, number, pair[1], child->shared);
    }
    close(pair[1]);
    child->channel = pair[0];
    child->pid = pid > 0 ? pid : 0;
    children->workers_count = number + 1;
    return pid > 0 ? GRADWEIR_OK : fail(GRADWEIR_ERR_IO, "no process: %s", strerror(errno));
}

/* Nobody waits for the answers of workers whose server has ended: they would try for a minute. */
static gradweir_status all_there(struct gauge_children *children)
{
    char who[32], said;
    if (ended(&children->server))
        return has_ended("gradweir-server", &children->server);
    for (uint32_t i = 0; i < children->workers_count; i++) {
        struct gauge_child *worker = &children->workers[i];
        if (!ended(worker) || recv(worker->channel, &said, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
            continue; /* what it has said says more */
        snprintf(who, sizeof who, "worker %u", i);
        return has_ended(who, worker);
    }
    return GRADWEIR_OK;
}

/* How a worker went that has hung up. */
static gradweir_status gone(struct gauge_children *children, uint32_t number)
{
    for (uint32_t tries = 0; tries < GONE_MS / LOOK_MS; tries++) {
        TRY(all_there(children));
        sleep_ms(LOOK_MS);
    }
    return fail(GRADWEIR_ERR_LOST, "worker %u has hung up", number);
}

/* A worker's next result; it may take long to move a large model for the first time. */
static gradweir_status hear(struct gauge_children *children, uint32_t number, uint64_t patience_ns,
                            struct gauge_result *result)
{
    const uint64_t end = deadline_after(clock_now_ns(), patience_ns);
    struct pollfd ready = {.fd = children->workers[number].channel, .events = POLLIN};
    while (poll(&ready, 1, LOOK_MS) <= 0) {
        TRY(all_there(children));
        if (deadline_passed(clock_now_ns(), end))
            return fail(GRADWEIR_ERR_TIMEOUT, "worker %u has not answered for %u s", number,
                        (unsigned)(patience_ns / CLOCK_SECOND));
    }
    if (read(ready.fd, result, sizeof *result) != (ssize_t)sizeof *result)
        return gone(children, number);
    return result->failed ? fail(GRADWEIR_ERR_LOST, "worker %u: %s", number, result->reason)
                          : GRADWEIR_OK;
}

gradweir_status gauge_start_workers(const struct gauge *gauge, struct gauge_children *children)
{
    struct gauge_result result;
    ASSERT(gauge->workers <= GAUGE_WORKERS_MAX);
    for (uint32_t i = 0; i < gauge->workers; i++)
        TRY(start_worker(gauge, children, i));
    for (uint32_t i = 0; i < gauge->workers; i++)
        TRY(hear(children, i, 2 * PATIENCE_S * CLOCK_SECOND, &result));
    return GRADWEIR_OK;
}

gradweir_status gauge_burst(struct gauge_children *children, const struct gauge_task *task,
                            struct gauge_result *results)
{
    const uint64_t now_ns = clock_now_ns();
    const uint64_t long_ns = task->end_ns > now_ns ? task->end_ns - now_ns : 0;
    for (uint32_t i = 0; i < children->workers_count; i++)
        if (send(children->workers[i].channel, task, sizeof *task, MSG_NOSIGNAL) !=
            (ssize_t)sizeof *task)
            return gone(children, i);
    for (uint32_t i = 0; i < children->workers_count; i++)
        TRY(hear(children, i, (task->operations ? 60 : 1) * PATIENCE_S * CLOCK_SECOND + long_ns,
                 &results[i]));
    return GRADWEIR_OK;
}

uint64_t gauge_server_cpu_ns(const struct gauge_children *children)
{
    clockid_t clock;
    struct timespec time;
    if (children->server.pid == 0 || clock_getcpuclockid(children->server.pid, &clock) != 0 ||
        clock_gettime(clock, &time) != 0)
        return 0;
    return (uint64_t)time.tv_sec * CLOCK_SECOND + (uint64_t)time.tv_nsec;
}

void gauge_server_memory(struct gauge_children *children)
{
    char path[64], line[200];
    unsigned long long kib;
    snprintf(path, sizeof path, "/proc/%d/status", (int)children->server.pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
            children->server_rss_mib = (double)kib / 1024;
    if (file)
        fclose(file);
}

static void wait_or_kill(struct gauge_child *child, uint64_t end_ns)
{
    while (!ended(child)) {
        if (deadline_passed(clock_now_ns(), end_ns))
            kill(child->pid, SIGKILL);
        sleep_ms(2);
    }
}

/* All workers have the same seconds, not one after another; none where there is no server. */
void gauge_end(struct gauge_children *children)
{
    for (uint32_t i = 0; i < children->workers_count; i++)
        close(children->workers[i].channel); /* the sign to leave */
    const uint64_t patience_ns = ended(&children->server) ? 0 : END_S * CLOCK_SECOND;
    const uint64_t end_ns = deadline_after(clock_now_ns(), patience_ns);
    for (uint32_t i = 0; i < children->workers_count; i++) {
        wait_or_kill(&children->workers[i], end_ns);
        munmap(children->workers[i].shared, sizeof *children->workers[i].shared);
    }
    children->workers_count = 0;
    if (children->server.pid != 0)
        kill(children->server.pid, SIGTERM);
    wait_or_kill(&children->server, deadline_after(clock_now_ns(), END_S * CLOCK_SECOND));
}
