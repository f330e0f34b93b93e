/* The command line of replay, and what it prints. */
#include "server/replay.h"

#include "common/page.h"
#include "common/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const struct setting table[] = {
    {"until", SETTING_INT, false, "end", 0, 0x1p53, "end", NULL, "stop after this version"},
    {"shards", SETTING_INT, false, "1", 1, 64, NULL, NULL, "shards to replay on"},
    {"simd", SETTING_CHOICE, false, "auto", 0, 0, NULL, "auto|scalar|avx2|avx512",
     "instructions of the arithmetic; the bits are the same"},
    {"every", SETTING_INT, false, "0", 0, 0x1p53, NULL, NULL,
     "print the digest at every so many versions; 0: only at the end"},
    {"without", SETTING_TEXT, false, "", 0, 0, NULL, NULL,
     "leave out this worker's gradients, by identity; says what they were"},
    {"json", SETTING_TEXT, false, "", 0, 0, NULL, NULL, "file that gets the result"},
};
static const size_t table_count = sizeof table / sizeof *table;

/* Exit status: all that is there was repeated, and it ends before the run did. */
enum { REPLAY_EARLY = 3 };

/* Where digests go on the way. */
struct way {
    FILE *json; /* NULL: none is wanted */
    uint64_t told;
};

static void tell(void *context, uint64_t version, uint64_t digest)
{
    struct way *way = context;
    printf("version %" PRIu64 " digest %016" PRIx64 "\n", version, digest);
    if (way->json)
        fprintf(way->json, "%s{\"version\":%" PRIu64 ",\"digest\":\"%016" PRIx64 "\"}",
                way->told++ ? "," : "", version, digest);
}

static const char *end_word(const struct replay_result *result)
{
    return result->until                       ? "until"
           : result->ended == RECORDING_CLOSED ? "end"
           : result->ended == RECORDING_FULL   ? "bound"
           : result->ended == RECORDING_BROKEN ? "disk"
                                               : "cut";
}

static void print_end(const struct replay_result *result)
{
    if (!result->until && result->ended == RECORDING_FULL)
        printf("%s reached its part of record_bytes_max after this: what the run did then was not "
               "recorded\n",
               result->ended_file);
    if (!result->until && result->ended == RECORDING_BROKEN)
        printf("%s could not be written any more after this: what the run did then was not "
               "recorded\n",
               result->ended_file);
    if (!result->until && result->ended == RECORDING_CUT)
        printf("%s ends here without saying why, as when its process was killed: what came after "
               "cannot be replayed\n",
               result->ended_file);
}

static void print_result(const struct replay_options *options, const struct replay_result *result)
{
    print_end(result);
    printf("replayed %" PRIu64 " records (%" PRIu64 " admitted, %" PRIu64 " refused) on %u shards: "
           "version %" PRIu64 " digest %016" PRIx64 "\n",
           result->records, result->admitted, result->refused, options->shards, result->version,
           result->digest);
}

static void print_without(const struct replay_options *options, const struct replay_result *run,
                          const struct replay_result *result)
{
    printf("without %s: left out %" PRIu64 " of %" PRIu64 " gradients; %" PRIu64
           " steps read the rest of their window, %" PRIu64 " had nothing else to read and changed "
           "nothing%s\n",
           options->without, result->left_out, result->admitted, result->steps_changed,
           result->steps_emptied,
           result->first_kept ? "; the first parameters were its own and were kept" : "");
    printf("version %" PRIu64 ": digest %016" PRIx64 " without it, %016" PRIx64 " in the run: %s\n",
           result->version, result->digest, run->digest,
           run->digest == result->digest ? "the same" : "they differ");
}

static void write_without(FILE *json, const struct replay_options *options,
                          const struct replay_result *run, const struct replay_result *result)
{
    char name[2 * SETTING_TEXT_MAX];
    struct page page = {.text = name, .size = sizeof name};
    page_quoted(&page, options->without);
    fprintf(json,
            ",\"without\":{\"worker\":%s,\"gradients\":%" PRIu64 ",\"steps_changed\":%" PRIu64
            ",\"steps_emptied\":%" PRIu64 ",\"first_kept\":%s,\"digest_of_run\":\"%016" PRIx64
            "\",\"differs\":%s}",
            name, result->left_out, result->steps_changed, result->steps_emptied,
            result->first_kept ? "true" : "false", run->digest,
            run->digest != result->digest ? "true" : "false");
}

static void write_json(FILE *json, const struct replay_options *options,
                       const struct replay_result *run, const struct replay_result *result)
{
    fprintf(json,
            "],\"version\":%" PRIu64 ",\"digest\":\"%016" PRIx64 "\",\"records\":%" PRIu64
            ",\"admitted\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"shards\":%u,\"ended\":\"%s\"",
            result->version, result->digest, result->records, result->admitted, result->refused,
            options->shards, end_word(result));
    if (options->without)
        write_without(json, options, run, result);
    fprintf(json, "}\n");
}

/* Without a worker, the run itself comes first: its digest is what the other one differs from, and
 * the recording is proven sound on the way. */
static gradweir_status replay_both(const struct replay_options *options, FILE *json, bool *early)
{
    struct replay_result run = {.digest = 0}, result;
    if (options->without) {
        struct replay_options whole = *options;
        whole.without = NULL;
        whole.every = 0;
        TRY(replay_run(&whole, &run));
    }
    TRY(replay_run(options, &result));
    print_result(options, &result);
    if (options->without)
        print_without(options, &run, &result);
    if (json)
        write_json(json, options, &run, &result);
    *early = !result.until && result.ended != RECORDING_CLOSED;
    return GRADWEIR_OK;
}

static gradweir_status run(const struct settings *settings, const char *folder, bool *early)
{
    const int64_t until = settings_int(settings, "until");
    const char *path = settings_text(settings, "json"),
               *without = settings_text(settings, "without");
    struct way way = {.json = NULL};
    const struct replay_options options = {
        .folder = folder,
        .shards = (uint32_t)settings_int(settings, "shards"),
        .simd = settings_choice(settings, "simd") ? settings_text(settings, "simd") : NULL,
        .until = until == SETTING_WORD ? UINT64_MAX : (uint64_t)until,
        .every = (uint64_t)settings_int(settings, "every"),
        .without = without[0] ? without : NULL,
        .tell = tell,
        .context = &way};
    if (path[0] && !(way.json = fopen(path, "w")))
        return fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(errno));
    if (way.json)
        fprintf(way.json, "{\"every\":[");
    const gradweir_status status = replay_both(&options, way.json, early);
    if (way.json && status != GRADWEIR_OK)
        fprintf(way.json, "],\"failed\":%d}\n", status);
    if (way.json && fclose(way.json) != 0 && status == GRADWEIR_OK)
        return fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(errno));
    return status;
}

static bool asks_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

int replay_main(int argc, char **argv)
{
    struct settings *settings;
    bool help = argc > 1 && asks_help(argv[1]), early = false;
    if (settings_new(table, table_count, &settings) != GRADWEIR_OK)
        return 1;
    gradweir_status status = GRADWEIR_OK;
    int code = 2;
    if (!help && (argc < 2 || argv[1][0] == '-'))
        status = fail(GRADWEIR_ERR_INVALID, "replay FOLDER ...: the folder comes first");
    else if (!help)
        status = settings_arguments(settings, argc - 2, (const char *const *)(argv + 2), &help);
    if (status == GRADWEIR_OK && help) {
        printf("gradweirctl replay FOLDER [--NAME VALUE]...   repeat a recorded run\n\n");
        settings_print_help(table, table_count, stdout);
    } else if (status == GRADWEIR_OK) {
        status = run(settings, argv[1], &early);
        code = status == GRADWEIR_ERR_INVALID || status == GRADWEIR_ERR_UNSUPPORTED ? 2 : 1;
    }
    if (status != GRADWEIR_OK)
        fprintf(stderr, "replay: %s\n", fail_reason());
    settings_free(settings);
    return status != GRADWEIR_OK ? code : early ? REPLAY_EARLY : 0;
}
