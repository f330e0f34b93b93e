/* gradweirctl doctor: can this machine work with that job? Each part is tried as a worker would use
 * it, by joining as a reader named "doctor"; what is not tried is said. */
#include "client/tool.h"

#include "client/tool_json.h"
#include "common/clock.h"
#include "common/message.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct setting table[] = {TOOL_CONNECTION};
enum { ROWS = sizeof table / sizeof *table, ROUNDS = 21 };

struct doctor {
    const struct tool_arguments *arguments;
    gradweir_client *client;
    char *page; /* the newest status */
    bool sick;
};

static void say(struct doctor *doctor, bool well, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct doctor *doctor, bool well, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%-4s  ", well ? "ok" : "FAIL");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    doctor->sick = doctor->sick || !well;
}

static uint64_t number(const struct doctor *doctor, const char *name)
{
    return json_count(json_member(doctor->page, name));
}

static int compare(const void *a, const void *b)
{
    uint64_t left, right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

static bool try_control(struct doctor *doctor)
{
    uint64_t took_ns[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t begin_ns = clock_now_ns();
        free(doctor->page);
        doctor->page = tool_status_text(doctor->client, tool_timeout_ms(doctor->arguments));
        if (!doctor->page) {
            say(doctor, false, "the coordinator is connected and gives no status");
            return false;
        }
        took_ns[i] = clock_now_ns() - begin_ns;
    }
    qsort(took_ns, ROUNDS, sizeof *took_ns, compare);
    say(doctor, true, "control round trip: median %.0f us, worst %.0f us of %d status pages",
        (double)took_ns[ROUNDS / 2] * 1e-3, (double)took_ns[ROUNDS - 1] * 1e-3, ROUNDS);
    const uint64_t protocol = number(doctor, "protocol");
    say(doctor, protocol >= PROTOCOL_OLDEST && protocol <= PROTOCOL_VERSION,
        "protocol: the server speaks %" PRIu64 ", this tool %d to %d", protocol, PROTOCOL_OLDEST,
        PROTOCOL_VERSION);
    return true;
}

static void try_shards(struct doctor *doctor)
{
    const char *shards = json_member(doctor->page, "shards");
    for (const char *at = json_first(shards); at; at = json_next(at)) {
        char address[96];
        json_text(json_member(at, "address"), address, sizeof address);
        const bool here = json_true(json_member(at, "here"));
        say(doctor, here, "shard %" PRIu64 "%s%s: %s", json_count(json_member(at, "shard")),
            address[0] ? " at " : "", address,
            here ? "the coordinator has it" : "the coordinator has no connection to it");
    }
}

/* "shard 0 ADDRESS: rails; shard 1 ...", one line each. */
static void print_rails(struct doctor *doctor)
{
    char text[4096];
    gradweir_describe(doctor->client, text, sizeof text);
    for (char *at = text; at && *at;) {
        char *end = strstr(at, "; shard ");
        if (end)
            *end = 0;
        say(doctor, !strstr(at, "not connected"), "floats: %s", at);
        at = end ? end + 2 : NULL;
    }
}

static void try_floats(struct doctor *doctor)
{
    gradweir_ticket ticket;
    gradweir_receipt receipt;
    const uint32_t timeout_ms = tool_timeout_ms(doctor->arguments);
    if (number(doctor, "index") == 0) {
        printf("--    not checked: the data plane; no worker has told the model yet\n");
        return;
    }
    const uint64_t begin_ns = clock_now_ns();
    if (gradweir_bind(doctor->client, NULL, 0) != GRADWEIR_OK) {
        say(doctor, false, "joining as a reader: %s", gradweir_last_error());
        return;
    }
    say(doctor, true, "joined, and a session with every shard is open, after %.1f ms",
        (double)(clock_now_ns() - begin_ns) * 1e-6);
    print_rails(doctor);
    if (!json_true(json_member(doctor->page, "first"))) {
        printf("--    not checked: a pull; there are no first parameters yet\n");
        return;
    }
    const uint64_t pull_ns = clock_now_ns();
    if (gradweir_pull(doctor->client, &ticket) != GRADWEIR_OK ||
        gradweir_wait(doctor->client, ticket, timeout_ms, &receipt) != GRADWEIR_OK) {
        say(doctor, false, "a pull of the whole model: %s", gradweir_last_error());
        return;
    }
    const double seconds = (double)(clock_now_ns() - pull_ns) * 1e-9;
    const double mib = (double)gradweir_elements(doctor->client) * 4 / (1024.0 * 1024.0);
    say(doctor, true, "pulled version %" PRIu64 ": %.2f MiB in %.1f ms, %.0f MiB/s",
        receipt.version, mib, seconds * 1e3, mib / seconds);
}

static void print_rest(const struct doctor *doctor)
{
    for (const char *at = json_first(json_member(doctor->page, "waits")); at; at = json_next(at)) {
        char sentence[320];
        json_text(at, sentence, sizeof sentence);
        printf("      the job says: %s\n", sentence);
    }
    printf("--    not checked: pushes (they would count); who else reaches the data ports, which "
           "authenticate nobody:\n"
           "      NetworkPolicy and nftables see TCP only, so keep RDMA in a network or partition "
           "of its own;\n"
           "      limits of locked memory; the servers' disks and clocks; other workers' "
           "machines\n");
}

static int examine(struct doctor *doctor)
{
    const uint64_t begin_ns = clock_now_ns();
    doctor->client = tool_connect(doctor->arguments, "doctor");
    if (!doctor->client)
        return TOOL_FAILED;
    say(doctor, true, "%s answers, %.1f ms after the first try; this tool is %s",
        settings_text(doctor->arguments->settings, "servers"),
        (double)(clock_now_ns() - begin_ns) * 1e-6, gradweir_library_version());
    if (try_control(doctor)) {
        try_shards(doctor);
        try_floats(doctor);
        print_rest(doctor);
    }
    gradweir_close(doctor->client);
    free(doctor->page);
    return doctor->sick ? TOOL_FAILED : TOOL_OK;
}

int tool_doctor(const struct tool_command *command, int argc, char **argv)
{
    const struct tool_form form = {command, table, ROWS, 0};
    struct tool_arguments arguments;
    int code;
    if (!tool_arguments(&form, argc, argv, &arguments, &code))
        return code;
    struct doctor doctor = {.arguments = &arguments};
    code = examine(&doctor);
    tool_arguments_end(&arguments);
    return code;
}
