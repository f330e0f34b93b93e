/* gradweir-train: reads the options and runs the trainer. Exit status: 0 solved, 1 not solved, 2
 * bad use or failure. */
#include "client/trainer/blas.h"

#include "client/trainer/evaluation.h"
#include "client/trainer/pace.h"
#include "client/trainer/train_checks.h"
#include "client/trainer/train_device.h"
#include "client/trainer/train_loop.h"
#include "client/trainer/train_run.h"
#include "client/trainer/train_summary.h"
#include "client/trainer/train_worker.h"

#include <gradweir/gradweir.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The trials that confirm a solution draw other episodes each time, and others than the final
 * evaluation. */
struct trial {
    const struct train_settings *settings;
    const struct network *network;
    uint64_t made;
};

static double try_out(void *context, const float *parameters)
{
    struct trial *trial = context;
    const struct train_settings *s = trial->settings;
    const uint64_t stream = ++trial->made;
    return evaluation_greedy(s->environment, trial->network, parameters,
                             (struct evaluation_episodes){s->evaluate, s->seed, stream});
}

static gradweir_status train_locally(const struct train_settings *settings,
                                     const struct network *network, struct learner *learner,
                                     struct train_summary *summary, struct train_outcome *outcome)
{
    struct overseer_local overseer;
    struct trial trial = {settings, network, 0};
    const double wall = pace_wall_seconds(), cpu = pace_cpu_seconds();
    overseer_local_init(&overseer, settings->until, settings->max_steps);
    overseer.confirm = settings->evaluate > 0 ? try_out : NULL;
    overseer.context = &trial;
    const gradweir_status status = train_loop(settings, 0, learner, &overseer.overseer, outcome);
    if (outcome->end == TRAIN_NOT_FINITE)
        fprintf(stderr,
                "gradweir-train: %llu gradients in a row were not finite: training ends here\n",
                (unsigned long long)learner->counts.not_finite_in_row);
    summary->solved = overseer.solved;
    summary->trials = trial.made;
    summary->env_steps = summary->learn_steps = overseer.environment_steps;
    summary->mean_return = return_window_mean(&overseer.window);
    summary->wall_s = summary->learn_s = pace_wall_seconds() - wall;
    summary->cpu_s = pace_cpu_seconds() - cpu;
    return status;
}

static gradweir_status finish(const struct train_settings *settings, const struct network *network,
                              struct learner *learner, struct train_summary *summary,
                              float *parameters)
{
    const gradweir_status status = learner->pull(learner, parameters);
    if (status != GRADWEIR_OK)
        return status;
    summary->version = learner->version;
    summary->counts = learner->counts;
    summary->final_mean_return =
        evaluation_greedy(settings->environment, network, parameters,
                          (struct evaluation_episodes){settings->evaluate, settings->seed, 0});
    if (settings->evaluate > 0 && !(summary->final_mean_return >= settings->until))
        summary->solved = false;
    summary->digest = train_summary_digest(parameters, network->n_parameters);
    summary->has_parameters = true;
    return GRADWEIR_OK;
}

/* Says what came of it, also when it failed. Returns the exit status. */
static int conclude(const struct train_settings *settings, gradweir_status status,
                    struct train_summary *summary, const struct train_outcome *outcome)
{
    if (status != GRADWEIR_OK)
        summary->failed =
            outcome->reason.text[0] != '\0' ? outcome->reason.text : gradweir_status_text(status);
    train_summary_print(summary);
    if (settings->json != NULL && !train_summary_write(summary, settings, settings->json)) {
        fprintf(stderr, "gradweir-train: %s: %s\n", settings->json, strerror(errno));
        return 2;
    }
    return status != GRADWEIR_OK ? 2 : summary->solved ? 0 : 1;
}

static int run_local(const struct train_settings *settings)
{
    struct network network;
    struct train_summary summary = {.solved = false};
    struct train_outcome outcome = {.end = TRAIN_OVER};
    gradweir_status status = GRADWEIR_ERR_NO_MEMORY;
    train_network(settings, &network);
    float *parameters = calloc(network.n_parameters, sizeof(float));
    struct learner *learner = NULL;
    if (parameters != NULL) {
        train_first_parameters(settings, &network, parameters);
        learner = learner_local_open(settings, &network, parameters);
    }
    if (learner != NULL) {
        status = train_locally(settings, &network, learner, &summary, &outcome);
        if (status == GRADWEIR_OK)
            status = finish(settings, &network, learner, &summary, parameters);
        learner->close(learner);
    }
    free(parameters);
    return conclude(settings, status, &summary, &outcome);
}

static int run_program(int argc, char **argv)
{
    blas_restart_single_threaded(argv);
    struct train_settings settings;
    struct train_reason reason = {.text = ""};
    gradweir_status status = train_settings_parse(&settings, argc, argv, &reason);
    if (status == GRADWEIR_ERR_STOPPED) {
        train_settings_help(&settings, stdout);
        return 0;
    }
    if (status == GRADWEIR_OK)
        status = train_check_options(&settings, &reason);
    if (status == GRADWEIR_OK)
        status = train_check_files(&settings, &reason);
    if (status == GRADWEIR_OK)
        status = train_check_device(&settings, &reason);
    if (status != GRADWEIR_OK) {
        fprintf(stderr, "gradweir-train: %s\n", reason.text);
        return 2;
    }
    if (settings.local)
        return run_local(&settings);
    return settings.worker > 0 ? train_worker(&settings) : train_run(&settings, argv);
}

int main(int argc, char **argv)
{
    const int code = run_program(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "gradweir-train: some of the output is lost\n");
    return code ? code : 1;
}
