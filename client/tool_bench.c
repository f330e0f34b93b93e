/* gradweirctl bench: how fast this machine works with a running cluster, before anyone relies on
 * it. Pulls disturb nothing but the wire. Pushes are made only when asked for: they need a model of
 * their own, become steps of it, and the servers keep that model until they are started anew. */
#include "client/tool.h"

#include "client/tool_json.h"
#include "common/clock.h"
#include "common/histogram.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct setting table[] = {
    TOOL_CONNECTION,
    {"seconds", SETTING_FLOAT, false, "3", 0.01, 3600, NULL, NULL, "to pull, and to push"},
    {"gbit", SETTING_FLOAT, false, "0", 0, 1e6, NULL, NULL,
     "speed of the link, Gbit/s, to compare with; 0: unknown"},
    {"size", SETTING_SIZE, false, "16MiB", 64, 0x1p40, NULL, NULL,
     "push: of the model that is made for it"},
    TOOL_FLAG("push",
              "push zeros too, as a worker with a model of its own: each becomes a step of it, and "
              "the servers take no other model until they are started anew"),
    TOOL_FLAG("json", "one flat JSON object for pulls, one for pushes"),
};
enum { ROWS = sizeof table / sizeof *table };

struct bench {
    const struct tool_arguments *arguments;
    gradweir_client *client;
    char *page; /* the status */
    uint64_t bytes;
    void *memory; /* bound, of a worker */
    struct histogram took;
    uint64_t operations, refused;
    double seconds;
};

static void begin(struct bench *bench)
{
    histogram_init(&bench->took);
    bench->operations = bench->refused = 0;
}

static void progress(const char *what, double seconds)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "%s for %.0f s ...\r", what, seconds);
}

static gradweir_status pull(struct bench *bench, gradweir_receipt *receipt)
{
    gradweir_ticket ticket;
    TRY(gradweir_pull(bench->client, &ticket));
    return gradweir_wait(bench->client, ticket, tool_timeout_ms(bench->arguments), receipt);
}

static gradweir_status push(struct bench *bench, gradweir_receipt *receipt)
{
    gradweir_ticket ticket;
    TRY(gradweir_push(bench->client, 1, &ticket));
    return gradweir_wait(bench->client, ticket, tool_timeout_ms(bench->arguments), receipt);
}

typedef gradweir_status operation(struct bench *bench, gradweir_receipt *receipt);

/* One after the other, for as long as was asked; the first is not counted. */
static gradweir_status repeat(struct bench *bench, operation *one, uint32_t verdict)
{
    gradweir_receipt receipt;
    begin(bench);
    TRY(one(bench, &receipt));
    const double wanted = settings_float(bench->arguments->settings, "seconds");
    const uint64_t begin_ns = clock_now_ns();
    uint64_t last_ns = begin_ns;
    do {
        TRY(one(bench, &receipt));
        const uint64_t now_ns = clock_now_ns();
        histogram_add(&bench->took, now_ns - last_ns);
        last_ns = now_ns;
        bench->operations++;
        bench->refused += receipt.verdict != verdict;
    } while ((double)(last_ns - begin_ns) * 1e-9 < wanted);
    bench->seconds = (double)(last_ns - begin_ns) * 1e-9;
    return GRADWEIR_OK;
}

static void print_or_null(const char *name, double value)
{
    if (isfinite(value))
        printf(", \"%s\": %.6g", name, value);
    else
        printf(", \"%s\": null", name);
}

enum { TRANSPORT_SIZE = 40 };

/* Of the first shard, in quotes: null, and false, when it is not known yet. */
static bool transport_of(const struct bench *bench, char text[TRANSPORT_SIZE])
{
    char word[TRANSPORT_SIZE - 8] = "";
    const char *shard = json_first(json_member(bench->page, "shards"));
    json_text(json_member(shard, "transport"), word, sizeof word);
    const bool known = word[0] && strcmp(word, "none") != 0;
    snprintf(text, TRANSPORT_SIZE, known ? "\"%s\"" : "null", word);
    return known;
}

/* The keys of gradweir-bench; what can only be known on the servers' machines is null. */
static void print_json(const struct bench *bench, const char *what, double gbps, double wire)
{
    static const char *const unknown[] = {
        "floor_gbps",          "floor_ratio", "perftest_gbps", "perftest_ratio",      "memcpy_gbps",
        "server_cpu_s_per_gb", "rss_mib",     "plan_mib",      "worker_cpu_s_per_gb",
    };
    char transport[TRANSPORT_SIZE];
    const char *shard = json_first(json_member(bench->page, "shards"));
    uint64_t shards = 0;
    transport_of(bench, transport);
    for (const char *at = shard; at; at = json_next(at))
        shards++;
    printf("{\"case\": \"%s\", \"bytes\": %" PRIu64 ", \"transport\": %s, \"workers\": 1, "
           "\"shards\": %" PRIu64 ", \"window\": %" PRIu64 ", \"stride\": %" PRIu64
           ", \"optimizer\": null, \"dtype\": \"float32\", \"operations\": %" PRIu64
           ", \"refused\": %" PRIu64,
           what, bench->bytes, transport, shards,
           json_count(json_member(bench->page, "settings.window")),
           json_count(json_member(bench->page, "settings.stride")), bench->operations,
           bench->refused);
    print_or_null("goodput_gbps", gbps);
    print_or_null("wire_gbps", wire > 0 ? wire : (double)NAN);
    print_or_null("wire_ratio", wire > 0 ? gbps / wire : (double)NAN);
    print_or_null("p50_us", 1e-3 * (double)histogram_percentile(&bench->took, 0.5));
    print_or_null("p99_us", 1e-3 * (double)histogram_percentile(&bench->took, 0.99));
    print_or_null("ops_per_s", (double)bench->operations / bench->seconds);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        print_or_null(unknown[i], (double)NAN);
    printf("}\n");
}

static void report(const struct bench *bench, const char *what)
{
    const struct settings *settings = bench->arguments->settings;
    const double gbps = 1e-9 * (double)bench->operations * (double)bench->bytes / bench->seconds;
    const double wire = settings_float(settings, "gbit") / 8;
    if (settings_bool(settings, "json")) {
        print_json(bench, what, gbps, wire);
        return;
    }
    printf("%s: %.2f MiB each, %" PRIu64 " in %.2f s: %.3f GB/s; p50 %.0f us, p99 %.0f us", what,
           (double)bench->bytes / 0x1p20, bench->operations, bench->seconds, gbps,
           1e-3 * (double)histogram_percentile(&bench->took, 0.5),
           1e-3 * (double)histogram_percentile(&bench->took, 0.99));
    if (wire > 0)
        printf("; %.2f of the link's %.2f GB/s", gbps / wire, wire);
    else
        printf("; the link's speed is not known (--gbit says it)");
    printf(bench->refused ? "; %" PRIu64 " REFUSED\n" : "\n", bench->refused);
}

/* The page again, with how floats travel: the servers know once some have, and tell it with the
 * shard's next pulse. */
static bool look_again(struct bench *bench)
{
    const uint32_t timeout_ms = tool_timeout_ms(bench->arguments);
    const uint64_t end_ns = deadline_after(clock_now_ns(), timeout_ms * CLOCK_MS);
    char transport[TRANSPORT_SIZE];
    do {
        free(bench->page);
        bench->page = tool_status_text(bench->client, timeout_ms);
    } while (bench->page && !transport_of(bench, transport) && usleep(20000) == 0 &&
             !deadline_passed(clock_now_ns(), end_ns));
    return bench->page != NULL;
}

static int failed(const char *what)
{
    return tool_fail("bench: %s: %s", what, gradweir_last_error());
}

static int measure(struct bench *bench, bool pushes)
{
    const struct settings *settings = bench->arguments->settings;
    const double seconds = settings_float(settings, "seconds");
    bench->bytes = gradweir_elements(bench->client) * sizeof(float);
    progress("pulling", seconds);
    if (repeat(bench, pull, GRADWEIR_NONE) != GRADWEIR_OK)
        return failed("pull");
    if (!look_again(bench))
        return TOOL_FAILED;
    report(bench, "pull");
    if (!pushes)
        return TOOL_OK;
    progress("pushing", seconds);
    if (repeat(bench, push, GRADWEIR_ADMITTED) != GRADWEIR_OK)
        return failed("push");
    report(bench, "push");
    return bench->refused ? TOOL_FAILED : TOOL_OK;
}

static int as_reader(struct bench *bench)
{
    if (!json_true(json_member(bench->page, "first")))
        return tool_fail("bench: no worker has brought a model and first parameters yet, so there "
                         "is nothing to pull; --push --size N tries with a model of its own");
    if (gradweir_bind(bench->client, NULL, 0) != GRADWEIR_OK)
        return failed("joining as a reader");
    return measure(bench, false);
}

static int as_worker(struct bench *bench)
{
    const uint64_t elements =
        (uint64_t)settings_size(bench->arguments->settings, "size") / sizeof(float);
    bench->memory = calloc(2 * elements, sizeof(float));
    if (!bench->memory)
        return tool_fail("bench: no memory for %" PRIu64 " parameters", elements);
    float *floats = bench->memory;
    const gradweir_tensor tensor = {.name = "gradweirctl bench",
                                    .dimensions = 1,
                                    .shape = {elements},
                                    .parameters = floats,
                                    .gradient = floats + elements};
    fprintf(stderr,
            "gradweirctl: pushes of zeros: each becomes a step, and the servers keep this model of "
            "%" PRIu64 " parameters until they are started anew\n",
            elements);
    if (gradweir_bind(bench->client, &tensor, 1) != GRADWEIR_OK)
        return failed("joining as a worker");
    if (gradweir_offer(bench->client, tool_timeout_ms(bench->arguments)) != GRADWEIR_OK)
        return failed("the first parameters");
    return measure(bench, true);
}

int tool_bench(const struct tool_command *command, int argc, char **argv)
{
    const struct tool_form form = {command, table, ROWS, 0};
    struct tool_arguments arguments;
    int code;
    if (!tool_arguments(&form, argc, argv, &arguments, &code))
        return code;
    struct bench bench = {.arguments = &arguments};
    const bool pushes = settings_bool(arguments.settings, "push");
    bench.client = tool_connect_as(&arguments, "bench", pushes ? GRADWEIR_WORKER : GRADWEIR_READER);
    code = TOOL_FAILED;
    if (bench.client)
        bench.page = tool_status_text(bench.client, tool_timeout_ms(&arguments));
    if (bench.page)
        code = pushes ? as_worker(&bench) : as_reader(&bench);
    gradweir_close(bench.client);
    free(bench.page);
    free(bench.memory);
    tool_arguments_end(&arguments);
    return code;
}
