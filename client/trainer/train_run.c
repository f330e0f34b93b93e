/* See train_run.h. */
#include "client/trainer/train_run.h"

#include "client/trainer/evaluation.h"
#include "client/trainer/pace.h"
#include "client/trainer/train_channel.h"
#include "client/trainer/train_children.h"
#include "client/trainer/train_curve.h"
#include "client/trainer/train_loop.h"
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

struct run {
    const struct train_settings *settings;
    struct network network;
    struct children children;
    gradweir_client *reader; /* NULL until the first news have come */
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

/* The newest parameters, as a reader. */
static bool pull(struct run *run)
{
    gradweir_ticket ticket;
    gradweir_options options;
    char identity[128]; /* the first worker's key, and yet not the first worker */
    snprintf(identity, sizeof(identity), "%s-0/run", run->settings->identity);
    gradweir_options_default(&options);
    options.address = run->children.address;
    options.identity = identity;
    options.keys = run->settings->keys;
    options.insecure = run->settings->insecure;
    options.role = GRADWEIR_READER;
    if (run->reader == NULL && (gradweir_open(&options, &run->reader) != GRADWEIR_OK ||
                                gradweir_bind(run->reader, NULL, 0) != GRADWEIR_OK))
        return false;
    return gradweir_pull(run->reader, &ticket) == GRADWEIR_OK &&
           gradweir_wait(run->reader, ticket, 10000, NULL) == GRADWEIR_OK &&
           gradweir_parameters(run->reader, run->parameters, run->network.n_parameters) ==
               GRADWEIR_OK;
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
    return pull(run) && evaluate(run, run->trials) >= run->settings->until;
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
    run->solved = run->solved || is_solved(run);
    return left > 0 && !run->solved && run->env_steps < run->settings->max_steps && !interrupted;
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
    if (run->reader != NULL || pull(run))
        train_status_ask(run->reader, &status);
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
    const double until_s = pace_wall_seconds() + (interrupted ? 0.5 : 5);
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
        known = known && !run->gone[i];
    return known ? run->settings->workers : 0;
}

/* The figures are taken before the last evaluation, the processes' times after all have ended. */
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
    struct train_status status = {0};
    summary.wall_s = pace_wall_seconds() - run->began;
    const double own_cpu = pace_cpu_seconds();
    children_end_workers(&run->children, interrupted ? 0.2 : 2);
    /* Workers push a little more until they hear that it is over: what a trial confirmed is what
     * counts. */
    if (!interrupted && run->env_steps > 0 && ((run->solved && run->trials > 0) || pull(run))) {
        summary.version = gradweir_version(run->reader);
        summary.digest = gradweir_digest(run->reader);
        train_status_ask(run->reader, &status);
        summary.final_mean_return = evaluate(run, 0);
        summary.solved = run->solved && (run->settings->evaluate == 0 ||
                                         summary.final_mean_return >= run->settings->until);
    } else if (!interrupted && run->env_steps > 0) {
        fprintf(stderr, "gradweir-train: no final parameters: %s\n", gradweir_last_error());
    }
    gradweir_close(run->reader);
    children_end_server(&run->children, interrupted ? 0.5 : 5);
    summary.cpu_s = run->children.cpu_s + own_cpu;
    run->solved = summary.solved;
    if (interrupted)
        return true;
    if (run->env_steps == 0)
        return false;
    train_summary_print(&summary);
    const bool whole = train_status_audit(&status, &summary.counts, offers_max(run));
    return write_all(run, &summary) && whole;
}

static bool start(struct run *run, char **argv)
{
    const struct train_settings *s = run->settings;
    if (s->servers != NULL)
        snprintf(run->children.address, sizeof(run->children.address), "%s", s->servers);
    else if (!children_start_server(&run->children, s))
        return false;
    printf("servers %s (%s), %llu shards; transport %s; window %llu, stride %llu, queue %llu; "
           "learning rate %g per version%s over %llu steps; %llu workers\n",
           run->children.address, s->servers != NULL ? "running" : "started here",
           (unsigned long long)s->shards, s->transport, (unsigned long long)s->window,
           (unsigned long long)s->stride, (unsigned long long)s->queue, s->lr,
           s->anneal_steps > 0 ? ", falling to 0" : ", constant",
           (unsigned long long)(s->anneal_steps > 0 ? s->anneal_steps : s->max_steps),
           (unsigned long long)s->workers);
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
        train_network(settings, &run->network);
        run->parameters = calloc(run->network.n_parameters, sizeof(float));
        fine = run->parameters != NULL;
    }
    catch_signals();
    fine = fine && start(run, argv);
    if (fine)
        train(run);
    if (run != NULL) {
        fine = finish(run) && fine;
        fine = fine && run->env_steps > 0;
    }
    const int result = interrupted ? 130 : !fine ? 2 : run->solved ? 0 : 1;
    if (run != NULL)
        free(run->parameters);
    free(run);
    return result;
}
