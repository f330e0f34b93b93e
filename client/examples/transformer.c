/* Trains a small transformer by several groups of ranks, each of which is one worker of the job.
 *
 *     gradweir-server --shards 2 --learning_rate 1.5e-4 &
 *     for group in 0 1; do for rank in 0 1; do
 *         gradweir-example-transformer --group g$group --rank $rank --ranks 2 --csv
 * curve-$group.csv & done; done
 *
 * A step: pull, sample answers to prompts, and then, EPOCHS times, the gradient of PPO's loss over
 * them, pushed, with the newest parameters pulled in between. Groups never wait for each other.
 * client/README.md walks through it. */
#include "client/examples/transformer_policy.h"
#include "client/examples/transformer_worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct preset {
    const char *name;
    struct transformer_shape shape;
    size_t batch, steps, epochs;
};

static const struct preset presets[] = {
    /* 1.6 million parameters. */
    {.name = "full",
     .shape = {.words = 16, .places = 16, .width = 256, .heads = 8, .inner = 1024, .layers = 2},
     .batch = 32,
     .steps = 300,
     .epochs = 2},
    /* A hundred thousand, for tests; with a learning rate of 1e-3. */
    {.name = "small",
     .shape = {.words = 16, .places = 16, .width = 64, .heads = 4, .inner = 256, .layers = 2},
     .batch = 32,
     .steps = 120,
     .epochs = 2},
};

static const struct transformer_settings learning = {.samples = 8, .discount = 0.5, .clip = 0.2};

struct arguments {
    struct transformer_seat seat;
    const struct preset *preset;
    size_t steps;
    uint64_t seed;
    const char *csv;
};

static int usage(void)
{
    fputs("gradweir-example-transformer [--address HOST:PORT] [--group NAME] [--rank R --ranks N]\n"
          "    [--preset full|small] [--steps N] [--seed N] [--csv FILE] [--keys DIR]\n"
          "A rank of a group that trains a transformer; start all N of each group. The optimizer\n"
          "and its learning rate are the server's: 1.5e-4 with full, 1e-3 with small.\n",
          stderr);
    return 2;
}

static bool number(const char *text, uint64_t most, uint64_t *to)
{
    char *end;
    const uint64_t value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != 0 || value > most)
        return false;
    *to = value;
    return true;
}

static bool choose_preset(struct arguments *arguments, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(name, presets[i].name) == 0) {
            arguments->preset = &presets[i];
            return true;
        }
    return false;
}

static bool take(struct arguments *arguments, const char *name, const char *value)
{
    struct transformer_seat *seat = &arguments->seat;
    uint64_t n = 0;
    if (strcmp(name, "--address") == 0)
        seat->address = value;
    else if (strcmp(name, "--group") == 0)
        seat->group = value;
    else if (strcmp(name, "--keys") == 0)
        seat->keys = value;
    else if (strcmp(name, "--csv") == 0)
        arguments->csv = value;
    else if (strcmp(name, "--preset") == 0)
        return choose_preset(arguments, value);
    else if (strcmp(name, "--seed") == 0)
        return number(value, UINT32_MAX, &arguments->seed);
    else if (!number(value, 1000000, &n))
        return false;
    else if (strcmp(name, "--steps") == 0)
        arguments->steps = (size_t)n;
    else if (strcmp(name, "--rank") == 0)
        seat->rank = (uint32_t)n;
    else if (strcmp(name, "--ranks") == 0)
        seat->ranks = (uint32_t)n;
    else
        return false;
    return true;
}

static bool take_all(struct arguments *arguments, char **words)
{
    for (; words[0] != NULL; words += 2)
        if (words[1] == NULL || !take(arguments, words[0], words[1])) {
            fprintf(stderr, "%s: not that, or not so\n", words[0]);
            return false;
        }
    if (arguments->steps == 0)
        arguments->steps = arguments->preset->steps;
    return arguments->seat.ranks > 0 && arguments->seat.rank < arguments->seat.ranks;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct run {
    const struct arguments *arguments;
    struct transformer_model *model;
    struct transformer_pass *pass;
    struct transformer_rollout *rollout;
    struct transformer_worker worker;
    struct transformer_team team;
    uint64_t seed; /* of what this group samples: the same at its ranks, another in another group */
    FILE *csv;     /* rank 0's, or NULL */
    double begun;
};

/* What a step came to. */
struct outcome {
    double reward, loss, clipped;
    uint64_t staleness, refused;
};

static bool step(struct run *run, size_t number_of_step, struct outcome *outcome)
{
    struct transformer_rollout *rollout = run->rollout;
    const uint64_t samples = rollout->settings.batch * (rollout->length - TRANSFORMER_PROMPT);
    *outcome = (struct outcome){0};
    if (!transformer_worker_pull(&run->worker) ||
        !transformer_sample(rollout, run->model, run->pass, &run->team,
                            transformer_mix(run->seed + number_of_step)))
        return false;
    outcome->reward = rollout->mean_reward;
    for (size_t epoch = 0; epoch < run->arguments->preset->epochs; epoch++) {
        gradweir_receipt receipt;
        if ((epoch > 0 && !transformer_worker_pull(&run->worker)) ||
            !transformer_learn(rollout, run->pass, &outcome->loss, &outcome->clipped) ||
            !transformer_worker_push(&run->worker, samples, &receipt))
            return false;
        outcome->staleness += receipt.staleness;
        outcome->refused += receipt.verdict != GRADWEIR_ADMITTED;
    }
    return true;
}

static void tell(struct run *run, size_t number_of_step, const struct outcome *outcome)
{
    const double elapsed = seconds() - run->begun;
    transformer_worker_report(&run->worker, outcome->reward);
    if (run->csv != NULL) {
        fprintf(run->csv, "%s,%zu,%.3f,%" PRIu64 ",%.4f,%.5f,%.4f,%" PRIu64 ",%" PRIu64 "\n",
                run->arguments->seat.group, number_of_step, elapsed, run->worker.version,
                outcome->reward, outcome->loss, outcome->clipped, outcome->staleness,
                outcome->refused);
        fflush(run->csv);
    }
    if (number_of_step % 10 == 0)
        printf("%s: step %zu of %zu, version %" PRIu64 ", reward %.3f, %.0f ms a step\n",
               run->arguments->seat.group, number_of_step, run->arguments->steps,
               run->worker.version, outcome->reward, 1e3 * elapsed / (double)number_of_step);
    fflush(stdout);
}

static bool train(struct run *run)
{
    run->begun = seconds();
    for (size_t i = 1; i <= run->arguments->steps; i++) {
        struct outcome outcome;
        if (!step(run, i, &outcome))
            return false;
        if (run->arguments->seat.rank == 0)
            tell(run, i, &outcome);
    }
    return true;
}

static bool open_csv(struct run *run)
{
    if (run->arguments->csv == NULL || run->arguments->seat.rank != 0)
        return true;
    run->csv = fopen(run->arguments->csv, "w");
    if (run->csv == NULL) {
        perror(run->arguments->csv);
        return false;
    }
    fputs("group,step,seconds,version,reward,loss,clipped,staleness,refused\n", run->csv);
    return true;
}

static bool prepare(struct run *run)
{
    const struct arguments *arguments = run->arguments;
    const struct transformer_shape *shape = &arguments->preset->shape;
    struct transformer_settings settings = learning;
    settings.batch = arguments->preset->batch;
    run->team = (struct transformer_team){.sum = transformer_worker_sum, .context = &run->worker};
    run->model =
        transformer_model_new(shape, arguments->seat.rank, arguments->seat.ranks, arguments->seed);
    if (run->model == NULL) {
        fprintf(stderr, "no memory, or %zu heads cannot be cut for so many ranks\n", shape->heads);
        return false;
    }
    run->pass = transformer_pass_new(run->model, &run->team, settings.batch);
    run->rollout = transformer_rollout_new(shape, &settings);
    run->seed = arguments->seed;
    for (const char *c = arguments->seat.group; *c != 0; c++)
        run->seed = transformer_mix(run->seed * 131 + (unsigned char)*c + 1);
    return run->pass != NULL && run->rollout != NULL && open_csv(run);
}

int main(int count, char **words)
{
    struct arguments arguments = {
        .seat = {.address = "127.0.0.1:7070", .group = "transformer", .keys = "", .ranks = 1},
        .preset = presets,
        .seed = 1};
    matrix_start_single_threaded(words);
    if (count < 1 || !take_all(&arguments, words + 1))
        return usage();
    struct run run = {.arguments = &arguments};
    bool well = prepare(&run) && transformer_worker_open(&run.worker, run.model, &arguments.seat);
    if (well && arguments.seat.rank == 0)
        printf("%s: %zu parameters, %zu of them at each of %" PRIu32 " ranks\n",
               arguments.seat.group, transformer_model_size(run.model), run.model->elements,
               arguments.seat.ranks);
    well = well && train(&run);
    transformer_worker_close(&run.worker);
    well = (run.csv == NULL || fclose(run.csv) == 0) && well;
    transformer_rollout_free(run.rollout);
    transformer_pass_free(run.pass);
    transformer_model_free(run.model);
    return well ? 0 : 1;
}
