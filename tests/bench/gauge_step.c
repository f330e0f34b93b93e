/* step: what a shard's arithmetic costs, beside the floor's step and the machine's triad; and
 * beside the same step under other settings, round by round (--against). */
#include "tests/bench/floor.h"
#include "tests/bench/gauge.h"
#include "tests/bench/gauge_triad.h"
#include "tests/bench/mill.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const double reference_s = 0.05, triad_s = 0.02, turn_s = 0.05;
enum { STEPS_MAX = 1 << 16, AGAINST_MAX = 256 };

/* One mill and what it did in all rounds. */
struct run {
    struct mill *mill;
    struct gauge_values per_gradient, per_step; /* ns, of each round */
    double *steps_ns;                           /* of every step */
    uint32_t steps_count;
    double since_ns; /* the last step */
    long switches;   /* until this step began */
    uint32_t alone_count;
    double worst_alone_ns; /* of steps while which nobody took the core from this process */
};

/* How often the kernel took a core from this process and gave it to another. */
static long switches_so_far(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : -1;
}

static void note_step(struct run *run)
{
    const long switches = switches_so_far();
    if (run->steps_count < STEPS_MAX)
        run->steps_ns[run->steps_count++] = run->since_ns;
    if (switches == run->switches) {
        run->alone_count++;
        if (run->since_ns > run->worst_alone_ns)
            run->worst_alone_ns = run->since_ns;
    }
    run->since_ns = 0;
}

static gradweir_status push(struct run *run, uint64_t *ns)
{
    struct mill_pushed pushed;
    if (run->since_ns == 0)
        run->switches = switches_so_far();
    TRY(mill_push(run->mill, &pushed));
    *ns = pushed.shard_ns;
    run->since_ns += (double)pushed.shard_ns;
    if (pushed.stepped)
        note_step(run);
    return GRADWEIR_OK;
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The median step from the first-th on. */
static gradweir_status median_since(const struct run *run, uint32_t first, double *median)
{
    const uint32_t steps = run->steps_count - first;
    double *sorted = malloc((steps ? steps : 1) * sizeof *sorted);
    if (!sorted)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the times of %u steps", steps);
    memcpy(sorted, run->steps_ns + first, steps * sizeof *sorted);
    qsort(sorted, steps, sizeof *sorted, compare);
    *median = steps ? sorted[steps / 2] : GAUGE_NONE;
    free(sorted);
    return GRADWEIR_OK;
}

/* The triad and steps in short turns: what a machine gives changes within a second. */
struct turns {
    struct triads *triads;
    double bytes; /* that a step must move */
    struct gauge_values triad, traffic, ratio;
};

/* At least one step, and so many more as the time allows. */
static gradweir_status steps_for(struct run *run, double seconds, uint64_t *all_ns,
                                 uint64_t *pushes)
{
    const uint32_t first = run->steps_count;
    uint64_t ns, some_ns = 0;
    do {
        TRY(push(run, &ns));
        some_ns += ns;
        *pushes += 1;
    } while ((double)some_ns < seconds * 1e9 || (run->steps_count == first && first < STEPS_MAX));
    *all_ns += some_ns;
    return GRADWEIR_OK;
}

/* turns: NULL without the triad. */
static gradweir_status round_of(struct run *run, double seconds, struct turns *turns)
{
    const uint32_t first = run->steps_count;
    uint64_t all_ns = 0, pushes = 0;
    double median;
    do {
        const uint32_t begin = run->steps_count;
        const double triad = turns ? triads_rate(turns->triads, triad_s) : 0;
        TRY(steps_for(run, turns && turn_s < seconds ? turn_s : seconds, &all_ns, &pushes));
        if (!turns)
            continue;
        TRY(median_since(run, begin, &median));
        gauge_add(&turns->triad, triad);
        gauge_add(&turns->traffic, turns->bytes / median);
        gauge_add(&turns->ratio, turns->bytes / median / triad);
    } while ((double)all_ns < seconds * 1e9);
    TRY(median_since(run, first, &median));
    gauge_add(&run->per_gradient, (double)all_ns / (double)pushes);
    gauge_add(&run->per_step, median);
    return GRADWEIR_OK;
}

/* Fills the window, and lets every slot and state be touched. */
static gradweir_status warm_up(struct run *run, const struct law_settings *law)
{
    uint64_t ns;
    for (uint32_t i = 0; i < 2 * law->window + 2 * law->stride + 2; i++)
        TRY(push(run, &ns));
    run->steps_count = run->alone_count = 0;
    run->since_ns = run->worst_alone_ns = 0;
    return GRADWEIR_OK;
}

static gradweir_status open_run(const struct gauge *gauge, const struct host_options *host,
                                struct run *run)
{
    run->steps_ns = calloc(STEPS_MAX, sizeof *run->steps_ns);
    if (!run->steps_ns)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the times of steps");
    TRY(mill_open(host, gauge->elements, gauge->threads, &run->mill));
    return warm_up(run, &host->order.law);
}

static void close_run(struct run *run)
{
    mill_close(run->mill);
    free(run->steps_ns);
}

/* "window=2,window_algorithm=direct": the same job but for these settings. */
static gradweir_status read_against(const struct gauge *gauge, struct settings *settings,
                                    struct host_options *host)
{
    char copy[AGAINST_MAX];
    bool help;
    snprintf(copy, sizeof copy, "%s", settings_text(gauge->settings, "against"));
    TRY(settings_arguments(settings, gauge->argc, (const char *const *)gauge->argv, &help));
    char *rest = copy;
    for (char *pair; (pair = strsep(&rest, ",")) != NULL;) {
        char *value = strchr(pair, '=');
        if (!value)
            return fail(GRADWEIR_ERR_INVALID, "against is \"%.80s\": name=value,... is wanted",
                        settings_text(gauge->settings, "against"));
        *value++ = '\0';
        if (gauge_is_own(pair) && strcmp(pair, "optimizer") != 0)
            return fail(
                GRADWEIR_ERR_INVALID,
                "against: %.40s is the same for both; settings of gradweir-server may differ",
                pair);
        TRY(settings_set(settings, pair, value, "against"));
    }
    return host_options_read(settings, host);
}

/* All that is measured in turns. */
struct step {
    const struct gauge *gauge;
    struct run run, other;
    bool against;
    struct floor *floor;
    struct triads *triads;
    struct gauge_values memcpy, floor_rate, floor_ratio, goodput, triad, traffic, triad_ratio;
    struct gauge_values ratio, gradient_ratio;
};

static bool is_adam(const struct gauge *gauge)
{
    return strcmp(gauge->optimizer, "sgd") != 0;
}

static gradweir_status measure(struct step *step, bool first)
{
    const struct gauge *gauge = step->gauge;
    const double seconds = gauge->seconds / gauge->rounds / (step->against ? 2 : 1);
    const uint32_t n = step->run.per_step.count;
    struct turns turns = {.triads = step->triads,
                          .bytes = (is_adam(gauge) ? FLOOR_ADAM_TRAFFIC : FLOOR_SGD_TRAFFIC) *
                                   (double)gauge->elements};
    if (step->against && first)
        TRY(round_of(&step->other, seconds, NULL));
    const double memcpy_rate = floor_memcpy_rate(step->floor, reference_s);
    const double floor_rate = floor_step_rate(step->floor, reference_s);
    TRY(round_of(&step->run, seconds, &turns));
    if (step->against && !first)
        TRY(round_of(&step->other, seconds, NULL));
    const double goodput = (double)gauge->bytes / step->run.per_gradient.at[n];
    gauge_add(&step->memcpy, memcpy_rate);
    gauge_add(&step->floor_rate, floor_rate);
    gauge_add(&step->goodput, goodput);
    gauge_add(&step->floor_ratio, goodput / floor_rate);
    gauge_add(&step->triad, gauge_median(&turns.triad));
    gauge_add(&step->traffic, gauge_median(&turns.traffic));
    gauge_add(&step->triad_ratio, gauge_median(&turns.ratio));
    if (!step->against)
        return GRADWEIR_OK;
    gauge_add(&step->ratio, step->run.per_step.at[n] / step->other.per_step.at[n]);
    gauge_add(&step->gradient_ratio, step->run.per_gradient.at[n] / step->other.per_gradient.at[n]);
    return GRADWEIR_OK;
}

static double share_of(const struct run *run, double share)
{
    if (run->steps_count == 0)
        return GAUGE_NONE;
    qsort(run->steps_ns, run->steps_count, sizeof *run->steps_ns, compare);
    return run->steps_ns[(uint32_t)(share * (run->steps_count - 1))];
}

static void add_spread(struct gauge_row *row, const char *const names[3],
                       const struct gauge_values *values)
{
    gauge_extra(row, names[0], gauge_median(values));
    gauge_extra(row, names[1], gauge_percentile(values, 0));
    gauge_extra(row, names[2], gauge_percentile(values, 1));
}

static void report(const struct step *step)
{
    struct gauge_row row = gauge_row();
    row.goodput_gbps = gauge_median(&step->goodput);
    row.floor_gbps = gauge_median(&step->floor_rate);
    row.floor_ratio = gauge_median(&step->floor_ratio);
    row.memcpy_gbps = gauge_median(&step->memcpy);
    row.plan_mib = (double)mill_bytes(step->run.mill) / 0x1p20;
    row.p50_us = 1e-3 * share_of(&step->run, 0.5);
    row.p99_us = 1e-3 * share_of(&step->run, 0.99);
    row.ops_per_s = 1e9 * row.goodput_gbps / (double)step->gauge->bytes;
    gauge_extra(&row, "goodput_min", gauge_percentile(&step->goodput, 0));
    gauge_extra(&row, "goodput_max", gauge_percentile(&step->goodput, 1));
    gauge_extra(&row, "floor_ratio_min", gauge_percentile(&step->floor_ratio, 0));
    gauge_extra(&row, "floor_ratio_max", gauge_percentile(&step->floor_ratio, 1));
    gauge_extra(&row, "steps", step->run.steps_count);
    gauge_extra(&row, "worst_us", 1e-3 * share_of(&step->run, 1));
    gauge_extra(&row, "steps_alone", step->run.alone_count);
    gauge_extra(&row, "worst_alone_us",
                step->run.alone_count ? 1e-3 * step->run.worst_alone_ns : GAUGE_NONE);
    gauge_extra(&row, "gradient_us", 1e-3 * gauge_median(&step->run.per_gradient));
    gauge_extra(&row, "step_traffic_gbps", gauge_median(&step->traffic));
    gauge_extra(&row, "triad_gbps", gauge_median(&step->triad));
    add_spread(&row, (const char *const[]){"triad_ratio", "triad_ratio_min", "triad_ratio_max"},
               &step->triad_ratio);
    if (step->against) {
        gauge_extra(&row, "against_p50_us", 1e-3 * share_of(&step->other, 0.5));
        add_spread(&row,
                   (const char *const[]){"against_ratio", "against_ratio_min", "against_ratio_max"},
                   &step->ratio);
        add_spread(&row,
                   (const char *const[]){"against_gradient_ratio", "against_gradient_ratio_min",
                                         "against_gradient_ratio_max"},
                   &step->gradient_ratio);
    }
    gauge_print(step->gauge, &row);
}

static gradweir_status run_all(struct step *step, struct host_options *other)
{
    const struct gauge *gauge = step->gauge;
    if (gauge->host.shards != 1)
        return fail(GRADWEIR_ERR_INVALID, "shards is %u: a step is measured on one, of --size",
                    gauge->host.shards);
    step->floor = floor_open(gauge->bytes, is_adam(gauge) ? FLOOR_ADAM : FLOOR_SGD);
    if (!step->floor)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the floor's slots");
    /* Arrays twice as long as a gradient: in all, about what a step of Adam touches. */
    TRY(triads_open(gauge->threads, 2 * gauge->elements / gauge->threads, &step->triads));
    TRY(open_run(gauge, &gauge->host, &step->run));
    if (step->against)
        TRY(open_run(gauge, other, &step->other));
    for (uint32_t i = 0; i < gauge->rounds; i++) {
        gauge_progress(gauge, i);
        TRY(measure(step, i % 2 == 1));
    }
    report(step);
    return GRADWEIR_OK;
}

int gauge_step(const struct gauge *gauge)
{
    static struct step step;
    struct host_options other = {.settings = NULL};
    struct settings *settings = NULL;
    step.gauge = gauge;
    step.against = settings_text(gauge->settings, "against")[0] != '\0';
    gradweir_status status = GRADWEIR_OK;
    if (step.against) {
        status = gauge_settings_like(gauge, &settings);
        if (status == GRADWEIR_OK)
            status = read_against(gauge, settings, &other);
    }
    const bool wrong = status != GRADWEIR_OK;
    if (status == GRADWEIR_OK)
        status = run_all(&step, &other);
    if (status != GRADWEIR_OK)
        fprintf(stderr, "gradweir-bench: %s\n", fail_reason());
    close_run(&step.run);
    close_run(&step.other);
    floor_close(step.floor);
    triads_close(step.triads);
    host_options_free(&other);
    settings_free(settings);
    return status == GRADWEIR_OK ? 0 : wrong || status == GRADWEIR_ERR_INVALID ? 2 : 1;
}
