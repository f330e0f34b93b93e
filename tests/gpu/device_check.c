/* Every kernel against its twin on the CPU, then its speed against a copy within the GPU.
 *
 *   device_check [--seed N] [--rounds N] [--no-times]
 *
 * 0: all as it should be; 1: a mismatch; 77: there is no GPU here, so nothing was shown. */
#include "tests/gpu/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77, COPY = 1 << 28 };

struct asked {
    uint64_t seed, rounds;
    bool times;
};

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
        else
            return false;
    }
    return true;
}

struct copy {
    void *from, *to;
};

static void call_copy(void *context)
{
    const struct copy *copy = context;
    memory_copy(copy->to, copy->from, COPY);
}

/* Bytes read and written per second by the best thing there is. */
static double copy_rate(void)
{
    struct copy copy = {memory_get(COPY), memory_get(COPY)};
    const double seconds = memory_seconds(call_copy, &copy, 5);
    memory_free(copy.from);
    memory_free(copy.to);
    return 2.0 * COPY / seconds;
}

static void line(const struct check *check, const struct asked *asked, double copy)
{
    const uint64_t before = check_failures();
    char rate[48] = "-";
    struct random random;
    random_split(&random, asked->seed, check->name, 0);
    for (uint64_t i = 0; check->run != NULL && i < asked->rounds; i++)
        check->run(&random);
    if (check->time != NULL && asked->times) {
        double bytes = 0.0;
        const double seconds = check->time(&bytes);
        snprintf(rate, sizeof rate, "%7.1f GB/s  %4.2f of a copy", bytes / seconds / 1e9,
                 bytes / seconds / copy);
        expect(memory_wait(), check->name, 0);
    }
    const uint64_t wrong = check_failures() - before;
    const double deviation = check_deviation();
    char result[64];
    if (wrong > 0)
        snprintf(result, sizeof result, "%llu WRONG", (unsigned long long)wrong);
    else if (deviation > 0.0)
        snprintf(result, sizeof result, "within, %.1e", deviation);
    else
        snprintf(result, sizeof result, "%s", check->run != NULL ? "equal" : "-");
    printf("%-54s %-14s %-16s %s\n", check->name, check->promise, result, rate);
    fflush(stdout);
}

int main(int count, char **words)
{
    struct asked asked = {.seed = 1, .rounds = 12, .times = true};
    char text[128];
    (void)count;
    if (!read_words(words, &asked)) {
        fprintf(stderr, "usage: device_check [--seed N] [--rounds N] [--no-times]\n");
        return 2;
    }
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
    printf("device_check: %s\n", check_failures() == 0 ? "all as it should be" : "FAILED");
    return check_failures() == 0 ? 0 : 1;
}
