/* gradweirctl top: a line per interval, made of the differences between two status pages. */
#include "client/tool.h"

#include "client/tool_json.h"
#include "common/clock.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct setting table[] = {
    TOOL_CONNECTION,
    TOOL_WAIT("every", "1s", "time between two lines"),
    {"count", SETTING_INT, false, "0", 0, 1e9, NULL, NULL, "lines to print; 0: until stopped"},
};
enum { ROWS = sizeof table / sizeof *table, LINES_PER_HEAD = 20 };

struct sample {
    uint64_t at_ns, version, pushes, admitted, refused, staleness_of, staleness_sum, staleness_max;
    uint64_t queue, waiting, workers, bytes;
    char wait[96]; /* the first thing that is waited for */
};

static uint64_t number(const char *page, const char *name)
{
    return json_count(json_member(page, name));
}

static void take(const char *page, struct sample *sample)
{
    *sample = (struct sample){.at_ns = clock_now_ns(),
                              .version = number(page, "version"),
                              .pushes = number(page, "pushes"),
                              .admitted = number(page, "verdicts.ADMITTED"),
                              .staleness_of = number(page, "staleness_of"),
                              .staleness_sum = number(page, "staleness_sum"),
                              .staleness_max = number(page, "staleness_max"),
                              .queue = number(page, "queue"),
                              .waiting = number(page, "waiting"),
                              .workers = number(page, "workers_live")};
    const char *verdicts = json_member(page, "verdicts");
    for (const char *at = json_first(verdicts); at; at = json_next(at))
        sample->refused += json_count(at);
    sample->refused -= sample->admitted;
    for (const char *at = json_first(json_member(page, "shards")); at; at = json_next(at))
        sample->bytes += number(at, "bytes_in") + number(at, "bytes_out");
    json_text(json_first(json_member(page, "waits")), sample->wait, sizeof sample->wait);
}

static void print_head(void)
{
    printf("%-8s %9s %8s %8s %8s %7s %6s %5s %5s %7s %8s  %s\n", "time", "version", "steps/s",
           "pushes/s", "refused", "stale", "max", "queue", "wait", "workers", "MiB/s", "waits for");
}

/* A server that was started anew counts from 0 again. */
static double since(uint64_t now, uint64_t before)
{
    return now >= before ? (double)(now - before) : (double)now;
}

static void print_line(const struct sample *now, const struct sample *before)
{
    char clock[16];
    const time_t wall = time(NULL);
    struct tm parts;
    const double seconds = (double)(now->at_ns - before->at_ns) * 1e-9;
    const double of = since(now->staleness_of, before->staleness_of);
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&wall, &parts));
    printf("%-8s %9" PRIu64 " %8.1f %8.1f %8.0f %7.2f %6" PRIu64 " %5" PRIu64 " %5" PRIu64
           " %7" PRIu64 " %8.1f  %s\n",
           clock, now->version, since(now->version, before->version) / seconds,
           since(now->pushes, before->pushes) / seconds, since(now->refused, before->refused),
           of > 0 ? since(now->staleness_sum, before->staleness_sum) / of : 0.0, now->staleness_max,
           now->queue, now->waiting, now->workers,
           since(now->bytes, before->bytes) / seconds / (1024.0 * 1024.0), now->wait);
    fflush(stdout);
}

/* An answer that does not come is said (by tool_status_text), and the next is asked for; without
 * any the first time, it is a failure. */
static int watch(const struct tool_arguments *arguments, gradweir_client *client)
{
    const int64_t count = settings_int(arguments->settings, "count");
    const int every_ms = (int)(settings_duration(arguments->settings, "every") / 1000000);
    struct sample before = {0}, now;
    bool any = false;
    for (int64_t lines = 0; count == 0 || lines < count;) {
        char *page = tool_status_text(client, tool_timeout_ms(arguments));
        if (!page && !any)
            return TOOL_FAILED;
        if (page)
            take(page, &now);
        if (page && any) {
            if (lines++ % LINES_PER_HEAD == 0)
                print_head();
            print_line(&now, &before);
        }
        before = page ? now : before;
        any = any || page;
        free(page);
        if (count == 0 || lines < count)
            poll(NULL, 0, every_ms);
    }
    return TOOL_OK;
}

int tool_top(const struct tool_command *command, int argc, char **argv)
{
    const struct tool_form form = {command, table, ROWS, 0};
    struct tool_arguments arguments;
    int code;
    if (!tool_arguments(&form, argc, argv, &arguments, &code))
        return code;
    gradweir_client *client = tool_connect(&arguments, "");
    code = client ? watch(&arguments, client) : TOOL_FAILED;
    gradweir_close(client);
    tool_arguments_end(&arguments);
    return code;
}
