/* gradweirctl: what its commands share. Each command is a function in a tool_*.c of its own and a
 * row of the table in tool.c. */
#ifndef GRADWEIR_CLIENT_TOOL_H
#define GRADWEIR_CLIENT_TOOL_H

#include "client/include/gradweir/gradweir.h"
#include "common/settings.h"

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 }; /* exit codes */

enum { TOOL_WORDS_MAX = 4 };

struct tool_command {
    const char *name;
    const char *words; /* what it wants beside options, for its usage line: "SETTING VALUE" */
    const char *help;  /* one sentence without its full stop */
    int (*run)(const struct tool_command *command, int argc, char **argv);
};

/* Rows that every command has which talks to a server. */
#define TOOL_TEXT(name, by_default, help)                                                          \
    {                                                                                              \
        name, SETTING_TEXT, false, by_default, 0, 0, NULL, NULL, help                              \
    }
#define TOOL_WAIT(name, by_default, help)                                                          \
    {                                                                                              \
        name, SETTING_DURATION, false, by_default, 1e7, 3600e9, NULL, NULL, help                   \
    }
#define TOOL_FLAG(name, help)                                                                      \
    {                                                                                              \
        name, SETTING_BOOL, false, "off", 0, 1, NULL, NULL, help                                   \
    }
#define TOOL_CONNECTION                                                                            \
    TOOL_TEXT("servers", "127.0.0.1:7070", "address of a running server"),                         \
        TOOL_WAIT("timeout", "5s", "how long to wait for an answer"),                              \
        TOOL_TEXT("keys", "", "folder or file with our secret key and the server's public one"),   \
        TOOL_TEXT("identity", "", "whose secret that is; empty: the only one there"),              \
        TOOL_FLAG("insecure", "no keys, though the servers are not on loopback")

/* What a command's line may hold. */
struct tool_form {
    const struct tool_command *command;
    const struct setting *table; /* its options */
    size_t count;
    int words; /* how many arguments that are no options, exactly */
};

/* A command line, sorted: words, and options in a settings object. */
struct tool_arguments {
    struct settings *settings;
    const char *words[TOOL_WORDS_MAX];
    int words_count;
};

/* Sorts argc arguments (the command's name left out). False when there is nothing left to do: help
 * was printed, or what was wrong; *code then is the exit code. Else end with tool_arguments_end. */
bool tool_arguments(const struct tool_form *form, int argc, char **argv,
                    struct tool_arguments *arguments, int *code);
void tool_arguments_end(struct tool_arguments *arguments);

/* Connects to --servers within --timeout, to read only; says why not on stderr and gives NULL.
 * `identity` counts when no other is given, and no keys. */
gradweir_client *tool_connect(const struct tool_arguments *arguments, const char *identity);
gradweir_client *tool_connect_as(const struct tool_arguments *arguments, const char *identity,
                                 uint32_t role); /* enum gradweir_role */
uint32_t tool_timeout_ms(const struct tool_arguments *arguments);

/* The status page, checked to be JSON; to be freed. NULL when it did not come: stderr says why. */
char *tool_status_text(gradweir_client *client, uint32_t timeout_ms);

/* Prints "gradweirctl: ..." on stderr and returns TOOL_FAILED. */
int tool_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Becomes `gradweir-server argv...`: the one beside this program, else one in PATH. Returns only
 * when there is none. */
int tool_become_server(char **argv);

int tool_status(const struct tool_command *command, int argc, char **argv);
int tool_top(const struct tool_command *command, int argc, char **argv);
int tool_tune(const struct tool_command *command, int argc, char **argv);
int tool_bench(const struct tool_command *command, int argc, char **argv);
int tool_doctor(const struct tool_command *command, int argc, char **argv);
int tool_keygen(const struct tool_command *command, int argc, char **argv);
int tool_of_server(const struct tool_command *command, int argc, char **argv);

#endif
