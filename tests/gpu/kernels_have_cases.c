/* Whether device_check has a case for every kernel of gpu/, and one that can fail: on the CPU
 * (cuda_on_cpu.h) each launch in turn is left out, and some case must find that.
 *
 *   kernels_have_cases [LAUNCH]     of one only, with all that is said
 *
 * 0: every launch is found when it is left out; 1: names those that are not. */
#include "tests/gpu/check.h"
#include "tests/gpu/cuda_launches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CASES_MAX = 128, ROUNDS = 8, HANGS_AFTER_S = 3 };

static struct {
    const struct check *check;
    bool seen[CUDA_LAUNCHES_MAX];
} cases[CASES_MAX];

static size_t cases_n;

/* The same rounds every time, until one has failed. */
static bool run_until_found(const struct check *check)
{
    struct random random;
    const uint64_t before = check_failures();
    random_split(&random, 1, check->name, 0);
    for (int i = 0; i < ROUNDS && check_failures() == before; i++)
        check->run(&random);
    return check_failures() > before;
}

static bool run_all(void)
{
    for (size_t t = 0; check_tables[t] != NULL; t++)
        for (const struct check *check = check_tables[t]; check->name != NULL; check++) {
            if (check->run == NULL)
                continue;
            if (cases_n == CASES_MAX)
                abort();
            cuda_launches_forget();
            if (run_until_found(check))
                return false;
            cases[cases_n].check = check;
            for (size_t i = 0; cuda_launches[i] != NULL; i++)
                cases[cases_n].seen[i] = cuda_launches_seen(i);
            cases_n++;
        }
    return true;
}

/* In a process of its own: what is computed from poison may crash, or never end. */
static bool found_by(const struct check *check, const char *launch, bool quiet)
{
    const struct rlimit limit = {HANGS_AFTER_S, HANGS_AFTER_S};
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0)
        abort();
    if (child > 0)
        return waitpid(child, &status, 0) == child && status != 0;
    if (quiet &&
        (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL))
        abort();
    (void)setrlimit(RLIMIT_CPU, &limit);
    cuda_launches_leave_out(launch);
    _exit(run_until_found(check));
}

static bool has_case(size_t launch, bool quiet)
{
    const char *const name = cuda_launches[launch];
    bool seen = false;
    for (size_t c = 0; c < cases_n; c++) {
        if (!cases[c].seen[launch])
            continue;
        seen = true;
        if (found_by(cases[c].check, name, quiet)) {
            printf("%-60s found by: %s\n", name, cases[c].check->name);
            return true;
        }
    }
    printf("%-60s %s\n", name,
           seen ? "NOT FOUND when it is left out: no case looks at what it writes"
                : "NO CASE: add one to tests/gpu/check_*.c");
    return false;
}

/* libucs is loaded with our libraries, and would hold a process that crashes for a debugger. It
 * reads its settings before main. */
static void leave_signals(char **words)
{
    if (getenv("UCX_ERROR_SIGNALS") == NULL && setenv("UCX_ERROR_SIGNALS", "", 1) == 0)
        execv("/proc/self/exe", words);
}

int main(int count, char **words)
{
    size_t n = 0, without = 0;
    leave_signals(words);
    if (!run_all()) {
        printf("kernels_have_cases: a case fails with all kernels in place\n");
        return 1;
    }
    for (size_t i = 0; cuda_launches[i] != NULL; i++) {
        if (count > 1 && strcmp(words[1], cuda_launches[i]) != 0)
            continue;
        n++;
        without += !has_case(i, count == 1);
    }
    printf("kernels_have_cases: %zu launches, %zu without a case\n", n, without);
    return n == 0 || without > 0;
}
