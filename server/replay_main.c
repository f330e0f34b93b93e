/* The command line of replay. */
#include "server/replay.h"

#include "common/settings.h"

static const struct setting table[] = {
    {"until", SETTING_INT, false, "end", 0, 0x1p53, "end", NULL, "stop after this version"},
    {"shards", SETTING_INT, false, "1", 1, 64, NULL, NULL, "shards to replay on"},
    {"simd", SETTING_CHOICE, false, "auto", 0, 0, NULL, "auto|scalar|avx2|avx512",
     "instructions of the arithmetic; the bits are the same"},
    {"every", SETTING_INT, false, "0", 0, 0x1p53, NULL, NULL,
     "print the digest at every so many versions; 0: only at the end"},
};
static const size_t table_count = sizeof table / sizeof *table;

static gradweir_status run(const struct settings *settings, const char *folder)
{
    const int64_t until = settings_int(settings, "until");
    const struct replay_options options = {
        .folder = folder,
        .shards = (uint32_t)settings_int(settings, "shards"),
        .simd = settings_choice(settings, "simd") ? settings_text(settings, "simd") : NULL,
        .until = until == SETTING_WORD ? UINT64_MAX : (uint64_t)until,
        .every = (uint64_t)settings_int(settings, "every"),
        .out = stdout};
    struct replay_result result;
    TRY(replay_run(&options, &result));
    if (result.cut_short)
        printf("the bodies end before the log: what came after cannot be replayed\n");
    printf("replayed %llu records (%llu admitted, %llu refused) on %u shards: version %llu digest "
           "%016llx\n",
           (unsigned long long)result.records, (unsigned long long)result.admitted,
           (unsigned long long)result.refused, options.shards, (unsigned long long)result.version,
           (unsigned long long)result.digest);
    return GRADWEIR_OK;
}

int replay_main(int argc, char **argv)
{
    struct settings *settings;
    bool help = argc < 2 || argv[1][0] == '-';
    gradweir_status status = settings_new(table, table_count, &settings);
    if (status == GRADWEIR_OK && !help)
        status = settings_arguments(settings, argc - 2, (const char *const *)(argv + 2), &help);
    if (status == GRADWEIR_OK && help) {
        printf("gradweir-server replay FOLDER [--NAME VALUE]...   repeat a recorded run\n\n");
        settings_print_help(table, table_count, stdout);
    } else if (status == GRADWEIR_OK) {
        status = run(settings, argv[1]);
    }
    if (status != GRADWEIR_OK)
        fprintf(stderr, "gradweir-server replay: %s\n", fail_reason());
    settings_free(settings);
    return status == GRADWEIR_OK ? 0 : 2;
}
