/* Options of gradweir-bench: its own rows in front of all of gradweir-server's, so that any setting
 * of the servers may be given, and is checked by who reads it there. */
#include "tests/bench/gauge.h"

#include "server/shard/shard.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define OPTIMIZERS "sgd|momentum|nesterov|rmsprop|adam|amsgrad|adamw|lamb"

static const struct setting own[] = {
    {"size", SETTING_TEXT, false, "16MiB", 0, 0, NULL, NULL,
     "of a gradient in float32: bytes, or with KiB, MiB, GiB, KB, MB, GB"},
    {"dtype", SETTING_CHOICE, false, "float32", 0, 0, NULL,
     "float32|bfloat16|float16|int8|bf16|fp16", "in which numbers gradients travel and wait"},
    {"workers", SETTING_INT, false, "1", 1, 1024, NULL, NULL, "processes that push or pull"},
    {"in_flight", SETTING_INT, false, "1", 1, 8, NULL, NULL,
     "pushes of a worker under way at once; push: 2, so one travels while another is applied"},
    {"outstanding", SETTING_INT, false, "0", 0, 8, NULL, NULL,
     "what a worker may have under way, as it tells the servers; 0: in_flight"},
    {"operations", SETTING_INT, false, "0", 0, 1e9, NULL, NULL,
     "push, pull, exchange: so many of each worker in a round, whatever time it takes; 0: seconds"},
    {"seconds", SETTING_FLOAT, false, "3", 0.01, 3600, NULL, NULL, "of the case, over all rounds"},
    {"rounds", SETTING_INT, false, "5", 1, GAUGE_ROUNDS_MAX, NULL, NULL,
     "in which case and references take turns; medians are told"},
    {"json", SETTING_BOOL, false, "off", 0, 1, NULL, NULL, "one flat JSON object per case"},
    {"perftest", SETTING_BOOL, false, "on", 0, 1, NULL, NULL,
     "run ucx_perftest beside, where it is installed"},
    {"transport", SETTING_CHOICE, false, "posix", 0, 0, NULL, "auto|posix|tcp|rc",
     "how floats travel"},
    {"optimizer", SETTING_CHOICE, false, "sgd", 0, 0, NULL, OPTIMIZERS, "of the step"},
    {"threads", SETTING_INT, false, "1", 1, GAUGE_THREADS_MAX, NULL, NULL,
     "step, codec: that work on one shard"},
    {"server_threads", SETTING_CHOICE, false, "auto", 0, 0, NULL, "auto|one|each",
     "coordinator and shards: one thread, or one each"},
    {"against", SETTING_TEXT, false, "", 0, 0, NULL, NULL,
     "step: the same with these settings, in turns: window=2,optimizer=sgd"},
};
enum { OWN = sizeof own / sizeof *own };

static const char usage[] =
    "gradweir-bench COMMAND [--NAME VALUE]...\n\n"
    "    push       gradients through real servers until they are applied\n"
    "    pull       parameters from real servers\n"
    "    exchange   push, applied, newest parameters pulled: the loop of a learner\n"
    "    step       a shard's arithmetic, in this process\n"
    "    codec      gradients into another dtype and back, in this process\n"
    "    records    what the coordinator decides per second, its workers simulated\n"
    "    floor      what one thread of this machine can do at all\n\n";

static struct setting table[OWN + 128];
static size_t table_count;

static void make_table(const char *command)
{
    memcpy(table, own, sizeof own);
    size_t count = OWN;
    for (size_t i = 0; i < OWN; i++)
        if (strcmp(table[i].name, "optimizer") == 0 && strcmp(command, "step") == 0)
            table[i].by_default = "adam";
        else if (strcmp(table[i].name, "in_flight") == 0 && strcmp(command, "push") == 0)
            table[i].by_default = "2";
    for (size_t i = 0; i < settings_server_count && count < sizeof table / sizeof *table; i++)
        if (!settings_find(own, OWN, settings_server[i].name))
            table[count++] = settings_server[i];
    table_count = count;
}

/* "16MiB", "40KB", "4096": a multiple of 4. */
static gradweir_status read_size(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},         {"B", 1},      {"KiB", 0x1p10}, {"MiB", 0x1p20},
                 {"GiB", 0x1p30}, {"KB", 1e3},   {"MB", 1e6},     {"GB", 1e9},
                 {"K", 0x1p10},   {"M", 0x1p20}, {"G", 0x1p30}};
    char *end;
    const double number = strtod(text, &end);
    while (*end == ' ')
        end++;
    const bool is_number = isdigit((unsigned char)text[0]) && !strpbrk(text, "xX");
    for (size_t i = 0; is_number && i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].name) == 0) {
            const double value = number * units[i].factor;
            if (value < 64 || value > 0x1p40)
                return fail(GRADWEIR_ERR_INVALID, "size is %.40s: 64 bytes to 1024 GiB are wanted",
                            text);
            *bytes = (uint64_t)value / sizeof(float) * sizeof(float);
            return GRADWEIR_OK;
        }
    return fail(GRADWEIR_ERR_INVALID,
                "size is \"%.40s\": a number of bytes is wanted, or one with KiB, MiB, GiB, KB, "
                "MB, GB",
                text);
}

/* Room for what the workers may have under way, and no more: the default is made for long runs. */
static gradweir_status default_queue(struct gauge *gauge)
{
    char text[16];
    if (settings_given(gauge->settings, "queue"))
        return GRADWEIR_OK;
    const uint32_t wanted = gauge->workers * gauge->outstanding + 2;
    snprintf(text, sizeof text, "%u", wanted < 4 ? 4 : wanted > 128 ? 128 : wanted);
    return settings_set(gauge->settings, "queue", text, "queue");
}

gradweir_status gauge_settings_like(const struct gauge *gauge, struct settings **settings)
{
    char text[24];
    TRY(settings_new(table, table_count, settings));
    snprintf(text, sizeof text, "%lld", (long long)settings_int(gauge->settings, "queue"));
    return settings_set(*settings, "queue", text, "queue");
}

/* The servers' own setting, where this version has it; float32 where it has not. */
static gradweir_status read_dtype(struct gauge *gauge)
{
    const char *said = settings_text(gauge->settings, "dtype");
    gauge->dtype = strcmp(said, "bf16") == 0   ? "bfloat16"
                   : strcmp(said, "fp16") == 0 ? "float16"
                                               : said;
    if (strcmp(gauge->command, "codec") == 0 || strcmp(gauge->dtype, "float32") == 0)
        return GRADWEIR_OK;
    if (!settings_known(gauge->settings, "gradient_dtype"))
        return fail(GRADWEIR_ERR_INVALID,
                    "dtype is %s: in this version gradients travel as float32", gauge->dtype);
    return settings_set(gauge->settings, "gradient_dtype", gauge->dtype, "dtype");
}

/* What would be replaced is refused. */
static gradweir_status check_chosen(const struct settings *settings)
{
    static const char *const names[] = {"listen", "port_file", "shard", "coordinator",
                                        "shards_elsewhere"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (settings_given(settings, names[i]))
            return fail(GRADWEIR_ERR_INVALID,
                        "%s is chosen here: the servers are started for the case", names[i]);
    return GRADWEIR_OK;
}

static gradweir_status read_values(struct gauge *gauge)
{
    const struct settings *settings = gauge->settings;
    TRY(check_chosen(settings));
    TRY(read_size(settings_text(settings, "size"), &gauge->bytes));
    gauge->elements = gauge->bytes / sizeof(float);
    gauge->workers = (uint32_t)settings_int(settings, "workers");
    gauge->in_flight = (uint32_t)settings_int(settings, "in_flight");
    gauge->outstanding = (uint32_t)settings_int(settings, "outstanding");
    if (gauge->outstanding < gauge->in_flight)
        gauge->outstanding = gauge->in_flight;
    gauge->operations = (uint64_t)settings_int(settings, "operations");
    gauge->threads = (uint32_t)settings_int(settings, "threads");
    gauge->rounds = (uint32_t)settings_int(settings, "rounds");
    gauge->seconds = settings_float(settings, "seconds");
    gauge->json = settings_bool(settings, "json");
    gauge->perftest = settings_bool(settings, "perftest");
    gauge->transport = settings_text(settings, "transport");
    gauge->optimizer = settings_text(settings, "optimizer");
    TRY(read_dtype(gauge));
    TRY(default_queue(gauge));
    return host_options_read(settings, &gauge->host);
}

static bool is_command(const char *word)
{
    static const char *const words[] = {"push",  "pull",    "exchange", "step",
                                        "codec", "records", "floor"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static void help(void)
{
    fputs(usage, stdout);
    settings_print_help(own, OWN, stdout);
    printf("and all of gradweir-server --help: shards, window, stride, decay, queue, chunk_bytes, "
           "...\n");
}

bool gauge_options_read(struct gauge *gauge, int argc, char **argv, int *code)
{
    bool wanted = argc < 2;
    *gauge = (struct gauge){.command = argc < 2 ? "" : argv[1], .argc = argc - 2, .argv = argv + 2};
    *code = argc < 2 ? 2 : 0;
    if (wanted || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help();
        return false;
    }
    *code = 2;
    if (!is_command(gauge->command)) {
        fprintf(stderr, "gradweir-bench: there is no command \"%.40s\"; there are:\n\n%s",
                gauge->command, usage);
        return false;
    }
    make_table(gauge->command);
    gradweir_status status = settings_new(table, table_count, &gauge->settings);
    if (status == GRADWEIR_OK)
        status = settings_arguments(gauge->settings, gauge->argc, (const char *const *)gauge->argv,
                                    &wanted);
    if (status == GRADWEIR_OK && wanted) {
        help();
        *code = 0;
    } else if (status == GRADWEIR_OK) {
        status = read_values(gauge);
    }
    if (status != GRADWEIR_OK)
        fprintf(stderr, "gradweir-bench: %s\n", fail_reason());
    if (status == GRADWEIR_OK && !wanted)
        return true;
    gauge_options_free(gauge);
    return false;
}

bool gauge_is_own(const char *name)
{
    return settings_find(own, OWN, name) != NULL;
}

void gauge_options_free(struct gauge *gauge)
{
    host_options_free(&gauge->host);
    settings_free(gauge->settings);
}
