/* gradweir-server: hosts the coordinator, shards, or both; replay, blame and plan are commands that
 * need its code, and that gradweirctl runs for people. */
#include "common/keys.h"
#include "common/printed.h"
#include "server/blame.h"
#include "server/host.h"
#include "server/plan.h"
#include "server/replay.h"
#include "server/supervise.h"

#include <stdio.h>
#include <string.h>

static int complain(void)
{
    fprintf(stderr, "gradweir-server: %s\n", fail_reason());
    return 2;
}

static int run_program(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "replay") == 0)
        return replay_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "keygen") == 0)
        return keys_main("gradweir-server", argc - 2, (const char *const *)(argv + 2));
    if (argc > 1 && strcmp(argv[1], "blame") == 0)
        return blame_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "plan") == 0)
        return plan_main(argc - 1, argv + 1);
    struct settings *settings;
    if (settings_new(settings_server, settings_server_count, &settings) != GRADWEIR_OK)
        return complain();
    bool help = false, unrecorded = false;
    gradweir_status status =
        settings_arguments(settings, argc - 1, (const char *const *)(argv + 1), &help);
    if (status == GRADWEIR_OK && help) {
        printf(
            "gradweir-server [--NAME VALUE]...     host the coordinator, shards, or both\n"
            "gradweir-server replay DIR ...        repeat a recording\n"
            "gradweir-server blame V1..V2 DIR      the gradients behind versions of a recording\n"
            "gradweir-server keygen DIR NAME...    make keys: of server, shard-N, workers\n"
            "gradweir-server plan --params N ...   memory and time of a job (--help after each "
            "says more)\n\n");
        settings_print_help(settings_server, settings_server_count, stdout);
    } else if (status == GRADWEIR_OK && settings_bool(settings, "supervise")) {
        status = supervise_run(settings, argc, argv, &unrecorded);
    } else if (status == GRADWEIR_OK) {
        status = host_run(settings, &unrecorded);
    }
    settings_free(settings);
    if (status != GRADWEIR_OK)
        return complain() && status == GRADWEIR_ERR_FENCED ? HOST_FENCED : 2;
    return unrecorded ? HOST_UNRECORDED : 0;
}

int main(int argc, char **argv)
{
    return printed("gradweir-server", run_program(argc, argv));
}
