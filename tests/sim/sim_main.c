/* gradweir-sim: runs seeds, tells one seed's story, or shows that planted faults are found. */
#include "tests/sim/sim_calls.h"

#include "common/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const plants[] = {"admit-partial",      "early-receipt",
                                     "no-dedupe",          "refusal-unlogged",
                                     "zombie-incarnation", "flush-off",
                                     "generation-reuse",   "lease-off",
                                     "retire-early",       "weight-twice",
                                     "stale-record",       "pin-ignored",
                                     "whole-early",        "checksum-ignored",
                                     "torn-step",          "order-swapped",
                                     "moments-twice",      "other-bytes-on-retry",
                                     "no-fence",           "one-seal-enough",
                                     "shortest-log",       "owed-not-resent",
                                     "joined-early",       "generations-anew",
                                     "generation-ignored", "redo-off",
                                     "undo-off",           "stale-close",
                                     "quiet-off",          "promise-forgotten",
                                     "stacks-redo-off",    "stacks-schedule-shifted",
                                     "swap-reopened",      "ahead-kept"};

enum { PLANT_SEEDS = 4000 };

static struct sim *running; /* for the handler of a failed ASSERT */

/* A core that finds its own mistake ends the seed, not the table of plants. */
static void aborted(int number)
{
    (void)number;
    if (running)
        siglongjmp(running->leave, 1);
}

static void print_failure(const struct sim *sim)
{
    printf("seed %llu fails at %.3f ms in %s: %s\n", (unsigned long long)sim->seed,
           (double)sim->now_ns / 1e6, sim->check[0] ? sim->check : "a core",
           sim->sentence[0] ? sim->sentence : "its ASSERT fails");
    printf("  again, as a story: gradweir-sim --seed %llu -v\n", (unsigned long long)sim->seed);
}

static int run_seeds(struct sim *sim, uint64_t first, uint64_t last)
{
    const int64_t begin_ns = clock_now_ns();
    uint64_t hash = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        if (!sim_run(sim, seed)) {
            print_failure(sim);
            return 1;
        }
        hash = (hash ^ sim->hash) * 0x9e3779b97f4a7c15;
    }
    const double seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
    printf("seeds %llu..%llu pass, hash %016llx\n", (unsigned long long)first,
           (unsigned long long)last, (unsigned long long)hash);
    table_print(&sim->counts, last - first + 1, seconds > 0 ? seconds : 1);
    return 0;
}

/* Once more, for its sentence. */
static uint64_t refind(struct sim *sim, uint64_t seed, const char *name)
{
    sim->plant = name;
    (void)sim_run(sim, seed);
    return seed;
}

/* The first seed that finds the plant, or 0. A seed that fails without it too finds nothing. */
static uint64_t find_plant(struct sim *sim, const char *name)
{
    sim->planted = false;
    for (uint64_t seed = 1; seed <= PLANT_SEEDS; seed++) {
        sim->plant = name;
        if (sim_run(sim, seed))
            continue;
        sim->plant = NULL;
        if (sim_run(sim, seed))
            return refind(sim, seed, name);
    }
    return 0;
}

static bool plant_and_tell(struct sim *sim, const char *name)
{
    const uint64_t seed = find_plant(sim, name);
    if (!sim->planted)
        printf("%-20s NO CORE KNOWS IT\n", name);
    else if (seed)
        printf("%-20s seed %4llu  %-18s %s\n", name, (unsigned long long)seed,
               sim->check[0] ? sim->check : "ASSERT",
               sim->sentence[0] ? sim->sentence : "a core finds its own mistake");
    else
        printf("%-20s NOT FOUND in %d seeds\n", name, PLANT_SEEDS);
    fflush(stdout);
    return seed != 0 && sim->planted;
}

static int run_plants(struct sim *sim, const char *wanted)
{
    int missed = 0, known = 0;
    const bool list = strcmp(wanted, "list") == 0;
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++) {
        if (!list && strcmp(wanted, "all") != 0 && strcmp(wanted, plants[i]) != 0)
            continue;
        known++;
        if (list)
            puts(plants[i]);
        else
            missed += !plant_and_tell(sim, plants[i]);
    }
    if (!known)
        fprintf(stderr, "there is no plant called %s\n", wanted);
    return missed || !known;
}

static int usage(void)
{
    fputs("usage: gradweir-sim [--ranks] --seeds A..B | --seed N [-v] [--plant NAME] | --plant "
          "NAME|all|list\n",
          stderr);
    return 2;
}

int main(int count, char **words)
{
    unsigned long long first = 0, last = 0;
    const char *plant = NULL;
    bool story = false, ranks = false;
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? words[i + 1] : "";
        if (strcmp(words[i], "-v") == 0)
            story = true;
        else if (strcmp(words[i], "--ranks") == 0)
            ranks = true;
        else if (strcmp(words[i], "--seeds") == 0 &&
                 sscanf(value, "%llu..%llu", &first, &last) == 2)
            i++;
        else if (strcmp(words[i], "--seed") == 0 && sscanf(value, "%llu", &first) == 1)
            last = first, i++;
        else if (strcmp(words[i], "--plant") == 0 && value[0])
            plant = value, i++;
        else
            return usage();
    }
    struct sim *sim;
    if ((!plant && last == 0) || sim_open(&sim) != GRADWEIR_OK)
        return usage();
    running = sim;
    signal(SIGABRT, aborted);
    sim->story = story;
    sim->ranks = ranks;
    sim->plant = plant;
    const int result = last ? run_seeds(sim, first, last) : run_plants(sim, plant);
    running = NULL;
    sim_close(sim);
    return result;
}
