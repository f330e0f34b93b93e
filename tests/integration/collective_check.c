/* Conformance of the collective seam, for one backend: groups of 1, 2 and 4
 * processes against a plain reference, ranks that differ, never come, die, stop and come back.
 *
 *      collective_check BACKEND [CHECK]
 *
 * The parent forks the ranks, waits for them with a limit, and kills what is left; ranks die with
 * their parent. A rank of nccl takes the GPU of its number; where there are fewer than four only
 * what needs no more is checked. 77: the build has no such backend, or there is no GPU. */
#include "tests/integration/collective_ranks.h"

#include "common/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_NS (240 * CLOCK_SECOND)

/* Before anything of CUDA is called in this process. */
static void take_gpu(const struct bench *bench, uint32_t rank)
{
    char number[16];
    snprintf(number, sizeof number, "%u", rank);
    if (strcmp(bench->backend, "gloo") != 0)
        setenv("CUDA_VISIBLE_DEVICES", number, 0);
}

static pid_t start(struct bench *bench, role part, uint32_t rank, uint32_t ranks)
{
    fflush(stdout);
    const pid_t parent = getpid(), child = fork();
    ASSERT(child >= 0);
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    take_gpu(bench, rank);
    part(bench, rank, ranks);
    fflush(stdout);
    _exit(0);
}

static void moment(void)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    nanosleep(&ms, NULL);
}

/* Waits for a child until the limit; kills it then. expected: how it has to end, 0 or a signal. */
static bool ended(pid_t child, int expected, uint64_t deadline_ns)
{
    int how = 0;
    pid_t who;
    while ((who = waitpid(child, &how, WNOHANG)) == 0 && clock_now_ns() < deadline_ns)
        moment();
    if (who == 0) {
        fprintf(stderr, "a rank hangs, and is killed\n");
        kill(child, SIGKILL);
        waitpid(child, &how, 0);
        return false;
    }
    return expected == 0 ? WIFEXITED(how) && WEXITSTATUS(how) == 0
                         : WIFSIGNALED(how) && WTERMSIG(how) == expected;
}

static bool all_end(const pid_t *children, uint32_t n)
{
    const uint64_t deadline_ns = clock_now_ns() + LIMIT_NS;
    bool well = true;
    for (uint32_t r = 0; r < n; r++)
        well = ended(children[r], 0, deadline_ns) && well;
    return well;
}

static bool run_all(struct bench *bench, role part, uint32_t ranks)
{
    pid_t children[RANKS_MAX];
    for (uint32_t r = 0; r < ranks; r++)
        children[r] = start(bench, part, r, ranks);
    return all_end(children, ranks);
}

/* Until the rank is past a step, and a little more: somewhere in a call. */
static void wait_for(const struct bench *bench, uint32_t rank, uint64_t step)
{
    const uint64_t deadline_ns = clock_now_ns() + LIMIT_NS;
    while (bench->told[rank].step < step && clock_now_ns() < deadline_ns)
        moment();
    moment();
}

static bool check_kill(struct bench *bench)
{
    pid_t children[RANKS_MAX];
    for (uint32_t r = 0; r < 4; r++)
        children[r] = start(bench, goes_on, r, 4);
    wait_for(bench, 2, 5);
    kill(children[2], SIGKILL);
    const bool killed = ended(children[2], SIGKILL, clock_now_ns() + LIMIT_NS);
    board_lose(bench->board, 0, 2);
    children[2] = children[3];
    return all_end(children, 3) && killed;
}

static bool check_stop(struct bench *bench)
{
    pid_t children[RANKS_MAX];
    bench->timeout_ns = 8 * CLOCK_SECOND;
    bench->patience_ns = 4 * CLOCK_SECOND;
    for (uint32_t r = 0; r < 4; r++)
        children[r] = start(bench, comes_back, r, 4);
    wait_for(bench, 2, 5);
    kill(children[2], SIGSTOP);
    board_lose(bench->board, 0, 2);
    const uint64_t deadline_ns = clock_now_ns() + LIMIT_NS;
    while (!bench->told[0].done && clock_now_ns() < deadline_ns)
        moment();
    kill(children[2], SIGCONT);
    return all_end(children, 4);
}

static bool check_fifty(struct bench *bench)
{
    pid_t children[2];
    for (uint32_t r = 0; r < 2; r++)
        children[r] = start(bench, lives_on, r, 3);
    bool well = true;
    for (uint32_t g = 0; g < GENERATIONS_RUN && well; g++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            take_gpu(bench, 2);
            dies_soon(bench, g, 3);
        }
        well = child > 0 && ended(child, SIGALRM, clock_now_ns() + LIMIT_NS);
        board_lose(bench->board, g, 2);
        const uint64_t deadline_ns = clock_now_ns() + LIMIT_NS;
        while (well && bench->told[0].step <= g && clock_now_ns() < deadline_ns)
            moment();
    }
    return all_end(children, 2) && well;
}

static bool check_conforms(struct bench *bench)
{
    bool well = true;
    for (uint32_t ranks = 1; ranks <= bench->ranks_max; ranks *= 2) {
        struct board *board = bench->board;
        bench->board = board_new();
        well = run_all(bench, conforms, ranks) && well;
        board_free(bench->board);
        bench->board = board;
    }
    return well;
}

static bool check_differs(struct bench *bench)
{
    return run_all(bench, differs, 3);
}

/* Whoever comes has to come within the deadline that is waited for here. */
static void wait_less(struct bench *bench)
{
    bench->timeout_ns = 5 * CLOCK_SECOND;
    bench->patience_ns = CLOCK_SECOND;
}

static bool check_never_comes(struct bench *bench)
{
    wait_less(bench);
    return run_all(bench, never_comes, 4);
}

static bool check_counts_wrongly(struct bench *bench)
{
    return run_all(bench, counts_wrongly, 2);
}

static bool check_comes_twice(struct bench *bench)
{
    wait_less(bench);
    return run_all(bench, comes_twice, 3);
}

static bool check_hears_nothing(struct bench *bench)
{
    return run_all(bench, hears_nothing, 3);
}

static bool check_leaves(struct bench *bench)
{
    return run_all(bench, leaves_at_once, 4);
}

static bool check_bad_options(struct bench *bench)
{
    return run_all(bench, bad_options, 1);
}

static const struct {
    const char *name;
    bool (*check)(struct bench *bench);
    uint32_t ranks; /* at least */
} checks[] = {
    {"bad_options", check_bad_options, 1},
    {"conforms", check_conforms, 1},
    {"differs", check_differs, 3},
    {"never_comes", check_never_comes, 3},
    {"counts_wrongly", check_counts_wrongly, 2},
    {"comes_twice", check_comes_twice, 2},
    {"hears_nothing", check_hears_nothing, 3},
    {"leaves", check_leaves, 4},
    {"kill", check_kill, 4},
    {"stop", check_stop, 4},
    {"fifty", check_fifty, 3},
};

/* Deadlines that no machine is too busy for: deaths are seen at once, and the board knows of them.
 */
static struct bench bench_of(const char *backend)
{
    const struct bench bench = {.backend = backend,
                                .ordered = strcmp(backend, "gloo") == 0,
                                .board = board_new(),
                                .told =
                                    mmap(NULL, RANKS_MAX * sizeof(struct told),
                                         PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
                                .timeout_ns = 60 * CLOCK_SECOND,
                                .patience_ns = 30 * CLOCK_SECOND,
                                .ranks_max = RANKS_MAX};
    ASSERT(bench.told != MAP_FAILED);
    return bench;
}

static void end_bench(struct bench *bench)
{
    munmap(bench->told, RANKS_MAX * sizeof(struct told));
    board_free(bench->board);
}

/* How many processes can be ranks at a time, each on a GPU of its own. */
static uint32_t ranks_possible(const char *backend)
{
    uint32_t n = 0;
    while (n < RANKS_MAX) {
        struct bench bench = bench_of(backend);
        const pid_t child = start(&bench, joins_alone, n, 1);
        const bool well = ended(child, 0, clock_now_ns() + LIMIT_NS);
        end_bench(&bench);
        if (!well)
            break;
        n++;
    }
    return n;
}

static int run_checks(const char *backend, const char *only, uint32_t ranks_max)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (only != NULL && strcmp(only, checks[i].name) != 0)
            continue;
        if (checks[i].ranks > ranks_max) {
            printf("%s %s: skipped, for it needs %u ranks\n", backend, checks[i].name,
                   checks[i].ranks);
            continue;
        }
        struct bench bench = bench_of(backend);
        bench.ranks_max = ranks_max;
        const uint64_t begun_ns = clock_now_ns();
        const bool well = checks[i].check(&bench);
        printf("%s %s: %s, %.1f s\n", backend, checks[i].name, well ? "ok" : "FAILED",
               (double)(clock_now_ns() - begun_ns) / CLOCK_SECOND);
        failed += well ? 0 : 1;
        end_bench(&bench);
    }
    return failed;
}

int main(int n, char **words)
{
    if (n < 2) {
        fprintf(stderr, "usage: collective_check BACKEND [CHECK]\n");
        return 2;
    }
    if (collective_find(words[1]) == NULL) {
        printf("SKIPPED: this build has no %s\n", words[1]);
        return 77;
    }
    const uint32_t ranks_max = ranks_possible(words[1]);
    if (ranks_max == 0) {
        printf("SKIPPED: not even one rank can join with %s\n", words[1]);
        return 77;
    }
    return run_checks(words[1], n > 2 ? words[2] : NULL, ranks_max) == 0 ? 0 : 1;
}
