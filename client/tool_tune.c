/* gradweirctl tune: one live setting, changed for everybody. */
#include "client/tool.h"

#include <stdio.h>

static const struct setting table[] = {TOOL_CONNECTION};
enum { ROWS = sizeof table / sizeof *table };

/* What can be told without asking a server. */
static int check(const char *name)
{
    const struct setting *row = settings_find(settings_server, settings_server_count, name);
    if (row && row->live)
        return TOOL_OK;
    if (row)
        tool_fail("tune: %s is fixed at start", row->name);
    else
        tool_fail("tune: there is no setting \"%.60s\"; the nearest is %s", name,
                  settings_nearest_live(settings_server, settings_server_count, name));
    return TOOL_USAGE;
}

static int tune(const struct tool_arguments *arguments, const char *name, const char *value)
{
    gradweir_client *client = tool_connect(arguments, "");
    if (!client)
        return TOOL_FAILED;
    const gradweir_status status = gradweir_tune(client, name, value, tool_timeout_ms(arguments));
    int code = TOOL_OK;
    if (status == GRADWEIR_OK)
        printf("%s is %s now\n", name, value);
    else
        code = tool_fail("tune: %s", gradweir_last_error());
    gradweir_close(client);
    return code;
}

static void print_live(void)
{
    printf("\nLive settings:\n");
    for (size_t i = 0; i < settings_server_count; i++)
        if (settings_server[i].live)
            printf("  %-18s %s\n", settings_server[i].name, settings_server[i].help);
}

int tool_tune(const struct tool_command *command, int argc, char **argv)
{
    const struct tool_form form = {command, table, ROWS, 2};
    struct tool_arguments arguments;
    int code;
    if (!tool_arguments(&form, argc, argv, &arguments, &code)) {
        if (code == TOOL_OK)
            print_live();
        return code;
    }
    code = check(arguments.words[0]);
    if (code == TOOL_OK)
        code = tune(&arguments, arguments.words[0], arguments.words[1]);
    tool_arguments_end(&arguments);
    return code;
}
