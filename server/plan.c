/* Arithmetic for people. Sizes are the server's own; times are bytes divided by speed, and say so.
 */
#include "server/plan.h"

#include "server/host_settings.h"
#include "server/plan_rates.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct setting own[] = {
    {"params", SETTING_FLOAT, false, "1e6", 1, 0x1p40, NULL, NULL,
     "parameters of the model, as one tensor"},
    {"workers", SETTING_INT, false, "8", 1, WORKERS_MAX, NULL, NULL, "workers that push"},
    {"gbit", SETTING_FLOAT, false, "0", 0, 1e6, NULL, NULL,
     "speed of each machine's link, Gbit/s; 0: a table of usual ones"},
    {"memory_speed", SETTING_FLOAT, false, "0", 0, 1e6, NULL, NULL,
     "of a shard in a step, GB/s; 0: measured here, in half a second, on one thread"},
    {"rates", SETTING_TEXT, false, "", 0, 0, NULL, NULL,
     "file of lines that gradweir-bench or gradweirctl bench --json printed: wires as measured"},
};
enum { OWN = sizeof own / sizeof *own };

struct plan {
    struct host_options options;
    struct model *model;
    uint32_t workers, slots;
    double gbit, memory_speed;
    struct plan_wires wires; /* 0: not measured */
};

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static gradweir_status make_model(struct plan *plan, uint64_t elements)
{
    const struct model_tensor tensor = {.name = "all", .dimensions = 1, .shape = {elements}};
    TRY(model_new(1, &plan->model));
    TRY(model_add(plan->model, &tensor));
    return model_seal(plan->model);
}

static gradweir_status print_memory(const struct plan *plan)
{
    const struct law_settings *law = &plan->options.order.law;
    uint64_t all = 0;
    printf("memory, taken when the first worker tells the layout:\n");
    for (uint32_t i = 0; i < plan->options.shards; i++) {
        struct shard_options options = plan->options.shard;
        uint64_t bytes;
        char text[1024];
        order_member(&plan->options.order, plan->model, i, plan->slots, &options.member);
        TRY(shard_arena_bytes(plan->model, law, &options, &bytes, text, sizeof text));
        printf("  shard %-3u %" PRIu64 " parameters: %s\n", i, options.member.count, text);
        all += bytes;
    }
    printf("  all shards: %.2f GiB\n", (double)all / GIB);
    printf(
        "  a worker's library: 2 send and receive buffers with outstanding = 1, %.2f GiB; one more "
        "for accumulate\n",
        (double)plan->model->elements * 2 * sizeof(float) / GIB);
    return GRADWEIR_OK;
}

static void print_link(const struct plan *plan, double gbit, uint64_t body, uint64_t whole)
{
    const double speed = gbit * 1e9 / 8;
    const uint32_t stride = plan->options.order.law.stride;
    printf("  %8g Gbit/s  %10.4g s a step at each shard   %10.4g s a push and %10.4g s a pull at "
           "each worker\n",
           gbit, (double)body * stride / speed, (double)whole / speed, (double)whole / speed);
}

static void print_wire(const struct plan *plan)
{
    static const double usual[] = {1, 10, 25, 100, 200, 400};
    const uint32_t stride = plan->options.order.law.stride;
    uint64_t body = 0, whole = 0;
    for (uint32_t i = 0; i < plan->options.shards; i++) {
        const uint64_t bytes =
            model_shard(plan->model, plan->options.shards, i).elements * sizeof(float);
        body = bytes > body ? bytes : body;
        whole += bytes;
    }
    printf(
        "wire, float32: a gradient is %.3f GiB, at most %.3f GiB of it for one shard; a pull is as "
        "much the other way\n",
        (double)whole / GIB, (double)body / GIB);
    printf("  a step takes in stride = %u gradients and hands out as many pulls; %u workers\n",
           stride, plan->workers);
    if (plan->wires.push > 0)
        printf("  measured over %s, one worker: %.2f GB/s, %.4g s a push\n", plan->wires.transport,
               plan->wires.push * 1e-9, (double)whole / plan->wires.push);
    if (plan->wires.pull > 0)
        printf("  measured over %s, one worker: %.2f GB/s, %.4g s a pull\n", plan->wires.transport,
               plan->wires.pull * 1e-9, (double)whole / plan->wires.pull);
    printf("  times are bytes through one full link each way, with nothing else on it:\n");
    if (plan->gbit > 0)
        print_link(plan, plan->gbit, body, whole);
    for (size_t i = 0; plan->gbit <= 0 && i < sizeof usual / sizeof *usual; i++)
        print_link(plan, usual[i], body, whole);
}

/* What the passes of a step read and write: the window's gradients or partial sums, the parameters
 * out of one slot into another, the optimizer's state in place; with a clip of the average, that is
 * written and read again. */
static gradweir_status print_step(const struct plan *plan)
{
    const struct law_settings *law = &plan->options.order.law;
    const struct optimizer_options *optimizer = &plan->options.order.optimizer;
    const uint64_t states =
        arithmetic_states_n(law->algorithm, optimizer->centered, optimizer->momentum);
    const uint64_t window = law_stacks_room(law) ? law_stacks_passes(law) : law->window;
    const uint64_t passes = window + 2 + 2 * states + (law->clip_average > 0 ? 2 : 0);
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->options.shards; i++) {
        const uint64_t elements = model_shard(plan->model, plan->options.shards, i).elements;
        most = elements > most ? elements : most;
    }
    const double bytes = (double)(most * passes * sizeof(float));
    double speed = plan->memory_speed * 1e9;
    if (plan->memory_speed <= 0)
        TRY(plan_rates_step(law, optimizer, passes, &speed));
    printf("step: %" PRIu64
           " floats moved for each parameter, %.3f GiB in the largest shard: %.4g s at "
           "%.3g GB/s, %s\n",
           passes, bytes / GIB, bytes / speed, speed * 1e-9,
           plan->memory_speed > 0 ? "as told" : "measured here just now on one thread");
    return GRADWEIR_OK;
}

static gradweir_status print_plan(const struct settings *settings)
{
    struct plan plan = {.workers = (uint32_t)settings_int(settings, "workers"),
                        .gbit = settings_float(settings, "gbit"),
                        .memory_speed = settings_float(settings, "memory_speed")};
    const struct law_settings *law = &plan.options.order.law;
    gradweir_status status = host_options_read(settings, &plan.options);
    const char *rates = settings_text(settings, "rates");
    if (status == GRADWEIR_OK && *rates)
        status = plan_rates_read(rates, &plan.wires);
    if (status == GRADWEIR_OK)
        status = make_model(&plan, (uint64_t)settings_float(settings, "params"));
    if (status == GRADWEIR_OK) {
        printf("%" PRIu64
               " parameters on %u shards, %u workers, window %u, stride %u, queue %u, %s\n",
               plan.model->elements, plan.options.shards, plan.workers, law->window, law->stride,
               plan.options.order.queue, settings_text(settings, "optimizer"));
        status = order_slots(&plan.options.order, plan.model, &plan.slots);
    }
    if (status == GRADWEIR_OK)
        status = print_memory(&plan);
    if (status == GRADWEIR_OK) {
        print_wire(&plan);
        status = print_step(&plan);
    }
    model_free(plan.model);
    host_options_free(&plan.options);
    return status;
}

/* The workers that were named are those that presets count. */
static gradweir_status read_arguments(struct settings *settings, int argc, char **argv, bool *help)
{
    char workers[16];
    TRY(settings_arguments(settings, argc, (const char *const *)argv, help));
    if (*help || settings_given(settings, "workers_max"))
        return GRADWEIR_OK;
    snprintf(workers, sizeof workers, "%lld", (long long)settings_int(settings, "workers"));
    return settings_set(settings, "workers_max", workers, "workers");
}

int plan_main(int argc, char **argv)
{
    const size_t count = OWN + settings_server_count;
    struct setting *table = calloc(count, sizeof *table);
    struct settings *settings = NULL;
    bool help = argc < 2;
    int code = 2;
    if (!table)
        return 1;
    memcpy(table, own, sizeof own);
    memcpy(table + OWN, settings_server, settings_server_count * sizeof *table);
    gradweir_status status = settings_new(table, count, &settings);
    if (status == GRADWEIR_OK && !help)
        status = read_arguments(settings, argc - 1, argv + 1, &help);
    if (status == GRADWEIR_OK && help) {
        printf(
            "gradweirctl plan --params 7e9 --workers 8 --shards 4 [any setting of the server]\n\n");
        settings_print_help(table, OWN, stdout);
        printf("and all of gradweir-server --help: optimizer, window, queue, preset, ...\n");
    } else if (status == GRADWEIR_OK) {
        status = print_plan(settings);
        code = 1;
    }
    if (status != GRADWEIR_OK)
        fprintf(stderr, "plan: %s\n", fail_reason());
    settings_free(settings);
    free(table);
    return status == GRADWEIR_OK ? 0 : code;
}
