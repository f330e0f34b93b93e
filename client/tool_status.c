/* gradweirctl status: the status page for people; --json: as it came. */
#include "client/tool.h"

#include "client/tool_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct setting table[] = {
    TOOL_CONNECTION,
    TOOL_FLAG("json", "the server's own page, as it came"),
};
enum { ROWS = sizeof table / sizeof *table };

static uint64_t number(const char *page, const char *name)
{
    return json_count(json_member(page, name));
}

static const char *state(const char *page)
{
    if (json_true(json_member(page, "draining")))
        return "it drains";
    if (json_true(json_member(page, "alarm")))
        return "ALARM: nothing is admitted any more";
    if (number(page, "index") == 0)
        return "no worker has told the model yet";
    return json_true(json_member(page, "first")) ? "it runs" : "no first parameters yet";
}

/* "ADMITTED 812, STALE 9": those that are not 0. */
static void print_verdicts(const char *verdicts)
{
    bool any = false;
    for (const char *at = json_first(verdicts); at; at = json_next(at)) {
        char name[32];
        if (json_count(at) == 0)
            continue;
        json_name(verdicts, at, name, sizeof name);
        printf("%s%s %" PRIu64, any ? ", " : "", name, json_count(at));
        any = true;
    }
    printf("%s\n", any ? "" : "no verdict yet");
}

/* Known of what the acting coordinator admitted itself: 0 after a take-over would be a lie. */
static void print_staleness(const char *page)
{
    const uint64_t of = number(page, "staleness_of");
    if (of == 0)
        printf("  staleness  of no gradient yet: this coordinator has admitted none");
    else
        printf("  staleness  mean %.2f, max %" PRIu64 " at admission, of the %" PRIu64
               " gradients that this coordinator admitted",
               (double)number(page, "staleness_sum") / (double)of, number(page, "staleness_max"),
               of);
    printf("; %" PRIu64 " never used, %" PRIu64 " flushes\n", number(page, "unused"),
           number(page, "flushes"));
}

static void print_numbers(const char *page, const char *servers)
{
    const char *settings = json_member(page, "settings");
    char mode[16];
    json_text(json_member(settings, "mode"), mode, sizeof mode);
    printf("%s: version %" PRIu64 " (%" PRIu64 " whole on all shards), %s\n", servers,
           number(page, "version"), number(page, "whole"), state(page));
    printf("  law        %s, window %" PRIu64 " of %" PRIu64 ", stride %" PRIu64
           ", learning rate %g\n",
           mode, number(page, "window"), number(settings, "window"), number(settings, "stride"),
           json_number(json_member(settings, "learning_rate")));
    printf("  queue      %" PRIu64 " of %" PRIu64 " (at most %" PRIu64 " so far), %" PRIu64
           " waiting for a place\n",
           number(page, "queue"), number(settings, "queue"), number(page, "queue_peak"),
           number(page, "waiting"));
    printf("  pushes     %" PRIu64 ", offers of first parameters among them: ",
           number(page, "pushes"));
    print_verdicts(json_member(page, "verdicts"));
    print_staleness(page);
}

/* What a worker told of itself: its return, a KL divergence, ... */
static void print_report(const char *report)
{
    for (const char *at = json_first(report); at; at = json_next(at)) {
        char name[40];
        json_name(report, at, name, sizeof name);
        printf("%s%s %g", at == json_first(report) ? "             " : ", ", name, json_number(at));
    }
    if (json_first(report))
        printf("\n");
}

static void print_worker(const char *worker)
{
    char identity[64], word[16], role[16];
    json_text(json_member(worker, "identity"), identity, sizeof identity);
    json_text(json_member(worker, "state"), word, sizeof word);
    json_text(json_member(worker, "role"), role, sizeof role);
    printf("  worker %-3" PRIu64 " %-20s %-6s incarnation %" PRIu64 "  ", number(worker, "worker"),
           identity, word, number(worker, "incarnation"));
    if (strcmp(role, "reader") == 0)
        printf("reads only\n");
    else
        print_verdicts(json_member(worker, "verdicts"));
    print_report(json_member(worker, "report"));
}

static void print_shard(const char *shard)
{
    char address[96], transport[40], memory[40];
    const double mib = 1024.0 * 1024.0;
    json_text(json_member(shard, "address"), address, sizeof address);
    json_text(json_member(shard, "transport"), transport, sizeof transport);
    json_text(json_member(shard, "device_memory"), memory, sizeof memory);
    const bool gpu = memory[0] && strcmp(memory, "none") != 0;
    const char *word = !json_true(json_member(shard, "here"))    ? "away"
                       : !json_true(json_member(shard, "ready")) ? "starting"
                                                                 : "ready";
    printf("  shard %-4" PRIu64 " %-20s %-8s %s%s%s  version %" PRIu64 "  log %" PRIu64
           "  step %.2f ms  in %.1f MiB  out %.1f MiB\n",
           number(shard, "shard"), address, word, transport, gpu ? ", GPU " : "", gpu ? memory : "",
           number(shard, "version"), number(shard, "logged"),
           (double)number(shard, "step_ns") * 1e-6, (double)number(shard, "bytes_in") / mib,
           (double)number(shard, "bytes_out") / mib);
}

static void print_waits(const char *page)
{
    const char *waits = json_member(page, "waits");
    if (!json_first(waits))
        printf("nothing waits\n");
    for (const char *at = json_first(waits); at; at = json_next(at)) {
        char sentence[320];
        json_text(at, sentence, sizeof sentence);
        printf("%s %s\n", at == json_first(waits) ? "waits:" : "      ", sentence);
    }
}

static void print_page(const char *page, const char *servers)
{
    print_numbers(page, servers);
    for (const char *at = json_first(json_member(page, "workers")); at; at = json_next(at))
        print_worker(at);
    for (const char *at = json_first(json_member(page, "shards")); at; at = json_next(at))
        print_shard(at);
    print_waits(page);
}

static int show(const struct tool_arguments *arguments)
{
    gradweir_client *client = tool_connect(arguments, "");
    char *page = client ? tool_status_text(client, tool_timeout_ms(arguments)) : NULL;
    if (page && settings_bool(arguments->settings, "json"))
        printf("%s", page);
    else if (page)
        print_page(page, settings_text(arguments->settings, "servers"));
    free(page);
    gradweir_close(client);
    return page ? TOOL_OK : TOOL_FAILED;
}

int tool_status(const struct tool_command *command, int argc, char **argv)
{
    const struct tool_form form = {command, table, ROWS, 0};
    struct tool_arguments arguments;
    int code;
    if (!tool_arguments(&form, argc, argv, &arguments, &code))
        return code;
    code = show(&arguments);
    tool_arguments_end(&arguments);
    return code;
}
