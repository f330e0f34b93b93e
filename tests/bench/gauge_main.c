/* gradweir-bench: which command. */
#include "tests/bench/gauge.h"

#include "common/printed.h"

#include <string.h>

static const struct {
    const char *name;
    int (*run)(const struct gauge *gauge);
} commands[] = {{"push", gauge_live},      {"pull", gauge_live}, {"exchange", gauge_live},
                {"floor", gauge_floor},    {"step", gauge_step}, {"codec", gauge_codec},
                {"records", gauge_records}};

static int run_program(int argc, char **argv)
{
    struct gauge gauge;
    int code = 0;
    if (!gauge_options_read(&gauge, argc, argv, &code))
        return code;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(gauge.command, commands[i].name) == 0)
            code = commands[i].run(&gauge);
    gauge_options_free(&gauge);
    return code;
}

int main(int argc, char **argv)
{
    return printed("gradweir-bench", run_program(argc, argv));
}
