/* What UCX itself moves over a transport, by its own program between two processes. */
#include "tests/bench/gauge_children.h"

#include "common/clock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 15, TRIES_MAX = 2, STARTED_MS = 150, FIELDS_MAX = 16, BITS_OF_MIB = 20 };

/* As the servers' own transports are made of UCX's. */
static const char *tls_of(const char *transport)
{
    static const char *const table[][2] = {{"posix", "posix,tcp,self"},
                                           {"auto", "posix,tcp,self"},
                                           {"tcp", "tcp,self"},
                                           {"rc", "rc,tcp,self"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i][0], transport) == 0)
            return table[i][1];
    return "tcp,self";
}

/* A port that was free a moment ago. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    struct sockaddr *any = (struct sockaddr *)(void *)&address;
    const bool bound = bind(fd, any, length) == 0 && getsockname(fd, any, &length) == 0;
    close(fd);
    return bound ? ntohs(address.sin_port) : 0;
}

static bool installed(void)
{
    const char *path = getenv("PATH");
    char place[4096];
    while (path && *path) {
        const size_t n = strcspn(path, ":");
        snprintf(place, sizeof place, "%.*s/ucx_perftest", (int)n, path);
        if (access(place, X_OK) == 0)
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static pid_t start(const char *transport, const char *const *words, int out)
{
    const pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    gauge_become_child(parent);
    setenv("UCX_TLS", tls_of(transport), 1);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    union {
        const char *const *is_const;
        char *const *is_not;
    } same = {.is_const = words};
    execvp("ucx_perftest", same.is_not);
    _exit(127);
}

static void end(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* All that comes, until it is closed or time is up. */
static bool read_all(int fd, char *text, size_t size)
{
    const uint64_t deadline = deadline_after(clock_now_ns(), PATIENCE_S * CLOCK_SECOND);
    size_t length = 0;
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, deadline_poll_ms(clock_now_ns(), deadline)) <= 0)
            return false;
        const ssize_t n = read(fd, text + length, size - 1 - length);
        if (n <= 0 || length + (size_t)n == size - 1)
            break;
        length += (size_t)n;
    }
    text[length] = '\0';
    return true;
}

/* The numbers of the last line that is made of numbers: iterations, three overheads or latencies,
 * two bandwidths, two rates. */
static double number_at(char *text, uint32_t field)
{
    double found = GAUGE_NONE;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        double numbers[FIELDS_MAX];
        uint32_t count = 0;
        char *at = line, *next;
        while (count < FIELDS_MAX) {
            numbers[count] = strtod(at, &next);
            if (next == at)
                break;
            at = next;
            count++;
        }
        if (count > 6 && count > field)
            found = numbers[field];
    }
    return found;
}

/* How often it did not end in time: it polls without a pause, and where others want the cores that
 * may take minutes. */
static uint32_t late;

static double run(const char *transport, const char *test, uint64_t bytes, uint32_t field)
{
    char port[16], size[32], count[32], warm[32], text[8192];
    int pipes[2];
    const uint64_t wanted = (UINT64_C(600) << BITS_OF_MIB) / (bytes + 2000) + 8;
    const uint64_t rounds = wanted < 20000 ? wanted : 20000;
    if (late >= TRIES_MAX || !installed() || pipe2(pipes, O_CLOEXEC) != 0)
        return GAUGE_NONE;
    snprintf(port, sizeof port, "%u", free_port());
    snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
    snprintf(count, sizeof count, "%llu", (unsigned long long)rounds);
    snprintf(warm, sizeof warm, "%llu", (unsigned long long)(rounds / 8 + 1));
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const pid_t server =
        start(transport, (const char *const[]){"ucx_perftest", "-p", port, NULL}, nowhere);
    nanosleep(&(struct timespec){.tv_nsec = STARTED_MS * 1000000L}, NULL);
    const pid_t client =
        start(transport,
              (const char *const[]){"ucx_perftest", "127.0.0.1", "-p", port, "-t", test, "-s", size,
                                    "-n", count, "-w", warm, "-f", NULL},
              pipes[1]);
    close(pipes[1]);
    close(nowhere);
    const bool whole = read_all(pipes[0], text, sizeof text);
    late += !whole;
    close(pipes[0]);
    end(client);
    end(server);
    return whole ? number_at(text, field) : GAUGE_NONE;
}

double gauge_perftest_bandwidth(const char *transport, uint64_t bytes)
{
    return run(transport, "ucp_am_bw", bytes, 5) * 0x1p20 * 1e-9;
}

double gauge_perftest_latency(const char *transport, uint64_t bytes)
{
    return run(transport, "ucp_am_lat", bytes, 1);
}
