/* Reads the settings table into options: presets first, then what was given. */
#include "server/host_settings.h"

#include "common/checksum.h"
#include "common/device.h"
#include "common/random.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a preset decides is left alone unless somebody gave it. */
static void read_window(const struct settings *settings, struct law_settings *law)
{
    if (settings_given(settings, "window"))
        law->window = (uint32_t)settings_int(settings, "window");
    if (settings_given(settings, "stride"))
        law->stride = (uint32_t)settings_int(settings, "stride");
    if (settings_given(settings, "staleness_max"))
        law->staleness_max = settings_int(settings, "staleness_max");
    law->decay = (enum law_decay)settings_choice(settings, "decay");
    law->decay_beta = settings_float(settings, "decay_beta");
    law->decay_power = settings_float(settings, "decay_exponent");
    law->samples_exponent = settings_float(settings, "samples_exponent");
    law->staleness_at = (enum law_at)settings_choice(settings, "staleness_at");
    law->recheck = settings_bool(settings, "recheck");
    law->normalise = (enum law_normalise)settings_choice(settings, "normalise");
    law->clip = settings_float(settings, "clip");
    law->clip_average = settings_float(settings, "clip_average");
    law->damp = (enum law_damp)settings_choice(settings, "damp");
    law->window_algorithm = (enum law_algorithm)settings_choice(settings, "window_algorithm");
    law->flush_min = (uint32_t)settings_int(settings, "flush_min");
    law->magnitude_max = settings_float(settings, "magnitude_max");
}

static void read_optimizer(const struct settings *settings, struct law_settings *law,
                           struct optimizer_options *optimizer)
{
    law->algorithm = (enum arithmetic_algorithm)settings_choice(settings, "optimizer");
    if (law->algorithm == ARITHMETIC_MOMENTUM && settings_bool(settings, "nesterov"))
        law->algorithm = ARITHMETIC_NESTEROV;
    law->learning_rate = settings_float(settings, "learning_rate");
    law->learning_rate_end = settings_float(settings, "learning_rate_end");
    law->schedule = (enum law_schedule)settings_choice(settings, "schedule");
    law->schedule_steps = (uint64_t)settings_int(settings, "schedule_steps");
    law->warmup_steps = (uint64_t)settings_int(settings, "warmup_steps");
    law->beta1 = settings_float(settings, "beta1");
    law->beta2 = settings_float(settings, "beta2");
    *optimizer = (struct optimizer_options){
        .epsilon = settings_float(settings, "eps"),
        .dampening = settings_float(settings, "dampening"),
        .weight_decay = settings_float(settings, "weight_decay"),
        .centered = settings_bool(settings, "centered"),
        .always_adapt = settings_bool(settings, "always_adapt"),
    };
    if (law->algorithm == ARITHMETIC_MOMENTUM || law->algorithm == ARITHMETIC_NESTEROV)
        law->beta1 = settings_float(settings, "momentum");
    if (law->algorithm == ARITHMETIC_RMSPROP) {
        law->beta1 =
            settings_given(settings, "momentum") ? settings_float(settings, "momentum") : 0;
        law->beta2 = settings_float(settings, "alpha");
        optimizer->momentum = law->beta1 > 0;
    }
}

/* Over TCP so much comes along with its head, and is landed from where the network put it
 * (transport_portion); elsewhere it would be more work. */
static uint64_t chunk_bytes(const struct settings *settings)
{
    const int64_t bytes = settings_size(settings, "chunk_bytes");
    if (bytes != SETTING_WORD)
        return (uint64_t)bytes;
    return strcmp(settings_text(settings, "transport"), "tcp") == 0 ? 256 << 10 : 1 << 20;
}

static gradweir_status read_order(const struct settings *settings, struct order_options *order)
{
    order->workers_max = (uint32_t)settings_int(settings, "workers_max");
    order->law =
        settings_choice(settings, "preset") == 0 ? law_classic() : law_llm(order->workers_max);
    read_window(settings, &order->law);
    read_optimizer(settings, &order->law, &order->optimizer);
    order->law.gradient_dtype = (enum arithmetic_codec)settings_choice(settings, "gradient_dtype");
    TRY(law_settings_check(&order->law));
    const int64_t window_max = settings_int(settings, "window_max");
    order->window_max = window_max == SETTING_WORD ? order->law.window : (uint32_t)window_max;
    order->queue = (uint32_t)settings_int(settings, "queue");
    order->sync = settings_choice(settings, "mode") == 1;
    if (order->sync && window_max == SETTING_WORD) /* a round holds one gradient of every worker */
        order->window_max = order->workers_max;
    if (order->sync && !settings_given(settings, "queue") && order->queue < order->workers_max)
        order->queue = order->workers_max;
    if (order->window_max < order->law.window)
        return fail(GRADWEIR_ERR_INVALID,
                    "window_max is %u: it must be at least window, which is %u", order->window_max,
                    order->law.window);
    if (order->window_max + order->queue > SLOTS_MAX)
        return fail(GRADWEIR_ERR_INVALID,
                    "window_max + queue is %u: at most %d slots are supported",
                    order->window_max + order->queue, SLOTS_MAX);
    order->overflow_reject = settings_choice(settings, "overflow") == 1;
    order->outstanding_max = OUTSTANDING_MAX;
    order->parameter_slots = (uint32_t)settings_int(settings, "parameter_slots");
    order->chunk_bytes = chunk_bytes(settings);
    if (order->chunk_bytes % 4)
        return fail(GRADWEIR_ERR_INVALID, "chunk_bytes is %llu: a multiple of 4 is wanted",
                    (unsigned long long)order->chunk_bytes);
    const int64_t flush_after = settings_duration(settings, "flush_after");
    order->flush_after_ns = flush_after == SETTING_WORD ? 0 : flush_after;
    order->place_patience_ns = settings_duration(settings, "place_patience");
    order->push_patience_ns = settings_duration(settings, "push_patience");
    order->round_patience_ns = settings_duration(settings, "round_patience");
    order->lease_ns = settings_duration(settings, "lease");
    order->shard_patience_ns = settings_duration(settings, "lease");
    const int64_t bytes_max = settings_size(settings, "queue_bytes_max");
    order->queue_bytes_max = bytes_max == SETTING_WORD ? 0 : (uint64_t)bytes_max;
    order->ring = RING_MAX;
    TRY(random_entropy(order->instance, sizeof order->instance));
    return random_entropy(&order->seed, sizeof order->seed);
}

static void read_transport(const struct settings *settings, struct transport_settings *transport)
{
    *transport = transport_defaults();
    transport->lanes = settings_text(settings, "transport");
    transport->devices = settings_text(settings, "net_devices");
    transport->peers_max = (uint32_t)settings_int(settings, "workers_max") * 2;
    transport->in_flight_max = (uint32_t)settings_int(settings, "in_flight");
}

/* The coordinator lets in whom it knows; a shard alone goes to the coordinator. */
static gradweir_status read_keys(struct host_options *options)
{
    const char *path = settings_text(options->settings, "keys");
    const char *given = settings_text(options->settings, "identity");
    char name[IDENTITY_MAX];
    if (!path[0] && given[0])
        return fail(GRADWEIR_ERR_INVALID, "identity is given but keys is not: say where they are");
    if (!path[0])
        return GRADWEIR_OK;
    if (options->control.insecure)
        return fail(GRADWEIR_ERR_INVALID, "keys and insecure are both given: it is one or none");
    if (strlen(given) >= sizeof name)
        return fail(GRADWEIR_ERR_INVALID, "identity has at most %zu bytes", sizeof name - 1);
    if (given[0] || !options->coordinator[0])
        snprintf(name, sizeof name, "%s", given[0] ? given : KEYS_SERVER);
    else if (options->only_shard != SETTING_WORD)
        snprintf(name, sizeof name, "shard-%lld", (long long)options->only_shard);
    else
        return fail(GRADWEIR_ERR_INVALID, "with keys, a process of shards hosts one: say --shard");
    TRY(keys_read(path, name, &options->keys));
    if (options->coordinator[0])
        return keys_connect(options->keys, &options->control);
    keys_listen(options->keys, &options->control);
    return GRADWEIR_OK;
}

static void read_control(const struct settings *settings, struct control_options *control)
{
    *control = control_defaults();
    control->peers_max = (uint32_t)settings_int(settings, "workers_max") * 2 + MEMBERS_MAX;
    control->heartbeat_ms = (uint32_t)(settings_duration(settings, "heartbeat") / 1000000);
    control->heartbeat_dead_ms = 3 * control->heartbeat_ms;
    control->insecure = settings_bool(settings, "insecure");
}

/* "0", "7100" or "7100-7131". */
static gradweir_status read_ports(struct host_options *options)
{
    const char *text = settings_text(options->settings, "data_ports");
    char *end;
    const unsigned long first = strtoul(text, &end, 10);
    const bool range = end != text && *end == '-';
    const char *second = range ? end + 1 : text;
    const unsigned long last = strtoul(second, &end, 10);
    if (!isdigit((unsigned char)text[0]) || !isdigit((unsigned char)second[0]) || *end ||
        last > 65535 || first > last || (range && first == 0))
        return fail(GRADWEIR_ERR_INVALID,
                    "data_ports is \"%.40s\": a port or a range a-b is wanted, 1 to 65535, or 0",
                    text);
    options->data_first = (uint32_t)first;
    options->data_last = (uint32_t)last;
    return GRADWEIR_OK;
}

/* The data plane listens where `listen` says, on other ports. */
static gradweir_status read_places(struct host_options *options)
{
    const char *listen = settings_text(options->settings, "listen");
    const char *port = strrchr(listen, ':');
    const char *advertise = options->advertise = settings_text(options->settings, "advertise");
    if (!port || (size_t)(port - listen) >= sizeof options->data_host - 8)
        return fail(GRADWEIR_ERR_INVALID, "listen is \"%.80s\": ip:port is wanted", listen);
    snprintf(options->data_host, sizeof options->data_host, "%.*s", (int)(port - listen), listen);
    if (strcmp(options->data_host, "*") == 0)
        strcpy(options->data_host, "0.0.0.0");
    const size_t length = strlen(advertise);
    const bool bracketed = length > 2 && advertise[0] == '[' && advertise[length - 1] == ']';
    if (length > ADDRESS_MAX - 8 || strpbrk(advertise, " \t/\"") ||
        (strchr(advertise, ':') && !bracketed))
        return fail(GRADWEIR_ERR_INVALID,
                    "advertise is \"%.80s\": a host without a port is wanted, at most %d bytes, "
                    "IPv6 in brackets",
                    advertise, ADDRESS_MAX - 8);
    const bool everywhere =
        strcmp(options->data_host, "0.0.0.0") == 0 || strcmp(options->data_host, "[::]") == 0;
    if (everywhere && options->coordinator[0] && !advertise[0])
        return fail(GRADWEIR_ERR_INVALID,
                    "listen is %s, which is no address to give to workers: say --advertise HOST",
                    listen);
    return read_ports(options);
}

/* What was asked for and cannot be had is refused, not forgotten. */
static gradweir_status check_optimizer(const struct settings *settings)
{
    static const struct {
        const char *name, *optimizer;
    } belongs[] = {{"nesterov", "momentum"}, {"centered", "rmsprop"}, {"always_adapt", "lamb"}};
    const char *optimizer = settings_text(settings, "optimizer");
    for (size_t i = 0; i < sizeof belongs / sizeof *belongs; i++)
        if (settings_bool(settings, belongs[i].name) &&
            strcmp(optimizer, belongs[i].optimizer) != 0 && strcmp(optimizer, belongs[i].name) != 0)
            return fail(GRADWEIR_ERR_INVALID,
                        "%s is on, but optimizer is %s: it belongs to optimizer = %s",
                        belongs[i].name, optimizer, belongs[i].optimizer);
    return GRADWEIR_OK;
}

static gradweir_status check_device(const struct settings *settings)
{
    const char *device = settings_text(settings, "device");
    if (strcmp(device, "cpu") == 0 && settings_given(settings, "gpu"))
        return fail(GRADWEIR_ERR_INVALID, "gpu is given, but device is cpu: say --device cuda");
    if (strcmp(device, "cpu") == 0 && settings_given(settings, "device_memory"))
        return fail(GRADWEIR_ERR_INVALID,
                    "device_memory is given, but device is cpu: say --device cuda");
    if (device_find(device) == NULL)
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "device is %s, but this program was built without it (-DGRADWEIR_CUDA=ON needs "
                    "the CUDA toolkit)",
                    device);
    return GRADWEIR_OK;
}

static gradweir_status check_together(const struct settings *settings)
{
    const int64_t lease = settings_duration(settings, "lease");
    const int64_t heartbeat = settings_duration(settings, "heartbeat");
    if (heartbeat > lease)
        return fail(GRADWEIR_ERR_INVALID,
                    "heartbeat is %g s, but lease only %g s: silence must be noticed before a "
                    "lease is over, so heartbeat is at most lease",
                    (double)heartbeat / 1e9, (double)lease / 1e9);
    if (settings_bool(settings, "shards_elsewhere") && settings_text(settings, "coordinator")[0])
        return fail(GRADWEIR_ERR_INVALID,
                    "shards_elsewhere and coordinator are both given, so nothing would run here: "
                    "the first is the coordinator's, the second its shards'");
    TRY(check_device(settings));
    return check_optimizer(settings);
}

gradweir_status host_options_read(const struct settings *settings, struct host_options *options)
{
    *options = (struct host_options){.settings = settings};
    const char *job = settings_text(settings, "job");
    options->job = checksum_hash64(0, job, strlen(job));
    options->shards = (uint32_t)settings_int(settings, "shards");
    options->only_shard = settings_int(settings, "shard");
    options->coordinator = settings_text(settings, "coordinator");
    if (options->only_shard != SETTING_WORD && options->only_shard >= options->shards)
        return fail(GRADWEIR_ERR_INVALID, "shard is %lld: with shards = %u it must be 0 to %u",
                    (long long)options->only_shard, options->shards, options->shards - 1);
    if (options->only_shard != SETTING_WORD && options->coordinator[0] == 0)
        return fail(GRADWEIR_ERR_INVALID,
                    "shard is given but coordinator is not: say where the coordinator listens");
    options->simd = settings_choice(settings, "simd") == 0 ? NULL : settings_text(settings, "simd");
    options->device = settings_text(settings, "device");
    options->gpu = (uint32_t)settings_int(settings, "gpu");
    options->device_memory = (enum host_device_memory)settings_choice(settings, "device_memory");
    options->record = settings_text(settings, "record");
    options->step_ahead = settings_bool(settings, "step_ahead");
    options->arena_dir = settings_text(settings, "arena_dir");
    options->record_bytes_max = (uint64_t)settings_size(settings, "record_bytes_max");
    options->linger_ns = settings_duration(settings, "linger");
    TRY(check_together(settings));
    read_control(settings, &options->control);
    TRY(read_keys(options));
    TRY(read_places(options));
    TRY(read_order(settings, &options->order));
    options->order.job = options->job;
    options->order.shards = options->shards;
    read_transport(settings, &options->transport);
    const int64_t spin_ns = settings_duration(settings, "spin");
    options->look_ns = spin_ns == SETTING_WORD ? UINT64_MAX : (uint64_t)spin_ns;
    options->shard = (struct shard_options){
        .optimizer = options->order.optimizer,
        .sessions_max = options->transport.peers_max,
        .pulls_max = options->transport.peers_max,
        .chunk_bytes = options->order.chunk_bytes,
        .pull_patience_ns = settings_duration(settings, "pull_patience"),
        .keep = options->record[0] != 0,
        .warm = options->arena_dir[0] != 0,
        .digest = settings_choice(settings, "arena_verify") == 1,
    };
    return GRADWEIR_OK;
}

void host_options_free(struct host_options *options)
{
    keys_free(options->keys);
    options->keys = NULL;
}
