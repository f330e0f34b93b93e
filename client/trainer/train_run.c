/* See train_run.h. */
#include "client/trainer/train_run.h"

#include "client/trainer/evaluation.h"
#include "client/trainer/pace.h"
#include "client/trainer/train_channel.h"
#include "client/trainer/train_children.h"
#include "client/trainer/train_curve.h"
#include "client/trainer/train_loop.h"
#include "client/trainer/train_reader.h"
#include "client/trainer/train_status.h"
#include "client/trainer/train_summary.h"

#include <gradweir/gradweir.h>

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PULL_S = 10 };

struct run {
    const struct train_settings *settings;
    struct network network;
    struct children children;
    struct train_reader reader;
    float *parameters;
    struct return_window window;
    struct learner_counts counts[CHILDREN_MAX];
    struct train_share shares[CHILDREN_MAX];
    struct curve curve;
    uint64_t env_steps, learn_steps, version, trials, trial_at;
    double learn_s;
    double began, second, last_pushes;
    bool solved, kill_done;
    bool gone[CHILDREN_MAX];
    char reason[300]; /* of the last worker that failed */
    char failed[400]; /* why there is no result; "" so far there may be one */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static void catch_signals(void)
{
    struct sigaction before;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        signal(SIGHUP, on_signal); /* the terminal is gone; ignored: nohup */
}

static struct learner_counts pooled(const struct run *run)
{
    struct learner_counts all = {0};
    for (size_t i = 0; i < run->settings->workers; i++) {
        const struct learner_counts *one = &run->counts[i];
        all.pushes += one->pushes;
        all.admitted += one->admitted;
        all.refused += one->refused;
        all.not_finite += one->not_finite;
        all.staleness_sum += one->staleness_sum;
        all.staleness_max =
            one->staleness_max > all.staleness_max ? one->staleness_max : all.staleness_max;
    }
    return all;
}

static bool pull(struct run *run, double seconds)
{
    return train_reader_pull(&run->reader, seconds, run->parameters, run->network.n_parameters);
}

static double evaluate(const struct run *run, uint64_t stream)
{
    const struct train_settings *s = run->settings;
    return evaluation_greedy(s->environment, &run->network, run->parameters,
                             (struct evaluation_episodes){s->evaluate, s->seed, stream});
}

/* As overseer_local: the pooled mean first, then a trial of the parameters. */
static bool is_solved(struct run *run)
{
    if (!return_window_full(&run->window) || run->window.count < run->trial_at ||
        !(return_window_mean(&run->window) >= run->settings->until))
        return false;
    run->trial_at = run->window.count + OVERSEER_TRIAL_DISTANCE;
    if (run->settings->evaluate == 0)
        return true;
    run->trials++;
    return pull(run, PULL_S) && evaluate(run, run->trials) >= run->settings->until;
}

static void hear(struct run *run, const struct channel_news *news)
{
    run->counts[news->worker] = news->counts;
    run->shares[news->worker].env_steps += news->environment_steps;
    run->shares[news->worker].pushes = news->counts.pushes;
    run->shares[news->worker].admitted = news->counts.admitted;
    run->env_steps += news->environment_steps;
    if (news->version > run->version)
        run->version = news->version;
    for (uint32_t i = 0; i < news->n_returns; i++)
        return_window_add(&run->window, news->returns[i]);
    if (news->failed[0] != '\0')
        snprintf(run->reason, sizeof(run->reason), "worker-%u: %.*s", news->worker,
                 CHANNEL_TEXT - 1, news->failed);
}

/* Why nothing more can come of this run, as soon as that is known. */
static void find_failure(struct run *run, bool any_left)
{
    if (run->failed[0] != '\0')
        return;
    children_look(&run->children);
    if (children_server_gone(&run->children))
        snprintf(run->failed, sizeof(run->failed), "the server that this run started %s",
                 child_end(&run->children.server).text);
    else if (!any_left && run->reason[0] != '\0')
        snprintf(run->failed, sizeof(run->failed), "no worker is left: %s", run->reason);
}

static void say_gone(struct run *run, size_t index)
{
    char text[48];
    run->gone[index] = true;
    snprintf(text, sizeof(text), "worker-%zu is gone", index);
    curve_mark(&run->curve, pace_wall_seconds() - run->began, text);
    size_t left = 0;
    for (size_t i = 0; i < run->settings->workers; i++)
        left += !run->gone[i];
    printf("%s (%s); %s\n", text,
           run->children.workers[index].killed ? "killed on purpose" : "nobody told it to end",
           left > 0 ? "the others go on" : "none is left");
    fflush(stdout);
}

/* Reads what has come; false when it is over. */
static bool listen(struct run *run, int timeout_ms)
{
    struct pollfd wait[CHILDREN_MAX];
    const size_t n = run->settings->workers;
    struct channel_news news;
    for (size_t i = 0; i < n; i++)
        wait[i] = (struct pollfd){.fd = run->gone[i] ? -1 : run->children.workers[i].channel,
                                  .events = POLLIN};
    poll(wait, n, timeout_ms);
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        int result = 0;
        while (!run->gone[i] && (result = channel_read(wait[i].fd, &news)) == 1)
            hear(run, &news);
        if (result < 0)
            say_gone(run, i);
        left += !run->gone[i];
    }
    find_failure(run, left > 0);
    run->solved = run->solved || (run->failed[0] == '\0' && is_solved(run));
    return left > 0 && run->failed[0] == '\0' && !run->solved &&
           run->env_steps < run->settings->max_steps && !interrupted;
}

static void say_second(struct run *run)
{
    const double now = pace_wall_seconds();
    const struct learner_counts counts = pooled(run);
    const double rate = ((double)counts.pushes - run->last_pushes) / (now - run->second);
    const double staleness =
        counts.admitted > 0 ? counts.staleness_sum / (double)counts.admitted : 0;
    struct train_status status = {0};
    curve_add(&run->curve, &(struct curve_point){.seconds = now - run->began,
                                                 .env_steps = run->env_steps,
                                                 .version = run->version,
                                                 .mean_return = return_window_mean(&run->window),
                                                 .pushes_per_s = rate,
                                                 .staleness_mean = staleness});
    run->second = now;
    run->last_pushes = (double)counts.pushes;
    if (!run->settings->progress && !isatty(STDOUT_FILENO))
        return;
    if (run->failed[0] == '\0' && (run->reader.client != NULL || pull(run, PULL_S)))
        train_status_ask(run->reader.client, &status);
    printf("%4.0f s  version %-6llu return %6.1f  %5.0f pushes/s  staleness %.1f/%llu  queue %llu  "
           "admitted %llu  refused %llu  steps %llu\n",
           now - run->began, (unsigned long long)run->version, return_window_mean(&run->window),
           rate, staleness, (unsigned long long)counts.staleness_max,
           (unsigned long long)status.queue, (unsigned long long)counts.admitted,
           (unsigned long long)counts.refused, (unsigned long long)run->env_steps);
    fflush(stdout);
}

static void kill_as_told(struct run *run)
{
    const struct train_pair *told = &run->settings->kill_worker;
    if (!told->given || run->kill_done || pace_wall_seconds() - run->began < told->value)
        return;
    struct child *child = &run->children.workers[told->worker];
    run->kill_done = true;
    child->killed = true;
    printf("kill -9 worker-%llu\n", (unsigned long long)told->worker);
    if (child->pid > 0)
        kill(child->pid, SIGKILL);
}

static void train(struct run *run)
{
    run->began = run->second = pace_wall_seconds();
    while (listen(run, 100)) {
        children_look(&run->children);
        kill_as_told(run);
        if (pace_wall_seconds() - run->second >= 1)
            say_second(run);
    }
    run->learn_s = pace_wall_seconds() - run->began;
    run->learn_steps = run->env_steps;
    const double until_s = pace_wall_seconds() + (interrupted              ? 0.5
                                                  : run->failed[0] != '\0' ? 0
                                                                           : 5);
    for (size_t i = 0; i < run->settings->workers; i++)
        if (!run->gone[i])
            channel_stop(run->children.workers[i].channel);
    while (children_look(&run->children) > 0 && pace_wall_seconds() < until_s) {
        struct channel_news news;
        for (size_t i = 0; i < run->settings->workers; i++)
            while (channel_read(run->children.workers[i].channel, &news) == 1)
                hear(run, &news);
        pace_sleep(1);
    }
    struct channel_news news;
    for (size_t i = 0; i < run->settings->workers; i++)
        while (channel_read(run->children.workers[i].channel, &news) == 1)
            hear(run, &news);
    say_second(run);
}

static bool write_all(struct run *run, struct train_summary *summary)
{
    const struct train_settings *s = run->settings;
    if (s->json != NULL && !train_summary_write(summary, s, s->json)) {
        fprintf(stderr, "gradweir-train: %s: %s\n", s->json, strerror(errno));
        return false;
    }
    if (s->curve != NULL && !curve_write(&run->curve, s->curve, s->env, s->until)) {
        fprintf(stderr, "gradweir-train: %s: %s\n", s->curve, strerror(errno));
        return false;
    }
    return true;
}

/* How many offers of first parameters there may have been; 0 when this run cannot know. */
static uint64_t offers_max(const struct run *run)
{
    bool known = run->settings->servers == NULL;
    for (size_t i = 0; i < run->settings->workers; i++)
        known = known && !run->gone[i] && !run->children.workers[i].stuck;
    return known ? run->settings->workers : 0;
}

/* A worker that is stopped hears nothing, and cannot say what became of its last pushes. */
static void say_stuck(const struct run *run)
{
    for (size_t i = 0; i < run->settings->workers; i++)
        if (run->children.workers[i].stuck && run->failed[0] == '\0' && !interrupted)
            printf("worker-%zu did not end when it was told to (is it stopped?): killed; its last "
                   "pushes are not among the verdicts that workers heard\n",
                   i);
}

/* Workers push a little more until they hear that it is over: what a trial confirmed is what
 * counts. */
static void take_parameters(struct run *run, struct train_summary *summary,
                            struct train_status *status)
{
    if (interrupted || run->env_steps == 0)
        return;
    const double seconds = run->failed[0] != '\0' ? 1 : PULL_S;
    if (!((run->solved && run->trials > 0) || pull(run, seconds))) {
        if (run->failed[0] == '\0')
            snprintf(run->failed, sizeof(run->failed), "no final parameters: %.300s",
                     gradweir_last_error());
        return;
    }
    summary->has_parameters = true;
    summary->version = gradweir_version(run->reader.client);
    summary->digest = gradweir_digest(run->reader.client);
    train_status_ask(run->reader.client, status);
    summary->final_mean_return = evaluate(run, 0);
    summary->solved = run->solved && (run->settings->evaluate == 0 ||
                                      summary->final_mean_return >= run->settings->until);
}

/* Its own server says by its exit status whether all is there. */
static void look_at_recording(const struct run *run, struct train_summary *summary)
{
    const char *folder = run->settings->record;
    summary->unrecorded =
        folder != NULL && run->children.server_started && run->children.server.status != 0;
    if (summary->unrecorded)
        fprintf(stderr,
                "gradweir-train: the recording in %s is not whole, replay ends before this run "
                "did: the server %s\n",
                folder, child_end(&run->children.server).text);
}

/* Ends all, and takes the processes' times. Failures that show only now count too. */
static void end_processes(struct run *run, struct train_summary *summary)
{
    const bool soon = interrupted || run->failed[0] != '\0';
    const double own_cpu = pace_cpu_seconds();
    struct train_status status = {0};
    children_end_workers(&run->children, soon ? 0.2 : 2);
    say_stuck(run);
    take_parameters(run, summary, &status);
    gradweir_close(run->reader.client);
    children_end_server(&run->children, interrupted ? 0.5 : 5);
    summary->cpu_s = run->children.cpu_s + own_cpu;
    look_at_recording(run, summary);
    if (interrupted)
        snprintf(run->failed, sizeof(run->failed), "interrupted by a signal");
    else if (!train_status_audit(&status, &summary->counts, offers_max(run)))
        snprintf(run->failed, sizeof(run->failed),
                 "the audit is not whole: a push has no verdict, or two");
    else if (run->failed[0] == '\0' && run->env_steps == 0)
        snprintf(run->failed, sizeof(run->failed), "nothing was trained%s%s",
                 run->reason[0] != '\0' ? ": " : "", run->reason);
}

/* The figures are taken before the last evaluation. */
static bool finish(struct run *run)
{
    struct train_summary summary = {.solved = run->solved,
                                    .env_steps = run->env_steps,
                                    .learn_steps = run->learn_steps,
                                    .learn_s = run->learn_s,
                                    .shares = run->shares,
                                    .n_shares = run->settings->workers,
                                    .trials = run->trials,
                                    .mean_return = return_window_mean(&run->window),
                                    .counts = pooled(run)};
    summary.wall_s = pace_wall_seconds() - run->began;
    end_processes(run, &summary);
    summary.failed = run->failed[0] != '\0' ? run->failed : NULL;
    summary.solved = summary.solved && summary.failed == NULL;
    run->solved = summary.solved;
    train_summary_print(&summary);
    return write_all(run, &summary) && summary.failed == NULL && !summary.unrecorded;
}

static bool start(struct run *run, char **argv)
{
    const struct train_settings *s = run->settings;
    if (s->servers != NULL)
        snprintf(run->children.address, sizeof(run->children.address), "%s", s->servers);
    else if (!children_start_server(&run->children, s)) {
        snprintf(run->failed, sizeof(run->failed), "the server did not start");
        return false;
    }
    train_summary_begin(s, run->children.address);
    fflush(stdout);
    for (size_t i = 0; i < s->workers; i++)
        if (!children_start_worker(&run->children, s, argv, i))
            return false;
    return true;
}

int train_run(const struct train_settings *settings, char **argv)
{
    struct run *run = calloc(1, sizeof(*run));
    bool fine = run != NULL;
    if (fine) {
        run->settings = settings;
        run->began = pace_wall_seconds();
        run->reader = (struct train_reader){
            .settings = settings, .children = &run->children, .interrupted = &interrupted};
        train_network(settings, &run->network);
        run->parameters = calloc(run->network.n_parameters, sizeof(float));
        fine = run->parameters != NULL;
    }
    catch_signals();
    fine = fine && start(run, argv);
    if (fine)
        train(run);
    if (run != NULL)
        fine = finish(run) && fine;
    const int result = interrupted ? 130 : !fine ? 2 : run->solved ? 0 : 1;
    if (run != NULL)
        free(run->parameters);
    free(run);
    return result;
}
