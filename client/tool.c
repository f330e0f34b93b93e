/* gradweirctl: questions and orders to a running job, and to recordings. This file finds the
 * command and sorts its arguments. */
#include "client/tool.h"

#include "client/tool_json.h"
#include "common/keys.h"
#include "common/nearest.h"
#include "common/printed.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct tool_command commands[] = {
    {"status", "", "what a job does, and what everything waits for, by name and since when",
     tool_status},
    {"top", "", "a line a second of how the job goes", tool_top},
    {"tune", "SETTING VALUE", "changes a live setting, for everybody at one place of the order",
     tool_tune},
    {"bench", "", "how fast this machine pulls from the job, and pushes if it is asked to",
     tool_bench},
    {"doctor", "", "whether this machine can work with the job, part by part", tool_doctor},
    {"replay", "DIR [--until VERSION] [--shards N] [--without WORKER]",
     "repeats a recorded run to the bit", tool_of_server},
    {"blame", "V1..V2 DIR", "which gradients, with what weights, are behind a range of versions",
     tool_of_server},
    {"plan", "--params 7e9 --workers 8 --shards 4",
     "memory of each shard and time on the wire, before anyone pays for them", tool_of_server},
    {"keygen", "DIR NAME...", "makes keys: of server, shard-N, workers", tool_keygen},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

int tool_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "gradweirctl: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    return TOOL_FAILED;
}

static void print_usage(FILE *out)
{
    fprintf(out, "gradweirctl COMMAND [--servers HOST:PORT] ...     (gradweirctl COMMAND --help "
                 "says more)\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-7s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\nIt ends with 0, with 1 for a failure, with 2 for wrong usage.\n");
}

/* The number of arguments that an option at argv[0] takes, itself included. */
static int option_length(const struct tool_form *form, int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof name, "%.63s", argv[0][1] == '-' ? argv[0] + 2 : argv[0]);
    const struct setting *row = settings_find(form->table, form->count, name);
    if (!row || strchr(argv[0], '=') || argc < 2)
        return 1;
    if (row->type == SETTING_BOOL)
        return strcmp(argv[1], "on") == 0 || strcmp(argv[1], "off") == 0 ? 2 : 1;
    return 2;
}

/* Options go to `options`, the rest into arguments->words; how many options there are. */
static int sort(const struct tool_form *form, int argc, char **argv,
                struct tool_arguments *arguments, const char **options)
{
    int count = 0;
    for (int i = 0; i < argc;) {
        const bool option = strncmp(argv[i], "--", 2) == 0 || strcmp(argv[i], "-h") == 0;
        const int end = i + (option ? option_length(form, argc - i, argv + i) : 1);
        if (!option && arguments->words_count++ < TOOL_WORDS_MAX)
            arguments->words[arguments->words_count - 1] = argv[i];
        for (; i < end; i++)
            if (option)
                options[count++] = argv[i];
    }
    return count;
}

static void print_command(const struct tool_form *form)
{
    const struct tool_command *command = form->command;
    printf("gradweirctl %s %s%s[--NAME VALUE]...     %s\n\n", command->name, command->words,
           command->words[0] ? " " : "", command->help);
    settings_print_help(form->table, form->count, stdout);
}

static int complain(const struct tool_command *command, const char *reason)
{
    tool_fail("%s: %s (gradweirctl %s --help says more)", command->name, reason, command->name);
    return TOOL_USAGE;
}

bool tool_arguments(const struct tool_form *form, int argc, char **argv,
                    struct tool_arguments *arguments, int *code)
{
    const struct tool_command *command = form->command;
    const char **options = calloc((size_t)argc + 1, sizeof *options);
    bool help = false;
    *arguments = (struct tool_arguments){.settings = NULL};
    *code = TOOL_OK;
    if (!options || settings_new(form->table, form->count, &arguments->settings) != GRADWEIR_OK) {
        free(options);
        *code = tool_fail("no memory for the arguments");
        return false;
    }
    const int count = sort(form, argc, argv, arguments, options);
    const gradweir_status status = settings_arguments(arguments->settings, count, options, &help);
    free(options);
    if (help)
        print_command(form);
    else if (status != GRADWEIR_OK)
        *code = complain(command, fail_reason());
    else if (arguments->words_count != form->words)
        *code = complain(command, command->words[0] ? command->words : "it takes options only");
    if (!help && *code == TOOL_OK)
        return true;
    tool_arguments_end(arguments);
    return false;
}

void tool_arguments_end(struct tool_arguments *arguments)
{
    settings_free(arguments->settings);
    arguments->settings = NULL;
}

uint32_t tool_timeout_ms(const struct tool_arguments *arguments)
{
    return (uint32_t)(settings_duration(arguments->settings, "timeout") / 1000000);
}

gradweir_client *tool_connect_as(const struct tool_arguments *arguments, const char *identity,
                                 uint32_t role)
{
    const struct settings *settings = arguments->settings;
    const char *given = settings_text(settings, "identity");
    gradweir_options options;
    gradweir_client *client;
    char beside[1200]; /* a worker's key, but not in the place of that worker */
    gradweir_options_default(&options);
    options.address = settings_text(settings, "servers");
    options.keys = settings_text(settings, "keys");
    options.identity = given[0] ? given : identity;
    if (options.keys[0] && !strchr(given, '/')) {
        snprintf(beside, sizeof beside, "%s/tool%s%s", given, identity[0] ? "-" : "", identity);
        options.identity = beside;
    }
    options.role = role;
    options.insecure = settings_bool(settings, "insecure");
    options.connect_timeout_ms = tool_timeout_ms(arguments);
    if (gradweir_open(&options, &client) == GRADWEIR_OK)
        return client;
    tool_fail("%s", gradweir_last_error());
    return NULL;
}

gradweir_client *tool_connect(const struct tool_arguments *arguments, const char *identity)
{
    return tool_connect_as(arguments, identity, GRADWEIR_READER);
}

char *tool_status_text(gradweir_client *client, uint32_t timeout_ms)
{
    const size_t size = 1 << 20;
    char *text = malloc(size);
    if (!text) {
        tool_fail("no memory for the status");
    } else if (gradweir_status_json(client, timeout_ms, text, size) != GRADWEIR_OK) {
        tool_fail("%s", gradweir_last_error());
    } else if (!json_sound(text)) {
        tool_fail("the server's status is not JSON, or was cut: another version of it?");
    } else {
        return text;
    }
    free(text);
    return NULL;
}

int tool_become_server(char **argv)
{
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    argv[0] = (char[]){"gradweir-server"};
    if (length > 0) {
        path[length] = 0;
        char *slash = strrchr(path, '/');
        snprintf(slash ? slash + 1 : path, 32, "gradweir-server");
        execv(path, argv);
    }
    execvp("gradweir-server", argv);
    return tool_fail("there is no gradweir-server beside this program or in PATH");
}

/* Commands that need the server's own code: `gradweir-server COMMAND ...` is run in our place. */
int tool_of_server(const struct tool_command *command, int argc, char **argv)
{
    char **line = calloc((size_t)argc + 3, sizeof *line);
    char name[16];
    if (!line)
        return tool_fail("no memory for the arguments");
    snprintf(name, sizeof name, "%s", command->name);
    line[1] = name;
    for (int i = 0; i < argc; i++)
        line[2 + i] = argv[i];
    const int code = tool_become_server(line);
    free(line);
    return code;
}

int tool_keygen(const struct tool_command *command, int argc, char **argv)
{
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        printf("gradweirctl keygen %s     %s\n", command->words, command->help);
        return TOOL_OK;
    }
    return keys_main("gradweirctl", argc, (const char *const *)argv);
}

static int unknown(const char *name)
{
    const char *nearest = commands[0].name;
    for (int i = 1; i < COMMANDS; i++)
        if (nearest_distance(name, commands[i].name) < nearest_distance(name, nearest))
            nearest = commands[i].name;
    tool_fail("there is no command \"%.60s\"; the nearest is %s", name, nearest);
    return TOOL_USAGE;
}

static int run_program(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return TOOL_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("%s\n", gradweir_library_version());
        return TOOL_OK;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(&commands[i], argc - 2, argv + 2);
    return unknown(argv[1]);
}

int main(int argc, char **argv)
{
    return printed("gradweirctl", run_program(argc, argv));
}
