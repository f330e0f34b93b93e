/* The law's settings: presets, what is refused, and what they mean in plain words. */
#include "common/law.h"

#include "common/page.h"
#include "common/status.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

struct law_settings law_classic(void)
{
    return (struct law_settings){
        .window = 1,
        .stride = 1,
        .staleness_max = -1,
        .decay = LAW_UNIFORM,
        .decay_beta = 1.0,
        .samples_exponent = 1.0,
        .staleness_at = LAW_AT_STEP,
        .normalise = LAW_MEAN,
        .damp = LAW_DAMP_OFF,
        .flush_min = 1,
        .magnitude_max = LAW_MAGNITUDE_MAX,
        .algorithm = ARITHMETIC_ADAM,
        .learning_rate = 3e-4,
        .learning_rate_end = 0.0,
        .beta1 = 0.9,
        .beta2 = 0.999,
    };
}

struct law_settings law_llm(uint32_t workers)
{
    struct law_settings settings = law_classic();
    const uint32_t half = workers / 2 > LAW_WINDOW_MAX ? LAW_WINDOW_MAX : workers / 2;
    settings.window = settings.stride = half == 0 ? 1 : half;
    settings.staleness_max = 8;
    return settings;
}

/* low <= value <= high; a NaN is refused. */
static gradweir_status within(const char *name, double value, double low, double high)
{
    if (value >= low && value <= high)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_INVALID, "%s is %g; it must be between %g and %g", name, value, low,
                high);
}

static gradweir_status check_window(const struct law_settings *s)
{
    TRY(within("window", s->window, 1, LAW_WINDOW_MAX));
    TRY(within("stride", s->stride, 1, UINT32_MAX));
    TRY(within("staleness_max", (double)s->staleness_max, -1, 1e15));
    TRY(within("flush_min", s->flush_min, 1, UINT32_MAX));
    TRY(within("samples_exponent", s->samples_exponent, 0, 1));
    if (s->decay == LAW_EXP)
        TRY(within("decay_beta", s->decay_beta, DBL_MIN, 1));
    if (s->decay == LAW_POLY)
        TRY(within("decay_power", s->decay_power, 0, 16));
    if (s->recheck && s->staleness_at == LAW_AT_ARRIVAL)
        return fail(
            GRADWEIR_ERR_INVALID,
            "recheck with staleness_at = arrival: an age that never changes needs no recheck");
    return GRADWEIR_OK;
}

gradweir_status law_settings_check(const struct law_settings *s)
{
    TRY(check_window(s));
    TRY(within("decay", s->decay, LAW_UNIFORM, LAW_POLY));
    TRY(within("staleness_at", s->staleness_at, LAW_AT_STEP, LAW_AT_ARRIVAL));
    TRY(within("normalise", s->normalise, LAW_MEAN, LAW_COUNT));
    TRY(within("window_algorithm", s->window_algorithm, LAW_AUTO, LAW_STACKS));
    if (s->window_algorithm == LAW_STACKS && !law_stacks_separable(s))
        return fail(GRADWEIR_ERR_INVALID,
                    "window_algorithm = stacks keeps sums of weighted gradients, so weights may "
                    "only change by a common factor: not with recheck, nor with decay = poly "
                    "unless staleness_at = arrival");
    TRY(within("damp", s->damp, LAW_DAMP_OFF, LAW_DAMP_MEAN_WEIGHT));
    TRY(within("algorithm", s->algorithm, ARITHMETIC_SGD, ARITHMETIC_LAMB));
    TRY(within("schedule", s->schedule, LAW_CONSTANT, LAW_COSINE));
    TRY(within("gradient_dtype", s->gradient_dtype, ARITHMETIC_F32, ARITHMETIC_INT8));
    TRY(within("clip", s->clip, 0, DBL_MAX));
    TRY(within("clip_average", s->clip_average, 0, DBL_MAX));
    TRY(within("magnitude_max", s->magnitude_max, FLT_MIN, (double)(FLT_MAX / 4)));
    TRY(within("learning_rate", s->learning_rate, 0, 1e6));
    TRY(within("learning_rate_end", s->learning_rate_end, 0, 1e6));
    TRY(within("beta1", s->beta1, 0, 1.0 - DBL_EPSILON));
    TRY(within("beta2", s->beta2, 0, 1.0 - DBL_EPSILON));
    if (s->clip_average > 0.0 && s->algorithm == ARITHMETIC_LAMB)
        return fail(
            GRADWEIR_ERR_INVALID,
            "clip_average with LAMB: a step has one round of sums, and LAMB's norms take it");
    if (s->schedule != LAW_CONSTANT && s->schedule_steps == 0)
        return fail(GRADWEIR_ERR_INVALID, "schedule_steps is 0; a schedule needs a length");
    return GRADWEIR_OK;
}

static const char *algorithm_name(enum arithmetic_algorithm algorithm)
{
    static const char *const names[] = {"SGD",  "momentum", "Nesterov", "RMSProp",
                                        "Adam", "AMSGrad",  "AdamW",    "LAMB"};
    return names[algorithm];
}

/* Optimizers that divide by the root of their own second moment: a constant factor on all gradients
 * is lost. */
static bool cancels_scale(enum arithmetic_algorithm algorithm)
{
    return algorithm >= ARITHMETIC_RMSPROP;
}

static void explain_window(const struct law_settings *s, uint32_t workers, struct page *page)
{
    page_put(page,
             "Each step averages the last %" PRIu32
             " admitted gradients; a step is due after every %" PRIu32 ".\n",
             s->window, s->stride);
    if (s->stride > s->window)
        page_put(page,
                 "WARNING: stride %" PRIu32 " exceeds window %" PRIu32 ": %" PRIu32
                 " of every %" PRIu32 " admitted gradients are never used, and count as UNUSED.\n",
                 s->stride, s->window, s->stride - s->window, s->stride);
    if (s->stride < s->window)
        page_put(
            page,
            "Windows overlap, which is momentum in disguise: every gradient enters up to %" PRIu32
            " steps, with %.3g of a step's weight in all, and on average %.3g versions later than "
            "without "
            "overlap.\n",
            (s->window + s->stride - 1) / s->stride, 1.0 / (double)s->stride,
            ((double)s->window / (double)s->stride - 1.0) / 2.0);
    if (workers > 0 && s->stride > workers)
        page_put(
            page,
            "WARNING: stride %" PRIu32 " exceeds the %" PRIu32
            " workers: unless each keeps several gradients in flight, the stride is lowered.\n",
            s->stride, workers);
    if (s->staleness_max < 0)
        page_put(page,
                 "No gradient is too stale. With %" PRIu32
                 " equal workers, as many as may take part (workers_max), about %.3g versions pass "
                 "between basis and use; with fewer, fewer.\n",
                 workers, workers == 0 ? 0.0 : (double)(workers - 1) / (double)s->stride);
    else
        page_put(page,
                 "Gradients older than %" PRId64
                 " versions are refused; a worker k times slower than the others "
                 "has staleness near %.3g k.\n",
                 s->staleness_max, workers == 0 ? 0.0 : (double)(workers - 1) / (double)s->stride);
}

static void explain_weights(const struct law_settings *s, struct page *page)
{
    const bool weighted = s->decay != LAW_UNIFORM;
    if (s->normalise == LAW_MEAN && s->window == 1)
        page_put(page, "A normalised mean of one gradient is that gradient: %s no effect.\n",
                 weighted ? "neither staleness nor sample weights have any"
                          : "sample weights have");
    else if (s->normalise == LAW_MEAN && weighted)
        page_put(page,
                 "Weights are normalised: where all gradients of a window are equally stale, the "
                 "staleness "
                 "weight cancels.\n");
    if (s->normalise == LAW_COUNT)
        page_put(page,
                 "Weights are not normalised (sum over count): the size of an average grows with "
                 "samples^%.3g%s.\n",
                 s->samples_exponent, weighted ? " and shrinks with staleness" : "");
    if (s->normalise == LAW_COUNT && cancels_scale(s->algorithm))
        page_put(
            page,
            "%s cancels constant factors of the gradient, so what all weights have in common is "
            "lost.\n",
            algorithm_name(s->algorithm));
    if (weighted && s->damp == LAW_DAMP_OFF && cancels_scale(s->algorithm))
        page_put(page,
                 "%s cancels constant factors, so staleness never makes steps smaller; damp = "
                 "mean_weight would, "
                 "through the learning rate.\n",
                 algorithm_name(s->algorithm));
    if (s->damp == LAW_DAMP_MEAN_WEIGHT)
        page_put(page,
                 "The learning rate is multiplied by the mean staleness weight of each step's "
                 "window%s.\n",
                 weighted ? "" : ", which is 1 here, because decay is uniform");
    if (s->damp == LAW_DAMP_MEAN_WEIGHT && weighted && s->normalise == LAW_COUNT &&
        !cancels_scale(s->algorithm))
        page_put(
            page,
            "WARNING: normalise = count and damp = mean_weight both shrink stale steps: twice.\n");
}

static void explain_rate(const struct law_settings *s, struct page *page)
{
    const bool adaptive = cancels_scale(s->algorithm);
    const double buffered =
        s->algorithm == ARITHMETIC_MOMENTUM || s->algorithm == ARITHMETIC_NESTEROV
            ? 1.0 / (1.0 - s->beta1)
            : 1.0;
    page_put(page, "%s steps with learning rate %g", algorithm_name(s->algorithm),
             s->learning_rate);
    if (buffered > 1.0)
        page_put(page, "; momentum %g makes the effective one %g", s->beta1,
                 s->learning_rate * buffered);
    if (s->schedule != LAW_CONSTANT)
        page_put(page, ", going to %g over %" PRIu64 " steps", s->learning_rate_end,
                 s->schedule_steps);
    if (s->warmup_steps > 0)
        page_put(page, ", after a warm-up of %" PRIu64 " steps", s->warmup_steps);
    page_put(
        page,
        ".\nPer admitted gradient the effective learning rate is %g (learning rate over stride).\n",
        s->learning_rate * buffered / (double)s->stride);
    if (adaptive && s->stride > 1)
        page_put(page,
                 "Against stride 1, averaging %" PRIu32
                 " gradients scales %s's learning rate by sqrt(%" PRIu32
                 ") = %.3g where noise dominates.\n",
                 s->stride, algorithm_name(s->algorithm), s->stride, sqrt((double)s->stride));
    if (s->clip > 0.0)
        page_put(page, "Each gradient is clipped to norm %g before it is averaged.\n", s->clip);
    if (s->clip_average > 0.0)
        page_put(page, "The average is clipped to norm %g, which costs one round trip per step.\n",
                 s->clip_average);
    if (s->algorithm == ARITHMETIC_LAMB)
        page_put(page, "LAMB's norms cost one round trip per step.\n");
}

size_t law_explain(const struct law_settings *settings, uint32_t workers, char *text, size_t size)
{
    struct page page = {.text = text, .size = size};
    if (size == 0)
        return 0;
    text[0] = '\0';
    explain_window(settings, workers, &page);
    explain_weights(settings, &page);
    explain_rate(settings, &page);
    return page.used;
}
