/* Every kernel against its twin on the CPU, then its speed against a copy within the GPU.
 *
 *   device_check [--seed N] [--rounds N] [--no-times] [--limit SECONDS]
 *
 * 0: all as it should be; 1: a mismatch, or a case that was not done within the limit, which is
 * named; 77: there is no GPU here, so nothing was shown. A speed short of its goal is said, and is
 * no failure. */
#include "tests/gpu/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SKIPPED = 77, LIMIT_S = 30, LIMIT_MAX_S = 3600 };

struct asked {
    uint64_t seed, rounds, limit_s;
    bool times;
};

static uint64_t goals, goals_met;
static const char *running; /* the case, for whoever ends it */

/* A kernel that never ends keeps the thread that waits for it: only a signal gets past. */
static void end_hanging(int signal)
{
    static const char words[] = "\ndevice_check: FAILED: not done within its limit: ";
    (void)signal;
    if (write(STDOUT_FILENO, words, sizeof words - 1) > 0 &&
        write(STDOUT_FILENO, running, strlen(running)) > 0)
        (void)!write(STDOUT_FILENO, "\n", 1);
    _exit(1);
}

static void watch(const char *name, uint64_t limit_s)
{
    running = name;
    (void)signal(SIGALRM, end_hanging);
    alarm((unsigned)limit_s);
}

static bool number_of(const char *text, uint64_t *number)
{
    char *end;
    *number = text != NULL ? strtoull(text, &end, 10) : 0;
    return text != NULL && *text != '\0' && *text != '-' && *end == '\0';
}

static bool read_words(char **words, struct asked *asked)
{
    for (words++; *words != NULL; words++) {
        if (strcmp(*words, "--no-times") == 0)
            asked->times = false;
        else if (strcmp(*words, "--seed") == 0 && number_of(words[1], &asked->seed))
            words++;
        else if (strcmp(*words, "--rounds") == 0 && number_of(words[1], &asked->rounds))
            words++;
        else if (strcmp(*words, "--limit") == 0 && number_of(words[1], &asked->limit_s) &&
                 asked->limit_s <= LIMIT_MAX_S)
            words++;
        else
            return false;
    }
    return true;
}

struct copy {
    float *from, *to;
};

static size_t copied(void)
{
    return memory_timed() * sizeof(float);
}

static void call_copy(void *context)
{
    const struct copy *copy = context;
    memory_copy(copy->to, copy->from, copied());
}

/* Bytes read and written per second by the best thing there is. */
static double copy_rate(void)
{
    struct copy copy = {timed_floats(memory_timed()), memory_get(copied())};
    const double seconds = memory_seconds(call_copy, &copy, 5);
    memory_free(copy.from);
    memory_free(copy.to);
    return 2.0 * (double)copied() / seconds;
}

static void tell_rate(const struct check *check, double copy, char *text, size_t size)
{
    double bytes = 0.0;
    const double seconds = check->time(&bytes), share = bytes / seconds / copy;
    const char *goal = "";
    if (check->goal > 0) {
        goals++;
        goals_met += share >= check->goal;
        goal = share >= check->goal ? "met" : "short";
    }
    snprintf(text, size, "%7.1f GB/s  %4.2f of a copy  %s", bytes / seconds / 1e9, share, goal);
    expect(memory_wait(), check->name, 0);
}

static void tell_result(const struct check *check, uint64_t wrong, char *text, size_t size)
{
    const double deviation = check_deviation();
    if (wrong > 0)
        snprintf(text, size, "%llu WRONG", (unsigned long long)wrong);
    else if (deviation > 0.0)
        snprintf(text, size, "within, %.1e", deviation);
    else
        snprintf(text, size, "%s", check->run != NULL ? "equal" : "-");
}

static void line(const struct check *check, const struct asked *asked, double copy)
{
    const uint64_t before = check_failures();
    char rate[64] = "-", result[64];
    struct random random;
    watch(check->name, asked->limit_s);
    random_split(&random, asked->seed, check->name, 0);
    for (uint64_t i = 0; check->run != NULL && i < asked->rounds; i++)
        check->run(&random);
    if (check->time != NULL && asked->times)
        tell_rate(check, copy, rate, sizeof rate);
    alarm(0);
    tell_result(check, check_failures() - before, result, sizeof result);
    printf("%-54s %-14s %-16s %s\n", check->name, check->promise, result, rate);
    fflush(stdout);
}

int main(int count, char **words)
{
    struct asked asked = {.seed = 1, .rounds = 12, .limit_s = LIMIT_S, .times = true};
    char text[128];
    (void)count;
    if (!read_words(words, &asked)) {
        fprintf(stderr,
                "usage: device_check [--seed N] [--rounds N] [--no-times] [--limit SECONDS]\n");
        return 2;
    }
    watch("opening the device, and a copy", asked.limit_s);
    const gradweir_status status = memory_open(text, sizeof text);
    if (status != GRADWEIR_OK) {
        printf("device_check: SKIPPED: %s\n", fail_reason());
        return status == GRADWEIR_ERR_UNSUPPORTED ? SKIPPED : 1;
    }
    const double copy = asked.times ? copy_rate() : 1.0;
    printf("device_check: %s, seed %llu, %llu rounds\n", text, (unsigned long long)asked.seed,
           (unsigned long long)asked.rounds);
    if (asked.times)
        printf("a copy within the device reads and writes %.1f GB/s\n", copy / 1e9);
    printf("%-54s %-14s %-16s %s\n", "kernel", "promise", "result", "speed");
    for (size_t t = 0; check_tables[t] != NULL; t++)
        for (const struct check *check = check_tables[t]; check->name != NULL; check++)
            line(check, &asked, copy);
    if (goals > 0)
        printf("%llu of %llu goals met: %.2f of a copy's rate\n", (unsigned long long)goals_met,
               (unsigned long long)goals, CHECK_GOAL);
    printf("device_check: %s\n", check_failures() == 0 ? "all as it should be" : "FAILED");
    return check_failures() == 0 ? 0 : 1;
}
