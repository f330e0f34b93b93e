/* What a seed's job looks like: sizes, law, optimizer, patience, how hostile its first half is. */
#include "tests/sim/sim_calls.h"

#include <stdio.h>
#include <string.h>

static uint32_t pick(struct sim *sim, uint32_t low, uint32_t high)
{
    return low + (uint32_t)random_below(&sim->random, high - low + 1);
}

static void add_tensor(struct sim *sim, uint32_t number, enum model_kind kind, uint64_t elements)
{
    struct model_tensor tensor = {.kind = kind, .dimensions = 1, .shape = {elements}};
    snprintf(tensor.name, sizeof tensor.name, "%s.%u", kind == MODEL_MOMENTS ? "m" : "p", number);
    if (kind == MODEL_PARAMETER && sim->model->groups_count > 1)
        tensor.group = pick(sim, 0, sim->model->groups_count - 1);
    const bool flat = kind != MODEL_PARAMETER || !(sim->ranks || chance(&sim->random, 0.7));
    for (uint64_t columns = 7; !flat && columns > 1; columns--)
        if (tensor.dimensions == 1 && elements % columns == 0) {
            tensor.dimensions = 2;
            tensor.shape[0] = elements / columns;
            tensor.shape[1] = columns;
        }
    if (model_add(sim->model, &tensor) != GRADWEIR_OK)
        sim_fail(sim, "the model: %s", fail_reason());
}

static void choose_model(struct sim *sim)
{
    uint32_t group;
    const struct model_group other = {.learning_rate_scale = 0.5,
                                      .weight_decay = 0.01,
                                      .beta1 = chance(&sim->random, 0.5) ? 0.8 : MODEL_AS_SET,
                                      .beta2 = MODEL_AS_SET,
                                      .frozen = chance(&sim->random, 0.2)};
    if (model_new(8, &sim->model) != GRADWEIR_OK)
        sim_fail(sim, "no memory for a model");
    if (chance(&sim->random, 0.4) && model_group_add(sim->model, &other, &group) != GRADWEIR_OK)
        sim_fail(sim, "the model: %s", fail_reason());
    const uint32_t tensors = pick(sim, 1, 5);
    const uint32_t most = chance(&sim->random, 0.7) ? 240 : 600;
    for (uint32_t i = 0; i < tensors; i++)
        add_tensor(sim, i, MODEL_PARAMETER, pick(sim, 60, most));
    if (chance(&sim->random, 0.5))
        add_tensor(sim, 9, MODEL_MOMENTS, pick(sim, 1, SIM_MOMENTS));
    sim->layout_bytes = model_seal(sim->model) == GRADWEIR_OK ? model_encoded_bytes(sim->model) : 0;
    ASSERT(sim->layout_bytes > 0 && sim->layout_bytes <= sizeof sim->layout);
    if (model_encode(sim->model, sim->layout, sizeof sim->layout) != GRADWEIR_OK)
        sim_fail(sim, "the model: %s", fail_reason());
    sim->body_bytes =
        sim->model->elements * sizeof(float) + sim->model->moments * sizeof(struct moments);
}

static void choose_law(struct sim *sim, struct law_settings *law)
{
    static const enum arithmetic_algorithm algorithms[] = {
        ARITHMETIC_SGD,  ARITHMETIC_MOMENTUM, ARITHMETIC_NESTEROV, ARITHMETIC_RMSPROP,
        ARITHMETIC_ADAM, ARITHMETIC_AMSGRAD,  ARITHMETIC_ADAMW,    ARITHMETIC_LAMB};
    *law = law_classic();
    law->window = pick(sim, 1, chance(&sim->random, 0.3) ? 12 : 4);
    law->stride = chance(&sim->random, 0.6) ? law->window : pick(sim, 1, law->window + 1);
    law->staleness_max = chance(&sim->random, 0.5) ? -1 : (int64_t)pick(sim, 1, 6);
    law->decay = (enum law_decay)pick(sim, 0, 2);
    law->decay_beta = 0.7;
    law->decay_power = 0.5;
    law->samples_exponent = chance(&sim->random, 0.5) ? 1 : 0.5;
    law->staleness_at = chance(&sim->random, 0.7) ? LAW_AT_STEP : LAW_AT_ARRIVAL;
    law->recheck = law->staleness_at == LAW_AT_STEP && chance(&sim->random, 0.2);
    law->normalise = chance(&sim->random, 0.8) ? LAW_MEAN : LAW_COUNT;
    law->clip = chance(&sim->random, 0.3) ? 5 : 0;
    law->clip_average = chance(&sim->random, 0.35) ? 2 : 0;
    law->damp = chance(&sim->random, 0.2) ? LAW_DAMP_MEAN_WEIGHT : LAW_DAMP_OFF;
    law->flush_min = chance(&sim->random, 0.8) ? 1 : 2;
    law->algorithm = algorithms[pick(sim, 0, 7)];
    if (law->algorithm == ARITHMETIC_LAMB)
        law->clip_average = 0; /* a step has one round */
    law->learning_rate = 0.003;
    law->warmup_steps = chance(&sim->random, 0.2) ? 5 : 0;
    law->beta1 = 0.9;
    law->beta2 = 0.99;
}

/* Windows that slide, and how they are averaged; by chance of their own. */
static void choose_window_algorithm(struct sim *sim, struct law_settings *law)
{
    struct random own;
    random_split(&own, sim->seed, "window_algorithm", 0);
    if (chance(&own, 0.35)) {
        law->window = 3 + (uint32_t)random_below(&own, 10);
        law->stride = 1 + (uint32_t)random_below(&own, (law->window + 1) / 3);
    }
    law->window_algorithm = (enum law_algorithm)random_below(&own, 3);
    if (law->window_algorithm == LAW_STACKS && !law_stacks_separable(law))
        law->window_algorithm = LAW_AUTO;
}

/* What a shard can make ahead: ahead.c. By chance of its own, too. */
static void choose_ahead(struct sim *sim, struct law_settings *law)
{
    struct random own;
    random_split(&own, sim->seed, "ahead", 0);
    if (!chance(&own, 0.25))
        return;
    law->window = law->stride = 1;
    law->algorithm = ARITHMETIC_SGD;
    law->normalise = LAW_MEAN;
    law->clip = law->clip_average = 0;
    law->damp = LAW_DAMP_OFF;
    law->window_algorithm = LAW_AUTO;
}

/* By the seed itself, so that the rest of a seed is the same with every codec. A rank's share may
 * cut blocks of int8. */
static void choose_codec(struct sim *sim, struct law_settings *law)
{
    static const enum arithmetic_codec codecs[] = {ARITHMETIC_F32,  ARITHMETIC_INT8,
                                                   ARITHMETIC_F32,  ARITHMETIC_BF16,
                                                   ARITHMETIC_INT8, ARITHMETIC_F16};
    law->gradient_dtype = codecs[sim->seed / 3 % 6];
    if (sim->settings.group && law->gradient_dtype == ARITHMETIC_INT8)
        law->gradient_dtype = ARITHMETIC_BF16;
    sim->counts.coded += law->gradient_dtype != ARITHMETIC_F32;
}

static void choose_times(struct sim *sim)
{
    struct sim_settings *settings = &sim->settings;
    struct order_options *order = &settings->order;
    settings->delay_ns = (int64_t)between(&sim->random, 20e3, 150e3);
    settings->think_ns = (int64_t)between(&sim->random, 100e3, 2e6);
    settings->hostile_ns = (int64_t)between(&sim->random, 15e6, 250e6);
    settings->pull_patience_ns = (int64_t)between(&sim->random, 3e6, 15e6);
    settings->resend_ns = (int64_t)between(&sim->random, 3e6, 10e6);
    settings->retry_ns = (int64_t)between(&sim->random, 0.1e6, 1e6);
    order->place_patience_ns = (int64_t)between(&sim->random, 3e6, 20e6);
    order->push_patience_ns = (int64_t)between(&sim->random, 10e6, 40e6);
    order->lease_ns = (int64_t)between(&sim->random, 2e6, 20e6);
    order->shard_patience_ns = 100 * MS;
    order->flush_after_ns =
        chance(&sim->random, 0.3) ? 0 : (int64_t)between(&sim->random, 2e6, 9e6);
    if (chance(&sim->random, 0.1))
        order->flush_after_ns = -1;
    if (order->sync && chance(&sim->random, 0.5) && !sim->settings.group) /* it would be over */
        order->round_patience_ns = (int64_t)between(&sim->random, 1e6, 20e6);
}

static void choose_workers(struct sim *sim)
{
    sim->workers_n = pick(sim, 1, 5);
    sim->settings.workers = sim->workers_n;
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        struct sim_worker *worker = &sim->workers[i];
        *worker = (struct sim_worker){.outstanding = chance(&sim->random, 0.7) ? 1 : 2};
        worker->reader = i > 0 && chance(&sim->random, 0.15);
        snprintf(worker->identity, sizeof worker->identity, "w%u", i);
    }
}

void settings_choose(struct sim *sim)
{
    struct sim_settings *settings = &sim->settings;
    struct order_options *order = &settings->order;
    choose_model(sim);
    choose_workers(sim);
    memset(settings, 0, sizeof *settings);
    settings->workers = sim->workers_n;
    group_choose(sim);
    settings->shards = pick(sim, 1, SIM_SHARDS);
    settings->trouble = chance(&sim->random, 0.15) ? 0 : random_uniform(&sim->random);
    settings->drain = chance(&sim->random, 0.3);
    settings->stale_pulls = pick(sim, 1, 3);
    settings->tile = chance(&sim->random, 0.5) ? 0 : sim->model->block;
    choose_law(sim, &order->law);
    choose_window_algorithm(sim, &order->law);
    choose_ahead(sim, &order->law);
    choose_codec(sim, &order->law);
    *order = (struct order_options){.job = 7,
                                    .seed = sim->seed,
                                    .shards = settings->shards,
                                    .workers_max = SIM_WORKERS,
                                    .queue = chance(&sim->random, 0.5) ? pick(sim, 1, 3) : 16,
                                    .overflow_reject = chance(&sim->random, 0.15),
                                    .sync = chance(&sim->random, 0.12),
                                    .outstanding_max = 2,
                                    .parameter_slots = pick(sim, 2, 5),
                                    .ring = chance(&sim->random, 0.3) ? 32 : 128,
                                    .law = order->law};
    if (sim->seed % 3 == 0 && !order->sync) { /* numbers are given again at once */
        order->workers_max = SIM_WORKERS + SIM_WORKERS / 2;
        order->numbers_max = 1;
    }
    order->window_max = order->law.window + pick(sim, 0, 2);
    if (order->sync) { /* it waits for one of each, so each needs room */
        order->window_max = order->queue = SIM_WORKERS;
        order->law.window = order->law.stride = SIM_WORKERS;
    }
    order->optimizer =
        (struct optimizer_options){.epsilon = 1e-8,
                                   .weight_decay = chance(&sim->random, 0.5) ? 0.01 : 0,
                                   .centered = chance(&sim->random, 0.5),
                                   .momentum = chance(&sim->random, 0.5),
                                   .always_adapt = chance(&sim->random, 0.5)};
    const uint64_t parts = settings->shards * pick(sim, 1, 3);
    order->chunk_bytes = (sim->body_bytes / parts / 4 + 16) * 4;
    choose_times(sim);
    sim->counts.tiny_queues += order->queue <= 3;
    sim->counts.tiny_rings += order->ring <= 32;
}

void settings_tell(struct sim *sim)
{
    const struct sim_settings *s = &sim->settings;
    const struct law_settings *law = &s->order.law;
    sim_tell(sim,
             "%u shards, %u workers, %llu elements, %llu moments, chunks of %llu bytes; W %u S %u, "
             "staleness_max %lld, decay %d, clip_average %g, optimizer %d, %s, queue %u, ring %u, "
             "parameter slots %u%s%s; trouble %.2f",
             s->shards, s->workers, (unsigned long long)sim->model->elements,
             (unsigned long long)sim->model->moments, (unsigned long long)s->order.chunk_bytes,
             law->window, law->stride, (long long)law->staleness_max, (int)law->decay,
             law->clip_average, (int)law->algorithm, codec_name(law->gradient_dtype),
             s->order.queue, s->order.ring, s->order.parameter_slots,
             s->order.overflow_reject ? ", overflow reject" : "", s->order.sync ? ", sync" : "",
             s->trouble);
}
