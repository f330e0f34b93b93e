/* See train_children.h. */
#include "client/trainer/train_children.h"

#include "client/trainer/pace.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 96, TEXT = 64 };

/* A list of "--name value" that is handed to exec. */
struct arguments {
    char text[ARGUMENTS_MAX][TEXT];
    const char *words[ARGUMENTS_MAX + 1];
    size_t n;
};

static void add_text(struct arguments *arguments, const char *name, const char *value)
{
    arguments->words[arguments->n++] = name;
    arguments->words[arguments->n++] = value;
    arguments->words[arguments->n] = NULL;
}

static void add_number(struct arguments *arguments, const char *name, double value)
{
    char *text = arguments->text[arguments->n];
    snprintf(text, TEXT, "%.17g", value);
    add_text(arguments, name, text);
}

/* In the child: ends with its parent, and leaves Ctrl-C to it. */
static void become_child(int death_signal, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, death_signal);
    if (getppid() != parent)
        _exit(2);
    setpgid(0, 0);
}

static void run_program(const char *path, const char *const *words)
{
    union {
        const char *const *is_const;
        char *const *is_not;
    } same = {.is_const = words};
    execv(path, same.is_not);
    fprintf(stderr, "gradweir-train: %s: %s\n", path, strerror(errno));
    _exit(2);
}

static bool own_path(char *path, size_t size, const char *beside)
{
    const ssize_t count = readlink("/proc/self/exe", path, size - 1);
    if (count <= 0)
        return false;
    path[count] = '\0';
    if (beside == NULL)
        return true;
    char *slash = strrchr(path, '/');
    if (slash == NULL || (size_t)(slash + 1 - path) + strlen(beside) >= size)
        return false;
    strcpy(slash + 1, beside);
    return true;
}

/* The server's learning rate falls as learner_rate does: by versions, one for `stride` pushes. */
static double schedule_steps(const struct train_settings *s)
{
    const double pushes = (double)(s->epochs * s->minibatches) / (double)s->accumulate;
    return (double)s->anneal_steps / (double)(s->envs * s->rollout) * pushes / (double)s->stride;
}

/* Words of one text, as a shell without quotes would part them. */
static void add_words(struct arguments *arguments, const char *words)
{
    static char copy[1024];
    snprintf(copy, sizeof(copy), "%s", words);
    char *rest = copy;
    for (char *word; (word = strsep(&rest, " ")) != NULL && arguments->n < ARGUMENTS_MAX;)
        if (word[0] != '\0')
            arguments->words[arguments->n++] = word;
    arguments->words[arguments->n] = NULL;
}

static void server_arguments(const struct train_settings *s, const char *port_file,
                             struct arguments *arguments)
{
    arguments->words[arguments->n++] = "gradweir-server";
    add_text(arguments, "--listen", "127.0.0.1:0");
    add_text(arguments, "--port-file", port_file);
    add_number(arguments, "--shards", (double)s->shards);
    add_number(arguments, "--window", (double)s->window);
    add_number(arguments, "--stride", (double)s->stride);
    add_number(arguments, "--queue", (double)s->queue);
    add_text(arguments, "--transport", s->transport);
    add_text(arguments, "--gradient-dtype", s->gradient_dtype);
    add_text(arguments, "--optimizer", "adam");
    add_number(arguments, "--learning-rate", s->lr);
    add_number(arguments, "--eps", s->adam_eps);
    add_number(arguments, "--clip", s->grad_norm);
    if (s->anneal_steps > 0) {
        add_text(arguments, "--schedule", "linear");
        add_number(arguments, "--schedule-steps", (double)(uint64_t)schedule_steps(s));
    }
    if (s->keys != NULL)
        add_text(arguments, "--keys", s->keys);
    if (s->record != NULL)
        add_text(arguments, "--record", s->record);
    if (s->server_log == NULL)
        add_text(arguments, "--log-level", "warn");
    if (train_is_sync(s)) {
        add_text(arguments, "--mode", s->mode);
        add_number(arguments, "--workers-max", (double)(s->workers + 2));
    }
    if (s->server_settings != NULL)
        add_words(arguments, s->server_settings);
}

static void redirect_log(const char *path)
{
    const int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd >= 0)
        dup2(fd, STDERR_FILENO);
}

static bool read_address(const char *port_file, char *address, size_t size)
{
    FILE *file = fopen(port_file, "r");
    if (file == NULL)
        return false;
    const bool read = fgets(address, (int)size, file) != NULL;
    fclose(file);
    address[strcspn(address, "\n")] = '\0';
    return read && address[0] != '\0';
}

static bool wait_for_server(struct children *children, const char *port_file)
{
    const double end = pace_wall_seconds() + 60; /* its death is seen before */
    while (pace_wall_seconds() < end) {
        if (read_address(port_file, children->address, sizeof(children->address)))
            return true;
        children_look(children);
        if (children->server.pid == 0)
            break;
        pace_sleep(2);
    }
    fprintf(stderr, "gradweir-train: the server did not start: %s\n",
            children->server.pid == 0 ? child_end(&children->server).text : "it does not listen");
    return false;
}

bool children_start_server(struct children *children, const struct train_settings *settings)
{
    char path[4096], port_file[128];
    static struct arguments arguments;
    strcpy(children->folder, "/tmp/gradweir-XXXXXX");
    if (mkdtemp(children->folder) == NULL || !own_path(path, sizeof(path), "gradweir-server")) {
        fprintf(stderr, "gradweir-train: %s: %s\n", children->folder, strerror(errno));
        return false;
    }
    snprintf(port_file, sizeof(port_file), "%s/port", children->folder);
    server_arguments(settings, port_file, &arguments);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        become_child(SIGKILL, parent);
        redirect_log(settings->server_log);
        run_program(path, arguments.words);
    }
    children->server = (struct child){.pid = pid > 0 ? pid : 0, .channel = -1};
    children->server_started = pid > 0;
    const bool started = pid > 0 && wait_for_server(children, port_file);
    unlink(port_file);
    rmdir(children->folder);
    return started;
}

bool children_start_worker(struct children *children, const struct train_settings *settings,
                           char **argv, size_t index)
{
    char path[4096], number[32], channel[32];
    const char *words[ARGUMENTS_MAX + 1];
    size_t n = 0;
    int pair[2];
    if (!own_path(path, sizeof(path), NULL) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return false;
    for (; argv[n] != NULL && n < ARGUMENTS_MAX - 8; n++)
        words[n] = argv[n];
    snprintf(number, sizeof(number), "%zu", index + 1);
    snprintf(channel, sizeof(channel), "%d", pair[1]);
    const char *const more[] = {"--servers", children->address, "--worker", number,
                                "--channel", channel,           NULL};
    memcpy(words + n, more, sizeof(more));
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        become_child(SIGKILL, parent);
        fcntl(pair[1], F_SETFD, 0);
        run_program(path, words);
    }
    (void)settings;
    close(pair[1]);
    children->workers[index] = (struct child){.pid = pid > 0 ? pid : 0, .channel = pair[0]};
    if (index >= children->n_workers)
        children->n_workers = index + 1;
    return pid > 0;
}

/* True when it has ended. */
static bool look(struct children *children, struct child *child)
{
    struct rusage used;
    int status;
    if (child->pid == 0)
        return true;
    if (wait4(child->pid, &status, WNOHANG, &used) != child->pid)
        return false;
    children->cpu_s += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                       1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    child->pid = 0;
    child->status = status;
    return true;
}

struct child_end child_end(const struct child *child)
{
    struct child_end end;
    if (WIFSIGNALED(child->status))
        snprintf(end.text, sizeof(end.text), "was killed by signal %d (%s)",
                 WTERMSIG(child->status), strsignal(WTERMSIG(child->status)));
    else
        snprintf(end.text, sizeof(end.text), "ended with status %d", WEXITSTATUS(child->status));
    return end;
}

bool children_server_gone(const struct children *children)
{
    return children->server_started && children->server.pid == 0;
}

size_t children_look(struct children *children)
{
    size_t left = 0;
    look(children, &children->server);
    for (size_t i = 0; i < children->n_workers; i++)
        left += !look(children, &children->workers[i]);
    return left;
}

void children_end_workers(struct children *children, double seconds)
{
    const double end = pace_wall_seconds() + seconds;
    while (children_look(children) > 0) {
        if (pace_wall_seconds() > end)
            for (size_t i = 0; i < children->n_workers; i++)
                if (children->workers[i].pid != 0) {
                    children->workers[i].stuck = true;
                    kill(children->workers[i].pid, SIGKILL);
                }
        pace_sleep(2);
    }
    for (size_t i = 0; i < children->n_workers; i++)
        close(children->workers[i].channel);
}

void children_end_server(struct children *children, double seconds)
{
    const double end = pace_wall_seconds() + seconds;
    if (children->server.pid != 0)
        kill(children->server.pid, SIGTERM);
    while (!look(children, &children->server)) {
        if (pace_wall_seconds() > end)
            kill(children->server.pid, SIGKILL);
        pace_sleep(2);
    }
}
