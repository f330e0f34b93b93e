/* Folds a recording's log and tells, step by step, what was read and with what weight. */
#include "server/blame.h"

#include "common/ledger.h"
#include "common/settings.h"
#include "server/recording.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A gradient that lies in a slot. */
struct lying {
    struct record_admit admit;
    uint64_t index, version; /* of its record; newest version then */
    uint32_t share;          /* whose it is: its number may be another's by now */
};

struct share { /* of an identity */
    char identity[64];
    uint64_t gradients, staleness;
    double weight, norm_max;
};

struct blame {
    const struct blame_options *options;
    struct recording_reader *reader;
    struct ledger ledger;
    struct record record, step; /* step: the one that waits for its SUMMED */
    struct lying slots[SLOTS_MAX];
    struct share *shares; /* as they came */
    uint32_t shares_count;
    uint32_t share_of[WORKERS_MAX]; /* who has the number now */
    double weight;
    uint64_t steps, last; /* told; the newest version */
};

static const char *cause_name(uint32_t cause)
{
    return cause == STEP_DUE ? "due" : cause == STEP_FLUSH ? "flush" : "drain";
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void tell_entry(struct blame *blame, const struct record_step *step,
                       const struct step_entry *entry)
{
    const struct lying *lying = &blame->slots[entry->slot];
    const struct record_admit *admit = &lying->admit;
    struct share *share = &blame->shares[lying->share];
    const char *identity = share->identity;
    const uint64_t used = step->version - 1, staleness = used - admit->basis;
    const double weight = (double)float_of(entry->weight);
    share->gradients++;
    share->staleness += staleness;
    share->weight += weight;
    share->norm_max = admit->norm > share->norm_max ? admit->norm : share->norm_max;
    blame->weight += weight;
    fprintf(blame->options->out,
            "  %-9.6g %-16s %4" PRIu64 ".%-7" PRIu64 " %8" PRIu64 " %6" PRIu64 " = %" PRIu64
            " + %" PRIu64 " + %-6" PRIu64 " %-11.6g %-8.5g %" PRIu64 "\n",
            weight, identity, admit->name.incarnation, admit->name.sequence, admit->samples,
            staleness, admit->landed_version - admit->basis, lying->version - admit->landed_version,
            used - lying->version, admit->norm, admit->clip, lying->index);
    if (blame->options->csv)
        fprintf(
            blame->options->csv,
            "%" PRIu64 ",%s,%.9g,%.9g,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
            ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.17g,%.9g,%" PRIu64 ",%016" PRIx64 "\n",
            step->version, cause_name(step->cause), step->groups[0].learning_rate, weight, identity,
            admit->name.incarnation, admit->name.sequence, admit->samples, admit->basis, staleness,
            admit->landed_version - admit->basis, lying->version - admit->landed_version,
            used - lying->version, admit->norm, admit->clip, lying->index, admit->digest);
}

static void tell_step(struct blame *blame, const struct record_step *step, double factor)
{
    FILE *out = blame->options->out;
    fprintf(out, "version %" PRIu64 ": %s, learning rate %.6g, %u gradient%s", step->version,
            cause_name(step->cause), step->groups[0].learning_rate, step->entries_count,
            step->entries_count == 1 ? "" : "s");
    if (step->rounds)
        fprintf(out, ", average clipped by %.6g", factor);
    fprintf(out, "\n  %-9s %-16s %-12s %8s %6s   %-20s %-11s %-8s %s\n", "weight", "worker",
            "number", "samples", "stale", "transit+queue+window", "norm", "clip", "record");
    for (uint32_t i = 0; i < step->entries_count; i++)
        tell_entry(blame, step, &step->entries[i]);
    blame->steps++;
}

/* A step with a round is told when its factor is known; its slots are not used again before. */
static void note(struct blame *blame)
{
    const struct record *record = &blame->record;
    const struct blame_options *options = blame->options;
    if (record->kind == RECORD_ADMIT)
        blame->slots[record->admit.slot] =
            (struct lying){record->admit, record->index, ledger_version(&blame->ledger),
                           blame->share_of[record->admit.name.worker]};
    if (record->kind != RECORD_STEP && record->kind != RECORD_SUMMED)
        return;
    if (record->kind == RECORD_STEP)
        blame->step = *record;
    const struct record_step *step = &blame->step.step;
    blame->last = step->version;
    if (step->version < options->from || step->version > options->to ||
        (record->kind == RECORD_STEP && step->rounds))
        return;
    tell_step(blame, step,
              record->kind == RECORD_SUMMED ? (double)float_of(record->summed.factor) : 1.0);
}

static void tell_shares(const struct blame *blame)
{
    fprintf(blame->options->out, "\n%" PRIu64 " steps, by worker:\n", blame->steps);
    for (uint32_t i = 0; i < blame->shares_count; i++) {
        const struct share *share = &blame->shares[i];
        if (share->gradients)
            fprintf(blame->options->out,
                    "  %-16s read %6" PRIu64 " times, %5.1f %% of the weight, staleness mean %.2f, "
                    "largest norm %.6g\n",
                    share->identity, share->gradients,
                    blame->weight > 0 ? 100 * share->weight / blame->weight : 0.0,
                    (double)share->staleness / (double)share->gradients, share->norm_max);
    }
}

/* A number may have been another's before: shares are by identity. */
static gradweir_status note_join(struct blame *blame, const struct record_join *join)
{
    uint32_t i = 0;
    while (i < blame->shares_count && strcmp(blame->shares[i].identity, join->identity) != 0)
        i++;
    if (i == blame->shares_count) {
        struct share *more = realloc(blame->shares, (i + 1) * sizeof *more);
        if (!more)
            return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %u workers", i + 1);
        blame->shares = more;
        more[i] = (struct share){.gradients = 0};
        memcpy(more[i].identity, join->identity, sizeof more[i].identity);
        blame->shares_count++;
    }
    blame->share_of[join->worker] = i;
    return GRADWEIR_OK;
}

static gradweir_status fold(struct blame *blame)
{
    gradweir_status status;
    TRY(recording_read(blame->options->folder, &blame->reader));
    ledger_init(&blame->ledger);
    if (blame->options->csv)
        fprintf(blame->options->csv,
                "version,cause,learning_rate,weight,worker,incarnation,sequence,"
                "samples,basis,staleness,transit,queued,window,norm,clip,index,"
                "digest\n");
    while ((status = recording_next(blame->reader, &blame->record)) == GRADWEIR_OK) {
        if (blame->record.kind == RECORD_STEP && blame->record.step.version > blame->options->to)
            break;
        TRY(ledger_apply(&blame->ledger, &blame->record));
        if (blame->record.kind == RECORD_JOIN)
            TRY(note_join(blame, &blame->record.join));
        note(blame);
    }
    if (status != GRADWEIR_OK && status != GRADWEIR_ERR_AGAIN)
        return status;
    if (blame->last < blame->options->to)
        return fail(GRADWEIR_ERR_STATE, "the recording ends at version %" PRIu64, blame->last);
    return GRADWEIR_OK;
}

gradweir_status blame_run(const struct blame_options *options)
{
    struct blame *blame = calloc(1, sizeof *blame);
    if (!blame)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory to read a log");
    blame->options = options;
    const gradweir_status status = fold(blame);
    if (blame->steps)
        tell_shares(blame);
    recording_reader_free(blame->reader);
    free(blame->shares);
    free(blame);
    return status;
}

static const struct setting table[] = {
    {"csv", SETTING_TEXT, false, "", 0, 0, NULL, NULL,
     "file that gets a line for each gradient that a step read"},
};

/* "120" or "120..130". */
static gradweir_status read_range(const char *text, struct blame_options *options)
{
    char *end;
    options->from = options->to = strtoull(text, &end, 10);
    const bool number = text[0] >= '0' && text[0] <= '9';
    if (number && strncmp(end, "..", 2) == 0 && end[2] >= '0' && end[2] <= '9')
        options->to = strtoull(end + 2, &end, 10);
    if (!number || *end != 0 || options->from == 0 || options->to < options->from)
        return fail(GRADWEIR_ERR_INVALID,
                    "\"%.60s\" is no range of versions: 120 or 120..130 is wanted, from 1 on",
                    text);
    return GRADWEIR_OK;
}

static gradweir_status run(const struct settings *settings, char **words)
{
    struct blame_options options = {.folder = words[1], .out = stdout};
    const char *csv = settings_text(settings, "csv");
    TRY(read_range(words[0], &options));
    if (csv[0] && !(options.csv = fopen(csv, "w")))
        return fail(GRADWEIR_ERR_IO, "%s: %s", csv, strerror(errno));
    const gradweir_status status = blame_run(&options);
    if (options.csv && fclose(options.csv) != 0 && status == GRADWEIR_OK)
        return fail(GRADWEIR_ERR_IO, "%s: %s", csv, strerror(errno));
    return status;
}

static bool asks_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

int blame_main(int argc, char **argv)
{
    struct settings *settings;
    bool help = argc > 1 && asks_help(argv[1]);
    if (settings_new(table, 1, &settings) != GRADWEIR_OK)
        return 1;
    gradweir_status status = GRADWEIR_OK;
    int code = 2;
    if (!help && (argc < 3 || argv[1][0] == '-' || argv[2][0] == '-'))
        status = fail(GRADWEIR_ERR_INVALID, "blame V1..V2 FOLDER ...: these come first");
    else if (!help)
        status = settings_arguments(settings, argc - 3, (const char *const *)(argv + 3), &help);
    if (status == GRADWEIR_OK && help) {
        printf("gradweirctl blame V1..V2 FOLDER [--csv FILE]   the gradients behind versions of a "
               "recorded run\n\n");
        settings_print_help(table, 1, stdout);
    } else if (status == GRADWEIR_OK) {
        status = run(settings, argv + 1);
        code = status == GRADWEIR_ERR_INVALID ? 2 : 1;
    }
    if (status != GRADWEIR_OK)
        fprintf(stderr, "blame: %s\n", fail_reason());
    settings_free(settings);
    return status == GRADWEIR_OK ? 0 : code;
}
