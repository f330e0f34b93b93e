/* See train_summary.h. */
#include "client/trainer/train_summary.h"

#include "client/trainer/train_words.h"

#include <math.h>
#include <stdio.h>

uint64_t train_summary_digest(const float *parameters, size_t n)
{
    const unsigned char *bytes = (const unsigned char *)parameters;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n * sizeof(float); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static double staleness_mean(const struct train_summary *s)
{
    return s->counts.admitted > 0 ? s->counts.staleness_sum / (double)s->counts.admitted : 0;
}

/* JSON has no NaN. */
static void write_number(FILE *file, const char *name, double value)
{
    if (isfinite(value))
        fprintf(file, "  \"%s\": %.9g,\n", name, value);
    else
        fprintf(file, "  \"%s\": null,\n", name);
}

static void write_count(FILE *file, const char *name, uint64_t value)
{
    fprintf(file, "  \"%s\": %llu,\n", name, (unsigned long long)value);
}

static void write_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "  \"%s\": ", name);
    train_word_json(file, text);
    fputs(",\n", file);
}

/* Numbers of final parameters that nobody has are no zeros. */
static void write_parameters(FILE *file, const struct train_summary *s)
{
    write_number(file, "final_mean_return", s->has_parameters ? s->final_mean_return : NAN);
    if (s->has_parameters)
        write_count(file, "version", s->version);
    else
        fputs("  \"version\": null,\n", file);
}

static void write_shares(FILE *file, const struct train_summary *s)
{
    fputs("  \"per_worker\": [", file);
    for (size_t i = 0; i < s->n_shares; i++)
        fprintf(file, "%s{\"env_steps\": %llu, \"pushes\": %llu, \"admitted\": %llu}",
                i == 0 ? "" : ", ", (unsigned long long)s->shares[i].env_steps,
                (unsigned long long)s->shares[i].pushes, (unsigned long long)s->shares[i].admitted);
    fputs("],\n", file);
}

bool train_summary_write(const struct train_summary *s, const struct train_settings *settings,
                         const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    fprintf(file, "{\n  \"solved\": %s,\n", s->solved ? "true" : "false");
    write_text(file, "failed", s->failed);
    write_count(file, "env_steps", s->env_steps);
    write_count(file, "trials", s->trials);
    write_count(file, "learn_steps", s->learn_steps);
    write_number(file, "learn_s", s->learn_s);
    write_number(file, "wall_s", s->wall_s);
    write_number(file, "cpu_s", s->cpu_s);
    write_number(file, "mean_return", s->mean_return);
    write_parameters(file, s);
    write_count(file, "pushes", s->counts.pushes);
    write_count(file, "admitted", s->counts.admitted);
    write_count(file, "refused", s->counts.refused);
    write_count(file, "not_finite", s->counts.not_finite);
    write_number(file, "staleness_mean", staleness_mean(s));
    write_count(file, "staleness_max", s->counts.staleness_max);
    write_shares(file, s);
    train_settings_json(settings, file);
    if (settings->record != NULL)
        fprintf(file, "  \"recording_whole\": %s,\n", s->unrecorded ? "false" : "true");
    if (s->has_parameters)
        fprintf(file, "  \"digest\": \"%016llx\"\n}\n", (unsigned long long)s->digest);
    else
        fputs("  \"digest\": null\n}\n", file);
    const bool written = ferror(file) == 0;
    return fclose(file) == 0 && written;
}

void train_summary_begin(const struct train_settings *s, const char *address)
{
    if (s->servers != NULL) {
        printf("servers %s (running); transport %s; %llu workers\n", s->servers, s->transport,
               (unsigned long long)s->workers);
        return;
    }
    printf("servers %s (started here), %llu shards; transport %s; window %llu, stride %llu, queue "
           "%llu; learning rate %g per version%s over %llu steps; %llu workers\n",
           address, (unsigned long long)s->shards, s->transport, (unsigned long long)s->window,
           (unsigned long long)s->stride, (unsigned long long)s->queue, s->lr,
           s->anneal_steps > 0 ? ", falling to 0" : ", constant",
           (unsigned long long)(s->anneal_steps > 0 ? s->anneal_steps : s->max_steps),
           (unsigned long long)s->workers);
}

void train_summary_print(const struct train_summary *s)
{
    char episodes[64] = "", parameters[160] = "no final parameters";
    if (isfinite(s->final_mean_return)) /* --evaluate 0: there are none */
        snprintf(episodes, sizeof(episodes), "fresh greedy episodes %.1f; ", s->final_mean_return);
    if (s->has_parameters)
        snprintf(parameters, sizeof(parameters), "%s%llu versions; digest %016llx", episodes,
                 (unsigned long long)s->version, (unsigned long long)s->digest);
    printf("%s%s%s after %llu steps: last 100 returns %.1f, %s; %llu of %llu gradients admitted; "
           "%.2f s, %.2f CPU s, %.0f steps per CPU second\n",
           s->failed != NULL ? "failed: " : "",
           s->failed != NULL ? s->failed
           : s->solved       ? "solved"
                             : "not solved",
           s->failed != NULL ? "," : "", (unsigned long long)s->env_steps, s->mean_return,
           parameters, (unsigned long long)s->counts.admitted, (unsigned long long)s->counts.pushes,
           s->wall_s, s->cpu_s, s->cpu_s > 0 ? (double)s->env_steps / s->cpu_s : 0);
}
